"""Compute the bytes that the allocator reserved over time, and block offsets within the reserved peak if possible.

A snapshot lists the segments at the end of the trace, so the curve is computed backwards from their bytes. It is exact
even if the trace begins in the middle of a run. Segments that never exist together can share offsets: a later
segment can reuse the bytes of a released one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tmmu_core.formats.allocator_plan import refuse_too_many_bytes
from tmmu_core.formats.pytorch.snapshot.snapshot_events import ALLOC, FREE, I64, MAP, UNMAP, Device, Events, Segment
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.problem import Problem

PORTFOLIO_UP_TO, GREEDY_UP_TO = 3_000, 50_000  # maximum number of segments or blocks for each planner


@dataclass(frozen=True)
class Reserved:
    """Reserved bytes as a step function: ``size[k]`` from ``step[k]`` on; several entries may have the same step."""

    step: I64
    size: I64

    @property
    def peak(self) -> tuple[int, int]:
        """``(step, bytes)`` of the highest value."""
        k = int(self.size.argmax())
        return int(self.step[k]), int(self.size[k])

    def at(self, step: int) -> int:
        """Return the largest value of the entries at ``step``; if there is none, the value of the previous entry."""
        first, end = int(np.searchsorted(self.step, step, "left")), int(np.searchsorted(self.step, step, "right"))
        first = first if first < end else max(0, first - 1)
        return int(self.size[first:end].max(initial=0))


def reserved_over_time(events: Events, segments: Sequence[Segment]) -> Reserved:
    """Return the reserved bytes over the steps; ``segments`` are those at the end. Raises ``UnreadableInput``."""
    action, size = np.frombuffer(events.action, np.uint8), np.frombuffer(events.size, np.int64)
    end = sum([segment.total_size for segment in segments])
    refuse_too_many_bytes(end + sum(size[(action == MAP) | (action == UNMAP)].tolist()))
    change = np.where(action == MAP, size, 0) - np.where(action == UNMAP, size, 0)
    start = end - int(change.sum())
    curve = start + np.cumsum(change)
    start -= min(0, start, int(curve.min(initial=0)))  # an incomplete list of segments would give negative values
    rows = np.flatnonzero(change)
    steps, sizes = events.step[rows], start + np.cumsum(change)[rows]
    return Reserved(np.concatenate(([0], steps)), np.concatenate(([start], sizes)))


def layout(blocks: Device, max_bytes: int | None) -> tuple[I64, str]:
    """Return ``(offsets of all blocks, note or "")``.

    There are three placements: the allocator's addresses without the gaps between regions, packed segments, packed
    blocks. The first within ``max_bytes`` (``None``: no limit) is returned; if there is none, the addresses.
    """
    events = blocks.events
    mapped = np.frombuffer(events.action, np.uint8) == MAP
    maps = [np.frombuffer(column, np.int64)[mapped] for column in (events.addr, events.size)]
    regions = np.array([(each.address, each.total_size) for each in blocks.segments], np.int64).reshape(-1, 2).T
    starts = np.concatenate((regions[0], maps[0], blocks.address))
    ends = starts + np.concatenate((regions[1], maps[1], blocks.size))
    order = np.argsort(starts, kind="stable")
    first, last = starts[order], np.maximum.accumulate(ends[order])
    begins = np.flatnonzero(np.concatenate(([True], first[1:] > last[:-1])))  # regions that follow a gap
    starts, ends = first[begins], last[np.append(begins[1:], len(first)) - 1]
    bases = np.cumsum(ends - starts) - (ends - starts)
    k = np.searchsorted(starts, blocks.address, side="right") - 1
    joined, total = bases[k] + blocks.address - starts[k], int((ends - starts).sum())
    if max_bytes is None or total <= max_bytes:
        return joined, ""
    segments = _segments(blocks)
    if segments is not None:
        start, size, birth, death, segment_of = segments
        offset = _packed(birth, np.maximum(death, birth + 1), size, np.arange(len(birth)), max_bytes)
        if offset is not None:
            return offset[segment_of] + blocks.address - start[segment_of], ""
    if (found := _packed(blocks.birth, blocks.death, blocks.size, blocks.address, max_bytes)) is not None:
        return found, "offsets are packed, not the allocator's addresses"
    return joined, "offsets span all segments that ever existed"


def _segments(blocks: Device) -> tuple[I64, I64, I64, I64, I64] | None:
    """Return start, size, birth, death of segments, and each block's segment; ``None`` if their history is unclear."""
    events = blocks.events
    mapped_at: dict[int, tuple[int, int]] = {}
    rows = []  # address, size, birth, death
    step = 0
    for action, addr, size in zip(events.action, events.addr, events.size, strict=True):
        if action == MAP:
            mapped_at[addr] = size, step
        elif action == UNMAP:
            reserved_size, since = mapped_at.pop(addr, (size, 0))
            if reserved_size != size:
                return None
            rows.append((addr, size, since, step))
        step += action in (ALLOC, FREE)
    for segment in blocks.segments:
        reserved_size, since = mapped_at.pop(segment.address, (segment.total_size, 0))
        if reserved_size != segment.total_size:
            return None
        rows.append((segment.address, reserved_size, since, step + 1))
    if mapped_at or not rows:
        return None
    start, sizes, birth, death = np.array(rows, np.int64).T
    segment_of = np.full(len(blocks.address), -1, np.int64)
    changes = sorted({*birth.tolist(), *death.tolist()})
    times = np.maximum(np.searchsorted(changes, blocks.birth, side="right") - 1, 0)
    for k in np.unique(times).tolist():
        live = np.flatnonzero((birth <= changes[k]) & (changes[k] < death))
        live = live[np.argsort(start[live])]
        at_time = np.flatnonzero(times == k)
        position = np.searchsorted(start[live], blocks.address[at_time], side="right") - 1
        if not len(live) or position.min(initial=0) < 0:
            return None
        segment_of[at_time] = live[position]
    is_inside = blocks.address + blocks.size <= (start + sizes)[segment_of]
    return (start, sizes, birth, death, segment_of) if is_inside.all() else None


def _packed(birth: I64, death: I64, size: I64, tie_breaker: I64, max_bytes: int) -> I64 | None:
    """Return offsets within ``max_bytes``; ``None`` if the planner finds none, or above ``GREEDY_UP_TO`` ranges."""
    if len(birth) > GREEDY_UP_TO:
        return None
    ids = tuple(map(str, range(len(birth))))
    order = np.lexsort((tie_breaker, -size, birth))  # the planners expect the normative order
    alignment = np.ones(len(birth), np.uint64)
    problem = Problem("segments", ids, birth[order], death[order], size[order].astype(np.uint64), alignment)
    entry = ARENA_PLANNERS["portfolio" if len(ids) <= PORTFOLIO_UP_TO else "greedy"]
    packing = entry.pack(problem, entry.checked_options({}), None)
    offset = np.empty(len(birth), np.int64)
    offset[order] = packing.offset.astype(np.int64)
    return offset if int((offset + size).max(initial=0)) <= max_bytes else None
