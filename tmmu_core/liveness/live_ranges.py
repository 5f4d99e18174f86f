"""Births and deaths of tensors before in-place reuse (contract §1). O(nodes + edges)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.liveness.live_model import Timeline

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Ranges:
    """Columns over tensors; a tensor outside the timeline has birth and death −1."""

    planned: Mask
    birth: I64
    death: I64
    last_read: I64
    """Step of the last read; −1: never read."""
    saved: Mask
    """Whether kept for the backward pass: marked, or base of a marked view, if marks count in this timeline."""
    roots: I64
    """Root base of each tensor."""
    view_offset: U64
    """Bytes from the root's start."""


def tensor_ranges(timeline: Timeline, roots: I64, view_offset: U64) -> Ranges:
    """Return half-open ranges of all planned tensors. Raises ``InvalidIrShapes`` for reads of tensors never written."""
    index, steps = timeline.index, timeline.steps
    count = len(index.tensor_ids)
    end = max(steps, 1)

    written_at = np.full(count, -1, np.int64)
    produced = index.producer >= 0
    written_at[produced] = timeline.step_of[index.producer[produced]]

    birth = written_at.copy()
    birth[index.is_input] = 0
    birth[index.is_persistent] = 0
    unproduced_view = (index.base >= 0) & ~produced & ~index.is_input & ~index.is_persistent
    # Such a view is live with its root if every view between them is in the timeline.
    seen = np.where(unproduced_view, index.base, np.arange(count))
    while not np.array_equal(seen, further := seen[seen]):
        seen = further
    birth[unproduced_view] = np.where(birth[seen] >= 0, birth[roots], -1)[unproduced_view]
    planned = birth >= 0

    last_read = _last_reads(timeline)
    _reject_dangling(timeline, planned, last_read)

    death = np.maximum(last_read, birth) + 1
    saved = _saved(timeline, roots)
    if timeline.mode == "forward":
        death[saved] = end
    death[index.is_output] = end
    death[index.is_persistent] = end
    death[~planned] = -1
    return Ranges(planned, birth, death, last_read, saved & planned, roots, view_offset)


def _last_reads(timeline: Timeline) -> I64:
    index = timeline.index
    reader_step = np.repeat(timeline.step_of, np.diff(index.in_ptr))
    inside = reader_step >= 0
    last = np.full(len(index.tensor_ids), -1, np.int64)
    np.maximum.at(last, index.in_idx[inside], reader_step[inside])
    return last


def _saved(timeline: Timeline, roots: I64) -> Mask:
    tensors, marked = timeline.graph.tensors, timeline.index.marked
    saved = np.zeros(len(tensors), np.bool_)
    if timeline.retain:
        saved[marked] = [tensors[i].saved_for_backward for i in marked.tolist()]
        saved[roots[saved]] = True
    return saved


def _reject_dangling(timeline: Timeline, planned: Mask, last_read: I64) -> None:
    index = timeline.index
    dangling = ~planned & (last_read >= 0)
    if dangling.any():
        # Report the earliest step and its first operand.
        readers = (int(node) for node in timeline.node_at if node >= 0 and dangling[index.inputs_of(int(node))].any())
        reader = next(readers)
        tensor = next(int(i) for i in index.inputs_of(reader) if dangling[i])
        raise InvalidIrShapes(
            f"node {index.node_ids[reader]!r} reads tensor {index.tensor_ids[tensor]!r}, which nothing writes.",
            reason="dangling_input",
            node_id=index.node_ids[reader],
            tensor=index.tensor_ids[tensor],
            t=int(timeline.step_of[reader]),
            hint="Add it to the graph's inputs, give it a persistent role, or write it by a node.",
        )
    lost = np.flatnonzero(~planned & index.is_output & (index.producer < 0)).tolist()
    if lost:
        name = min(index.tensor_ids[i] for i in lost)
        raise InvalidIrShapes(
            f"no node writes the graph output {name!r}.",
            reason="never_produced",
            node_id="",
            tensor=name,
            hint="Write it by a node, or remove it from the outputs.",
        )
