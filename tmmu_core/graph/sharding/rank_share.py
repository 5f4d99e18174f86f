"""The graph that one rank runs: its share of each tensor. The share of a view lies in the share of its base."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import msgspec

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.dtypes import itemsize, tensor_bytes
from tmmu_core.graph.model import Graph, Tensor, View
from tmmu_core.graph.sharding.shard_spec import ShardSpec, Split, rows_of, spec_error


@dataclass(frozen=True, eq=False)
class Sharding:
    """A graph's tensors with their splits, for all ranks."""

    graph: Graph
    spec: ShardSpec
    shapes: tuple[tuple[int, ...], ...]  # global shapes, named dimensions resolved
    splits: tuple[Split | None, ...]  # split of each tensor; ``None`` for a view whose split follows from its base

    @cached_property
    def remainders(self) -> dict[str, tuple[int, ...]]:
        """Mesh axis → nonzero remainders r of rows ÷ parts, ascending. Shares at coordinates ≥ r have one row less."""
        found: dict[str, set[int]] = {name: set() for name, _ in self.spec.mesh}
        for i, split in enumerate(self.splits):
            if split is None:
                # An uneven split may divide different axes of the view on different ranks: include all axes.
                root = self.base_with_split[i]
                root_split = self.splits[root] or ()
                uneven = [mesh for axis, mesh in root_split if self.shapes[root][axis] % self.spec.sizes[mesh]]
                split = tuple((axis, mesh) for mesh in uneven for axis in range(len(self.shapes[i])))
            for axis, mesh in split:
                found[mesh].add(self.shapes[i][axis] % self.spec.sizes[mesh])
        return {name: tuple(sorted(values - {0})) for name, values in found.items()}

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Tensor id → number."""
        return {tensor.id: i for i, tensor in enumerate(self.graph.tensors)}

    @cached_property
    def views_after_bases(self) -> tuple[int, ...]:
        """Numbers of the views, each after its base."""
        order: dict[int, None] = {}
        tensors = self.graph.tensors
        for i in range(len(tensors)):
            chain: dict[int, None] = {}
            while tensors[i].view is not None and i not in order and i not in chain:  # the view check rejects cycles
                chain[i] = None
                i = self.base(i)
            order.update(dict.fromkeys(reversed(chain)))
        return tuple(order)

    @cached_property
    def base_with_split(self) -> dict[int, int]:
        """View → its nearest base with a split of its own (not ``None``)."""
        found: dict[int, int] = {}
        for i in self.views_after_bases:
            base = self.base(i)
            found[i] = found.get(base, base) if self.splits[base] is None else base
        return found

    def base(self, i: int) -> int:
        """Return the base of view ``i``."""
        view = self.graph.tensors[i].view
        assert view is not None
        return self.number_of[view.base_tensor_uid]

    def class_of(self, rank: int) -> tuple[int, ...]:
        """Return a key: ranks with equal keys have equal graphs."""
        coordinates = self.spec.coordinates(rank)
        return tuple(sum(coordinates[name] >= limit for limit in self.remainders[name]) for name, _ in self.spec.mesh)


def local_graph_of(sharding: Sharding, rank: int) -> Graph:
    """Return the graph that ``rank`` runs: the same nodes, with the rank's shares of the tensors."""
    graph, spec = sharding.graph, sharding.spec
    coordinates = spec.coordinates(rank)
    splits = [split or () for split in sharding.splits]
    rows = zip(graph.tensors, sharding.shapes, splits, strict=True)
    shares = [share_of(tensor, shape, split, spec, coordinates) for tensor, shape, split in rows]
    for i in sharding.views_after_bases:
        base = sharding.base(i)
        shares[i], splits[i] = share_of_view(sharding, i, shares[base], splits[base], coordinates)
    return msgspec.structs.replace(graph, tensors=tuple(shares))


def share_of(tensor: Tensor, shape: tuple[int, ...], split: Split, spec: ShardSpec, point: Mapping[str, int]) -> Tensor:
    """Return the share of a tensor at the mesh coordinates ``point``."""
    if not split:
        return tensor
    share: list[int | str] = list(tensor.shape)
    for axis, mesh in split:
        share[axis] = rows_of(shape[axis], spec.sizes[mesh], point[mesh])
    return msgspec.structs.replace(tensor, shape=tuple(share))


def share_of_view(
    sharding: Sharding, i: int, base_share: Tensor, base_split: Split, point: Mapping[str, int]
) -> tuple[Tensor, Split]:
    """Return the share of view ``i`` at mesh coordinates ``point``, and its split. ``base_share``: share of its base.

    Offset and size scale with the ratio of ``base_share`` to the base. Without an explicit split, the base's split is
    tried, then each other axis if only one is split. Raises ``InvalidIrShapes`` (``shard_view``) if no split fits.
    """
    tensor, shape, base = sharding.graph.tensors[i], sharding.shapes[i], sharding.base(i)
    view = tensor.view
    assert view is not None
    if not base_split and not sharding.splits[i]:
        return tensor, ()
    base_bytes = tensor_bytes(sharding.shapes[base], base_share.dtype)
    base_share_bytes = tensor_bytes(_resolved(base_share, sharding.shapes[base]), base_share.dtype)
    length = tensor_bytes(shape, tensor.dtype) if view.byte_length is None else view.byte_length
    if not base_bytes or view.byte_offset * base_share_bytes % base_bytes or length * base_share_bytes % base_bytes:
        raise _misfit(tensor, "its bytes do not divide into equal shares")
    for axis, _ in base_split:
        blocks = prod(sharding.shapes[base][:axis])  # number of equal parts of the base that this split divides
        if view.byte_offset * blocks % base_bytes or length * blocks % base_bytes:
            raise _misfit(tensor, "it has only some of the rows that are split, so only some ranks have it")
    offset, share_bytes = (bytes_ * base_share_bytes // base_bytes for bytes_ in (view.byte_offset, length))
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
        share = share_of(tensor, shape, split, sharding.spec, point)
        stored_shape = [d for axis, d in enumerate(_resolved(share, shape)) if strides is None or strides[axis]]
        if tensor_bytes(stored_shape, tensor.dtype) == share_bytes and not offset % itemsize(tensor.dtype):
            return msgspec.structs.replace(share, view=View(view.base_tensor_uid, offset, share_bytes, strides)), split
    raise _misfit(tensor, "none of its axes matches the split")


def _resolved(tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a share as integers; the global ``shape`` gives the sizes of named dimensions."""
    return tuple(d if isinstance(d, int) else shape[axis] for axis, d in enumerate(tensor.shape))


def _misfit(tensor: Tensor, why: str) -> InvalidIrShapes:
    assert tensor.view is not None
    message = f"the view {tensor.id!r} cannot follow the split of its base {tensor.view.base_tensor_uid!r}: {why}."
    hint = "Give the split of the view, split the base along another axis, or leave it whole (null)."
    return spec_error(message, "$", hint, reason="shard_view", tensor=tensor.id)
