"""Read the ``[memory]`` events of a ``torch.profiler(profile_memory=True)`` trace as the history of one device.

::

    {"name": "[memory]", "ts", "tid", "args": {"Bytes": ±n, "Addr", "Device Type", "Device Id", "Total Allocated", …}}
    {"ph": "X", "cat": "cpu_op" | "python_function" | "user_annotation", "ts", "dur", "tid"}

The second line is a span. It becomes a frame in the stack of each memory event of the same thread during the span.
Without ``with_stack=True``, stacks have only ``aten`` operators, autograd nodes and an optimizer's annotations.
Bytes that were allocated before the trace and are not freed in it are one buffer.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.allocator_plan import stem_of
from tmmu_core.formats.pytorch.snapshot import snapshot_events
from tmmu_core.formats.pytorch.snapshot.snapshot_events import Block, Event, Events
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import Stacks
from tmmu_core.formats.pytorch.snapshot.torch_snapshot import history_of, instance_of_history
from tmmu_core.planners.problem import PlainInstance

HINT = "Record it with torch.profiler.profile(profile_memory=True, with_stack=True), then export_chrome_trace(FILE)."
MEMORY = "[memory]"
_DEVICE_NAMES = {0: "CPU", 1: "CUDA", 9: "Meta", 12: "XPU", 20: "PrivateUse1"}  # ``c10/core/DeviceType.h``
_PYTHON = re.compile(r"(.+\.py)\((\d+)\): (.+)$")
_SPANS = ("cpu_op", "python_function", "user_annotation")  # categories of events that become frames


class _Args(msgspec.Struct, gc=False):
    size: Annotated[int, msgspec.Meta(gt=-1 << 62, lt=1 << 62)] = msgspec.field(default=0, name="Bytes")
    addr: snapshot_events.Address = msgspec.field(default=0, name="Addr")
    device_type: int = msgspec.field(default=0, name="Device Type")
    device: int = msgspec.field(default=-1, name="Device Id")
    allocated: snapshot_events.Number = msgspec.field(default=0, name="Total Allocated")
    reserved: snapshot_events.Number = msgspec.field(default=0, name="Total Reserved")


class _Event(msgspec.Struct, gc=False):
    name: str = ""
    ph: str = ""
    cat: str = ""
    ts: float = 0
    dur: float = 0
    tid: int | str = 0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Trace(msgspec.Struct, gc=False):
    events: list[_Event] = msgspec.field(name="traceEvents")


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan of the device with the highest peak. Raises ``UnreadableInput``."""
    try:
        events = msgspec.json.decode(data, type=_Trace).events
        memory_events = [(each, msgspec.json.decode(each.args, type=_Args)) for each in events if each.name == MEMORY]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableInput(f"the trace is damaged: {error}.", hint=HINT) from error
    if not memory_events:
        raise UnreadableInput("the trace has no memory events.", hint=HINT)
    memory_events.sort(key=lambda event_and_args: event_and_args[0].ts)
    peaks: dict[tuple[int, int], int] = {}
    for _, args in memory_events:
        device = args.device_type, args.device
        peaks[device] = max(peaks.get(device, 0), args.allocated)
    chosen = max(peaks, key=lambda device: (peaks[device], device))
    selected = [(event, args) for event, args in memory_events if (args.device_type, args.device) == chosen]
    others = ", ".join(f"{_device_name(*each)} (peak {peak:,} bytes)" for each, peak in peaks.items() if each != chosen)
    notes = [f"{_device_name(*chosen)} is shown; the trace also has {others}"] if others else []
    bytes_before = selected[0][1].allocated - selected[0][1].size  # of the buffers from before the trace
    live: set[int] = set()
    history: list[Event[Any]] = []
    reserved = 0
    for (_, args), frames in zip(selected, _stacks_at([event for event, _ in selected], events), strict=True):
        if args.reserved != reserved:
            action = "segment_map" if args.reserved > reserved else "segment_unmap"
            history.append(Event(action, 0, abs(args.reserved - reserved)))
            reserved = args.reserved
        is_alloc = args.size > 0
        history.append(Event("alloc" if is_alloc else "free_completed", args.addr, abs(args.size), frames=frames))
        if is_alloc:
            live.add(args.addr)
        elif args.addr in live:
            live.remove(args.addr)
        else:  # allocated before the trace, freed here: it has its own live range, so the common buffer shrinks
            bytes_before += args.size
    stack_table = Stacks()
    # No buffer of the trace has the address 0, so the buffer from before the trace can have it.
    blocks: list[Block[Any]] = [Block(bytes_before, "active_allocated", 0)] if bytes_before > 0 else []
    segments = [snapshot_events.Segment(0, reserved, blocks=blocks)]
    live_ranges = snapshot_events.device_of(Events(history, stack_table), segments)
    if not live_ranges.size.size:
        raise UnreadableInput("nothing is allocated in the trace.", hint=HINT)
    return instance_of_history(stem_of(name) or "trace", history_of(live_ranges, stack_table), notes)


def _device_name(device_type: int, number: int) -> str:
    return _DEVICE_NAMES.get(device_type, f"device type {device_type}") + (f" {number}" if number >= 0 else "")


def _stacks_at(memory_events: Sequence[_Event], events: Sequence[_Event]) -> Iterator[list[dict[str, Any]]]:
    """Yield the frames of each memory event (sorted by time), innermost first; equal stacks share one list."""
    next_spans: dict[int | str, deque[_Event]] = defaultdict(deque)
    open_spans: dict[int | str, list[_Event]] = defaultdict(list)
    spans = (event for event in events if event.ph == "X" and event.cat in _SPANS)
    for span in sorted(spans, key=lambda span: (span.ts, -span.dur)):
        next_spans[span.tid].append(span)
    frames_of: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for event in memory_events:
        later_spans, stack = next_spans[event.tid], open_spans[event.tid]
        while later_spans and later_spans[0].ts <= event.ts:
            stack.append(later_spans.popleft())
        stack[:] = [span for span in stack if span.ts + span.dur >= event.ts]
        names = tuple([span.name for span in reversed(stack)])
        if names not in frames_of:
            frames_of[names] = [frame for frame in map(_frame, names) if frame is not None]
        yield frames_of[names]


def _frame(name: str) -> dict[str, Any] | None:
    """Return the frame that a snapshot has for the span ``name``; ``None`` if a snapshot has none for it."""
    if python := _PYTHON.match(name):
        file = python[1] if python[1].startswith("/") else f"/{python[1]}"
        return {"filename": file, "line": int(python[2][:9]), "name": python[3]}
    if name.startswith("nn.Module: "):
        return {"filename": "/torch/nn/modules/module.py", "line": 0, "name": "_call_impl"}
    if name.startswith("Optimizer."):
        return {"filename": "/torch/optim/optimizer.py", "line": 0, "name": name.partition("#")[0].partition(".")[2]}
    if name.startswith("autograd::engine::evaluate_function: "):
        return {"filename": "??", "line": 0, "name": f"torch::autograd::Engine {name.rpartition(': ')[2]}::apply"}
    return {"filename": "??", "line": 0, "name": f"at::_ops::{name[6:]}"} if name.startswith("aten::") else None
