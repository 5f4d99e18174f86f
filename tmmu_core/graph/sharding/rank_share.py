"""The share of a graph that one rank runs: tensors are cut by their splits, views stay inside their bases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.dtypes import itemsize, tensor_bytes
from tmmu_core.graph.model import Graph, Tensor, View
from tmmu_core.graph.sharding.shard_spec import ShardSpec, Split, refused, rows_of


@dataclass(frozen=True, eq=False)
class Sharding:
    """A graph's tensors with their splits, for all ranks."""

    graph: Graph
    spec: ShardSpec
    shapes: tuple[tuple[int, ...], ...]  # global shapes, named dimensions resolved
    splits: tuple[Split | None, ...]  # split of each tensor; ``None`` for a view that follows its base, on each rank

    @cached_property
    def remainders(self) -> dict[str, tuple[int, ...]]:
        """Mesh axis → the remainders of the splits over it, ascending: the coordinates at which shares change."""
        found: dict[str, set[int]] = {name: set() for name, _ in self.spec.mesh}
        for i, split in enumerate(self.splits):
            if split is None:
                # The view may follow an uneven split along another axis on each rank.
                root = self.root[i]
                of_root = self.splits[root] or ()
                uneven = [mesh for axis, mesh in of_root if self.shapes[root][axis] % self.spec.sizes[mesh]]
                split = tuple((axis, mesh) for mesh in uneven for axis in range(len(self.shapes[i])))
            for axis, mesh in split:
                found[mesh].add(self.shapes[i][axis] % self.spec.sizes[mesh])
        return {name: tuple(sorted(values - {0})) for name, values in found.items()}

    @cached_property
    def known(self) -> dict[str, int]:
        """Tensor id → number."""
        return {tensor.id: i for i, tensor in enumerate(self.graph.tensors)}

    @cached_property
    def bases_first(self) -> tuple[int, ...]:
        """Numbers of the views, each after its base."""
        order: dict[int, None] = {}
        for i, tensor in enumerate(self.graph.tensors):
            chain: dict[int, None] = {}
            at, view = i, tensor.view
            while view is not None and at not in order and at not in chain:  # the check of views rejects cycles
                chain[at] = None
                at = self.known[view.base_tensor_uid]
                view = self.graph.tensors[at].view
            order.update(dict.fromkeys(reversed(chain)))
        return tuple(order)

    @cached_property
    def root(self) -> dict[int, int]:
        """View → the nearest tensor in its chain of bases whose split does not follow from another tensor."""
        found: dict[int, int] = {}
        for i in self.bases_first:
            base = self.base(i)
            found[i] = found.get(base, base) if self.splits[base] is None else base
        return found

    def base(self, i: int) -> int:
        """Return the base of view ``i``."""
        view = self.graph.tensors[i].view
        assert view is not None
        return self.known[view.base_tensor_uid]

    def class_of(self, rank: int) -> tuple[int, ...]:
        """Return, by mesh axis, how many remainders a rank's coordinate reaches; equal results mean equal graphs."""
        place = self.spec.place(rank)
        return tuple(sum(place[name] >= remainder for remainder in self.remainders[name]) for name, _ in self.spec.mesh)


def local_graph_of(sharding: Sharding, rank: int) -> Graph:
    """Return the graph that ``rank`` runs: the same nodes, with the rank's shares of the tensors."""
    graph, spec = sharding.graph, sharding.spec
    place = spec.place(rank)
    splits = [split or () for split in sharding.splits]
    cut = zip(graph.tensors, sharding.shapes, splits, strict=True)
    local = [cut_to_share(tensor, shape, split, spec, place) for tensor, shape, split in cut]
    for i in sharding.bases_first:
        base = sharding.base(i)
        local[i], splits[i] = view_on(sharding, i, local[base], splits[base], place)
    return msgspec.structs.replace(graph, tensors=tuple(local))


def cut_to_share(
    tensor: Tensor, shape: tuple[int, ...], split: Split, spec: ShardSpec, place: Mapping[str, int]
) -> Tensor:
    """Return the share of a tensor at coordinates ``place`` of the mesh."""
    if not split:
        return tensor
    cut: list[int | str] = list(tensor.shape)
    for axis, mesh in split:
        cut[axis] = rows_of(shape[axis], spec.sizes[mesh], place[mesh])
    return msgspec.structs.replace(tensor, shape=tuple(cut))


def view_on(
    sharding: Sharding, i: int, base_local: Tensor, base_split: Split, place: Mapping[str, int]
) -> tuple[Tensor, Split]:
    """Return the share of view ``i`` at coordinates ``place``, inside the share of its base, and its split.

    The share has the same fraction of the view's bytes and offset as the base's share of the base. Without an explicit
    split, the first axis that gives this size is split. Raises ``InvalidIrShapes`` (``shard_view``) if none does.
    """
    tensor, shape, base = sharding.graph.tensors[i], sharding.shapes[i], sharding.base(i)
    view = tensor.view
    assert view is not None
    if not base_split and not sharding.splits[i]:
        return tensor, ()
    whole = tensor_bytes(sharding.shapes[base], base_local.dtype)
    share = tensor_bytes(_resolved(base_local, sharding.shapes[base]), base_local.dtype)
    length = tensor_bytes(shape, tensor.dtype) if view.byte_length is None else view.byte_length
    offset, wanted = view.byte_offset * share, length * share
    if not whole or offset % whole or wanted % whole:
        raise _misfit(tensor, "its bytes do not divide into equal shares")
    slowest = next((axis for axis, rows in enumerate(sharding.shapes[base]) if rows > 1), 0)
    if length != whole and any(axis <= slowest for axis, _ in base_split):  # only some ranks hold the part
        raise _misfit(tensor, "it has only some of the rows that are split, so only some ranks have it")
    offset, wanted = offset // whole, wanted // whole
    strides = view.stride_desc if view.stride_desc is not None and 0 in view.stride_desc else None
    explicit = sharding.splits[i]
    candidates = [explicit or ()]
    if explicit is None:
        candidates = [base_split] if all(axis < len(shape) for axis, _ in base_split) else []
        if len(base_split) == 1:
            candidates += [((axis, base_split[0][1]),) for axis in range(len(shape)) if axis != base_split[0][0]]
    for split in candidates:
        if any(shape[axis] < sharding.spec.sizes[mesh] for axis, mesh in split):
            continue
        cut = cut_to_share(tensor, shape, split, sharding.spec, place)
        stored = [d for axis, d in enumerate(_resolved(cut, shape)) if strides is None or strides[axis]]
        if tensor_bytes(stored, tensor.dtype) == wanted and not offset % itemsize(tensor.dtype):
            return msgspec.structs.replace(cut, view=View(view.base_tensor_uid, offset, wanted, strides)), split
    raise _misfit(tensor, "no axis of it is consistent with its base's split")


def _resolved(tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a share as integers; the global ``shape`` gives the sizes of named dimensions."""
    return tuple(d if isinstance(d, int) else shape[axis] for axis, d in enumerate(tensor.shape))


def _misfit(tensor: Tensor, why: str) -> InvalidIrShapes:
    assert tensor.view is not None
    message = f"the view {tensor.id!r} cannot follow the split of its base {tensor.view.base_tensor_uid!r}: {why}."
    hint = "Give the split of the view, split the base along another axis, or leave it whole (null)."
    return refused(message, "$", hint, reason="shard_view", tensor=tensor.id)
