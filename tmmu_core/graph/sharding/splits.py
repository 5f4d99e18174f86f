"""The split of every tensor of a graph under a shard spec (TMMU v2 II.I), and the graph that one rank runs.

The graph of a rank has the rank's share of each tensor. The share of a view lies in the share of its base.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from math import prod
from typing import NamedTuple

import msgspec

from tmmu_core.base import limits, strict
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph import checks
from tmmu_core.graph.dtypes import itemsize, tensor_bytes
from tmmu_core.graph.model import ARENA_OF_ROLE, Graph, Tensor, View
from tmmu_core.graph.operators import Operator, operator_of, table_spelling
from tmmu_core.graph.sharding.shard_spec import ShardSpec, Split, rows_of, spec_error

DENSE = frozenset({"linear", "fullyconnected", "gemm"})
PRODUCTS = DENSE | {"mm", "bmm", "addmm", "baddbmm", "matmul", "dot", "dotgeneral"}
CONVOLUTION_COSTS = frozenset({"convolution", "conv2d", "convtranspose", "qlinearconv"})  # only batch splits propagate
TRANSPOSES = frozenset({"t", "transpose", "permute", "numpyt"})
LOOKUPS = frozenset({"embedding", "gather", "indexselect", "embeddingdensebackward"})
KIND_OF_ROLE = ARENA_OF_ROLE | {"optimizer_state": "optimizer_state"}  # role → kind of the spec's contracts
DERIVED_ENDINGS: tuple[str, ...] = ("@grad", "@remat")  # endings of the ids of gradients and recomputed tensors


class Sharded(NamedTuple):
    """A tensor with a split of at most one axis."""

    shape: tuple[int, ...]
    axis: int  # the split axis; −1 if the tensor is whole
    mesh: str = ""
    outer: int = 1  # 8 if a reshape of [8, 12] → [96] merged an axis of 8 into the split axis of 12


def _output_split(operator: Operator, reads: Sequence[Sharded], shape: tuple[int, ...]) -> Sharded | None:
    """Return the split of an output of this ``shape``; ``None`` if it is whole or unknown."""
    base = table_spelling(operator.base)
    if base in DENSE and len(reads) > 1 and len(reads[1].shape) == 2 and shape:
        weight = reads[1]
        is_square = weight.shape[0] == weight.shape[1]
        if base == "gemm" and is_square and weight.axis >= 0:
            return None  # [n, k] or [k, n]: the shape does not show which
        if base != "gemm" or (weight.shape[0] == shape[-1] and not is_square):  # [n, k]: transpose to [k, n]
            weight = weight._replace(shape=weight.shape[::-1], axis=1 - weight.axis if weight.axis >= 0 else -1)
        reads = [reads[0], weight]
    if base in PRODUCTS:  # [m, k] · [k, n] → [m, n] keeps a split of m or n, but not of k (one partial sum per rank)
        matrices = [read for read in reads if len(read.shape) > 1][-2:]  # without the bias
        for k_from_end, read in zip((-1, -2), matrices, strict=False):
            if read.axis >= 0:
                from_end = read.axis - len(read.shape)
                is_kept = from_end != k_from_end and -from_end <= len(shape)
                return read._replace(shape=shape, axis=len(shape) + from_end) if is_kept else None
        return None
    if operator.cost in CONVOLUTION_COSTS:
        reads = [read for read in reads[:1] if read.axis == 0]  # only a split of the batch
    propagated = (_propagated_split(base, read, shape) for read in reads if read.axis >= 0)
    return next((read for read in propagated if read is not None), None)


def _propagated_split(base_name: str, read: Sharded, shape: tuple[int, ...]) -> Sharded | None:
    """Return the split of an output that has the elements or rows of ``read``; ``None`` if it is whole or unknown."""
    before, axis, _, outer = read  # in the examples below, * marks the split axis
    size, same_rank = before[axis], len(before) == len(shape)
    if (base_name in LOOKUPS and axis == 0) or (base_name in TRANSPOSES and not same_rank):
        return None  # a table whose rows are split: each rank finds some of them
    new_axis: int | None
    if base_name in TRANSPOSES:  # [8*, 12] → [12, 8*]; of several axes: the only one with this size
        new_axis = 1 - axis if len(shape) == 2 else shape.index(size) if shape.count(size) == 1 else axis
    elif same_rank and all(a == b or k == axis for k, (a, b) in enumerate(zip(before, shape, strict=True))):
        new_axis = axis if shape[axis] > 1 else None  # only the split axis has another size: [8*, 12] → [4*, 12]
    elif prod(before) == prod(shape):  # a reshape of 8 blocks, each of them split: [8, 12*] → [8, 3*, 4] or [96*]
        blocks = prod(before[:axis]) * outer
        new_axis = next((k for k in range(len(shape)) if prod(shape[:k]) <= blocks < prod(shape[: k + 1])), None)
        outer = blocks // prod(shape[:new_axis]) if new_axis is not None else 1
    else:  # a reduction or a broadcast, with axes from the end, or the start: [8, 12*] → [12*]; [8*, 12] → [8*]
        from_end = axis + len(shape) - len(before)
        new_axis = next((k for k in (from_end, axis) if 0 <= k < len(shape) and shape[k] == size), None)
    return None if new_axis is None else read._replace(shape=shape, axis=new_axis, outer=outer)


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
    def base_of(self) -> dict[int, int]:
        """View → its base."""
        number_of = {tensor.id: i for i, tensor in enumerate(self.graph.tensors)}
        views = [(i, tensor.view) for i, tensor in enumerate(self.graph.tensors)]
        return {i: number_of[view.base_tensor_uid] for i, view in views if view is not None}

    @cached_property
    def views_after_bases(self) -> tuple[int, ...]:
        """Numbers of the views, each after its base."""
        order: dict[int, None] = {}
        for i in self.base_of:
            chain: dict[int, None] = {}
            while i in self.base_of and i not in order and i not in chain:  # the graph index later rejects cycles
                chain[i] = None
                i = self.base_of[i]
            order.update(dict.fromkeys(reversed(chain)))
        return tuple(order)

    @cached_property
    def base_with_split(self) -> dict[int, int]:
        """View → its nearest base with a split of its own (not ``None``)."""
        found: dict[int, int] = {}
        for i in self.views_after_bases:
            base = self.base_of[i]
            found[i] = found.get(base, base) if self.splits[base] is None else base
        return found

    def class_of(self, rank: int) -> tuple[int, ...]:
        """Return a key: ranks with equal keys have equal graphs."""
        coordinates = self.spec.coordinates(rank)
        return tuple(sum(coordinates[name] >= limit for limit in self.remainders[name]) for name, _ in self.spec.mesh)


def shard(graph: Graph, spec: ShardSpec, dims: Mapping[str, int] | None = None) -> Sharding:
    """Return the split of every tensor; ``dims``: as in :func:`.checks.resolve_dims`. Raises ``InvalidIrShapes``."""
    known = {tensor.id: i for i, tensor in enumerate(graph.tensors)}
    for tensor_id in spec.tensors:
        # The spec may name gradients and recomputed tensors that the graph does not have.
        origin_ids = (tensor_id.removesuffix(end) for end in DERIVED_ENDINGS)
        if tensor_id not in known and not any(origin_id in known for origin_id in origin_ids):
            message = f"the shard spec names the tensor {tensor_id!r}, which the graph does not have."
            hint = strict.closest_hint(tensor_id, known)
            raise spec_error(message, f"$.tensors.{tensor_id}", hint, reason="unknown_tensor", tensor=tensor_id)
    sizes = checks.resolve_dims(graph, dims)
    shapes = tuple(checks.resolve_shape(tensor, sizes, i) for i, tensor in enumerate(graph.tensors))
    splits: list[Split | None] = [_explicit_split(*pair, spec) for pair in zip(graph.tensors, shapes, strict=True)]
    implicit: list[int] = []  # tensors whose split is that of their contract, or comes from ``"follow"``
    for i in sorted(range(len(shapes)), key=lambda i: len(graph.tensors[i].id)):  # ``x`` before ``x@grad``
        tensor = graph.tensors[i]
        if splits[i] is None and tensor.view is None:
            originals = [known.get(tensor.id.removesuffix(end), i) for end in DERIVED_ENDINGS]  # ``x`` of ``x@grad``
            inherited = [split for k in originals if shapes[k] == shapes[i] and (split := splits[k])]
            contract = _contract(tensor, shapes[i], spec)
            splits[i] = inherited[0] if inherited else contract
            if contract and splits[i] == contract:
                implicit.append(i)
    if spec.following_kinds:
        # Tensors with a split of one axis, except vectors; the loop adds outputs to which nodes propagate such a split.
        single = ((i, s[0]) for i, s in enumerate(splits) if s is not None and len(s) == 1)
        sharded = {i: Sharded(shapes[i], *pair) for i, pair in single if len(shapes[i]) > 1}
        for node in graph.nodes:
            operator = operator_of(node.instr)
            reads = [sharded.get(known[name], Sharded(shapes[known[name]], -1)) for name in node.inputs]
            for i in map(known.__getitem__, node.outputs):
                if i not in sharded and (written := _output_split(operator, reads, shapes[i])) is not None:
                    sharded[i] = written
        for i, (_, axis, mesh, _) in sharded.items():
            tensor = graph.tensors[i]
            may_follow = not splits[i] and tensor.view is None and KIND_OF_ROLE[tensor.role] in spec.following_kinds
            if may_follow and shapes[i][axis] >= spec.sizes[mesh]:
                splits[i] = ((axis, mesh),)
                implicit.append(i)
    found = Sharding(graph, spec, shapes, tuple(splits))
    whole = _bases_left_whole(found, implicit)
    return replace(found, splits=tuple(() if i in whole else split for i, split in enumerate(found.splits)))


def rules_without_effect(graph: Graph, spec: ShardSpec, dims: Mapping[str, int] | None = None) -> list[str]:
    """Return warnings: rules that apply to no tensor or gradient, and contracts that fit none of their tensors."""
    ids = [tensor.id + end for tensor in graph.tensors for end in ("", *DERIVED_ENDINGS)]
    matches = {name: [k for k, (pattern, _) in enumerate(spec.rules) if fnmatchcase(name, pattern)] for name in ids}
    matching = {k for found in matches.values() for k in found}
    applied = {found[0] for name, found in matches.items() if found and name not in spec.tensors}
    warnings = [
        f"shard rule {k + 1} ({pattern!r}) "
        + ("has no effect: earlier rules or entries match first." if k in matching else "matches no tensor.")
        for k, (pattern, _) in enumerate(spec.rules)
        if k not in applied
    ]
    sizes = checks.resolve_dims(graph, dims)
    for kind, split in spec.contracts.items():
        of_kind = [(i, tensor) for i, tensor in enumerate(graph.tensors) if KIND_OF_ROLE[tensor.role] == kind]
        if split and of_kind and not any(_contract(t, checks.resolve_shape(t, sizes, i), spec) for i, t in of_kind):
            warnings.append(f"shard contract {kind!r} has no effect: no tensor has enough rows along the axis.")
    return warnings


def _bases_left_whole(sharding: Sharding, bases: Sequence[int]) -> set[int]:
    """Return the ``bases`` to leave whole: no view has an explicit split, and at least one view cannot follow."""
    views: dict[int, list[int]] = {base: [] for base in bases}
    for i in sharding.views_after_bases:
        if sharding.base_with_split[i] in views:
            views[sharding.base_with_split[i]].append(i)
    found, sizes = set(), sharding.spec.sizes
    for base, followers in views.items():
        if not followers or any(sharding.splits[i] is not None for i in followers):
            continue
        tensor, shape, split = sharding.graph.tensors[base], sharding.shapes[base], sharding.splits[base] or ()
        # Mesh coordinates that together give every size that a share of the base or of its views can have.
        coordinates = {name: [0] for name in sizes}
        if any(shape[axis] % sizes[mesh] for axis, mesh in split):
            rows = {d for i in (base, *followers) for d in sharding.shapes[i]}
            coordinates |= {mesh: sorted({0, *(d % sizes[mesh] for d in rows)}) for _, mesh in split}
            if prod(map(len, coordinates.values())) > limits.ceiling(limits.SHARES):
                refusal = limits.limit_error(limits.SHARES, f"the tensor {tensor.id!r}")
                raise spec_error(refusal.message, "$", refusal.hint, reason="shard_view", tensor=tensor.id)
        try:
            for values in product(*coordinates.values()):
                point = dict(zip(coordinates, values, strict=True))
                shares = {base: (share_of(tensor, shape, split, sharding.spec, point), split)}
                for i in followers:
                    shares[i] = share_of_view(sharding, i, *shares[sharding.base_of[i]], point)
        except InvalidIrShapes:
            found.add(base)
    return found


def _explicit_split(tensor: Tensor, shape: tuple[int, ...], spec: ShardSpec) -> Split | None:
    by_rule = next((split for pattern, split in spec.rules if fnmatchcase(tensor.id, pattern)), None)
    split = spec.tensors.get(tensor.id, by_rule)
    if split is None and tensor.shard is not None:
        mesh = tensor.shard.mesh
        if mesh not in spec.sizes:
            message = f"the tensor {tensor.id!r} is sharded over {mesh!r}, which the mesh does not have."
            raise spec_error(message, "$.mesh", strict.closest_hint(mesh, spec.sizes), "shard_mesh", tensor=tensor.id)
        split = ((tensor.shard.axis, mesh),)
    for axis, mesh in split or ():
        if axis >= len(shape):
            message = f"the tensor {tensor.id!r} is to be split along axis {axis}, but has {len(shape)} axes."
            hint = f"Give an axis from 0 to {len(shape) - 1}." if shape else "A scalar cannot be split."
            raise spec_error(message, "$", hint, "shard_axis", tensor=tensor.id)
        if 0 < shape[axis] < spec.sizes[mesh]:
            what = f"{shape[axis]} rows, too few for the {spec.sizes[mesh]} parts of mesh axis {mesh!r}"
            message = f"axis {axis} of the tensor {tensor.id!r} has {what}: a rank would have no rows."
            hint = "Split another axis, use a smaller mesh, or leave the tensor whole (null)."
            raise spec_error(message, "$", hint, "shard_too_small", tensor=tensor.id)
    return split


def _contract(tensor: Tensor, shape: tuple[int, ...], spec: ShardSpec) -> Split:
    contract = spec.contracts.get(KIND_OF_ROLE[tensor.role], ())
    return tuple((axis, mesh) for axis, mesh in contract if axis < len(shape) and shape[axis] >= spec.sizes[mesh])


def local_graph_of(sharding: Sharding, rank: int) -> Graph:
    """Return the graph that ``rank`` runs: the same nodes, with the rank's shares of the tensors."""
    graph, spec = sharding.graph, sharding.spec
    coordinates = spec.coordinates(rank)
    splits = [split or () for split in sharding.splits]
    rows = zip(graph.tensors, sharding.shapes, splits, strict=True)
    shares = [share_of(tensor, shape, split, spec, coordinates) for tensor, shape, split in rows]
    for i in sharding.views_after_bases:
        base = sharding.base_of[i]
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

    Offset and size scale like the base. Without an explicit split, the base's split is tried; if this split has one
    axis, every other axis is tried next. Raises ``InvalidIrShapes`` (``shard_view``) if no share fits.
    """
    tensor, shape, base = sharding.graph.tensors[i], sharding.shapes[i], sharding.base_of[i]
    view = tensor.view
    assert view is not None
    if not base_split and not sharding.splits[i]:
        return tensor, ()
    base_bytes = tensor_bytes(sharding.shapes[base], base_share.dtype)
    base_share_bytes = tensor_bytes(_resolved(base_share, sharding.shapes[base]), base_share.dtype)
    length = tensor_bytes(shape, tensor.dtype) if view.byte_length is None else view.byte_length
    if not base_bytes or view.byte_offset * base_share_bytes % base_bytes or length * base_share_bytes % base_bytes:
        raise _misfit(tensor.id, base_share.id, "its bytes do not divide into equal shares")
    for axis, _ in base_split:
        blocks = prod(sharding.shapes[base][:axis])  # number of equal parts of the base that this split divides
        if view.byte_offset * blocks % base_bytes or length * blocks % base_bytes:
            raise _misfit(
                tensor.id, base_share.id, "it has only some of the rows that are split, so only some ranks have it"
            )
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
    raise _misfit(tensor.id, base_share.id, "none of its axes matches the split")


def _resolved(tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a share as integers; the global ``shape`` gives the sizes of named dimensions."""
    return tuple(d if isinstance(d, int) else shape[axis] for axis, d in enumerate(tensor.shape))


def _misfit(view_id: str, base_id: str, why: str) -> InvalidIrShapes:
    message = f"the view {view_id!r} cannot follow the split of its base {base_id!r}: {why}."
    hint = "Give the split of the view, split the base along another axis, or leave it whole (null)."
    return spec_error(message, "$", hint, reason="shard_view", tensor=view_id)
