"""Replay the calls of a snapshot with the model of the allocator.

A trace often begins in mid-run, where the allocator has segments with blocks and gaps. Segments at the end, and the
events backwards, give the segments at the beginning; the allocations that began before the trace are placed in them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tmmu_core.formats.pytorch.caching_allocator import SMALL_SEGMENT, AllocatorSettings, Block, CachingAllocator
from tmmu_core.formats.pytorch.snapshot.history import History
from tmmu_core.formats.pytorch.snapshot.snapshot_events import ALLOC, FREE, MAP, UNMAP, Lane

Kind = tuple[Lane, bool]
"""Stream and pool, and whether it serves small allocations."""


def replayed_peak(history: History, settings: AllocatorSettings, *, from_segments: bool = True) -> int:
    """Return the reserved peak (bytes) that the model of the allocator computes for the same calls.

    ``from_segments`` begins with the segments at the beginning of the trace, else with no segment. Cached blocks are
    released where the trace releases a segment.
    """
    allocator = CachingAllocator(settings)
    blocks = _begin(history, allocator) if from_segments else {}
    for address, size, lane in _before(history):
        if address not in blocks:
            blocks[address] = allocator.alloc(size, *history.lanes[lane])
    events, released = history.events, False
    for action, addr, size, lane in zip(events.action, events.addr, events.size, events.lane, strict=True):
        if action == UNMAP:
            if not released:
                allocator.empty_cache()
            released = True
            continue
        released = False
        if action not in (ALLOC, FREE):
            continue
        held = blocks.pop(addr, None)
        if held is not None:
            allocator.free(held)
        if action == ALLOC and size:
            blocks[addr] = allocator.alloc(size, *history.lanes[lane])
    return allocator.reserved_peak


def _before(history: History) -> Iterator[tuple[int, int, int]]:
    """Yield ``(address, bytes, lane)`` of the allocations that began before the trace, by address."""
    rows = np.flatnonzero(history.is_before)
    rows = rows[np.argsort(history.address[rows], kind="stable")]
    columns = (history.address, history.size, history.lane)
    yield from zip(*(column[rows].tolist() for column in columns), strict=True)


def _begin(history: History, allocator: CachingAllocator) -> dict[int, Block]:
    """Give the allocator its segments at the beginning of the trace; return the allocated blocks by address."""
    regions: dict[Kind, list[tuple[int, int]]] = {}
    for start, (end, kind) in sorted(_regions(history).items()):
        regions.setdefault(kind, []).append((start, end))
    held: dict[int, list[tuple[int, int]]] = {}
    for address, size, lane in _before(history):
        held.setdefault(lane, []).append((address, size))
    number = {lane: k for k, lane in enumerate(history.lanes)}
    blocks: dict[int, Block] = {}
    for (where, is_small), own in regions.items():
        blocks |= allocator.adopt(own, held.get(number.get(where, -1), []), *where, is_small=is_small)
    return blocks


def _regions(history: History) -> dict[int, tuple[int, Kind]]:
    """Return start → (end, kind) of the address ranges that were reserved when the trace began."""
    found: dict[int, tuple[int, Kind]] = {}
    for segment in history.segments:
        is_small = segment.segment_type == "small" if segment.segment_type else segment.total_size == SMALL_SEGMENT
        found[segment.address] = segment.address + segment.total_size, (segment.lane, is_small)
    events = history.events
    for at in range(len(events.action) - 1, -1, -1):
        start, end = events.addr[at], events.addr[at] + events.size[at]
        if events.action[at] == UNMAP:
            found[start] = end, (history.lanes[events.lane[at]], events.size[at] == SMALL_SEGMENT)
        elif events.action[at] == MAP and found.get(start, (0,))[0] == end:
            del found[start]
        elif events.action[at] == MAP:  # a part of an expandable segment
            for first, (last, kind) in [row for row in found.items() if row[0] < end and start < row[1][0]]:
                del found[first]
                found |= {a: (b, kind) for a, b in ((first, start), (end, last)) if a < b}
    return found
