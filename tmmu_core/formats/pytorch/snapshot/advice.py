"""Suggestions for a snapshot: functions to checkpoint, and settings of the allocator.

Settings are tried by replaying the calls with the model of the allocator. A trace often begins in mid-run, where the
allocator has segments with blocks and gaps. Segments at the end, and the events backwards, give the segments at the
beginning; the allocations that began before the trace are placed in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tmmu_core.formats.pytorch.caching_allocator import (
    SMALL_SEGMENT,
    UNLIMITED,
    AllocatorSettings,
    Block,
    CachingAllocator,
)
from tmmu_core.formats.pytorch.snapshot.history import History, Total
from tmmu_core.formats.pytorch.snapshot.snapshot_events import ALLOC, FREE, MAP, UNMAP, Lane
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import BACKWARD

MOST_MODULES = 3
SPLITS = (512 << 20, 128 << 20)
"""Values of ``max_split_size_mb`` that are tried, in bytes."""

Kind = tuple[Lane, bool]
"""Stream and pool, and whether it serves small allocations."""


@dataclass(frozen=True)
class Setting:
    """The reserved peak (bytes) that the model of the allocator computes under a setting."""

    name: str
    reserved: int
    change: int
    """Bytes compared with the model under the recorded settings, whose error is the same."""


def modules_to_checkpoint(history: History) -> list[Total]:
    """Return the functions with the most activations at the peak that the forward pass saved.

    Their bytes are what checkpointing a function can free at most.
    """
    rows = [
        row
        for row in history.live_at(history.peak_step).tolist()
        if history.categories[row] == "activation" and history.phase[row] != BACKWARD and history.stack[row]
    ]
    found = history.summed((history.name("module", row), row) for row in rows)
    return [total for total in found if total.count > 1][:MOST_MODULES]


def model_error(history: History) -> tuple[int, int]:
    """Return ``(reserved peak of the model, recorded reserved peak)`` in bytes under the recorded settings."""
    return replayed_peak(history, history.settings), history.reserved.peak[1]


def settings_to_try(history: History) -> Iterator[Setting]:
    """Yield other settings of ``PYTORCH_CUDA_ALLOC_CONF`` and the reserved peak of the model under each.

    Segments at the beginning of a trace are of the recorded settings. So the change to expandable segments, or from
    them, is that of two replays which begin with no segment.
    """
    recorded = history.settings
    now = replayed_peak(history, recorded)
    tried = [("expandable_segments:True", replace(recorded, expandable_segments=True, max_split_size=UNLIMITED))]
    tried += [(f"max_split_size_mb:{most >> 20}", replace(recorded, max_split_size=most)) for most in SPLITS]
    for name, settings in tried:
        if settings != recorded:
            is_same_kind = settings.expandable_segments == recorded.expandable_segments
            before = now if is_same_kind else replayed_peak(history, recorded, from_segments=False)
            change = replayed_peak(history, settings, from_segments=is_same_kind) - before
            yield Setting(name, now + change, change)


def replayed_peak(history: History, settings: AllocatorSettings, *, from_segments: bool = True) -> int:
    """Return the reserved peak (bytes) that the model of the allocator computes for the same calls.

    ``from_segments`` begins with the segments at the beginning of the trace, else with no segment. Cached blocks are
    released where the trace releases a segment.
    """
    allocator = CachingAllocator(settings)
    rows = np.flatnonzero(history.is_before)
    rows = rows[np.argsort(history.address[rows], kind="stable")]
    before = list(zip(*(c[rows].tolist() for c in (history.address, history.size, history.lane)), strict=True))
    blocks = _begin(history, before, allocator) if from_segments else {}
    for address, size, lane in before:
        if address not in blocks:
            blocks[address] = allocator.alloc(size, *history.lanes[lane])
    events, last = history.events, ALLOC
    for action, addr, size, lane in zip(events.action, events.addr, events.size, events.lane, strict=True):
        if action == UNMAP and last != UNMAP:
            allocator.empty_cache()
        last = action
        if action not in (ALLOC, FREE):
            continue
        held = blocks.pop(addr, None)
        if held is not None:
            allocator.free(held)
        if action == ALLOC and size:
            blocks[addr] = allocator.alloc(size, *history.lanes[lane])
    return allocator.reserved_peak


def _begin(history: History, before: list[tuple[int, int, int]], allocator: CachingAllocator) -> dict[int, Block]:
    """Give the allocator its segments at the beginning of the trace; return the allocated blocks by address.

    ``before`` are ``(address, bytes, lane)`` of the allocations that began before the trace, by address.
    """
    regions: dict[Kind, list[tuple[int, int]]] = {}
    for start, (end, kind) in sorted(_regions(history).items()):
        regions.setdefault(kind, []).append((start, end))
    held: dict[Lane, list[tuple[int, int]]] = {}
    for address, size, lane in before:
        held.setdefault(history.lanes[lane], []).append((address, size))
    blocks: dict[int, Block] = {}
    for (where, is_small), own in regions.items():
        blocks |= allocator.adopt(own, held.get(where, []), *where, is_small=is_small)
    return blocks


def _regions(history: History) -> dict[int, tuple[int, Kind]]:
    """Return start → (end, kind) of the address ranges that were reserved when the trace began."""
    found: dict[int, tuple[int, Kind]] = {}
    for segment in history.segments:
        is_small = segment.segment_type == "small" if segment.segment_type else segment.total_size == SMALL_SEGMENT
        found[segment.address] = segment.address + segment.total_size, (segment.lane, is_small)
    events = history.events
    columns = zip(events.action, events.addr, events.size, events.lane, strict=True)
    for action, start, size, lane in reversed(list(columns)):
        end = start + size
        if action == UNMAP:
            found[start] = end, (history.lanes[lane], size == SMALL_SEGMENT)
        elif action == MAP and found.get(start, (0,))[0] == end:
            del found[start]
        elif action == MAP:  # a part of an expandable segment
            for first, (last, kind) in [row for row in found.items() if row[0] < end and start < row[1][0]]:
                del found[first]
                found |= {a: (b, kind) for a, b in ((first, start), (end, last)) if a < b}
    return found
