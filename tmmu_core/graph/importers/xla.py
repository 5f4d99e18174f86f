"""XLA: what a dump says of one module's buffers, read from two of its files.

``--xla_dump_to=DIR --xla_dump_hlo_as_text`` writes beside each optimised module

* ``*-buffer-assignment.txt``: allocations, and at which offset of which allocation each value lies;
* ``*-live-range.txt``: the sequence of instructions, and from which to which of them each value is alive, the last
  one included.

* ``*.txt``: the program itself, whose instructions say what they were made from (:mod:`.xla_program`).

The first two together, in either order, are one finished plan; the third, if it is there, says where its buffers come
from. Allocations are buffers of their own; here they are laid
behind one another, in the order of their numbers. An allocation of a donated parameter holds temporaries and results
after the parameter's last use, as the dump says. Constants and parameters that are not donated keep their bytes from
the first instruction to the last. What a loop carries round and what the branches of a conditional give is one buffer
under several names, the last of which the dump marks ``(phi)``: those names are one storage here. Allocations whose
values have no live range belong to computations called from within an instruction (``thread-local``); they are counted
and left out.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from tmmu_core import limits
from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.importers import xla_program
from tmmu_core.graph.model import Made

ASSIGNMENT, LIVE_RANGE = "BufferAssignment:", "HloLiveRange"
_BOTH = (ASSIGNMENT, LIVE_RANGE)
HINT = "Give both files of the dump as one: cat X-buffer-assignment.txt X-live-range.txt > X.txt."

ASSIGNMENT_ENDING, RANGES_ENDING = "-buffer-assignment.txt", "-live-range.txt"
_ALLOCATION = re.compile(r"allocation (\d+):(?: 0x[0-9a-f]+,)? size (\d+)(.*)", re.A)
_VALUE = re.compile(r"\s+value: <\d+ (\S+)( \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\)", re.A)
_RANGE = re.compile(r"\s+(\S+):(\d+)-(\d+)$", re.A)

MOST = 2**62
"""Bytes or steps; the second file of a dump counts in 64 bits, and ends are one more than the last."""


@dataclass(frozen=True)
class Buffer:
    """One storage of the finished plan."""

    id: str
    birth: int
    death: int
    """Step after the last one."""
    size: int
    offset: int
    """Bytes from the start of the first allocation."""
    role: str
    takes_over: str = ""
    """The buffer whose bytes it is written over by the very instruction that reads that one for the last time."""


@dataclass(frozen=True)
class Dump:
    """A module's finished plan: buffers by (birth, −size, id bytes), and what is to be told of the reading."""

    buffers: tuple[Buffer, ...]
    extent: int
    """Bytes of all allocations that hold a buffer."""
    within: int
    """The same, were the temporaries laid anew within their own allocation as well as can be: its peak."""
    notes: tuple[str, ...]
    made: Mapping[str, Made] = field(default_factory=dict)
    """By buffer who made it, of those that the program's text tells."""


@dataclass(eq=False)
class _Row:
    names: deque[str]
    """Of all values that it holds, in the order in which they were found to be one."""
    birth: int
    death: int
    size: int
    offset: int
    role: str
    takes_over: str = ""

    @property
    def id(self) -> str:
        return "+".join(self.names)

    @property
    def end(self) -> int:
        return self.offset + self.size

    def buffer(self) -> Buffer:
        return Buffer(self.id, self.birth, self.death, self.size, self.offset, self.role, self.takes_over)


@dataclass
class _Allocation:
    number: int
    size: int
    traits: str
    values: list[tuple[str, int, int]] = field(default_factory=list)
    """(name, size, offset in the allocation)."""
    phis: set[str] = field(default_factory=set)
    """Those that stand for several: what goes into a loop and what comes round, or what either branch gives."""

    def has(self, trait: str) -> bool:
        return trait in self.traits


def companion(name: str) -> str | None:
    """The name of the file that belongs to a dump's file of this name; ``None`` for any other name."""
    for mine, other in ((ASSIGNMENT_ENDING, RANGES_ENDING), (RANGES_ENDING, ASSIGNMENT_ENDING)):
        if name.endswith(mine):
            return name.removesuffix(mine) + other
    return None


def program_of(name: str) -> str | None:
    """The name of the program's text that lies beside a dump's file of this name; ``None`` for any other name."""
    ending = next((each for each in (ASSIGNMENT_ENDING, RANGES_ENDING) if name.endswith(each)), None)
    return None if ending is None else name.removesuffix(ending) + xla_program.PROGRAM_ENDING


def refuses(data: bytes) -> str:
    """Why these bytes are no XLA dump; ``""`` when they are, or are half of one."""
    if data.startswith((ASSIGNMENT.encode(), LIVE_RANGE.encode())):
        return ""
    if data.startswith(xla_program.HEADING.encode()) and any(b"\n" + each.encode() in data for each in _BOTH):
        return ""
    return f"it begins neither with {ASSIGNMENT} nor with {LIVE_RANGE}" if data else "the file is empty"


def read(data: bytes, name: str = "") -> Dump:
    """The finished plan in the joined texts. Raises ``UnreadableInput`` where one is missing or a line is damaged."""
    program, lines = xla_program.apart(data.decode("utf-8", "replace").splitlines(), _BOTH)
    for heading, what in ((ASSIGNMENT, "buffer assignment"), (LIVE_RANGE, "live ranges")):
        if not any(line.startswith(heading) for line in lines):
            raise UnreadableInput(f"the dump's {what} are missing.", source=name, hint=HINT)
    allocations, ranges = _parse(lines, name)
    twice = [value for value, times in Counter(v[0] for a in allocations for v in a.values).items() if times > 1]
    if twice:
        raise UnreadableInput(
            f"the value {twice[0]!r} is assigned to two places.", source=name, hint="Give the files of one module only."
        )
    steps = 1 + max([0, *(end for _, end in ranges.values())])
    rows: list[_Row] = []
    base = within = left_out = left_bytes = 0
    for allocation in allocations:
        if not any(value in ranges for value, _, _ in allocation.values):
            left_out, left_bytes = left_out + 1, left_bytes + allocation.size
            continue
        if len(allocation.values) > limits.ceiling(limits.ALLOCATION_VALUES):  # each is looked at beside all others
            raise limits.past(limits.ALLOCATION_VALUES, f"allocation {allocation.number}", name)
        settled = _settled(_carried(_rows(allocation, ranges, base, steps), allocation.phis))
        rows += settled
        base += allocation.size
        within += _peak(settled) if allocation.has("preallocated-temp") else allocation.size
    if not rows:
        raise UnreadableInput("no value of the dump's buffer assignment has a live range.", source=name, hint=HINT)
    notes = ["the dump does not say alignments: buffers are planned at any byte, allocations one behind the other"]
    if left_out:
        notes.append(f"{left_out} allocations of called computations ({left_bytes} bytes) are left out")
    merged = [row for row in rows if len(row.names) > 1]
    if merged:
        notes.append(f"{len(merged)} buffers hold several values at once, as loops and updates in place do")
    ordered = sorted(rows, key=lambda row: (row.birth, -row.size, row.id.encode()))
    made = _made(ordered, xla_program.origins_of(program))
    if program:
        notes.append(f"the program says of {len(made)} of {len(ordered)} buffers where they come from")
    return Dump(tuple(row.buffer() for row in ordered), base, within, tuple(notes), made)


def _made(rows: Sequence[_Row], program: Mapping[str, Made]) -> dict[str, Made]:
    """By buffer who made it; one of several values was made by the first that says so. ``tuple{1}`` is ``tuple``'s."""
    found = {}
    for row in rows:
        said = (program.get(value.partition("{")[0]) for value in row.names)
        made = next((each for each in said if each is not None), None)
        if made is not None:
            found[row.id] = made
    return found


def _number(digits: str, line: int, name: str) -> int:
    """A size, an offset or a step. Raises ``UnreadableInput`` for one past :data:`MOST`."""
    digits = digits.lstrip("0") or "0"
    if len(digits) > len(str(MOST)) or int(digits) > MOST:  # Python itself refuses to read thousands of digits
        raise _too_large(line, name)
    return int(digits)


def _too_large(line: int, name: str) -> UnreadableInput:
    return UnreadableInput(
        f"sizes and steps of a dump, and all allocations together, end at {MOST}.",
        source=name,
        place=f"line {line}",
        hint="Dump the module again.",
    )


def _parse(lines: Sequence[str], name: str) -> tuple[list[_Allocation], dict[str, tuple[int, int]]]:
    allocations: list[_Allocation] = []
    ranges: dict[str, tuple[int, int]] = {}
    taken = 0
    section = ""
    for number, line in enumerate(lines, 1):
        if not line.startswith(" "):
            section = "allocations" if line.startswith((ASSIGNMENT, "allocation ")) else ""
        if line.strip() == "BufferLiveRange:":
            section = "ranges"
            continue
        if line.startswith("allocation "):
            found = _ALLOCATION.match(line)
            if not found:
                raise _damaged(line, number, name)
            size = _number(found[2], number, name)
            taken += size
            if taken > MOST:
                raise _too_large(number, name)
            allocations.append(_Allocation(_number(found[1], number, name), size, found[3]))
        elif section == "allocations" and line.startswith(" "):
            found = _VALUE.match(line)
            if not found or not allocations:
                raise _damaged(line, number, name)
            size, offset = _number(found[3], number, name), _number(found[4], number, name)
            if size + offset > allocations[-1].size:
                raise UnreadableInput(
                    f"{found[1]!r} takes bytes up to {size + offset} of an allocation of {allocations[-1].size} bytes.",
                    source=name,
                    place=f"line {number}",
                    hint="Dump the module again.",
                )
            allocations[-1].values.append((_plain(found[1]), size, offset))
            if found[2]:
                allocations[-1].phis.add(_plain(found[1]))
        elif section == "ranges":
            found = _RANGE.match(line)
            if found and (begins := _number(found[2], number, name)) <= (ends := _number(found[3], number, name)):
                ranges[_plain(found[1])] = begins, ends
            elif line.startswith("    "):
                raise _damaged(line, number, name, "live range")
            else:
                section = ""  # what follows is told for people: the peak, and stack traces
    return allocations, ranges


def _damaged(line: str, number: int, name: str, what: str = "buffer assignment") -> UnreadableInput:
    return UnreadableInput(
        f"this is no line of a {what}: {line.strip()[:60]!r}.",
        source=name,
        place=f"line {number}",
        hint="Dump the module again.",
    )


def _plain(value: str) -> str:
    """A value's name; the whole of an instruction's result is called like the instruction."""
    return value.removesuffix("{}")


def _rows(allocation: _Allocation, ranges: dict[str, tuple[int, int]], base: int, steps: int) -> list[_Row]:
    known = [(name, size, offset) for name, size, offset in allocation.values if name in ranges]
    parameter = allocation.has(", parameter ")
    kept = allocation.has(", constant") or (parameter and not allocation.has("maybe-live-out"))
    first = min(known, key=lambda value: (ranges[value[0]][0], -value[1], value[0]))[0]
    rows = []
    for name, size, offset in known:
        birth, last = (0, steps - 1) if kept else ranges[name]
        role = "activation"
        if allocation.has(", constant"):
            role = "constant"
        elif parameter and name == first:
            role = "input"
        elif allocation.has("maybe-live-out") and last == steps - 1:
            role = "output"
        rows.append(_Row(deque([name]), birth, last + 1, size, base + offset, role))
    return rows


def _carried(rows: list[_Row], phis: set[str]) -> list[_Row]:
    """The rows, those that a phi stands for as one.

    The dump does not say which they are. They are the ones before it at its very place, as long as nothing else has
    used those bytes in between.
    """
    if not phis:
        return rows
    places: dict[tuple[int, int], list[_Row]] = {}
    for row in sorted(rows, key=lambda row: (row.birth, row.death, row.id.encode())):
        places.setdefault((row.offset, row.size), []).append(row)
    number = {id(row): k for k, row in enumerate(rows)}
    birth, death, offset, end = (
        np.array([getattr(row, field) for row in rows], np.int64) for field in ("birth", "death", "offset", "end")
    )
    left = []
    for (start, size), here in places.items():
        carrying: _Row | None = None
        if len(here) > 1:
            beside = np.flatnonzero((offset < start + size) & (start < end))
        for row in reversed(here):
            if carrying is not None:
                # Whoever holds a byte of this place after ``row`` has ended and before ``carrying`` begins.
                between = (death[beside] > row.death) & (birth[beside] < carrying.birth)
                if not (row.death < carrying.birth and between.any()):
                    carrying.names.extendleft(reversed(row.names))
                    carrying.birth, carrying.death = row.birth, max(row.death, carrying.death)
                    carrying.role = row.role if carrying.role == "activation" else carrying.role
                    birth[number[id(carrying)]], death[number[id(carrying)]] = carrying.birth, carrying.death
                    continue
            carrying = row if row.id in phis else None
            left.append(row)
    return left


def _peak(rows: list[_Row]) -> int:
    """The most of them that is alive at one step, in bytes."""
    change: Counter[int] = Counter()
    for row in rows:
        change[row.birth] += row.size
        change[row.death] -= row.size
    return max(accumulate(change[step] for step in sorted(change)))


def _settled(rows: list[_Row]) -> list[_Row]:
    """No two rows of an allocation share a byte at a step.

    Where they do, the plan says that one is written over the other: at the one step where the other is read last,
    which is a hand-off; or for longer, and then the two are one storage.
    """
    rows = sorted(rows, key=lambda row: (row.birth, -row.size, row.id.encode()))
    settled = _Settled(len(rows))
    for row in rows:
        while (other := settled.met_by(row)) is not None:
            fits = (other.offset, other.death) == (row.offset, row.birth + 1) and row.size <= other.size
            if fits and other.birth < row.birth:
                other.death, row.takes_over = row.birth, other.id
                settled.ends(other)
            else:
                settled.remove(other)
                end = max(other.end, row.end)
                other.names.extend(row.names)
                row.names, row.offset = other.names, min(other.offset, row.offset)
                row.size, row.birth = end - row.offset, min(other.birth, row.birth)
                row.death, row.takes_over = max(other.death, row.death), other.takes_over
                row.role = other.role if row.role == "activation" else row.role
        settled.append(row)
    return [row for row in settled.rows if row is not None]


class _Settled:
    """Rows of which no two share a byte at a step, as columns: each new one is held against all of them at once.

    They come by their births, so that whoever is there already was not born after the one that comes.
    """

    def __init__(self, most: int) -> None:
        self.rows: list[_Row | None] = []
        self.at: dict[int, int] = {}
        self.columns = np.zeros((3, most), np.int64)

    def append(self, row: _Row) -> None:
        k = self.at[id(row)] = len(self.rows)
        self.rows.append(row)
        self.columns[:, k] = row.death, row.offset, row.end

    def remove(self, row: _Row) -> None:
        k = self.at.pop(id(row))
        self.rows[k] = None
        self.columns[0, k] = 0  # dead before any is born: it meets nobody

    def ends(self, row: _Row) -> None:
        """The row ends earlier than it did."""
        self.columns[0, self.at[id(row)]] = row.death

    def met_by(self, row: _Row) -> _Row | None:
        """The first that shares a byte with ``row`` at a step."""
        death, offset, end = self.columns[:, : len(self.rows)]
        found = np.flatnonzero((row.birth < death) & (offset < row.end) & (row.offset < end))
        return self.rows[found[0]] if len(found) else None
