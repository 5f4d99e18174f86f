"""TensorFlow Lite Micro: what its memory planner and its recording allocator print, as a finished plan.

::

    0 (id=0): size=2048, offset=0, first_used=0 last_used=1                       MicroMemoryPlanner::PrintMemoryPlan
    Planner buffer ID: 0, calculated offset: 0, size required: 2048, first_time_created: 0, last_time_used: 1
                                                                                  the same, as it was until 2021
    [RecordingMicroAllocator] Arena allocation total 85264 bytes                  RecordingMicroAllocator
    [RecordingMicroAllocator] 'Persistent buffer data' used 24304 bytes …         ::PrintAllocations

The planner's lines are lives (the last step is included) with places in the arena's head. The allocator's are one
moment: the head as a whole, and what lies behind it for good, kind by kind. Where a log holds both, the planner's
buffers lie in the head and what is persistent lives throughout. Whatever stands before or between the lines, as a
board's log has it, is passed over. A plan that is printed twice (there and for the next model) is read once: the last.
"""

from __future__ import annotations

import re

from tmmu_core.errors import UnreadableInput
from tmmu_core.plan.formats.given import LAST_BYTE, Life, apart, instance_of, is_log, stem_of
from tmmu_core.planners.problem import PlainInstance

HINT = "Print it with MicroMemoryPlanner::PrintMemoryPlan() or RecordingMicroAllocator::PrintAllocations()."
_NUMBER = r"(\d{1,19})"
_PLAN = re.compile(
    rf"\(id={_NUMBER}\): size={_NUMBER}, offset={_NUMBER}, first_used={_NUMBER},? last_used={_NUMBER}", re.A
)
_OLD_PLAN = re.compile(
    rf"Planner buffer ID: {_NUMBER}, calculated offset: {_NUMBER}, size required: {_NUMBER}, "
    rf"first_time_created: {_NUMBER}, last_time_used: {_NUMBER}",
    re.A,
)
_ARENA = re.compile(rf"\[RecordingMicroAllocator\] Arena allocation (total|head|tail) {_NUMBER} bytes", re.A)
_KIND = re.compile(rf"\[RecordingMicroAllocator\] '([^'\n]{{1,80}})' used {_NUMBER} bytes", re.A)


def refuses(data: bytes) -> str:
    """Why these bytes are no such log; ``""`` when they are."""
    marks = (b"[RecordingMicroAllocator]", b"Planner buffer ID:", b"first_used=")
    if is_log(data) and any(mark in data for mark in marks):
        return ""
    return "it has no line of TensorFlow Lite Micro's memory planner or allocator" if data else "the file is empty"


def read(data: bytes, name: str = "") -> PlainInstance:
    """The finished plan, or the one moment, that the log tells. Raises ``UnreadableInput``."""
    buffers: dict[int, tuple[int, int, int, int]] = {}
    arena: dict[str, int] = {}
    kinds: dict[str, int] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if (found := _PLAN.search(line)) is not None:
            which, size, offset, first, last = map(int, found.groups())
        elif (found := _OLD_PLAN.search(line)) is not None:
            which, offset, size, first, last = map(int, found.groups())
        elif (found := _ARENA.search(line)) is not None:
            arena[found[1]] = int(found[2])
            continue
        elif (found := _KIND.search(line)) is not None:
            kinds[found[1]] = int(found[2])
            continue
        else:
            continue
        if first > last or max(offset + size, last) > LAST_BYTE:
            raise UnreadableInput(
                f"this is no buffer of a plan: {line.strip()[:80]!r}.", source=name, place=f"line {number}", hint=HINT
            )
        if which == 0:
            buffers.clear()
        buffers[which] = first, last + 1, size, offset
    lives = [Life(f"buffer {which}", *row) for which, row in buffers.items() if row[2]]
    head = max([arena.get("head", 0), *(life.offset + life.size for life in lives)])
    end = max((life.death for life in lives), default=1)
    if not lives and arena.get("head"):
        lives.append(Life("head: what is planned", 0, 1, arena["head"], 0))
    notes = ["a step is an operator of the model"] if buffers else ["the log says no lives: it is one moment"]
    at = head
    for kind, size in kinds.items():
        if size:
            lives.append(Life(kind, 0, end, size, at, "buffer"))
            at += size
    unsaid = arena.get("tail", 0) - sum(kinds.values())
    if unsaid > 0:
        lives.append(Life("tail: of no kind that the log tells", 0, end, unsaid, at, "buffer"))
    if not lives:
        raise UnreadableInput("the log holds no buffer and no arena.", source=name, hint=HINT)
    if arena:
        said = ", ".join(f"{which} {size:,}" for which, size in arena.items())
        notes.append(f"the allocator says, in bytes: {said}; the tail is laid behind the head here")
    return instance_of(stem_of(name) or "tflm", apart(lives), notes)
