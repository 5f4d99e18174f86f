"""Read the plan in a log of TensorFlow Lite Micro's memory planner and recording allocator.

::

    0 (id=0): size=2048, offset=0, first_used=0 last_used=1               MicroMemoryPlanner::PrintMemoryPlan
    [RecordingMicroAllocator] Arena allocation total 85264 bytes          RecordingMicroAllocator::PrintAllocations
    [RecordingMicroAllocator] 'Persistent buffer data' used 24304 bytes …

The planner prints live ranges (last step included) and offsets of the buffers in the arena's head. The allocator prints
the sizes of the arena, its head and its tail, and the size of each kind of persistent buffer in the tail. Persistent
buffers are live at every step. If the log has no line of the planner, the head becomes one buffer. Other lines are
ignored. If the log has several plans, the last one is read.
"""

import re

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.allocator_plan import MAX_VALUE, LiveRange, instance_of, is_log, stem_of
from tmmu_core.planners.problem import PlainInstance

HINT = "Print it with MicroMemoryPlanner::PrintMemoryPlan() or RecordingMicroAllocator::PrintAllocations()."
_INT = r"(\d{1,19})"
_PLAN = re.compile(rf"\(id={_INT}\): size={_INT}, offset={_INT}, first_used={_INT},? last_used={_INT}", re.A)
_ARENA = re.compile(rf"\[RecordingMicroAllocator\] Arena allocation (total|head|tail) {_INT} bytes", re.A)
_KIND = re.compile(rf"\[RecordingMicroAllocator\] '([^'\n]{{1,80}})' used {_INT} bytes", re.A)


def refusal(data: bytes) -> str:
    """Return why bytes are not a log of this kind; ``""`` if they are."""
    is_known = is_log(data) and (b"[RecordingMicroAllocator]" in data or b"first_used=" in data)
    return "" if is_known else "it has no line of TensorFlow Lite Micro's memory planner or allocator"


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan in the log; without live ranges, all buffers are live at one step. Raises ``UnreadableInput``."""
    buffers: dict[int, LiveRange] = {}
    bytes_of_area: dict[str, int] = {}  # total, head, tail
    bytes_of_kind: dict[str, int] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if found := _ARENA.search(line):
            bytes_of_area[found[1]] = int(found[2])
        elif found := _KIND.search(line):
            bytes_of_kind[found[1]] = int(found[2])
        elif found := _PLAN.search(line):
            buffer, size, offset, first, last = map(int, found.groups())
            if first > last or max(offset + size, last) > MAX_VALUE:
                raise UnreadableInput(f"invalid buffer: {line.strip()[:80]!r}.", place=f"line {number}", hint=HINT)
            if buffer == 0:  # another plan begins
                buffers.clear()
            buffers[buffer] = LiveRange(f"buffer {buffer}", first, last + 1, size, offset)
    live_ranges = [buffer for buffer in buffers.values() if buffer.size]
    end = max((buffer.death for buffer in live_ranges), default=1)
    tail_offset = max([bytes_of_area.get("head", 0), *(buffer.offset + buffer.size for buffer in live_ranges)])
    if not live_ranges and tail_offset:
        live_ranges.append(LiveRange("head: planned buffers", 0, 1, tail_offset, 0))
    notes = ["a step is an operator of the model"] if buffers else ["the log has no live ranges: it shows one moment"]
    unlisted = max(bytes_of_area.get("tail", 0) - sum(bytes_of_kind.values()), 0)
    for kind, size in (*bytes_of_kind.items(), ("tail: not itemised in the log", unlisted)):
        if size:
            live_ranges.append(LiveRange(kind, 0, end, size, tail_offset, "buffer"))
            tail_offset += size
    if not live_ranges:
        raise UnreadableInput("the log has no buffer and no arena.", hint=HINT)
    if bytes_of_area:
        areas = ", ".join(f"{area} {size:,}" for area, size in bytes_of_area.items())
        notes.append(f"arena in bytes: {areas}; this plan places the tail directly after the head")
    return instance_of(stem_of(name) or "tflm", live_ranges, notes)
