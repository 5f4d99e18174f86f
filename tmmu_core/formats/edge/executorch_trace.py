"""Read the live ranges and offsets in a memory trace of ExecuTorch's profiler.

The trace (``executorch.util.activation_memory_profiler.generate_memory_trace``) has an event for each value and step:
``ts`` is the value's offset, ``dur`` its bytes, ``pid`` its memory and ``tid`` the step. It has offsets only if it was
written with ``enable_memory_offsets=True``; else ``ts`` is the sum of the bytes of the earlier values of the step.
"""

from collections import Counter

import msgspec

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.struct_types import register_types
from tmmu_core.formats.allocator_plan import LAST_BYTE, LiveRange, arena_names, instance_of, stem_of
from tmmu_core.graph.native import document
from tmmu_core.planners.problem import PlainInstance

HINT = "Write it with generate_memory_trace(…, enable_memory_offsets=True)."
MEMORY_EVENTS = "memory_allocation"
"""Category of memory events."""


class _Event(msgspec.Struct, gc=False):
    name: str
    cat: str = ""
    ts: int = 0
    dur: int = 0
    pid: int = 0
    tid: int = 0


class _Trace(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")


register_types(_Event, _Trace)


def refuses(data: bytes) -> str:
    """Return why bytes are not a memory trace of ExecuTorch's profiler; ``""`` if they are."""
    if document.kind(data) != "json":
        return "it does not begin like a JSON object" if data else "the file is empty"
    known = b'"traceEvents"' in data[:4096] and MEMORY_EVENTS.encode() in data
    return "" if known else f'it has no "traceEvents" of the category {MEMORY_EVENTS}'


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the live ranges of a memory trace, with their offsets if it has them. Raises ``UnreadableInput``."""
    try:
        events = msgspec.json.decode(data, type=_Trace).events
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(f"the trace is damaged: {error}.", source=name, hint=HINT) from error
    events = [event for event in events if event.cat == MEMORY_EVENTS]
    wrong = next((e for e in events if min(e.ts, e.dur, e.pid, e.tid) < 0 or max(e.ts, e.dur, e.tid) > LAST_BYTE), None)
    if wrong is not None or not events:
        what = f"{wrong.name!r} is {wrong.dur} bytes at {wrong.ts}" if wrong else "it holds no allocation"
        raise UnreadableInput(f"the trace is damaged: {what}.", source=name, hint=HINT)
    ends: Counter[int] = Counter()
    placed = False
    for event in events:
        placed = placed or event.ts != ends[event.tid]
        ends[event.tid] = event.ts + event.dur
    spans: dict[tuple[str, int, int, int], tuple[int, int]] = {}
    seen: Counter[tuple[str, int, int]] = Counter()
    for event in events:
        alike = event.name, event.pid, event.tid
        value = event.name, event.pid, event.ts if placed else seen[alike], event.dur
        seen[alike] += 1
        first, last = spans.get(value, (event.tid, event.tid))
        spans[value] = min(first, event.tid), max(last, event.tid)
    arenas = arena_names(event.pid for event in events)
    lives = [
        LiveRange(f"{label} #{k}", first, last + 1, size, offset if placed else 0, arena=arenas[memory])
        for k, ((label, memory, offset, size), (first, last)) in enumerate(spans.items())
        if size
    ]
    notes = ["a step is a node of the exported program"]
    if not placed:
        notes.append("the trace has no offsets: this is a problem to plan. " + HINT)
    return instance_of(stem_of(name), lives, notes, placed=placed)
