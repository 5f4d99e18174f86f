"""Resolve views of views to their roots (contract §3)."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX, AllocationOverflow
from tmmu_core.graph.index import GraphIndex

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


def view_roots(index: GraphIndex) -> tuple[I64, U64]:
    """Shape (tensors,) each: root base of every tensor (itself without a view), and its byte offset in the root.

    Chains of views are acyclic in an index. Raises ``AllocationOverflow`` for an offset past 2^64 − 1.
    """
    views = np.flatnonzero(index.base >= 0)
    roots = np.arange(len(index.tensor_ids), dtype=np.int64)
    roots[views] = index.base[views]
    offsets = np.zeros(len(index.tensor_ids), np.uint64)
    for number in views.tolist():
        view = index.graph.tensors[number].view
        assert view is not None
        offsets[number] = view.byte_offset
    while not np.array_equal(reached := roots[views], above := roots[reached]):  # doubles the distance
        further = offsets[views] + offsets[reached]
        if (further < offsets[views]).any():
            _reject_far_view(index)
        roots[views], offsets[views] = above, further
    return roots, offsets


def _reject_far_view(index: GraphIndex) -> NoReturn:
    """Reject the first view whose offset in its root exceeds 64 bits."""
    tensors, base = index.graph.tensors, index.base.tolist()
    for number, tensor in enumerate(tensors):
        offset, at = 0, number
        while (view := tensors[at].view) is not None:
            offset, at = offset + view.byte_offset, base[at]
        if offset > U64_MAX:
            raise overflow_error(tensor.id, offset, f"$.tensors[{number}].view.byte_offset")
    raise AssertionError("unreachable: no view exceeds 2^64 − 1")


def overflow_error(tensor: str, byte: int, path: str) -> AllocationOverflow:
    """Return the error for a tensor that begins or ends past 2^64 − 1 in its storage."""
    return AllocationOverflow(
        f"the tensor {tensor!r} reaches byte {byte:,} of its storage, past 2^64 − 1.",
        arena="unknown",
        offset=str(byte),
        size="unknown",
        tensor=tensor,
        path=path,
        hint="Check the byte_offset of its views, and the shape of the tensor that it overwrites.",
    )
