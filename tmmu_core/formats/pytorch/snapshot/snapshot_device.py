"""Live ranges of one device: from its events, and from the blocks that its segments hold at the end."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tmmu_core.formats.allocator_plan import peak_of_columns
from tmmu_core.formats.pytorch.snapshot.snapshot_events import ALLOC, FREE, Block, Events, Segment

I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Device:
    """Allocations as columns of length n, with the events and segments that they come from."""

    birth: I64
    death: I64
    address: I64
    size: I64
    stack: I64
    """Row of the allocating stack; 0: not recorded."""
    lane: I64
    """Row of ``events.lanes``."""
    free_stack: I64
    """Row of the freeing stack; 0: not recorded or not freed."""
    is_before: NDArray[np.bool_]
    """Whether it began before the trace."""
    events: Events
    segments: Sequence[Segment]
    steps: int

    @property
    def peak(self) -> tuple[int, int]:
        """``(step, bytes)`` of the highest use, the first such step."""
        return peak_of_columns(self.birth, self.death, self.size)

    def rows(self, order: I64) -> dict[str, NDArray[np.generic]]:
        """Return the columns with the rows in ``order``."""
        return {name: column[order] for name, column in vars(self).items() if isinstance(column, np.ndarray)}


def device_of(events: Events, segments: list[Segment]) -> Device:
    """Return the live ranges of a device, by birth and address."""
    _private_lanes(events, segments)
    rows = tuple(array("q") for _ in range(8))
    open_, steps = _traced(events, rows)
    for address, (block, segment) in dict(_active(segments)).items():
        if address not in open_:
            size = block.size if block.requested_size is None else block.requested_size
            lane = events.lanes.setdefault(segment.lane, len(events.lanes))
            _add(rows, 0, max(steps, 1), address, size, block.stack, lane, 0, events.is_recorded)
    columns = np.array([np.frombuffer(column, np.int64) for column in rows])
    columns = columns[:, columns[3] > 0]
    _end_early_ranges(*columns[:3])
    columns = columns[:, np.lexsort((columns[2], columns[0]))]
    birth, death, address, size, stack, lane, free_stack, before = columns
    freed = (before == 0) & (free_stack > 0)
    if freed.any() and (stack[freed] == free_stack[freed]).all():  # frees were recorded with the allocating stack
        stack = np.where((before > 0) & (stack == 0), free_stack, stack)
        free_stack = np.zeros_like(free_stack)
    return Device(
        birth=birth,
        death=death,
        address=address,
        size=size,
        stack=stack,
        lane=lane,
        free_stack=free_stack,
        is_before=before > 0,
        events=events,
        segments=segments,
        steps=max(steps, 1),
    )


def _private_lanes(events: Events, segments: Sequence[Segment]) -> None:
    """Set the pool of events in private segments; older versions of PyTorch write it with the segments alone."""
    private = [segment for segment in segments if any(segment.lane[1])]
    if not private or any(any(pool) for _, pool in events.lanes):
        return
    addr, lane = np.frombuffer(events.addr, np.int64), np.frombuffer(events.lane, np.int32).copy()
    for segment in private:
        inside = (segment.address <= addr) & (addr < segment.address + segment.total_size)
        lane[inside] = events.lanes.setdefault(segment.lane, len(events.lanes))
    events.lane = array("i", lane.tobytes())


def _add(rows: Sequence[array[int]], *row: int) -> None:
    for column, value in zip(rows, row, strict=True):
        column.append(value)


def _traced(events: Events, rows: Sequence[array[int]]) -> tuple[set[int], int]:
    """Add the live ranges of a trace to ``rows``; return ``(addresses allocated at the end, number of steps)``."""
    open_: dict[int, tuple[int, int, int, int]] = {}  # by address: birth, size, stack, lane
    step = 0
    columns = (events.action, events.addr, events.size, events.stack, events.lane)
    for action, addr, size, stack, lane in zip(*columns, strict=True):
        if action > FREE:
            continue
        opened = open_.pop(addr, None)
        if opened is not None:  # freed, or allocated again without a recorded free
            birth, held, made, where = opened
            _add(rows, birth, step, addr, held, made, where, stack if action == FREE else 0, 0)
        elif action == FREE and size:
            _add(rows, 0, max(step, 1), addr, size, 0, lane, stack, 1)
        if action == ALLOC:
            open_[addr] = step, size, stack, lane
        step += 1
    for addr, (birth, size, stack, lane) in open_.items():
        _add(rows, birth, step, addr, size, stack, lane, 0, 0)
    return set(open_), step


def _active(segments: Sequence[Segment]) -> Iterator[tuple[int, tuple[Block, Segment]]]:
    """Yield ``(address, (block, its segment))`` of allocated blocks; one without address follows the one before it."""
    for segment in segments:
        end = segment.address
        for block in segment.blocks:
            at = end if block.address is None else block.address
            end = at + block.size
            if block.state.startswith("active"):
                yield at, (block, segment)


def _end_early_ranges(birth: I64, death: I64, address: I64) -> None:
    """End the ranges from before the trace where their address is allocated again."""
    early, late = np.flatnonzero(birth == 0), np.flatnonzero(birth)
    if not len(late):
        return
    late = late[np.lexsort((birth[late], address[late]))]
    taken, first = np.unique(address[late], return_index=True)
    k = np.minimum(np.searchsorted(taken, address[early]), len(taken) - 1)
    again = np.where(taken[k] == address[early], birth[late][first][k], death[early])
    death[early] = np.minimum(death[early], again)
