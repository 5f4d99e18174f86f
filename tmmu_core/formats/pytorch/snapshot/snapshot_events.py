"""Read the segments and events of a PyTorch allocator snapshot, and compute the live ranges of one device.

An event is stored as five numbers. Each distinct stack is parsed once::

    {action: alloc, addr, size, frames: [{filename, line, name}, …]}  ──►  Events: action u8, addr i64, size i64,
                                                                           stack i32 (a row of Stacks), lane i32
"""

import io
import pickle
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NoReturn, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tmmu_core.base import limits
from tmmu_core.base.child_process import limited_growth
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.strict import register_types
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import Stacks
from tmmu_core.graph.native.document import paused_gc
from tmmu_core.plans.figures.live_bytes import peak_of_ranges

ALLOC, FREE, MAP, UNMAP, OOM = range(5)  # codes of actions on blocks, on segments, and of a failed allocation
_CODES = {"alloc": ALLOC, "free_completed": FREE, "free": FREE, "oom": OOM}
_CODES |= dict.fromkeys(("segment_alloc", "segment_map"), MAP) | dict.fromkeys(("segment_free", "segment_unmap"), UNMAP)
HINT = "Write it with torch.cuda.memory._dump_snapshot(FILE)."
MEMORY_PER_BYTE, MIN_MEMORY = 16, 1 << 30  # usual bytes in memory per byte of a pickle; minimum memory limit
_MIN_ITEM_BYTES = 8  # minimum bytes of a pickled event, segment or block: a dict with two memoised values

I64 = NDArray[np.int64]
Pool = tuple[int, int]
Lane = tuple[int, Pool]  # ``(stream, pool)``: blocks of two lanes share no segment; the default pool is ``(0, 0)``
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]  # a number of bytes
Address = Annotated[int, msgspec.Meta(ge=0)]  # checked by :func:`signed`
Frames = TypeVar("Frames")  # type of an undecoded stack: a list from a pickle, ``msgspec.Raw`` from JSON


class Event(msgspec.Struct, Generic[Frames], gc=False):
    """One event of a trace."""

    action: str
    addr: Address = 0
    size: Number = 0
    stream: int | None = 0
    device_free: Number = 0
    pool_id: Pool | None = None
    frames: Frames = None  # type: ignore[assignment]


class Block(msgspec.Struct, Generic[Frames], gc=False):
    """A part of a segment. Older versions of PyTorch write no address: blocks follow each other."""

    size: Number
    state: str = ""
    address: Address | None = None
    requested_size: Number | None = None
    frames: Frames = None  # type: ignore[assignment]
    stack: int = 0  # row of :attr:`Stacks.lines`; set after reading


class Segment(msgspec.Struct, Generic[Frames], gc=False):
    """A contiguous range of memory that the allocator has from the device."""

    address: Address
    total_size: Number
    device: int = 0
    stream: int | None = 0
    segment_pool_id: Pool | None = None
    blocks: list[Block[Frames]] = []


def lane_of(stream: int | None, pool: Pool | None) -> Lane:
    """Return the lane of a stream and a pool; ``None``: the default stream or pool."""
    return stream or 0, pool or (0, 0)


class _Document(msgspec.Struct, Generic[Frames], gc=False):
    segments: list[Segment[Frames]] = []
    device_traces: list[list[Event[Frames]]] | None = None


register_types(_Document[Any], _Document[msgspec.Raw])


def signed(address: int) -> int:
    """Return an address as a signed number with the same bits. Raises ``UnreadableInput``."""
    number = address - (address >> 63 << 64)  # some drivers allocate at the end of the 64-bit range
    if not -1 << 62 <= number < 1 << 62:  # the end of a block must fit into 64 bits
        raise UnreadableInput(f"the file is damaged: no memory has the address {hex(address):.20}.", hint=HINT)
    return number


class Events:
    """Columns of one device's events: allocations, frees, reserved or released segments, failed allocations."""

    def __init__(self, events: Iterable[Event[Any]], stacks: Stacks) -> None:
        self.action, self.addr, self.size, self.stack = array("B"), array("q"), array("q"), array("i")
        """For :data:`OOM`, the address column has the number of free bytes of the device."""
        self.lane = array("i")  # row of :attr:`lanes`
        self.lanes: dict[Lane, int] = {}
        self.repeated_frees = 0  # frees of blocks that are already free; set by :func:`device_of`
        self.is_recorded = False  # whether the trace has events of any kind
        for event in events:
            self.is_recorded = True
            if (code := _CODES.get(event.action)) is not None:
                self.action.append(code)
                self.addr.append(event.device_free if code == OOM else signed(event.addr))
                self.size.append(event.size)
                self.stack.append(stacks.row(event.frames))
                self.lane.append(self.lanes.setdefault(lane_of(event.stream, event.pool_id), len(self.lanes)))

    @property
    def step(self) -> I64:
        """Number of allocations and frees up to each event, itself included."""
        return np.cumsum(np.frombuffer(self.action, np.uint8) <= FREE)


def read_snapshot(data: bytes) -> tuple[list[Segment[Any]], list[Events], Stacks]:
    """Return the segments in a snapshot, the events of each device, and their stacks. Raises ``UnreadableInput``."""
    try:
        with paused_gc():
            document: _Document[Any] = _unpickled(data) if data.startswith(b"\x80") else _json(data)
            refuse_many_devices(len(document.device_traces or ()))
            stacks = Stacks()
            for segment in document.segments:
                end = segment.address = signed(segment.address)
                for block in segment.blocks:
                    block.address = end if block.address is None else signed(block.address)
                    end = block.address + block.size
                    block.stack = stacks.row(block.frames)
                    block.frames = None
            traces = [Events(events, stacks) for events in document.device_traces or ()]
        return document.segments, traces, stacks
    except UnreadableInput:
        raise
    except MemoryError as error:
        what = f"the snapshot of {len(data):,} bytes needs more memory than is available."
        hint = "Record fewer events: torch.cuda.memory._record_memory_history(max_entries=1_000_000)."
        raise UnreadableInput(what, hint) from error
    except msgspec.DecodeError as error:
        what, _, place = str(error).partition(" - at ")
        raise UnreadableInput(f"the snapshot is damaged: {what}.", place=place, hint=HINT) from error
    except Exception as error:  # a damaged pickle can raise any error
        what = "the snapshot is damaged: it is cut off, or its values are not those of a snapshot."
        raise UnreadableInput(what, hint=f"Copy the file again. {HINT}") from error


def refuse_many_devices(count: int) -> None:
    """Raise ``UnreadableInput`` for more devices than the limit: each device needs columns, even without events."""
    if count > limits.ceiling(limits.DEVICES):
        raise limits.limit_error(limits.DEVICES, "the snapshot")


def _json(data: bytes) -> _Document[msgspec.Raw]:
    if data.lstrip(b" \t\r\n").startswith(b"["):  # torch.cuda.memory_snapshot() returns the segments alone
        return _Document(msgspec.json.decode(data, type=list[Segment[msgspec.Raw]]))
    return msgspec.json.decode(data, type=_Document[msgspec.Raw])


def _unpickled(data: bytes) -> _Document[Any]:
    with limited_growth(max(MIN_MEMORY, 2 * MEMORY_PER_BYTE * len(data))):  # five bytes can request 2^32 memo entries
        content = _PlainUnpickler(io.BytesIO(data)).load()
    if isinstance(content, list):  # torch.cuda.memory_snapshot() returns the segments alone
        content = {"segments": content}
    segments, traces = _items(content, "segments"), _items(content, "device_traces")
    blocks = sum(len(_items(each, "blocks")) for each in segments)
    events = sum(len(each) for each in traces if isinstance(each, list | tuple))
    if (len(segments) + blocks + events) * _MIN_ITEM_BYTES > len(data):
        raise UnreadableInput("the pickle contains the same event, segment or block many times.", hint=HINT)
    return msgspec.convert(content, _Document[Any])


def _items(content: Any, key: str) -> Any:
    """Return the list at a key; an empty list for any other value, which ``msgspec.convert`` checks later."""
    value = content.get(key) if isinstance(content, dict) else None
    return value if isinstance(value, list | tuple) else []


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnreadableInput(f"the pickle refers to {module[:200]}.{name[:200]}, which was not run.", HINT)


@dataclass(frozen=True, eq=False, repr=False)
class Device:
    """Live ranges of one device's allocations, as columns of equal length, with its events and segments."""

    birth: I64
    death: I64
    address: I64
    size: I64
    stack: I64  # row of the allocating stack; 0: not recorded
    lane: I64  # row of ``events.lanes``
    free_stack: I64  # row of the freeing stack; 0: not recorded or not freed
    is_before: NDArray[np.bool_]  # whether the allocation began before the trace; false without a trace
    events: Events
    segments: Sequence[Segment]
    steps: int

    @property
    def peak(self) -> tuple[int, int]:
        """``(step, bytes)`` of the highest use, at the first such step."""
        return peak_of_ranges(self.birth, self.death, self.size.astype(np.uint64), int(self.death.max(initial=0)))


def device_of(events: Events, segments: list[Segment]) -> Device:
    """Return a device's live ranges, sorted by birth and address, from its events and its blocks at the end."""
    private = [segment for segment in segments if any(segment.segment_pool_id or ())]
    if private and not any(any(pool) for _, pool in events.lanes):  # older versions write the pool to segments only
        addresses, lanes = np.frombuffer(events.addr, np.int64), np.frombuffer(events.lane, np.int32).copy()
        for segment in private:
            is_inside = (segment.address <= addresses) & (addresses < segment.address + segment.total_size)
            own_lane = lane_of(segment.stream, segment.segment_pool_id)
            lanes[is_inside] = events.lanes.setdefault(own_lane, len(events.lanes))
        events.lane = array("i", lanes.tobytes())
    rows = array("q")
    allocated, reused_at, steps = _add_traced_ranges(events, rows)
    blocks = ((block, segment) for segment in segments for block in segment.blocks if block.state.startswith("active"))
    for start, (block, segment) in {block.address: (block, segment) for block, segment in blocks}.items():
        if start is not None and start not in allocated:  # ``read_snapshot`` sets missing addresses
            requested = block.size if block.requested_size is None else block.requested_size
            lane_row = events.lanes.setdefault(lane_of(segment.stream, segment.segment_pool_id), len(events.lanes))
            end = reused_at.get(start, max(steps, 1))  # the block ends when the trace allocates its address
            rows.extend((0, end, start, requested, block.stack, lane_row, 0, events.is_recorded))
    columns = np.frombuffer(rows, np.int64).reshape(-1, 8).T
    columns = columns[:, columns[3] > 0]
    columns = columns[:, np.lexsort((columns[2], columns[0]))]
    birth, death, address, size, stack, lane, free_stack, before = columns
    freed = (before == 0) & (free_stack > 0)
    if freed.any() and (stack[freed] == free_stack[freed]).all():  # the file repeats the allocating stack in each free
        stack = np.where((before > 0) & (stack == 0), free_stack, stack)
        free_stack = np.zeros_like(free_stack)
    return Device(birth, death, address, size, stack, lane, free_stack, before > 0, events, segments, max(steps, 1))


def _add_traced_ranges(events: Events, rows: "array[int]") -> tuple[set[int], dict[int, int], int]:
    """Add a trace's live ranges to ``rows``; return the addresses live at the end, ``reused_at``, and the steps."""
    # A row: birth, death, address, bytes, stack, lane, stack of the free, and whether it began before the trace.
    allocated: dict[int, tuple[int, int, int, int]] = {}  # by address: birth, size, stack, lane
    reused_at: dict[int, int] = {}  # address → step of its first allocation after step 0
    seen: set[int] = set()
    step = 0
    columns = (events.action, events.addr, events.size, events.stack, events.lane)
    for action, addr, size, stack, lane in zip(*columns, strict=True):
        if action > FREE:
            continue
        previous = allocated.pop(addr, None)
        if previous is not None:  # freed, or allocated again without a recorded free
            birth, previous_size, previous_stack, previous_lane = previous
            free_stack = stack if action == FREE else 0
            rows.extend((birth, step, addr, previous_size, previous_stack, previous_lane, free_stack, 0))
        elif action == FREE and addr in seen:
            events.repeated_frees += 1
        elif action == FREE and size:
            rows.extend((0, max(step, 1), addr, size, 0, lane, stack, 1))
        if action == ALLOC:
            allocated[addr] = step, size, stack, lane
            if step and size:
                reused_at.setdefault(addr, step)
        seen.add(addr)
        step += 1
    for addr, (birth, size, stack, lane) in allocated.items():
        rows.extend((birth, step, addr, size, stack, lane, 0, 0))
    return set(allocated), reused_at, step
