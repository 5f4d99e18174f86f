"""Vela (compiler for Arm's Ethos-U): read the plan in the tables of ``vela --verbose-allocation``.

::

    ####…                                                            a line of hashes begins each memory
    Allocation, memory Sram, usage mask: FeatureMap|Staging          its title
    Start Time - End Time  : Start Addr -   End Addr: Tensor Size: … : Name
             0 -          1:        0x0 -     0x2400:        9216: … : input

End times are included, end addresses are not. Both compilers of Vela print these columns, one of them ``Purpose`` too.
Tensors with the same times and bytes are one buffer with several names. Of several tables, the memory with the highest
peak is shown and the others are noted; read-only memory is shown only if it is alone. Other lines are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.allocator_plan import (
    LAST_BYTE,
    LiveRange,
    instance_of,
    is_log,
    peak_of,
    stem_of,
    with_unique_ids,
)
from tmmu_core.planners.problem import PlainInstance

HINT = "Write it with vela --verbose-allocation MODEL > FILE."
_HEAD = re.compile(r"Start Time\s+-\s+End Time\s*:\s*Start Addr\s+-\s+End Addr\s*:\s*Tensor Size\s*:.*: Name\s*$")
_ROW = re.compile(
    r"\s*(\d{1,19}) -\s+(\d{1,19}):\s+0x([0-9a-f]{1,16}) -\s+0x([0-9a-f]{1,16}):\s+(\d{1,19}):(.*)", re.A | re.I
)
_TITLE = re.compile(r"(?:Allocation, memory|Tensor Allocation for(?: mem_area)?) (.*)")


@dataclass
class _Table:
    title: str
    columns: int
    """Number of columns before the name."""
    rows: dict[tuple[int, int, int, int], list[str]] = field(default_factory=dict)
    """``(first step, last step, address, size)`` → names of the buffer."""

    @property
    def read_only(self) -> bool:
        return "read-only" in self.title or "Permanent" in self.title

    def lives(self) -> list[LiveRange]:
        """Return a live range per buffer."""
        found = [
            LiveRange("+".join(dict.fromkeys(names)), first, last + 1, size, address)
            for (first, last, address, size), names in self.rows.items()
            if size
        ]
        return with_unique_ids(found)


def refuses(data: bytes) -> str:
    """Return why bytes are no allocation log of Vela; ``""`` if they are."""
    if is_log(data) and b"Start Time" in data and b"Tensor Size" in data:
        return ""
    return "it has no table of Vela with Start Time and Tensor Size" if data else "the file is empty"


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan of the memory with the highest peak. Raises ``UnreadableInput``."""
    tables = _tables(data.decode("utf-8", "replace"), name)
    filled = [table for table in tables if table.rows]
    if not filled:
        raise UnreadableInput("the allocation tables of the log are empty.", source=name, hint=HINT)
    chosen = max(filled, key=lambda table: (not table.read_only, peak_of(table.lives())[1]))
    lives = chosen.lives()
    notes = [f"the memory is {chosen.title}"]
    notes += [
        f"the log also contains {table.title}: {peak_of(table.lives())[1]:,} bytes at its peak"
        for table in filled
        if table is not chosen
    ]
    shared = sum(len(names) - 1 for names in chosen.rows.values())
    if shared:
        notes.append(f"{shared} tensors share a buffer with another tensor")
    notes.append("the log has no alignments: buffers are planned at any byte")
    return instance_of(stem_of(name) or "vela", lives, notes)


def _tables(text: str, name: str) -> list[_Table]:
    tables: list[_Table] = []
    title, current = "", None
    for number, line in enumerate(text.splitlines(), 1):
        if current is None:
            found = _TITLE.match(line.strip())
            title = found[1].removesuffix(":") if found else title
            if _HEAD.match(line.strip()):
                current = _Table(title or "unnamed", line.count(":") - 3)
                tables.append(current)
            continue
        row = _ROW.match(line)
        if row is None and not (line.lstrip()[:1].isdigit() and "0x" in line):
            title, current = "", None
            continue
        first, last, size = (int(row[k]) for k in (1, 2, 5)) if row is not None else (1, 0, 0)
        start, end = (int(row[k], 16) for k in (3, 4)) if row is not None else (0, 0)
        if row is None or first > last or start + size != end or max(last, end) > LAST_BYTE:
            what = f"invalid row of an allocation table: {line.strip()[:80]!r}."
            raise UnreadableInput(what, source=name, place=f"line {number}", hint=HINT)
        cells = row[6].split(":", current.columns)
        current.rows.setdefault((first, last, start, size), []).append(cells[-1].strip() or f"line {number}")
    return tables
