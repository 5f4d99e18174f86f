"""Splits of activations that follow from those of the weights: tensor parallelism (Shoeybi et al., 2019, section 3).

A product with a weight that is split along its columns is split along its last axis; element-wise operators, views and
attention keep the split; a product that sums over the split axis is whole again on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from tmmu_core.graph.model import Graph
from tmmu_core.graph.operators import operator_of
from tmmu_core.graph.sharding.shard_spec import Split

PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "matmul", "gemm", "dot", "dot_general"})
TRANSPOSES = frozenset({"t", "transpose", "permute", "numpy_t"})
LOOKUPS = frozenset({"embedding", "gather", "index_select", "embedding_dense_backward"})


class Read(NamedTuple):
    """An operand: its shape and its split."""

    shape: tuple[int, ...]
    axis: int
    """−1: whole."""
    mesh: str = ""
    ahead: int = 1
    """Rows of another axis that a view merged ahead of the split one: 8 for the heads of ``[8, 12] → [96]``."""


def following_splits(
    graph: Graph, known: Mapping[str, int], shapes: Sequence[tuple[int, ...]], splits: Sequence[Split | None]
) -> dict[int, Split]:
    """Return tensor number → split of what the nodes write, in the order of ``graph.nodes``.

    ``splits`` are those of the weights; tensors of one axis, such as biases, are not followed. O(operands).
    """
    found = {
        i: Read(shapes[i], *split[0]) for i, split in enumerate(splits) if split and len(split) == 1 < len(shapes[i])
    }
    for node in graph.nodes:
        operator = operator_of(node.instr).base.lower()
        reads = [found.get(known[name], Read(shapes[known[name]], -1)) for name in node.inputs]
        for name in node.outputs:
            i = known[name]
            if i not in found and (written := _written(operator, reads, shapes[i])) is not None:
                found[i] = written
    return {i: ((read.axis, read.mesh),) for i, read in found.items()}


def _written(operator: str, reads: Sequence[Read], shape: tuple[int, ...]) -> Read | None:
    if operator == "linear" and len(reads) > 1 and len(reads[1].shape) == 2:  # the weight is [n, k]
        weight = reads[1]
        turned = weight._replace(shape=weight.shape[::-1], axis=1 - weight.axis if weight.axis >= 0 else -1)
        reads, operator = [reads[0], turned], "mm"
    if operator in PRODUCTS:
        return _of_product([read for read in reads if len(read.shape) > 1][-2:], shape)
    kept = (_carried(operator, read, shape) for read in reads if read.axis >= 0)
    return next((read for read in kept if read is not None), None)


def _of_product(reads: Sequence[Read], shape: tuple[int, ...]) -> Read | None:
    """Return the split of ``[…, m, k] × […, k, n]``; none where the sum over k runs over the ranks."""
    for summed, read in zip((-1, -2), reads, strict=False):
        if read.axis < 0:
            continue
        from_end = read.axis - len(read.shape)
        axis = len(shape) + from_end
        return None if from_end == summed or axis < 0 else read._replace(shape=shape, axis=axis)
    return None


def _carried(operator: str, read: Read, shape: tuple[int, ...]) -> Read | None:
    """Return the split of an output that has the elements or the rows of ``read``; ``None`` where it is lost."""
    before, axis, _, inner = read
    if operator in LOOKUPS and axis == 0:
        return None
    size, same_rank = before[axis], len(before) == len(shape)
    to: int | None
    if operator in TRANSPOSES:
        to = 1 - axis if len(shape) == 2 else shape.index(size) if shape.count(size) == 1 else axis
    elif same_rank and all(a == b or k == axis for k, (a, b) in enumerate(zip(before, shape, strict=True))):
        to = axis if shape[axis] > 1 else None
    elif prod(before) == prod(shape):
        ahead = prod(before[:axis]) * inner
        to = next((k for k in range(len(shape)) if prod(shape[:k]) <= ahead < prod(shape[: k + 1])), None)
        inner = ahead // prod(shape[:to]) if to is not None else 1
    else:
        from_end = axis + len(shape) - len(before)
        to = next((k for k in (from_end, axis) if 0 <= k < len(shape) and shape[k] == size), None)
    return None if to is None else read._replace(shape=shape, axis=to, ahead=inner)
