"""The split of every tensor of a graph under a shard spec (TMMU v2 II.I)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product
from math import prod
from typing import NamedTuple

from tmmu_core.base import limits, strict
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph import checks
from tmmu_core.graph.model import ARENA_OF_ROLE, Graph, Tensor
from tmmu_core.graph.operators import Operator, operator_of, table_spelling
from tmmu_core.graph.sharding.rank_share import Sharding, share_of, share_of_view
from tmmu_core.graph.sharding.shard_spec import ShardSpec, Split, spec_error

DENSE = frozenset({"linear", "fullyconnected", "gemm"})
PRODUCTS = DENSE | {"mm", "bmm", "addmm", "baddbmm", "matmul", "dot", "dotgeneral"}
CONVOLUTIONS = frozenset({"convolution", "conv2d", "convtranspose", "qlinearconv"})  # only a batch split propagates
TRANSPOSES = frozenset({"t", "transpose", "permute", "numpyt"})
LOOKUPS = frozenset({"embedding", "gather", "indexselect", "embeddingdensebackward"})


class Sharded(NamedTuple):
    """A tensor with a split of at most one axis."""

    shape: tuple[int, ...]
    axis: int  # the split axis; −1 if the tensor is whole
    mesh: str = ""
    outer: int = 1  # product of the sizes that a reshape merged before the split axis: 8 for [8, 12] → [96], axis 1


def following_splits(
    graph: Graph, known: Mapping[str, int], shapes: Sequence[tuple[int, ...]], splits: Sequence[Split | None]
) -> dict[int, Split]:
    """Return tensor → one-axis split, from ``splits`` (except vectors) or propagated by nodes. O(operands)."""
    found = {i: Sharded(shapes[i], *s[0]) for i, s in enumerate(splits) if s and len(s) == 1 and len(shapes[i]) > 1}
    for node in graph.nodes:
        operator = operator_of(node.instr)
        reads = [found.get(known[name], Sharded(shapes[known[name]], -1)) for name in node.inputs]
        for name in node.outputs:
            i = known[name]
            if i not in found and (written := _output_split(operator, reads, shapes[i])) is not None:
                found[i] = written
    return {i: ((sharded.axis, sharded.mesh),) for i, sharded in found.items()}


def _output_split(operator: Operator, reads: Sequence[Sharded], shape: tuple[int, ...]) -> Sharded | None:
    """Return the split of an output of this ``shape``; ``None`` if it is whole or unknown."""
    base = table_spelling(operator.base)
    if base in DENSE and len(reads) > 1 and len(reads[1].shape) == 2 and shape:
        weight = reads[1]
        is_square = weight.shape[0] == weight.shape[1]
        if base == "gemm" and is_square and weight.axis >= 0:
            return None  # [n, k] or [k, n]: the shape does not show which
        if base != "gemm" or (weight.shape[0] == shape[-1] and not is_square):  # the weight is [n, k]
            weight = weight._replace(shape=weight.shape[::-1], axis=1 - weight.axis if weight.axis >= 0 else -1)
        reads = [reads[0], weight]
    if base in PRODUCTS:
        return _product_split([read for read in reads if len(read.shape) > 1][-2:], shape)
    if operator.cost in CONVOLUTIONS:
        reads = [read for read in reads[:1] if read.axis == 0]  # the batch
    propagated = (_propagated_split(base, read, shape) for read in reads if read.axis >= 0)
    return next((read for read in propagated if read is not None), None)


def _product_split(reads: Sequence[Sharded], shape: tuple[int, ...]) -> Sharded | None:
    """Return the split of ``[…, m, k] × […, k, n]``; ``None`` if it is whole, or a partial sum because k is split."""
    for summed, read in zip((-1, -2), reads, strict=False):
        if read.axis < 0:
            continue
        from_end = read.axis - len(read.shape)
        axis = len(shape) + from_end
        return None if from_end == summed or axis < 0 else read._replace(shape=shape, axis=axis)
    return None


def _propagated_split(base_name: str, read: Sharded, shape: tuple[int, ...]) -> Sharded | None:
    """Return the split of an output that has the elements or rows of ``read``; ``None`` if it is whole."""
    before, axis, _, outer = read
    size, same_rank = before[axis], len(before) == len(shape)
    if (base_name in LOOKUPS and axis == 0) or (base_name in TRANSPOSES and not same_rank):
        return None
    new_axis: int | None
    if base_name in TRANSPOSES:
        new_axis = 1 - axis if len(shape) == 2 else shape.index(size) if shape.count(size) == 1 else axis
    elif same_rank and all(a == b or k == axis for k, (a, b) in enumerate(zip(before, shape, strict=True))):
        new_axis = axis if shape[axis] > 1 else None
    elif prod(before) == prod(shape):
        ahead = prod(before[:axis]) * outer
        new_axis = next((k for k in range(len(shape)) if prod(shape[:k]) <= ahead < prod(shape[: k + 1])), None)
        outer = ahead // prod(shape[:new_axis]) if new_axis is not None else 1
    else:
        from_end = axis + len(shape) - len(before)
        new_axis = next((k for k in (from_end, axis) if 0 <= k < len(shape) and shape[k] == size), None)
    return None if new_axis is None else read._replace(shape=shape, axis=new_axis, outer=outer)


KIND_OF_ROLE = ARENA_OF_ROLE | {"optimizer_state": "optimizer_state"}
DERIVED_ENDINGS: tuple[str, ...] = ("@grad", "@remat")  # endings of the ids of gradients and recomputed tensors


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
    implicit: list[int] = []  # tensors split by a contract, also by ``"follow"``
    for i in sorted(range(len(shapes)), key=lambda i: len(graph.tensors[i].id)):  # ``x`` before ``x@grad``
        tensor = graph.tensors[i]
        if splits[i] is None and tensor.view is None:
            originals = [known.get(tensor.id.removesuffix(end), i) for end in DERIVED_ENDINGS]  # ``x`` of ``x@grad``
            inherited = [split for k in originals if shapes[k] == shapes[i] and (split := splits[k])]
            contract = _contract(tensor, shapes[i], spec)
            splits[i] = inherited[0] if inherited else contract
            if contract and splits[i] == contract:
                implicit.append(i)
    followed = following_splits(graph, known, shapes, splits) if spec.following_kinds else {}
    for i, split in followed.items():
        tensor = graph.tensors[i]
        may_follow = not splits[i] and tensor.view is None and KIND_OF_ROLE[tensor.role] in spec.following_kinds
        if may_follow and all(shapes[i][axis] >= spec.sizes[mesh] for axis, mesh in split):
            splits[i] = split
            implicit.append(i)
    found = Sharding(graph, spec, shapes, tuple(splits))
    whole = _bases_left_whole(found, implicit)
    return replace(found, splits=tuple(() if i in whole else split for i, split in enumerate(found.splits)))


def rules_without_effect(graph: Graph, spec: ShardSpec, dims: Mapping[str, int] | None = None) -> list[str]:
    """Return a warning for each rule and contract of the spec that has no effect on ``graph`` and its gradients."""
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
    found = set()
    for base, followers in views.items():
        if followers and all(sharding.splits[i] is None for i in followers):
            coordinates = _coordinates_to_try(sharding, base, followers)
            if not all(_all_follow(sharding, base, followers, point) for point in coordinates):
                found.add(base)
    return found


def _coordinates_to_try(sharding: Sharding, base: int, followers: Sequence[int]) -> list[dict[str, int]]:
    """Return mesh coordinates that together give every size that a share of ``base`` or of its views can have."""
    split, shape = sharding.splits[base] or (), sharding.shapes[base]
    origin = {name: 0 for name, _ in sharding.spec.mesh}
    if not any(shape[axis] % sharding.spec.sizes[mesh] for axis, mesh in split):
        return [origin]
    rows = {d for i in (base, *followers) for d in sharding.shapes[i]}
    names = [mesh for _, mesh in split]
    values = [sorted({0, *(d % sharding.spec.sizes[mesh] for d in rows)}) for mesh in names]
    if prod(map(len, values)) > limits.ceiling(limits.SHARES):
        tensor = sharding.graph.tensors[base].id
        refusal = limits.limit_error(limits.SHARES, f"the tensor {tensor!r}")
        raise spec_error(refusal.message, "$", refusal.hint, reason="shard_view", tensor=tensor)
    return [{**origin, **dict(zip(names, point, strict=True))} for point in product(*values)]


def _all_follow(sharding: Sharding, base: int, followers: Sequence[int], point: Mapping[str, int]) -> bool:
    split = sharding.splits[base] or ()
    local = {base: share_of(sharding.graph.tensors[base], sharding.shapes[base], split, sharding.spec, point)}
    splits = {base: split}
    try:
        for i in followers:
            local[i], splits[i] = share_of_view(sharding, i, local[sharding.base(i)], splits[sharding.base(i)], point)
    except InvalidIrShapes:
        return False
    return True


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
