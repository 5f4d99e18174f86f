"""The events of a PyTorch allocator snapshot as they come out of a file: four numbers each, a stack kept once.

::

    {action: alloc, addr, size, frames: [f3, f9, …]}  ──►  Events   action  addr        size  stack
                                                                    u8      i64         i64   i32 ──► Stacks: its line
    {filename, line, name}                            ──►  Frame, one of each

A pickle of PyTorch says its frames once and then by number, and a stack as a list of such numbers: a stack whose
numbers have been read before is known by its bytes alone.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO

import msgspec

from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.once import learned
from tmmu_core.formats.pytorch.snapshot import plain_pickle

ALLOC, FREE, MAP = 0, 1, 2
"""What an event does: bytes are taken, given back, or a segment comes from the device."""
_DOES = {"alloc": ALLOC, "free_completed": FREE, "free": FREE, "segment_alloc": MAP, "segment_map": MAP}


LEAST = 8
"""Bytes that a pickle takes at least to say an event, a segment or a block: a dict, and two of its values by number."""


class Frame(msgspec.Struct, gc=False, frozen=True):
    """A line of a stack."""

    filename: str = ""
    line: int = 0
    name: str = ""


class Stack(int):
    """The number of a stack in :class:`Stacks`, told from any other number."""


NO_STACK = Stack(0)
"""The stack that nobody recorded."""


class Stacks:
    """What stacks are called, each looked into once."""

    def __init__(self) -> None:
        self.lines = ["unknown line"]
        """By the number of a stack, its innermost line that is the user's: Python, and not PyTorch's own."""
        self.known: dict[Any, Stack] = {(): NO_STACK}
        self.said: dict[str, str] = {}

    def of(self, key: Any, frames: Iterable[Frame]) -> Stack:
        """The stack of these frames, which ``key`` tells from all others."""
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Stack(len(self.lines))
            line = _line(tuple(frames))
            self.lines.append(self.said.setdefault(line, line))
        return found


def _line(frames: Sequence[Frame]) -> str:
    for frame in frames:
        path = frame.filename.replace("\\", "/")
        if path.endswith(".py") and "/torch/" not in path:
            return f"{path.rpartition('/')[2]}:{frame.line} {frame.name}"
    return frames[0].name[:80] if frames and frames[0].name else "unknown line"


class Events:
    """A device's events that take bytes, give them back or bring a segment, in order; the others are counted alone."""

    __slots__ = ("action", "addr", "count", "size", "stack")

    def __init__(self) -> None:
        self.action, self.addr, self.size, self.stack = array("B"), array("q"), array("q"), array("i")
        self.count = 0

    def add(self, action: Any, addr: Any, size: Any, stack: Stack) -> None:
        """One more. Raises ``ValueError`` for what is none."""
        if type(action) is not str or type(addr) is not int or type(size) is not int:
            raise plain_pickle.Damaged(f"an event is {action!r:.80} at {addr!r:.80} of {size!r:.80} bytes")
        self.count += 1
        does = _DOES.get(action)
        if does is not None:
            self.action.append(does)
            self.addr.append(addr)
            self.size.append(size)
            self.stack.append(stack)


class Block(msgspec.Struct, gc=False):
    """A part of a segment; older snapshots give no address, for blocks lie one behind the other."""

    size: int
    state: str = ""
    address: int | None = None
    requested_size: int | None = None
    frames: Any = None


class Segment(msgspec.Struct, gc=False):
    """What the allocator took from the device in one piece."""

    address: int
    total_size: int
    device: int = 0
    blocks: list[Block] = []


class Snapshot(msgspec.Struct, gc=False):
    """What is read of a snapshot; the rest is left. The frames of its blocks are :class:`Stack`."""

    segments: list[Segment]
    traces: list[Events]
    """By device."""
    stacks: Stacks


def refuse_many_devices(count: int, source: str = "") -> None:
    """Raise ``UnreadableInput`` for more devices than the limit: each has columns, also where nothing is in them."""
    if count > limits.ceiling(limits.DEVICES):
        raise limits.past(limits.DEVICES, "the snapshot", source)


# --- pickled -----------------------------------------------------------------------------------------------------


def of_pickle(file: BinaryIO, size: int, refused: Callable[[str], UnreadableInput]) -> Snapshot:
    """The snapshot in a pickle of ``size`` bytes. Raises as :meth:`pickled.PlainData.load`, and msgspec's errors."""
    reading = _Pickled(file, size, refused)
    found = reading.load()
    if type(found) is list:  # of torch.cuda.memory_snapshot(), which gives the segments alone
        found = {"segments": found}
    if type(found) is not dict:
        raise plain_pickle.Damaged("it is no dict")
    traces = found.get("device_traces")
    lists = traces if type(traces) is list else []
    refuse_many_devices(len(lists))
    parts = _listed(found.get("segments"))
    blocks = [each.get("blocks") for each in parts if type(each) is dict]
    said = len(parts) + sum(_count(each) for each in [*lists, *blocks])
    if said * LEAST > size:
        raise refused(f"the pickle says its {said:,} events, segments and blocks more than once.")
    segments = msgspec.convert(found, _Segments).segments
    for segment in segments:
        for block in segment.blocks:
            block.frames = reading.stack_of(block.frames)
    return Snapshot(segments, [reading.events_of(each) for each in lists], reading.stacks)


class _Segments(msgspec.Struct, gc=False):
    segments: list[Segment] = []
    device_traces: list[Any] | None = None


learned(Frame, Block, Segment, Snapshot, _Segments)


def _listed(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _count(values: Any) -> int:
    listed = _listed(values)
    return listed[0].count if listed and type(listed[0]) is Events else len(listed)


_FRAMES = re.compile(rb"(\x94|q.|r.{4}|)\(((?:h.|j.{4}){1,999}+)e", re.DOTALL)
"""A list, behind its beginning, of nothing but values that have a number."""
_NUMBERS = re.compile(rb"h(.)|j(.{4})", re.DOTALL)


class _Pickled(plain_pickle.PlainData):
    """A snapshot's pickle, of which events, frames and stacks are taken as they come."""

    def __init__(self, file: BinaryIO, size: int, refused: Callable[[str], UnreadableInput]) -> None:
        super().__init__(file, size, refused)
        self.stacks, self.runs = Stacks(), dict[bytes, Stack]()
        self.frames: dict[Frame, Frame] = {}

    def list_at_once(self, data: bytes, at: int) -> int:
        """A stack whose frames have numbers."""
        match = _FRAMES.match(data, at)
        if match is None:
            return 0
        put, run = match.groups()
        stack = self.runs.get(run)
        if stack is None:
            frames = tuple(self.memo[int.from_bytes(a or b, "little")] for a, b in _NUMBERS.findall(run))
            if any(type(frame) is not Frame for frame in frames):
                return 0
            stack = self.runs[run] = self._of_frames(frames)
        if put == b"\x94":
            self.memo.append(stack)
        elif put:
            self.number(int.from_bytes(put[1:], "little"), stack)
        self.stack.append(stack)
        return match.end()

    def appended(self, into: list[Any], items: list[Any]) -> None:
        """``items`` go into the list ``into``; events, and the values in them, as what is kept of them."""
        first = items[0]
        if type(first) is dict:
            if "action" in first:
                self._events(into, items)
                return
            if "filename" in first or "line" in first:
                items = [self._frame(item) for item in items]
            elif "state" in first:
                for block in items:
                    if type(block) is dict:
                        block["frames"] = self.stack_of(block.get("frames"))
        into.extend(items)

    def events_of(self, trace: Any) -> Events:
        """The events of a device, of what the pickle holds for it."""
        if type(trace) is not list:
            raise plain_pickle.Damaged(f"a device's trace is {type(trace).__name__}")
        if not trace or type(trace[0]) is not Events:
            said, trace = trace, []
            self._events(trace, said)
        if len(trace) > 1:
            raise plain_pickle.Damaged("a device's trace holds what is no event")
        return trace[0]

    def _events(self, into: list[Any], items: list[Any]) -> None:
        if not into:
            into.append(Events())
        events = into[0]
        if type(events) is not Events:
            raise plain_pickle.Damaged("an event in a list of other values")
        for item in items:
            if type(item) is not dict or "action" not in item:
                raise plain_pickle.Damaged("a device's trace holds what is no event")
            get = item.get
            frames = get("frames")
            stack = frames if type(frames) is Stack else self.stack_of(frames)
            events.add(get("action"), get("addr", 0), get("size", 0), stack)
            self.let_go(item)

    def _frame(self, said: Any) -> Frame:
        if type(said) is Frame:
            return said
        if type(said) is not dict:
            raise plain_pickle.Damaged(f"a stack holds {type(said).__name__}")
        frame = msgspec.convert(said, Frame)
        frame = self.frames.setdefault(frame, frame)
        self.let_go(said, frame)
        return frame

    def stack_of(self, said: Any) -> Stack:
        """The number of a stack as the pickle says it."""
        if type(said) is Stack:
            return said
        if said is None:
            return NO_STACK
        if type(said) is not list:
            raise plain_pickle.Damaged(f"a stack is {type(said).__name__}")
        if len(said) == 1 and type(said[0]) is Stack:
            return said[0]
        stack = self._of_frames(tuple(self._frame(frame) for frame in said))
        said[:] = [stack]  # whoever holds this very list need not look again
        self.let_go(said, stack)
        return stack

    def _of_frames(self, frames: tuple[Frame, ...]) -> Stack:
        return self.stacks.of(tuple(map(id, frames)), frames)
