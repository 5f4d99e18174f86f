"""Read the segments and events of a PyTorch allocator snapshot from a pickle or from JSON.

An event becomes four numbers, and each distinct stack is examined once::

    {action: alloc, addr, size, frames: [{filename, line, name}, …]}  ──►  Events: action u8, addr i64, size i64,
                                                                           stack i32 (a row of Stacks), lane i32
"""

import io
import pickle
from array import array
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Generic, NoReturn, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tmmu_core.base import limits
from tmmu_core.base.child_process import address_space
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.struct_types import register_types
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import Stacks
from tmmu_core.graph.native.document import paused_gc

ALLOC, FREE, MAP, UNMAP, OOM = range(5)
"""Codes of actions: bytes are allocated or freed, the allocator gets a segment or returns one, no memory is left."""
_CODES = {"alloc": ALLOC, "free_completed": FREE, "free": FREE, "oom": OOM}
_CODES |= dict.fromkeys(("segment_alloc", "segment_map"), MAP) | dict.fromkeys(("segment_free", "segment_unmap"), UNMAP)
MEMORY_PER_BYTE, LEAST_MEMORY = 16, 1 << 30
"""Memory limit of a pickle's values: bytes per byte of the file, and the smallest limit."""
_LEAST_BYTES = 8
"""Smallest size of a pickled event, segment or block: a dict with two memoised values."""

Pool = tuple[int, int]
Lane = tuple[int, Pool]
"""``(stream, memory pool)``: blocks of two lanes never share a segment. The default pool is ``(0, 0)``."""
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""An address, or a number of bytes."""
Frames = TypeVar("Frames")
"""Type of an undecoded stack: a list from a pickle, ``msgspec.Raw`` from JSON."""


class Event(msgspec.Struct, Generic[Frames], gc=False):
    """One event of a trace."""

    action: str
    addr: Number = 0
    size: Number = 0
    stream: int | None = 0
    device_free: Number = 0
    pool_id: Pool | None = None
    frames: Frames = None  # type: ignore[assignment]


class Block(msgspec.Struct, Generic[Frames], gc=False):
    """A part of a segment. Older versions of PyTorch write no address, for blocks follow each other."""

    size: Number
    state: str = ""
    address: Number | None = None
    requested_size: Number | None = None
    frames: Frames = None  # type: ignore[assignment]
    stack: int = 0
    """Row of :attr:`Stacks.lines`; set after reading."""


class Segment(msgspec.Struct, Generic[Frames], gc=False):
    """Memory that the allocator got from the device in one piece."""

    address: Number
    total_size: Number
    device: int = 0
    stream: int | None = 0
    segment_pool_id: Pool | None = None
    blocks: list[Block[Frames]] = []

    @property
    def lane(self) -> Lane:
        """Its stream and pool."""
        return lane_of(self.stream, self.segment_pool_id)


def lane_of(stream: int | None, pool: Pool | None) -> Lane:
    """Return the lane of a stream and a pool; ``None`` is the default one."""
    return stream or 0, pool or (0, 0)


class _Document(msgspec.Struct, Generic[Frames], gc=False):
    segments: list[Segment[Frames]] = []
    device_traces: list[list[Event[Frames]]] | None = None


register_types(_Document[Any], _Document[msgspec.Raw])


class Events:
    """The events of one device that change or exhaust memory, in order, as columns of one length."""

    def __init__(self, events: Iterable[Event[Any]] = (), stacks: Stacks | None = None) -> None:
        self.action, self.addr, self.size, self.stack = array("B"), array("q"), array("q"), array("i")
        """An :data:`OOM` has the bytes that the device has left as its address."""
        self.lane = array("i")
        """Row of :attr:`lanes`."""
        self.lanes: dict[Lane, int] = {}
        self.is_recorded = False
        """Whether the trace has events of any kind."""
        stacks = stacks or Stacks()
        for event in events:
            self.is_recorded = True
            code = _CODES.get(event.action)
            if code is not None:
                self.action.append(code)
                self.addr.append(event.device_free if code == OOM else event.addr)
                self.size.append(event.size)
                self.stack.append(stacks.row(event.frames))
                self.lane.append(self.lanes.setdefault(lane_of(event.stream, event.pool_id), len(self.lanes)))

    @property
    def step(self) -> NDArray[np.int64]:
        """Number of allocations and frees up to each event, itself included."""
        return np.cumsum(np.frombuffer(self.action, np.uint8) <= FREE)

    @property
    def reserved_change(self) -> NDArray[np.int64]:
        """Bytes by which each event changes the reserved memory."""
        action, size = np.frombuffer(self.action, np.uint8), np.frombuffer(self.size, np.int64)
        return np.where(action == MAP, size, 0) - np.where(action == UNMAP, size, 0)


class Snapshot(msgspec.Struct, gc=False):
    """The parts of a snapshot that a plan needs."""

    segments: list[Segment[Any]]
    traces: list[Events]
    """One per device."""
    stacks: Stacks


def read_snapshot(data: bytes, refused: Callable[[str], UnreadableInput]) -> Snapshot:
    """Return the snapshot in a file's bytes.

    Raises ``UnreadableInput`` for too many devices, what ``refused`` returns for a pickle with more than plain data,
    and any error of pickle or msgspec for damaged files.
    """
    with paused_gc():
        document: _Document[Any] = _unpickled(data, refused) if data.startswith(b"\x80") else _json(data)
        refuse_many_devices(len(document.device_traces or ()))
        stacks = Stacks()
        for segment in document.segments:
            for block in segment.blocks:
                block.stack = stacks.row(block.frames)
                block.frames = None
        traces = [Events(events, stacks) for events in document.device_traces or ()]
    return Snapshot(document.segments, traces, stacks)


def refuse_many_devices(count: int, source: str = "") -> None:
    """Raise ``UnreadableInput`` for more devices than the limit: each has columns, even without events."""
    if count > limits.ceiling(limits.DEVICES):
        raise limits.past(limits.DEVICES, "the snapshot", source)


def _json(data: bytes) -> _Document[msgspec.Raw]:
    if data.lstrip(b" \t\r\n").startswith(b"["):  # torch.cuda.memory_snapshot() returns the segments alone
        return _Document(msgspec.json.decode(data, type=list[Segment[msgspec.Raw]]))
    return msgspec.json.decode(data, type=_Document[msgspec.Raw])


def _unpickled(data: bytes, refused: Callable[[str], UnreadableInput]) -> _Document[Any]:
    unpickler = _PlainUnpickler(io.BytesIO(data))
    unpickler.refused = refused
    with address_space(max(LEAST_MEMORY, 2 * MEMORY_PER_BYTE * len(data))):  # five bytes can request 2^32 memo entries
        found = unpickler.load()
    if isinstance(found, list):  # torch.cuda.memory_snapshot() returns the segments alone
        found = {"segments": found}
    segments, traces = _items(found, "segments"), _items(found, "device_traces")
    inner = sum(len(_items(each, "blocks")) for each in segments) + sum(
        isinstance(each, list | tuple) and len(each) for each in traces
    )
    if (len(segments) + inner) * _LEAST_BYTES > len(data):
        raise refused("the pickle contains one of its events, segments or blocks many times.")
    return msgspec.convert(found, _Document[Any])


def _items(found: Any, key: str) -> Any:
    """Return the list under a key; an empty one for any other value, which :func:`msgspec.convert` reports."""
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, list | tuple) else []


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler that creates dicts, lists, sets, text, bytes and numbers, and nothing else."""

    refused: Callable[[str], UnreadableInput]

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse to look up a class or function."""
        raise self.refused(f"the pickle refers to {module[:200]}.{name[:200]}, not plain data; nothing was run.")

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse a reference to data outside of the pickle."""
        raise self.refused("the pickle refers to something outside of it.")
