"""Read the plans in logs of Vela, the compiler for Arm's Ethos-U, and of TensorFlow Lite Micro. Ignore other lines.

``vela --verbose-allocation`` prints tables::

    ####…                                                            a line of ``#`` begins each memory
    Allocation, memory Sram, usage mask: FeatureMap|Staging          its title
    Start Time - End Time  : Start Addr -   End Addr: Tensor Size: … : Name
             0 -          1:        0x0 -     0x2400:        9216: … : input

A live range includes its end time; the bytes do not include the end address. Some versions of Vela also print the
column ``Purpose``. Tensors with the same times and addresses become one buffer with several names. If the log has
several memories, the writable memory with the highest peak is read, and notes list the rest.

TensorFlow Lite Micro's memory planner and recording allocator print lines::

    0 (id=0): size=2048, offset=0, first_used=0 last_used=1               MicroMemoryPlanner::PrintMemoryPlan
    [RecordingMicroAllocator] Arena allocation total 85264 bytes          RecordingMicroAllocator::PrintAllocations
    [RecordingMicroAllocator] 'Persistent buffer data' used 24304 bytes …

The planner prints live ranges (last step included) and offsets of the buffers in the arena's head. The allocator prints
the sizes of the arena, its head, its tail, and each kind of buffer in the tail. Buffers in the tail are live at every
step. Without lines of the planner, the head becomes one buffer. If the log has several plans, the last one is read.
"""

import re
from collections.abc import Iterator

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.allocator_plan import MAX_VALUE, LiveRange, instance_of, peak_of, stem_of
from tmmu_core.planners.problem import PlainInstance

VELA_HINT = "Write it with vela --verbose-allocation MODEL > FILE."
_HEADER = re.compile(r"Start Time\s+-\s+End Time\s*:\s*Start Addr\s+-\s+End Addr\s*:\s*Tensor Size\s*:.*: Name\s*$")
_ROW = re.compile(
    r"\s*(\d{1,19}) -\s+(\d{1,19}):\s+0x([0-9a-f]{1,16}) -\s+0x([0-9a-f]{1,16}):\s+(\d{1,19}):(.*)", re.A | re.I
)
_TITLE = re.compile(r"(?:Allocation, memory|Tensor Allocation for(?: mem_area)?) (.*)")

_Buffers = dict[tuple[int, int, int, int], list[str]]  # (first step, last step, address, size) → names of the buffer

TFLM_HINT = "Print it with MicroMemoryPlanner::PrintMemoryPlan() or RecordingMicroAllocator::PrintAllocations()."
_INT = r"(\d{1,19})"
_PLAN = re.compile(rf"\(id={_INT}\): size={_INT}, offset={_INT}, first_used={_INT},? last_used={_INT}", re.A)
_ARENA = re.compile(rf"\[RecordingMicroAllocator\] Arena allocation (total|head|tail) {_INT} bytes", re.A)
_KIND = re.compile(rf"\[RecordingMicroAllocator\] '([^'\n]{{1,80}})' used {_INT} bytes", re.A)


def read_vela(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan of the writable memory (else read-only) with the highest peak. Raises ``UnreadableInput``."""
    tables = [(title, rows, _live_ranges(rows)) for title, rows in _tables(data.decode("utf-8", "replace")) if rows]
    if not tables:
        raise UnreadableInput("the allocation tables of the log are empty.", hint=VELA_HINT)
    peaks = [peak_of(live_ranges) for _, _, live_ranges in tables]
    is_writable = [not ("read-only" in title or "Permanent" in title) for title, _, _ in tables]
    chosen = max(range(len(tables)), key=lambda k: (is_writable[k], peaks[k]))
    title, buffers, live_ranges = tables[chosen]
    notes = [f"the memory is {title}"]
    others = [(other, peaks[k]) for k, (other, _, _) in enumerate(tables) if k != chosen]
    notes += [f"the log also contains {other}: {peak:,} bytes at its peak" for other, peak in others]
    if sharing_tensors := sum(len(names) - 1 for names in buffers.values()):
        notes.append(f"tensors that share a buffer with another tensor: {sharing_tensors}")
    notes.append("the log has no alignments: every buffer has alignment 1")
    return instance_of(stem_of(name) or "vela", live_ranges, notes)


def _live_ranges(buffers: _Buffers) -> list[LiveRange]:
    named = [(*place, "+".join(dict.fromkeys(names))) for place, names in buffers.items()]
    return [LiveRange(name, first, last + 1, size, address) for first, last, address, size, name in named if size]


def _tables(text: str) -> Iterator[tuple[str, _Buffers]]:
    title, separators = "", 0
    buffers: _Buffers | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if buffers is None:
            found = _TITLE.match(line.strip())
            title = found[1].removesuffix(":") if found else title
            if _HEADER.match(line.strip()):
                buffers, separators = {}, line.count(":") - 3  # colons from the size to the name
            continue
        row = _ROW.match(line)
        if row is None and not (line.lstrip()[:1].isdigit() and "0x" in line):
            yield title or "unnamed", buffers
            title, buffers = "", None
            continue
        numbers = (int(row[k], 16 if k in (3, 4) else 10) for k in range(1, 6)) if row else [0] * 5
        first, last, start, end, size = numbers
        if row is None or first > last or start + size != end or max(last, end) > MAX_VALUE:
            what = f"invalid row of an allocation table: {line.strip()[:80]!r}."
            raise UnreadableInput(what, place=f"line {number}", hint=VELA_HINT)
        label = row[6].split(":", separators)[-1].strip() or f"line {number}"
        buffers.setdefault((first, last, start, size), []).append(label)
    if buffers is not None:
        yield title or "unnamed", buffers


def read_tflm(data: bytes, name: str = "") -> PlainInstance:
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
                raise UnreadableInput(f"invalid buffer: {line.strip()[:80]!r}.", place=f"line {number}", hint=TFLM_HINT)
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
        raise UnreadableInput("the log has no buffer and no arena.", hint=TFLM_HINT)
    if bytes_of_area:
        areas = ", ".join(f"{area} {size:,}" for area, size in bytes_of_area.items())
        notes.append(f"arena in bytes: {areas}; this plan places the tail directly after the head")
    return instance_of(stem_of(name) or "tflm", live_ranges, notes)
