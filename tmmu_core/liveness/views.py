"""Views of views resolved to their roots (contract §3)."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tmmu_core.errors import U64_MAX, AllocationOverflow
from tmmu_core.graph.index import GraphIndex

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


def view_roots(index: GraphIndex) -> tuple[I64, U64]:
    """Shape (tensors,) each: the root base of every tensor (itself where it is no view), and its byte offset in it.

    Every chain of views ends: a graph in which they lead round in a circle has no index. Raises ``AllocationOverflow``
    for one that ends past 2^64 − 1.
    """
    views = np.flatnonzero(index.base >= 0)
    roots = np.arange(len(index.tensor_ids), dtype=np.int64)
    roots[views] = index.base[views]
    offsets = np.zeros(len(index.tensor_ids), np.uint64)
    for number in views.tolist():
        view = index.graph.tensors[number].view
        assert view is not None
        offsets[number] = view.byte_offset
    while not np.array_equal(reached := roots[views], above := roots[reached]):  # each time twice as far
        further = offsets[views] + offsets[reached]
        if (further < offsets[views]).any():
            _refuse_far_view(index)
        roots[views], offsets[views] = above, further
    return roots, offsets


def _refuse_far_view(index: GraphIndex) -> NoReturn:
    """Name the first view whose way to its root is past 64 bits: one that repeats bytes may be looked far into."""
    tensors, base = index.graph.tensors, index.base.tolist()
    for number, tensor in enumerate(tensors):
        offset, at = 0, number
        while (view := tensors[at].view) is not None:
            offset, at = offset + view.byte_offset, base[at]
        if offset > U64_MAX:
            raise far_away(tensor.id, offset, f"$.tensors[{number}].view.byte_offset")
    raise AssertionError("no view lies past 2^64 − 1 after all")


def far_away(tensor: str, byte: int, path: str) -> AllocationOverflow:
    """``tensor`` begins or ends at a byte of its storage that has no number."""
    return AllocationOverflow(
        f"the tensor {tensor!r} reaches byte {byte:,} of its storage, past 2^64 − 1.",
        arena="unknown",
        offset=str(byte),
        size="unknown",
        tensor=tensor,
        path=path,
        hint="Check the byte_offset of the views it looks through, and the shape of what it is written in place of.",
    )
