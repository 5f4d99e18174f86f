"""PyTorch's allocator snapshot (``torch.cuda.memory._snapshot()``), pickled or as JSON, as a finished plan.

::

    device_traces[device]   alloc 0x7f…00 512 B ── frames ──┐            a live range: alloc to free_completed
                            free_completed 0x7f…00 ─────────┘
    segments                memory reserved by the caching allocator: concatenated, they are the arena
      blocks                allocations at the end; one without an alloc event existed before the trace began

A step is an alloc or free event. Of several devices, the one with the highest peak is shown; a note names the others.
A tensor is named after the innermost line of its stack outside of PyTorch.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.allocator_plan import AddressMap, Lives, instance_of_columns, peak_of_columns, stem_of
from tmmu_core.formats.pytorch.snapshot.snapshot_events import (
    ALLOC,
    FREE,
    MAP,
    Block,
    Events,
    Segment,
    Snapshot,
    read_snapshot,
    refuse_many_devices,
)
from tmmu_core.planners.problem import PlainInstance

HINT = "Write it with torch.cuda.memory._dump_snapshot(FILE)."
LAST_ADDRESS = 1 << 62
"""Addresses and sizes are below this."""
NAMED_AT_PEAK = 5


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan of the device with the highest peak. Raises ``UnreadableInput``."""
    snapshot = _decoded(data, name)
    segments = {segment.device for segment in snapshot.segments}
    devices = sorted(segments | {device for device, events in enumerate(snapshot.traces) if events.is_recorded})
    if not devices:
        raise UnreadableInput("the snapshot holds no segment and no allocation.", source=name, hint=HINT)
    refuse_many_devices(len(devices), name)
    _check(snapshot, name)
    of_device: dict[int, list[Segment]] = {}
    for segment in snapshot.segments:
        of_device.setdefault(segment.device, []).append(segment)
    found = {device: _device(snapshot, device, of_device.get(device, [])) for device in devices}
    chosen = max(devices, key=lambda device: (found[device].peak[1], -device))
    shown = found[chosen]
    if not len(shown.birth):
        raise UnreadableInput("nothing is allocated in the snapshot.", source=name, hint=HINT)
    notes = list(_notes(shown, snapshot.stacks.lines))
    if len(devices) > 1:
        others = ", ".join(str(device) for device in devices if device != chosen)
        notes.insert(0, f"device {chosen} is shown; the snapshot holds device {others} too")
    return instance_of_columns(stem_of(name) or "snapshot", shown.named(snapshot.stacks.lines), notes)


# --- decoding ----------------------------------------------------------------------------------------------------


def _refused(what: str) -> UnreadableInput:
    return UnreadableInput(what, hint=HINT)


def _decoded(data: bytes, name: str) -> Snapshot:
    try:
        return read_snapshot(data, _refused)
    except UnreadableInput as error:
        error.source = error.source or name
        raise
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
    if isinstance(error, UnicodeDecodeError):
        return "a text in it is not UTF-8"
    if isinstance(error, IndexError | struct.error):
        return "a value is missing"
    return "it does not hold the values of a snapshot"


def _check(snapshot: Snapshot, name: str) -> None:
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


@dataclass(frozen=True)
class _Device:
    """Live ranges of one device: int64 columns, a row per allocation, by birth and address."""

    birth: NDArray[np.int64]
    death: NDArray[np.int64]
    size: NDArray[np.int64]
    offset: NDArray[np.int64]
    stack: NDArray[np.int64]
    reserved: int
    """Bytes of all segments that ever existed."""
    held: int
    """Bytes of the segments that exist at the end."""
    before: int
    """Number of allocations that began before the trace."""
    traced: bool

    @cached_property
    def peak(self) -> tuple[int, int]:
        """``(step, bytes)`` of the highest use."""
        return peak_of_columns(self.birth, self.death, self.size)

    def named(self, lines: Sequence[str]) -> Lives:
        """Return the live ranges, named after their lines and numbered."""
        seen: Counter[str] = Counter()
        names = []
        for stack in self.stack.tolist():
            line = lines[stack]
            names.append(f"{line} #{seen[line]}")
            seen[line] += 1
        return Lives(names, self.birth, self.death, self.size, self.offset)


def _device(snapshot: Snapshot, device: int, segments: Sequence[Segment]) -> _Device:
    events = snapshot.traces[device] if 0 <= device < len(snapshot.traces) else Events()
    rows, open_, steps, before = _traced(events)
    for address, block in dict(_active(segments)).items():
        if address not in open_:
            size = block.size if block.requested_size is None else block.requested_size
            rows.add(0, max(steps, 1), address, size, block.stack)
            before += events.is_recorded
    columns = rows.columns_of_valid_rows()
    birth, death, address, size, stack = columns[:, np.lexsort((columns[2], columns[0]))]  # they come by death
    mapped = np.frombuffer(events.action, np.uint8) == MAP
    regions = [np.array([getattr(each, field) for each in segments], np.int64) for field in ("address", "total_size")]
    maps = [np.frombuffer(column, np.int64)[mapped] for column in (events.addr, events.size)]
    starts = np.concatenate((regions[0], maps[0], address))
    places = AddressMap.of(starts, starts + np.concatenate((regions[1], maps[1], size)))
    held = sum(segment.total_size for segment in segments)
    offset = places.offsets(address)
    return _Device(birth, death, size, offset, stack, places.size, held, before, events.is_recorded)


class _Rows:
    """Live ranges in the order found: birth, death, address, size and stack of each."""

    def __init__(self) -> None:
        self.columns = tuple(array("q") for _ in range(5))

    def add(self, *row: int) -> None:
        """Append one row."""
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)

    def columns_of_valid_rows(self) -> NDArray[np.int64]:
        """Return the rows as int64 columns; a range from before the trace ends where its address is allocated again."""
        columns = np.array([np.frombuffer(column, np.int64) for column in self.columns])
        columns = columns[:, columns[3] > 0]
        birth, death, address = columns[:3]
        early, late = np.flatnonzero(birth == 0), np.flatnonzero(birth)
        late = late[np.lexsort((birth[late], address[late]))]
        taken, first = np.unique(address[late], return_index=True)
        k = np.minimum(np.searchsorted(taken, address[early]), max(len(taken) - 1, 0))
        if len(taken):
            again = np.where(taken[k] == address[early], birth[late][first][k], death[early])
            death[early] = np.minimum(death[early], again)
        return columns


def _traced(events: Events) -> tuple[_Rows, set[int], int, int]:
    """``(live ranges, addresses allocated at the end, number of steps, ranges that began before the trace)``."""
    rows = _Rows()
    open_: dict[int, tuple[int, int, int]] = {}  # by address: birth, size, stack
    step = before = 0
    for action, addr, size, stack in zip(events.action, events.addr, events.size, events.stack, strict=True):
        if action == MAP:
            continue
        opened = open_.pop(addr, None)
        if opened is not None:  # freed, or allocated again without a recorded free
            rows.add(opened[0], step, addr, opened[1], opened[2])
        elif action == FREE and size:
            rows.add(0, max(step, 1), addr, size, stack)
            before += 1
        if action == ALLOC:
            open_[addr] = step, size, stack
        step += 1
    for addr, (birth, size, stack) in open_.items():
        rows.add(birth, step, addr, size, stack)
    return rows, set(open_), step, before


def _active(segments: Iterable[Segment]) -> Iterable[tuple[int, Block]]:
    """Yield ``(address, block)`` of allocated blocks; a block without address follows the one before it."""
    for segment in segments:
        end = segment.address
        for block in segment.blocks:
            at = end if block.address is None else block.address
            end = at + block.size
            if block.state.startswith("active"):
                yield at, block


def _notes(found: _Device, lines: Sequence[str]) -> Iterable[str]:
    step, most = found.peak
    yield f"the allocator held {found.held:,} bytes in segments at the end, {found.reserved:,} over the whole trace"
    if not found.traced:
        yield "the snapshot has no trace: it is one moment; record one with torch.cuda.memory._record_memory_history()"
        return
    if found.before:
        yield f"{found.before:,} allocations began before the trace and are taken to live from its start"
    by_line: Counter[str] = Counter()
    alive = (found.birth <= step) & (step < found.death)
    for stack, size in zip(found.stack[alive].tolist(), found.size[alive].tolist(), strict=True):
        by_line[lines[stack]] += size
    ordered: Mapping[str, int] = dict(sorted(by_line.items(), key=lambda item: (-item[1], item[0]))[:NAMED_AT_PEAK])
    held = "; ".join(f"{line} {size:,}" for line, size in ordered.items())
    yield f"of the {most:,} bytes at the peak (step {step:,}), by line: {held}"
