"""Roots of views, and births and deaths of tensors before in-place reuse (contract §1, §3). O(nodes + edges)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX, AllocationOverflow, InvalidIrShapes
from tmmu_core.graph.index import GraphIndex
from tmmu_core.liveness.live_model import I64, U64, Timeline

Mask = NDArray[np.bool_]


def view_roots(index: GraphIndex) -> tuple[I64, U64]:
    """Return the root base of every tensor (itself if it is no view), and its byte offset in the root.

    Both arrays have the shape (tensors,). Raises ``AllocationOverflow`` for an offset past 2^64 − 1.
    """
    tensors, base, views = index.graph.tensors, index.base.tolist(), np.flatnonzero(index.base >= 0).tolist()
    root_and_offset: dict[int, tuple[int, int]] = {}  # per view
    for number in views:
        chain = [number]
        while base[chain[-1]] >= 0 and chain[-1] not in root_and_offset:  # views are acyclic in an index
            chain.append(base[chain[-1]])
        root, offset = root_and_offset.get(chain[-1], (chain[-1], 0))
        for member in reversed(chain[:-1]):
            view = tensors[member].view
            assert view is not None
            offset += view.byte_offset
            root_and_offset[member] = root, offset
    roots, offsets = np.arange(len(tensors), dtype=np.int64), np.zeros(len(tensors), np.uint64)
    for number, (root, offset) in sorted(root_and_offset.items()):
        if offset > U64_MAX:
            raise overflow_error(tensors[number].id, offset, f"$.tensors[{number}].view.byte_offset")
        roots[number], offsets[number] = root, offset
    return roots, offsets


def overflow_error(name: str, end: int, path: str) -> AllocationOverflow:
    """Return the error for a tensor that begins or ends past 2^64 − 1 in its storage."""
    what = f"the tensor {name!r} reaches byte {end:,} of its storage, past 2^64 − 1."
    hint = "Check the byte_offset of its views, and the shape of the tensor that it overwrites."
    return AllocationOverflow(what, arena="unknown", offset=str(end), size="unknown", tensor=name, path=path, hint=hint)


@dataclass(frozen=True, eq=False)
class Ranges:
    """Columns over tensors; a tensor outside the timeline has birth and death −1."""

    planned: Mask
    birth: I64
    death: I64
    last_read: I64  # step of the last read; −1: never read
    saved: Mask  # whether the tensor, or (for a root) one of its views, is marked as saved; false if marks are ignored
    roots: I64  # root base of each tensor
    view_offset: U64  # bytes from the root's start


def tensor_ranges(timeline: Timeline) -> Ranges:
    """Return half-open ranges of all planned tensors.

    Raises ``InvalidIrShapes`` for an operand or a graph output without producer, and the error of :func:`view_roots`.
    """
    index, end = timeline.index, max(timeline.steps, 1)
    roots, view_offset = view_roots(index)
    count = len(index.tensor_ids)

    written_at = np.full(count, -1, np.int64)
    produced = index.producer >= 0
    written_at[produced] = timeline.step_of[index.producer[produced]]

    birth = written_at.copy()
    birth[index.is_input] = 0
    birth[index.is_persistent] = 0
    unproduced_view = (index.base >= 0) & ~produced & ~index.is_input & ~index.is_persistent
    # A view without a producer is born with its root, unless a view between them is written outside the timeline.
    birth[unproduced_view] = np.where(birth[index.written_base] >= 0, birth[roots], -1)[unproduced_view]
    planned = birth >= 0

    reader_step = np.repeat(timeline.step_of, np.diff(index.in_ptr))
    is_executed = reader_step >= 0
    last_read = np.full(count, -1, np.int64)
    np.maximum.at(last_read, index.in_idx[is_executed], reader_step[is_executed])
    _reject_dangling(timeline, planned, last_read)

    death = np.maximum(last_read, birth) + 1
    saved = saved_tensors(timeline, roots)
    if timeline.mode == "forward":
        death[saved] = end
    death[index.is_output] = end
    death[index.is_persistent] = end
    death[~planned] = -1
    return Ranges(planned, birth, death, last_read, saved & planned, roots, view_offset)


def saved_tensors(timeline: Timeline, roots: I64) -> Mask:
    """Return :attr:`Ranges.saved` of all tensors, planned or not."""
    saved = np.zeros(len(roots), np.bool_)
    if timeline.retain:
        marked = timeline.index.annotated
        saved[marked] = [timeline.graph.tensors[i].saved_for_backward for i in marked.tolist()]
        saved[roots[saved]] = True
    return saved


def _reject_dangling(timeline: Timeline, planned: Mask, last_read: I64) -> None:
    index, ids = timeline.index, timeline.index.tensor_ids
    dangling = ~planned & (last_read >= 0)
    if dangling.any():
        # Report the earliest step and its first operand.
        nodes = [int(node) for node in timeline.node_at if node >= 0]
        reader = next(node for node in nodes if dangling[index.inputs_of(node)].any())
        name, node_id = ids[next(i for i in index.inputs_of(reader) if dangling[i])], index.node_ids[reader]
        message = f"node {node_id!r} reads tensor {name!r}, which nothing writes."
        hint = "Add it to the graph's inputs, give it a persistent role, or write it by a node."
        step = int(timeline.step_of[reader])
        raise InvalidIrShapes(message, reason="dangling_input", node_id=node_id, tensor=name, t=step, hint=hint)
    unwritten = [ids[i] for i in np.flatnonzero(~planned & index.is_output & (index.producer < 0)).tolist()]
    if unwritten:
        name = min(unwritten)
        message, hint = f"no node writes the graph output {name!r}.", 'Write it by a node, or remove it from "outputs".'
        raise InvalidIrShapes(message, reason="never_produced", node_id="", tensor=name, hint=hint)
