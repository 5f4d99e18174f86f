"""PyTorch's allocator snapshot (``torch.cuda.memory._snapshot()``), pickled or as JSON, as a finished plan.

::

    device_traces[device]   alloc 0x7f…00 512 B ── frames ──┐            a life: from alloc to free_completed
                            free_completed 0x7f…00 ─────────┘
    segments                what the caching allocator holds of the device: laid one behind the other, the arena
      blocks                what is active at the end; without an alloc in the trace it was there before it began

Steps are the trace's events of taking and giving back. Where several devices are in it, the one with the highest peak
is shown, and the others are told. A life is called by the innermost line of its stack that is not PyTorch's own.

Nothing in a pickle is run: it may hold dicts, lists, tuples, texts and numbers, and whatever else it asks for is
refused by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tmmu_core.errors import UnreadableInput
from tmmu_core.plan.formats import pickled
from tmmu_core.plan.formats.given import AddressMap, Life, instance_of, peak_of, stem_of
from tmmu_core.planners.problem import PlainInstance

HINT = "Write it with torch.cuda.memory._dump_snapshot(FILE)."
LAST_ADDRESS = 1 << 63
"""Addresses and sizes are below this."""
NAMED_AT_PEAK = 5


class Frame(msgspec.Struct, gc=False):
    """A line of a stack."""

    name: str = ""
    filename: str = ""
    line: int = 0


Frames = Any
"""A stack as it came: objects out of a pickle, bytes out of JSON. Only that of a life is looked into, each once."""


class Event(msgspec.Struct, gc=False):
    """An entry of a device's trace."""

    action: str
    addr: int = 0
    size: int = 0
    frames: Frames = None


class Block(msgspec.Struct, gc=False):
    """A part of a segment; older snapshots give no address, for blocks lie one behind the other."""

    size: int
    state: str = ""
    address: int | None = None
    requested_size: int | None = None
    frames: Frames = None


class Segment(msgspec.Struct, gc=False):
    """What the allocator took from the device in one piece."""

    address: int
    total_size: int
    device: int = 0
    blocks: list[Block] = []


class _TextEvent(Event, gc=False):
    frames: msgspec.Raw = msgspec.Raw(b"null")


class _TextBlock(Block, gc=False):
    frames: msgspec.Raw = msgspec.Raw(b"null")


class _TextSegment(Segment, gc=False):
    blocks: list[_TextBlock] = []  # type: ignore[assignment]


class Snapshot(msgspec.Struct, gc=False):
    """What is read of a snapshot; the rest is left."""

    segments: list[Segment]
    device_traces: list[list[Event]] = []


class _TextSnapshot(Snapshot, gc=False):
    segments: list[_TextSegment]  # type: ignore[assignment]
    device_traces: list[list[_TextEvent]] = []  # type: ignore[assignment]


def read(data: bytes, name: str = "") -> PlainInstance:
    """The finished plan of one device. Raises ``UnreadableInput``."""
    snapshot = _decoded(data, name)
    devices = sorted({segment.device for segment in snapshot.segments} | _busy(snapshot.device_traces))
    if not devices:
        raise UnreadableInput("the snapshot holds no segment and no allocation.", source=name, hint=HINT)
    try:
        lives = {device: _lives(snapshot, device, name) for device in devices}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(f"a stack in the snapshot is damaged: {error}.", source=name, hint=HINT) from error
    chosen = max(devices, key=lambda device: (peak_of(lives[device].lives)[1], -device))
    found = lives[chosen]
    if not found.lives:
        raise UnreadableInput("nothing is allocated in the snapshot.", source=name, hint=HINT)
    notes = list(_notes(found))
    if len(devices) > 1:
        others = ", ".join(str(device) for device in devices if device != chosen)
        notes.insert(0, f"device {chosen} is shown; the snapshot holds device {others} too")
    return instance_of(stem_of(name) or "snapshot", found.lives, notes)


# --- decoding ----------------------------------------------------------------------------------------------------


def _refused(what: str) -> UnreadableInput:
    return UnreadableInput(what, hint=HINT)


def _said_once(found: Any, room: int) -> Any:
    """A pickle that says one list a thousand times is small, and would not be when it is looked at."""
    if isinstance(found, dict):
        lists = [*_lists(found.get("device_traces"))]
        lists += [each.get("blocks") for each in _lists(found.get("segments")) if isinstance(each, dict)]
        events = sum(len(each) for each in lists if isinstance(each, list | tuple))
        if events > room:
            raise UnreadableInput(f"the pickle says its {events:,} events more than once.", hint=HINT)
    return found


def _lists(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _decoded(data: bytes, name: str) -> Snapshot:
    try:
        if not data.startswith(pickled.FIRST):
            return msgspec.json.decode(data, type=_TextSnapshot)
        return msgspec.convert(_said_once(pickled.load(data, _refused), len(data)), Snapshot)
    except UnreadableInput as error:
        error.source = error.source or name
        raise
    except msgspec.ValidationError as error:
        what, _, place = str(error).rpartition(" - at ")
        raise UnreadableInput(
            f"the snapshot is damaged: {what or error}.", source=name, place=place, hint=HINT
        ) from error
    except Exception as error:  # a damaged pickle raises nearly anything
        says = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UnreadableInput(f"the snapshot is damaged: {says}.", source=name, hint=HINT) from error


def _busy(traces: Sequence[Sequence[Event]]) -> set[int]:
    return {device for device, events in enumerate(traces) if events}


# --- lives -------------------------------------------------------------------------------------------------------


@dataclass
class _Device:
    """One device's lives and what they lie in."""

    lives: list[Life] = field(default_factory=list)
    reserved: int = 0
    """Bytes of all segments that were ever there, laid one behind the other."""
    held: int = 0
    """Bytes of the segments that are there at the end."""
    before: int = 0
    """Lives that began before the trace."""
    traced: bool = False


TAKES, GIVES = ("alloc",), ("free_completed", "free")
MAPS = ("segment_alloc", "segment_map")


def _lives(snapshot: Snapshot, device: int, name: str) -> _Device:
    events = snapshot.device_traces[device] if 0 <= device < len(snapshot.device_traces) else []
    segments = [segment for segment in snapshot.segments if segment.device == device]
    _check(events, segments, name)
    found = _Device(traced=bool(events), held=sum(segment.total_size for segment in segments))
    active = {block.address: block for block in _active(segments)}
    open_: dict[int, tuple[int, Event]] = {}
    rows: list[tuple[int, int, int, int, Frames]] = []  # birth, death, address, size, frames
    step = 0
    for event in events:
        if event.action in TAKES:
            if event.addr in open_:  # its end was not recorded
                _close(rows, open_.pop(event.addr), step)
            open_[event.addr] = step, event
        elif event.action in GIVES:
            if event.addr in open_:
                _close(rows, open_.pop(event.addr), step)
            elif event.size:
                rows.append((0, max(step, 1), event.addr, event.size, event.frames))
                found.before += 1
        else:
            continue
        step += 1
    end = max(step, 1)
    for born, event in open_.values():
        _close(rows, (born, event), end)
    for address, block in active.items():
        if address not in open_ and address is not None:
            size = block.size if block.requested_size is None else block.requested_size
            rows.append((0, end, address, size, block.frames))
            found.before += bool(events)
    regions = [(segment.address, segment.address + segment.total_size) for segment in segments]
    regions += [(event.addr, event.addr + event.size) for event in events if event.action in MAPS]
    places = AddressMap.of([*regions, *((address, address + size) for _, _, address, size, _ in rows)])
    found.reserved = places.size
    seen: Counter[str] = Counter()
    lines = _Lines()
    for birth, death, address, size, frames in sorted(_apart(rows), key=lambda row: (row[0], row[2], row[1])):
        line = lines.of(frames)
        found.lives.append(Life(f"{line} #{seen[line]}", birth, death, size, places.offset(address)))
        seen[line] += 1
    return found


def _close(rows: list[tuple[int, int, int, int, Frames]], opened: tuple[int, Event], step: int) -> None:
    birth, event = opened
    rows.append((birth, max(step, birth + 1), event.addr, event.size, event.frames))


def _apart(rows: list[tuple[int, int, int, int, Any]]) -> Iterable[tuple[int, int, int, int, Any]]:
    """The rows without what a trace cannot have held: a life that began before it cannot outlast what came after."""
    first: dict[int, int] = {}
    for birth, _, address, _, _ in rows:
        if birth:
            first[address] = min(birth, first.get(address, birth))
    for birth, death, address, size, frames in rows:
        if size:
            yield birth, (min(death, first.get(address, death)) if not birth else death), address, size, frames


def _active(segments: Iterable[Segment]) -> Iterable[Block]:
    for segment in segments:
        at = segment.address
        for block in segment.blocks:
            block.address = at if block.address is None else block.address
            at = block.address + block.size
            if block.state.startswith("active"):
                yield block


def _check(events: Sequence[Event], segments: Sequence[Segment], name: str) -> None:
    numbers = [(event.addr, event.size) for event in events]
    numbers += [(segment.address, segment.total_size) for segment in segments]
    blocks = [block for segment in segments for block in segment.blocks]
    numbers += [(block.address or 0, block.size) for block in blocks]
    numbers += [(0, block.requested_size or 0) for block in blocks]
    wrong = next((pair for pair in numbers if min(pair) < 0 or max(pair) >= LAST_ADDRESS), None)
    if wrong is not None:
        raise UnreadableInput(
            f"the snapshot is damaged: {wrong[1]} bytes at the address {wrong[0]}.", source=name, hint=HINT
        )


class _Lines:
    """What stacks are called, each looked into once."""

    def __init__(self) -> None:
        self.known: dict[Any, str] = {}
        self.lists: dict[int, str] = {}

    def of(self, frames: Frames) -> str:
        """The innermost line that is the user's: Python, and not PyTorch's own."""
        if isinstance(frames, msgspec.Raw):
            key: Any = bytes(frames)
            if key not in self.known:
                self.known[key] = _line(msgspec.json.decode(key, type=list[Frame] | None) or ())
            return self.known[key]
        if id(frames) not in self.lists:  # a pickle shares its stacks, and their frames
            key = tuple(map(id, frames)) if isinstance(frames, list) else ()
            if key not in self.known:
                self.known[key] = _line(msgspec.convert(frames, list[Frame] | None) or ())
            self.lists[id(frames)] = self.known[key]
        return self.lists[id(frames)]


def _line(frames: Sequence[Frame]) -> str:
    for frame in frames:
        path = frame.filename.replace("\\", "/")
        if path.endswith(".py") and "/torch/" not in path:
            return f"{path.rpartition('/')[2]}:{frame.line} {frame.name}"
    return frames[0].name[:80] if frames and frames[0].name else "unknown line"


def _notes(found: _Device) -> Iterable[str]:
    step, most = peak_of(found.lives)
    yield f"the allocator held {found.held:,} bytes in segments at the end, {found.reserved:,} over the whole trace"
    if not found.traced:
        yield "the snapshot has no trace: it is one moment; record one with torch.cuda.memory._record_memory_history()"
        return
    if found.before:
        yield f"{found.before:,} allocations began before the trace and are taken to live from its start"
    by_line: Counter[str] = Counter()
    for life in found.lives:
        if life.birth <= step < life.death:
            by_line[life.id.rpartition(" #")[0]] += life.size
    ordered: Mapping[str, int] = dict(sorted(by_line.items(), key=lambda item: (-item[1], item[0]))[:NAMED_AT_PEAK])
    lines = "; ".join(f"{line} {size:,}" for line, size in ordered.items())
    yield f"of the {most:,} bytes at the peak (step {step:,}), by line: {lines}"
