"""Read the plan in the tables of ``vela --verbose-allocation`` (Vela is the compiler for Arm's Ethos-U).

::

    ####…                                                            a line of ``#`` begins each memory
    Allocation, memory Sram, usage mask: FeatureMap|Staging          its title
    Start Time - End Time  : Start Addr -   End Addr: Tensor Size: … : Name
             0 -          1:        0x0 -     0x2400:        9216: … : input

A live range includes its end time; the bytes do not include the end address. Some versions of Vela also print the
column ``Purpose``. Tensors with the same times and addresses become one buffer with several names. If the log has
several memories, the writable memory with the highest peak is read, and notes list the rest. Other lines are ignored.
"""

import re
from collections.abc import Iterator

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats import allocator_plan
from tmmu_core.formats.allocator_plan import MAX_VALUE, LiveRange
from tmmu_core.planners.problem import PlainInstance

HINT = "Write it with vela --verbose-allocation MODEL > FILE."
_HEADER = re.compile(r"Start Time\s+-\s+End Time\s*:\s*Start Addr\s+-\s+End Addr\s*:\s*Tensor Size\s*:.*: Name\s*$")
_ROW = re.compile(
    r"\s*(\d{1,19}) -\s+(\d{1,19}):\s+0x([0-9a-f]{1,16}) -\s+0x([0-9a-f]{1,16}):\s+(\d{1,19}):(.*)", re.A | re.I
)
_TITLE = re.compile(r"(?:Allocation, memory|Tensor Allocation for(?: mem_area)?) (.*)")

_Buffers = dict[tuple[int, int, int, int], list[str]]  # (first step, last step, address, size) → names of the buffer


def refusal(data: bytes) -> str:
    """Return why bytes are not an allocation log of Vela; ``""`` if they are."""
    is_known = allocator_plan.is_log(data) and b"Start Time" in data and b"Tensor Size" in data
    return "" if is_known else "it has no table of Vela with Start Time and Tensor Size"


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan of the writable memory (else read-only) with the highest peak. Raises ``UnreadableInput``."""
    tables = [(title, rows, _live_ranges(rows)) for title, rows in _tables(data.decode("utf-8", "replace")) if rows]
    if not tables:
        raise UnreadableInput("the allocation tables of the log are empty.", hint=HINT)
    peaks = [allocator_plan.peak_of(live_ranges) for _, _, live_ranges in tables]
    is_writable = [not ("read-only" in title or "Permanent" in title) for title, _, _ in tables]
    chosen = max(range(len(tables)), key=lambda k: (is_writable[k], peaks[k]))
    title, buffers, live_ranges = tables[chosen]
    notes = [f"the memory is {title}"]
    others = [(other, peaks[k]) for k, (other, _, _) in enumerate(tables) if k != chosen]
    notes += [f"the log also contains {other}: {peak:,} bytes at its peak" for other, peak in others]
    if sharing_tensors := sum(len(names) - 1 for names in buffers.values()):
        notes.append(f"tensors that share a buffer with another tensor: {sharing_tensors}")
    notes.append("the log has no alignments: every buffer has alignment 1")
    return allocator_plan.instance_of(allocator_plan.stem_of(name) or "vela", live_ranges, notes)


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
                buffers, separators = {}, line.count(":") - 3  # colons before the name, which may contain more
            continue
        row = _ROW.match(line)
        if row is None and not (line.lstrip()[:1].isdigit() and "0x" in line):
            yield title or "unnamed", buffers
            title, buffers = "", None
            continue
        invalid_row = f"invalid row of an allocation table: {line.strip()[:80]!r}."
        if row is None:
            raise UnreadableInput(invalid_row, place=f"line {number}", hint=HINT)
        first, last, start, end, size = (int(row[k], 16 if k in (3, 4) else 10) for k in range(1, 6))
        if first > last or start + size != end or max(last, end) > MAX_VALUE:
            raise UnreadableInput(invalid_row, place=f"line {number}", hint=HINT)
        label = row[6].split(":", separators)[-1].strip() or f"line {number}"
        buffers.setdefault((first, last, start, size), []).append(label)
    if buffers is not None:
        yield title or "unnamed", buffers
