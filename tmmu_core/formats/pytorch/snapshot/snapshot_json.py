"""A PyTorch allocator snapshot as JSON, whose events are taken as they come.

::

    {"segments": […], "device_traces": [[{"action": …}, {"action": …}, … ]], …}
                                         ───────┬────────┬─── … ────
     before: kept                        pieces of events, decoded and let go     behind: kept

A trace is cut where an event begins: at what the first one begins with, which no text in JSON can hold, for its
quotation marks would be escaped there. What is laid out otherwise is decoded whole, and so is a trace with an event so
long that there is nothing to cut in two pieces of the file: each further one would be looked through with all before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, BinaryIO

import msgspec

from tmmu_core.base.once import learned
from tmmu_core.formats.pytorch.snapshot.snapshot_events import (
    Block,
    Events,
    Frame,
    Segment,
    Snapshot,
    Stack,
    Stacks,
    refuse_many_devices,
)


class _TextEvent(msgspec.Struct, gc=False):
    action: str
    addr: int = 0
    size: int = 0
    frames: msgspec.Raw = msgspec.Raw(b"null")


class _TextBlock(Block, gc=False):
    frames: msgspec.Raw = msgspec.Raw(b"null")


class _TextSegment(Segment, gc=False):
    blocks: list[_TextBlock] = msgspec.field(default_factory=list)  # type: ignore[assignment]


class _TextSnapshot(msgspec.Struct, gc=False):
    segments: list[_TextSegment] = msgspec.field(default_factory=list)
    device_traces: Any = None


class _WholeSnapshot(msgspec.Struct, gc=False):
    segments: list[_TextSegment] = msgspec.field(default_factory=list)
    device_traces: list[list[_TextEvent]] | None = None


learned(_TextEvent, _TextBlock, _TextSegment, _TextSnapshot, _WholeSnapshot)


class _Otherwise(Exception):
    """The text is not laid out as Python writes one."""


_CHUNK = 1 << 22
_PLACE = b'"device_traces are read"'
_TRACES = re.compile(rb'(?<!\\)"device_traces"\s*:\s*\[')
_FIRST = re.compile(rb'\s*(?:,\s*)?\[\s*(?:(\])|(\{\s*"[^"\\]*"))')
_LAST = re.compile(rb"\}\s*(\])\s*(?:\]|,\s*\[)")
_CLOSED = re.compile(rb"\s*\]")


def of_json(file: BinaryIO) -> Snapshot:
    """The snapshot in a JSON document, which can be read twice. Raises ``UnreadableInput`` for too many devices,
    msgspec's errors and ``UnicodeDecodeError``.

    Where it cannot be cut it is decoded whole.
    """
    reading = _Text(file)
    try:
        return reading.snapshot()
    except (_Otherwise, msgspec.DecodeError):
        file.seek(0)
    reading = _Text(file)
    data = file.read()
    if re.match(rb"\s*\[", data):  # of torch.cuda.memory_snapshot(), which gives the segments alone
        found = _WholeSnapshot(msgspec.json.decode(data, type=list[_TextSegment]))
    else:
        found = msgspec.json.decode(data, type=_WholeSnapshot)
    reading.of_blocks(found.segments)
    refuse_many_devices(len(found.device_traces or ()))
    for events in found.device_traces or ():
        reading.traces.append(Events())
        reading.add(events)
    return Snapshot(list(found.segments), reading.traces, reading.stacks)


class _Text:
    """A snapshot's JSON, of which events are taken as they come."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.data = file, b""
        self.stacks = Stacks()
        self.traces: list[Events] = []

    def snapshot(self) -> Snapshot:
        """The snapshot. Raises ``_Otherwise`` as well."""
        before = bytearray()
        while (traces := _TRACES.search(self.data)) is None:
            before += self.data[:-64]
            self.data = self.data[-64:]
            self._more()
        before += self.data[: traces.end() - 1] + _PLACE
        self.data = self.data[traces.end() :]
        self._traces()
        rest = msgspec.json.decode(bytes(before) + self.data + self.file.read(), type=_TextSnapshot)
        if rest.device_traces != _PLACE.decode().strip('"'):
            raise _Otherwise
        self.of_blocks(rest.segments)
        return Snapshot(list(rest.segments), self.traces, self.stacks)

    def _more(self) -> None:
        read = self.file.read(_CHUNK)
        if not read:
            raise _Otherwise
        self.data += read

    def _traces(self) -> None:
        """Up to behind the end of the list of traces."""
        while True:
            if len(self.data) < _CHUNK // 2:
                self.data += self.file.read(_CHUNK)
            closed = _CLOSED.match(self.data)
            if closed:
                self.data = self.data[closed.end() :]
                return
            first = _FIRST.match(self.data)
            if first is None:
                raise _Otherwise
            self.traces.append(Events())
            refuse_many_devices(len(self.traces))
            if first[1]:
                self.data = self.data[first.end() :]
                continue
            self.data = self.data[first.start(2) :]
            self._trace(first[2])

    def _trace(self, opening: bytes) -> None:
        """Up to behind the end of one trace; each of its events begins with ``opening``."""
        while True:
            last = _LAST.search(self.data)
            cut = last.start(1) if last else self.data.rfind(opening)
            if cut > 0:
                self.add(msgspec.json.decode(b"[" + self.data[:cut].rstrip(b" \t\r\n,") + b"]", type=list[_TextEvent]))
                self.data = self.data[cut:]
            if last:
                self.data = self.data[1:]
                return
            if len(self.data) > 2 * _CHUNK:
                raise _Otherwise
            self._more()

    def add(self, events: Iterable[_TextEvent]) -> None:
        """More events of the last device."""
        add = self.traces[-1].add
        for event in events:
            add(event.action, event.addr, event.size, self.stack_of(event.frames))

    def of_blocks(self, segments: Iterable[_TextSegment]) -> None:
        """Give blocks the numbers of their stacks."""
        for segment in segments:
            for block in segment.blocks:
                block.frames = self.stack_of(block.frames)  # type: ignore[assignment]

    def stack_of(self, said: msgspec.Raw) -> Stack:
        """The number of a stack as the text says it."""
        key = bytes(said)
        found = self.stacks.known.get(key)
        return self.stacks.of(key, msgspec.json.decode(key, type=list[Frame] | None) or ()) if found is None else found
