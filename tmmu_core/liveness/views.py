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
    roots = np.arange(len(index.tensor_ids), dtype=np.int64)
    offsets = np.zeros(len(index.tensor_ids), np.int64)
    base = index.base
    tensors = index.graph.tensors
    settled: set[int] = set()
    for start in np.flatnonzero(base >= 0).tolist():
        chain = []
        at = start
        while base[at] >= 0 and at not in settled:
            chain.append(at)
            at = int(base[at])
        for tensor in reversed(chain):
            above = int(base[tensor])
            view = tensors[tensor].view
            assert view is not None
            roots[tensor] = roots[above]
            offsets[tensor] = offsets[above] + view.byte_offset
            settled.add(tensor)
    return roots, offsets
