"""PyTorch's allocator snapshot (``torch.cuda.memory._snapshot()``), pickled or as JSON, as a finished plan.

::

    device_traces[device]   alloc 0x7f…00 512 B ── frames ──┐            a live range: alloc to free_completed
                            free_completed 0x7f…00 ─────────┘
    segments                memory reserved by the caching allocator; the arena is as large as the most it reserved
      blocks                allocations at the end; one without an alloc event existed before the trace began

A step is an alloc or free event. Of several devices, the one with the highest peak is shown; a note names the others.
A tensor is named after its stack (:func:`label`); its category is that of :func:`categorise`.
"""

from __future__ import annotations

import pickle
import struct
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.allocator_plan import LiveRanges, instance_of_columns, normative_order, peak_of_columns, stem_of
from tmmu_core.formats.pytorch.snapshot.categories import Allocations, Categories, categorise
from tmmu_core.formats.pytorch.snapshot.history import BEFORE, History, settings_of
from tmmu_core.formats.pytorch.snapshot.reserved_memory import Lived, layout, reserved_over_time
from tmmu_core.formats.pytorch.snapshot.snapshot_events import (
    ALLOC,
    FREE,
    Block,
    Events,
    Segment,
    Snapshot,
    read_snapshot,
    refuse_many_devices,
)
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import Stacks
from tmmu_core.graph.quantities import short_bytes
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.model import CATEGORIES

HINT = "Write it with torch.cuda.memory._dump_snapshot(FILE)."
FEWER_EVENTS = "Record fewer events: torch.cuda.memory._record_memory_history(max_entries=1_000_000)."
LAST_ADDRESS = 1 << 62
"""Addresses and sizes are below this."""


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan of the device with the highest peak. Raises ``UnreadableInput``."""
    snapshot, shown, notes = fullest_device(data, name)
    return instance_of_device(stem_of(name) or "snapshot", shown, snapshot, notes)


def fullest_device(data: bytes, name: str) -> tuple[Snapshot, Device, list[str]]:
    """Return a file's snapshot, its device with the highest peak, and a note that names the other devices.

    Raises as :func:`read`.
    """
    snapshot = _decoded(data, name)
    segments = {segment.device for segment in snapshot.segments}
    devices = sorted(segments | {device for device, events in enumerate(snapshot.traces) if events.is_recorded})
    if not devices:
        raise UnreadableInput("the snapshot holds no segment and no allocation.", source=name, hint=HINT)
    refuse_many_devices(len(devices), name)
    check_numbers(snapshot, name)
    of_device: dict[int, list[Segment]] = {}
    for segment in snapshot.segments:
        of_device.setdefault(segment.device, []).append(segment)
    traces = snapshot.traces
    found = {
        device: device_of(traces[device] if 0 <= device < len(traces) else Events(), of_device.get(device, []))
        for device in devices
    }
    chosen = max(devices, key=lambda device: (found[device].peak[1], -device))
    shown = found[chosen]
    if not shown.rows.size:
        raise UnreadableInput("nothing is allocated in the snapshot.", source=name, hint=HINT)
    others = ", ".join(
        f"{device} (peak {short_bytes(found[device].peak[1])})" for device in devices if device != chosen
    )
    notes = [f"device {chosen} is shown; the snapshot also holds device {others}"] if others else []
    return snapshot, shown, notes


# --- decoding ----------------------------------------------------------------------------------------------------


def _refused(what: str) -> UnreadableInput:
    return UnreadableInput(what, hint=HINT)


def _decoded(data: bytes, name: str) -> Snapshot:
    try:
        return read_snapshot(data, _refused)
    except UnreadableInput as error:
        error.source = error.source or name
        raise
    except MemoryError as error:
        raise UnreadableInput(
            f"the snapshot of {len(data):,} bytes needs more memory than there is.", source=name, hint=FEWER_EVENTS
        ) from error
    except msgspec.ValidationError as error:
        what, _, place = str(error).rpartition(" - at ")
        raise UnreadableInput(
            f"the snapshot is damaged: {what or error}.", source=name, place=place, hint=HINT
        ) from error
    except Exception as error:  # a damaged pickle raises nearly anything
        raise UnreadableInput(f"the snapshot is damaged: {_what(error)}.", source=name, hint=HINT) from error


def _what(error: Exception) -> str:
    """Return the reason for people; Python's own texts differ between versions."""
    if isinstance(error, msgspec.DecodeError | EOFError):
        return (str(error).splitlines() or ["it ends too early"])[0][:200]
    if isinstance(error, pickle.UnpicklingError) and "truncated" in str(error):
        return "the file is cut off; write or copy it again"
    if isinstance(error, UnicodeDecodeError):
        return "a text in it is not UTF-8"
    if isinstance(error, IndexError | struct.error):
        return "a value is missing"
    return "it does not hold the values of a snapshot"


def check_numbers(snapshot: Snapshot, name: str) -> None:
    """Raise ``UnreadableInput`` for an address or size that is negative or too large."""
    numbers = [(segment.address, segment.total_size) for segment in snapshot.segments]
    blocks = [block for segment in snapshot.segments for block in segment.blocks]
    numbers += [(block.address or 0, block.size) for block in blocks]
    numbers += [(0, block.requested_size) for block in blocks if block.requested_size is not None]
    for events in snapshot.traces:
        addr, size = (np.frombuffer(column, np.int64) for column in (events.addr, events.size))
        wrong = np.flatnonzero((addr < 0) | (size < 0) | (addr >= LAST_ADDRESS) | (size >= LAST_ADDRESS))
        if len(wrong):
            numbers.append((int(addr[wrong[0]]), int(size[wrong[0]])))
    strange = next((pair for pair in numbers if min(pair) < 0 or max(pair) >= LAST_ADDRESS), None)
    if strange is not None:
        raise UnreadableInput(
            f"the snapshot is damaged: {_shown(strange[1])} bytes at the address {_shown(strange[0])}.",
            source=name,
            hint=HINT,
        )


def _shown(number: int) -> str:
    """Return the number as text; Python refuses to write thousands of digits."""
    return str(number) if abs(number) < 1 << 128 else "2^128 or more"


# --- live ranges ------------------------------------------------------------------------------------------------

BIRTH, DEATH, ADDRESS, SIZE, STACK, LANE, FREE_STACK, BEFORE_TRACE = range(8)


@dataclass(frozen=True)
class Device:
    """Live ranges of one device: int64 columns (:data:`BIRTH` …), by birth and address."""

    rows: NDArray[np.int64]
    events: Events
    segments: list[Segment]
    steps: int

    @cached_property
    def peak(self) -> tuple[int, int]:
        """``(step, bytes)`` of the highest use."""
        return peak_of_columns(*self.rows[[BIRTH, DEATH, SIZE]])


def device_of(events: Events, segments: list[Segment]) -> Device:
    """Return the live ranges of a device's events and of the blocks that its segments hold at the end."""
    _private_lanes(events, segments)
    found = _Rows()
    open_, steps = _traced(events, found)
    for address, (block, segment) in dict(_active(segments)).items():
        if address not in open_:
            size = block.size if block.requested_size is None else block.requested_size
            lane = events.lanes.setdefault(segment.lane, len(events.lanes))
            found.add(0, max(steps, 1), address, size, block.stack, lane, 0, events.is_recorded)
    rows = found.columns_of_valid_rows()
    return Device(rows[:, np.lexsort((rows[ADDRESS], rows[BIRTH]))], events, segments, max(steps, 1))


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


class _Rows:
    """Live ranges in the order found: the columns of :class:`Device`."""

    def __init__(self) -> None:
        self.columns = tuple(array("q") for _ in range(BEFORE_TRACE + 1))

    def add(self, *row: int) -> None:
        """Append one row."""
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)

    def columns_of_valid_rows(self) -> NDArray[np.int64]:
        """Return the rows as int64 columns; a range from before the trace ends where its address is allocated again."""
        columns = np.array([np.frombuffer(column, np.int64) for column in self.columns])
        columns = columns[:, columns[SIZE] > 0]
        birth, death, address = columns[:SIZE]
        early, late = np.flatnonzero(birth == 0), np.flatnonzero(birth)
        late = late[np.lexsort((birth[late], address[late]))]
        taken, first = np.unique(address[late], return_index=True)
        k = np.minimum(np.searchsorted(taken, address[early]), max(len(taken) - 1, 0))
        if len(taken):
            again = np.where(taken[k] == address[early], birth[late][first][k], death[early])
            death[early] = np.minimum(death[early], again)
        return columns


def _traced(events: Events, rows: _Rows) -> tuple[set[int], int]:
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
            rows.add(birth, step, addr, held, made, where, stack if action == FREE else 0, 0)
        elif action == FREE and size:
            rows.add(0, max(step, 1), addr, size, 0, lane, stack, 1)
        if action == ALLOC:
            open_[addr] = step, size, stack, lane
        step += 1
    for addr, (birth, size, stack, lane) in open_.items():
        rows.add(birth, step, addr, size, stack, lane, 0, 0)
    return set(open_), step


def _active(segments: Iterable[Segment]) -> Iterable[tuple[int, tuple[Block, Segment]]]:
    """Yield ``(address, (block, its segment))`` of allocated blocks; one without address follows the one before it."""
    for segment in segments:
        end = segment.address
        for block in segment.blocks:
            at = end if block.address is None else block.address
            end = at + block.size
            if block.state.startswith("active"):
                yield at, (block, segment)


# --- the instance -----------------------------------------------------------------------------------------------


def stacks_and_categories(device: Device, stacks: Stacks) -> tuple[NDArray[np.int64], Categories]:
    """Return the allocating stack of each row of a device, and the categories."""
    birth, death, address, size, stack, _, free_stack, before = device.rows
    freed = (before == 0) & (free_stack > 0)
    if freed.any() and (stack[freed] == free_stack[freed]).all():  # frees were recorded with the allocating stack
        stack = np.where((before > 0) & (stack == 0), free_stack, stack)
        free_stack = np.zeros_like(free_stack)
    columns = (birth, death, size, stack, free_stack, address, before > 0)
    return stack, categorise(Allocations(*columns, device.steps, stacks.phases))


def instance_of_device(name: str, device: Device, snapshot: Snapshot, notes: list[str]) -> PlainInstance:
    """Return the finished plan of a device, with its history."""
    birth, death, address, size, _, lane, _, before = device.rows
    stacks = snapshot.stacks
    stack, kinds = stacks_and_categories(device, stacks)
    reserved = reserved_over_time(device.events, device.segments)
    is_known = reserved.peak[1] >= device.peak[1]
    placed = layout(
        Lived(birth, death, address, size), device.events, device.segments, reserved.peak[1] if is_known else None
    )
    lives = LiveRanges(_names(stack, before, stacks.lines), birth, death, size, placed.offset)
    order = normative_order(lives)
    history = History(
        categories=tuple([CATEGORIES[k] for k in kinds.code[order].tolist()]),
        reserved_peak_bytes=reserved.peak[1] if is_known else None,
        ids=tuple([lives.ids[row] for row in order.tolist()]),
        birth=birth[order],
        death=death[order],
        size=size[order],
        address=address[order],
        stack=stack[order],
        lane=lane[order],
        certainty=kinds.certainty[order],
        phase=kinds.phase[order],
        is_before=before[order] > 0,
        lines=stacks.lines,
        paths=stacks.paths,
        lanes=tuple(device.events.lanes),
        reserved=reserved,
        events=device.events,
        segments=device.segments,
        settings=settings_of(snapshot.settings),
    )
    notes = [*notes, *_notes(history, device), *([placed.note] if is_known and placed.note else [])]
    found = instance_of_columns(name, lives, notes)
    return replace(found, made=history.made(), recorded=history)


def label_of(stack: int, is_before: int, lines: Sequence[str]) -> str:
    """Return the line of an allocation."""
    return BEFORE if is_before and not stack else lines[stack]


def _names(stack: NDArray[np.int64], before: NDArray[np.int64], lines: Sequence[str]) -> list[str]:
    """Return the names of allocations: their lines, numbered."""
    seen: Counter[str] = Counter()
    names = []
    for row, is_before in zip(stack.tolist(), before.tolist(), strict=True):
        line = label_of(row, is_before, lines)
        names.append(f"{line} #{seen[line]}")
        seen[line] += 1
    return names


def _notes(found: History, device: Device) -> Iterable[str]:
    at, reserved = found.reserved.peak
    if found.reserved_peak_bytes is None:
        yield "reserved bytes are not recorded"
    else:
        live = int(found.size[found.live_at(min(at, device.steps - 1))].sum())
        yield f"reserved: at most {short_bytes(reserved)}, at step {at:,} with {short_bytes(live)} in use"
    if not device.events.is_recorded:
        yield "the snapshot has no trace: it is one moment; record one with torch.cuda.memory._record_memory_history()"
        return
    if found.is_before.any():
        size = int(found.size[found.is_before].sum())
        yield f"{int(found.is_before.sum()):,} allocations ({short_bytes(size)}) began {BEFORE} and live from its start"
    for failure in found.failures[:1]:
        yield (
            f"{len(found.failures):,} allocations failed; the first, at step {failure.step:,}, requested "
            f"{short_bytes(failure.requested)} with {short_bytes(failure.free)} free"
        )
