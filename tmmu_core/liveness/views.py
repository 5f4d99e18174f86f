"""Views of views resolved to their roots (contract §3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tmmu_core.graph.index import GraphIndex

I64 = NDArray[np.int64]


def view_roots(index: GraphIndex) -> tuple[I64, I64]:
    """Shape (tensors,) each: the root base of every tensor (itself where it is no view), and its byte offset in it.

    Every chain of views ends: a graph in which they lead round in a circle has no index.
    """
    views = np.flatnonzero(index.base >= 0)
    roots = np.arange(len(index.tensor_ids), dtype=np.int64)
    roots[views] = index.base[views]
    offsets = np.zeros(len(index.tensor_ids), np.int64)
    for number in views.tolist():
        view = index.graph.tensors[number].view
        assert view is not None
        offsets[number] = view.byte_offset
    while not np.array_equal(reached := roots[views], above := roots[reached]):  # each time twice as far
        roots[views], offsets[views] = above, offsets[views] + offsets[reached]
    return roots, offsets
