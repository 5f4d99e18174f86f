"""Read the plan in a log of TensorFlow Lite Micro's memory planner and recording allocator.

::

    0 (id=0): size=2048, offset=0, first_used=0 last_used=1                       MicroMemoryPlanner::PrintMemoryPlan
    Planner buffer ID: 0, calculated offset: 0, size required: 2048, first_time_created: 0, last_time_used: 1
                                                                                  the same, until 2021
    [RecordingMicroAllocator] Arena allocation total 85264 bytes                  RecordingMicroAllocator
    [RecordingMicroAllocator] 'Persistent buffer data' used 24304 bytes …         ::PrintAllocations

The planner prints live ranges (last step included) with offsets in the arena's head. The allocator prints the bytes of
the arena, of its head and of its tail, and the bytes of the persistent buffers in the tail by kind. Persistent buffers
are live at every step. If the log has only totals, the head is one buffer. Other lines are ignored. Of several plans,
the last one is read.
"""

import re

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.allocator_plan import LAST_BYTE, LiveRange, instance_of, is_log, stem_of, with_unique_ids
from tmmu_core.planners.problem import PlainInstance

HINT = "Print it with MicroMemoryPlanner::PrintMemoryPlan() or RecordingMicroAllocator::PrintAllocations()."
_NUMBER = r"(\d{1,19})"
_ID, _SIZE, _OFFSET, _FIRST, _LAST = (rf"(?P<{part}>\d{{1,19}})" for part in ("id", "size", "offset", "first", "last"))
_PLAN = re.compile(rf"\(id={_ID}\): size={_SIZE}, offset={_OFFSET}, first_used={_FIRST},? last_used={_LAST}", re.A)
_OLD_PLAN = re.compile(
    rf"Planner buffer ID: {_ID}, calculated offset: {_OFFSET}, size required: {_SIZE}, "
    rf"first_time_created: {_FIRST}, last_time_used: {_LAST}",
    re.A,
)
_ARENA = re.compile(rf"\[RecordingMicroAllocator\] Arena allocation (total|head|tail) {_NUMBER} bytes", re.A)
_KIND = re.compile(rf"\[RecordingMicroAllocator\] '([^'\n]{{1,80}})' used {_NUMBER} bytes", re.A)


def refuses(data: bytes) -> str:
    """Return why bytes are not a log of this kind; ``""`` if they are."""
    marks = (b"[RecordingMicroAllocator]", b"Planner buffer ID:", b"first_used=")
    is_known = is_log(data) and any(mark in data for mark in marks)
    return "" if is_known else "it has no line of TensorFlow Lite Micro's memory planner or allocator"


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan in the log; without live ranges, the buffers at one moment. Raises ``UnreadableInput``."""
    buffers: dict[int, tuple[int, int, int, int]] = {}
    arena: dict[str, int] = {}
    kinds: dict[str, int] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if found := _ARENA.search(line):
            arena[found[1]] = int(found[2])
        elif found := _KIND.search(line):
            kinds[found[1]] = int(found[2])
        elif found := _PLAN.search(line) or _OLD_PLAN.search(line):
            buffer, size, offset, first, last = (int(found[part]) for part in ("id", "size", "offset", "first", "last"))
            if first > last or max(offset + size, last) > LAST_BYTE:
                raise UnreadableInput(f"invalid buffer: {line.strip()[:80]!r}.", place=f"line {number}", hint=HINT)
            if buffer == 0:  # another plan begins
                buffers.clear()
            buffers[buffer] = first, last + 1, size, offset
    lives = [LiveRange(f"buffer {buffer}", *row) for buffer, row in buffers.items() if row[2]]
    head = max([arena.get("head", 0), *(life.offset + life.size for life in lives)])
    end = max((life.death for life in lives), default=1)
    if not lives and arena.get("head"):
        lives.append(LiveRange("head: planned buffers", 0, 1, arena["head"], 0))
    notes = ["a step is an operator of the model"] if buffers else ["the log has no live ranges: it shows one moment"]
    unlisted = max(arena.get("tail", 0) - sum(kinds.values()), 0)
    offset = head
    for kind, size in (*kinds.items(), ("tail: not itemised in the log", unlisted)):
        if size:
            lives.append(LiveRange(kind, 0, end, size, offset, "buffer"))
            offset += size
    if not lives:
        raise UnreadableInput("the log has no buffer and no arena.", hint=HINT)
    if arena:
        areas = ", ".join(f"{part} {size:,}" for part, size in arena.items())
        notes.append(f"arena in bytes: {areas}; the tail is placed behind the head here")
    return instance_of(stem_of(name) or "tflm", with_unique_ids(lives), notes)
