"""Read XLA dumps: the buffer assignment of one module, from two of its files.

``--xla_dump_to=DIR --xla_dump_hlo_as_text`` writes for each optimised module, among other files,

* ``*-buffer-assignment.txt``: allocations, and the allocation and offset of each value;
* ``*-live-range.txt``: the instruction sequence, and the live range of each value, last instruction included;
* ``*.txt``: the program, which contains the origin of instructions (:mod:`.xla_program`; optional).

The first two files, concatenated in any order, form a plan. The allocations are placed one after the other in the
order of the file. The allocation of a donated parameter holds temporaries and results after the parameter's last use.
Constants and parameters that are not donated are live from the first instruction to the last.

A value that a loop carries, or the result of branches, is in one buffer. XLA lists several values for this buffer,
and marks the last one ``(phi)``. The reader merges them into one storage, with gaps where the loop body reuses its
bytes. Allocations of called computations (``thread-local``) have no live ranges and are omitted, with a note.
"""

import os
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import numpy as np

from tmmu_core.base import limits, strict
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.allocator_plan import MAX_VALUE, file_name
from tmmu_core.formats.xla import xla_program
from tmmu_core.graph.model import StorageOrigin
from tmmu_core.planners.problem import Packing, PlainInstance, Problem

ASSIGNMENT, LIVE_RANGE = "BufferAssignment:", "HloLiveRange"
_HEADINGS = (ASSIGNMENT, LIVE_RANGE)
HINT = "Give both files of the dump as one: cat X-buffer-assignment.txt X-live-range.txt > X.txt."

ASSIGNMENT_ENDING, RANGES_ENDING = "-buffer-assignment.txt", "-live-range.txt"
_ALLOCATION = re.compile(r"allocation (\d+):(?: 0x[0-9a-f]+,)? size (\d+)(.*)", re.A)
_VALUE = re.compile(r"\s+value: <\d+ (\S+)( \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\)", re.A)
_RANGE = re.compile(r"\s+(\S+):(\d+)-(\d+)$", re.A)

MAX_LISTED = 12  # maximum number of modules that an error lists
MAX_PROGRAM_BYTES = 1 << 28  # a larger text of a program (constants can make it large) is not read


@dataclass
class Buffer:
    """One storage of the plan; changed while the buffers of an allocation are merged."""

    names: deque[str]  # names of all values in the buffer; the id of the buffer joins them
    birth: int
    death: int  # step after the last step
    size: int
    offset: int  # bytes from the start of the first allocation
    role: str
    reuses: str = ""  # id of the buffer that this buffer reuses in place
    gaps: tuple[tuple[int, int], ...] = ()  # steps ``[first, end)`` in which the bytes hold other values

    @property
    def id(self) -> str:
        """Names of the values."""
        return "+".join(self.names)


@dataclass
class _Allocation:
    number: int
    size: int
    traits: str
    values: list[tuple[str, int, int]] = field(default_factory=list)  # (name, size, offset in the allocation)
    phis: set[str] = field(default_factory=set)  # loop-carried values and results of branches


def companions(name: str) -> list[str]:
    """Return the module's files other than ``name``, the program last; ``[]`` for the program and for other names."""
    stem = name.removesuffix(ASSIGNMENT_ENDING).removesuffix(RANGES_ENDING)
    files = [stem + ending for ending in (ASSIGNMENT_ENDING, RANGES_ENDING, xla_program.PROGRAM_ENDING)]
    return [file for file in files if file != name] if name in files[:2] else []


def refusal(data: bytes) -> str:
    """Return why bytes are not an XLA dump; ``""`` for one or both of its files."""
    if data.startswith((ASSIGNMENT.encode(), LIVE_RANGE.encode())):
        return ""
    if data.startswith(xla_program.HEADING.encode()) and any(b"\n" + each.encode() in data for each in _HEADINGS):
        return ""
    return f"it begins neither with {ASSIGNMENT} nor with {LIVE_RANGE}"


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the finished plan of a dump as an instance with its packing. Raises ``UnreadableInput``."""
    buffers, notes, origins = read_dump(data)
    row_of = {buffer.id: i for i, buffer in enumerate(buffers)}
    columns = [(b.birth, b.death, b.size, b.offset, row_of.get(b.reuses, -1)) for b in buffers]
    birth, death, size, offset, reused_row = np.array(columns, np.int64).T
    problem = Problem(
        *("arena", tuple(row_of), birth, death, size.astype(np.uint64), np.ones(len(row_of), np.uint64)),
        handoff_from=reused_row,
        roles=tuple([buffer.role for buffer in buffers]),
        gaps=tuple([buffer.gaps for buffer in buffers]) if any(buffer.gaps for buffer in buffers) else None,
    )
    packing = Packing(offset=offset.astype(np.uint64))
    return PlainInstance(file_name(name).removesuffix(".txt"), problem, packing, tuple(notes), origins)


def read_dump(data: bytes) -> tuple[list[Buffer], list[str], dict[str, StorageOrigin]]:
    """Return (buffers, notes, buffer id → origin); buffers sorted by birth, −size, id. Raises ``UnreadableInput``."""
    lines = data.decode("utf-8", "replace").splitlines()
    for heading, what in ((ASSIGNMENT, "buffer assignment"), (LIVE_RANGE, "live ranges")):
        if not any(line.startswith(heading) for line in lines):
            raise UnreadableInput(f"the dump has no {what}.", hint=HINT)
    allocations, ranges, program = _sections(lines)
    repeated = [value for value, times in Counter(v[0] for a in allocations for v in a.values).items() if times > 1]
    if repeated:
        raise UnreadableInput(f"the value {repeated[0]!r} is assigned to two places.", "Give the files of one module.")
    steps = 1 + max([0, *(end for _, end in ranges.values())])
    births = Counter(ranges[name][0] for a in allocations for name, size, _ in a.values if size and name in ranges)
    rows: list[Buffer] = []
    base = 0
    omitted: list[int] = []  # bytes of each allocation without live ranges
    for allocation in allocations:
        known = [(name, size, offset) for name, size, offset in allocation.values if name in ranges]
        if not known:
            omitted.append(allocation.size)
            continue
        if len(allocation.values) > limits.ceiling(limits.ALLOCATION_VALUES):  # rows are merged by comparing all pairs
            raise limits.limit_error(limits.ALLOCATION_VALUES, f"allocation {allocation.number}")
        is_constant, is_parameter = (trait in allocation.traits for trait in (", constant", ", parameter "))
        may_live_out = "maybe-live-out" in allocation.traits
        first_value = min((ranges[name][0], -size, name) for name, size, _ in known)[2]
        own = []
        for name, size, offset in known:
            birth, last = (0, steps - 1) if is_constant or (is_parameter and not may_live_out) else ranges[name]
            role = "output" if may_live_out and last == steps - 1 else "activation"
            role = "input" if is_parameter and name == first_value else role
            role = "constant" if is_constant else role
            own.append(Buffer(deque([name]), birth, last + 1, size, base + offset, role))
        rows += _with_gaps(_without_overlaps(_merge_phis(own, allocation.phis), births), allocation.phis)
        base += allocation.size
    if not rows:
        raise UnreadableInput("no value of the dump's buffer assignment has a live range.", hint=HINT)
    notes = ["the dump has no alignments: all buffers have alignment 1, and allocations follow each other directly"]
    if omitted:
        notes.append(f"{len(omitted)} allocations of called computations ({sum(omitted)} bytes) are omitted")
    if merged := [row for row in rows if len(row.names) > 1]:
        notes.append(f"{len(merged)} buffers hold several values (loops and in-place updates)")
    ordered = sorted(rows, key=lambda row: (row.birth, -row.size, row.id.encode()))
    origins = xla_program.origins_of(program)
    stems = [(row.id, value.partition("{")[0]) for row in ordered for value in reversed(row.names)]
    origin_of = {own: origins[stem] for own, stem in stems if stem in origins}  # ``tuple{1}``: the origin of ``tuple``
    if program:
        notes.append(f"the program contains the origin of {len(origin_of)} of {len(ordered)} buffers")
    return ordered, notes, origin_of


def _sections(lines: Sequence[str]) -> tuple[list[_Allocation], dict[str, tuple[int, int]], list[str]]:
    """Return the allocations, value → (first step, last step), and the lines of the program."""
    allocations: list[_Allocation] = []
    ranges: dict[str, tuple[int, int]] = {}
    program: list[str] = []
    section = ""
    number = total_bytes = 0
    try:
        for number, line in enumerate(lines, 1):  # noqa: B007 - the place of an error
            if line.startswith(xla_program.HEADING) or (section == "program" and not line.startswith(_HEADINGS)):
                section = "program"
                program.append(line)
                continue
            if not line.startswith(" "):
                section = "allocations" if line.startswith((ASSIGNMENT, "allocation ")) else ""
            if line.strip() == "BufferLiveRange:":
                section = "ranges"
            elif line.startswith("allocation "):
                found = _matched(_ALLOCATION, line)
                allocations.append(_Allocation(*_numbers(found[1], found[2]), found[3]))
                total_bytes += allocations[-1].size
                if total_bytes > MAX_VALUE:
                    raise ValueError(f"the allocations together have more than {MAX_VALUE} bytes.")
            elif section == "allocations" and line.startswith(" "):
                found = _matched(_VALUE, line)
                size, offset = _numbers(found[3], found[4])
                if not allocations:
                    raise ValueError("a value precedes the first allocation.")
                own = allocations[-1]
                if size + offset > own.size:
                    raise ValueError(f"{found[1]!r} ends at byte {size + offset} of an allocation of {own.size} bytes.")
                value = found[1].removesuffix("{}")  # a whole result has the name of its instruction
                own.values.append((value, size, offset))
                own.phis.update([value] if found[2] else [])
            elif section == "ranges":
                row = _RANGE.match(line)
                begin, end = _numbers(row[2], row[3]) if row else (0, 0)
                if row and begin <= end:
                    ranges[row[1].removesuffix("{}")] = begin, end
                elif line.startswith("    "):
                    raise ValueError(f"invalid line of a live range: {line.strip()[:60]!r}.")
                else:
                    section = ""  # peak and stack traces follow
    except ValueError as error:
        raise UnreadableInput(str(error), place=f"line {number}", hint="Dump the module again.") from error
    return allocations, ranges, program


def _matched(pattern: re.Pattern[str], line: str) -> re.Match[str]:
    found = pattern.match(line)
    if found is None:
        raise ValueError(f"invalid line of a buffer assignment: {line.strip()[:60]!r}.")
    return found


def _numbers(*digits: str) -> tuple[int, int]:
    first, second = (strict.whole_number(each, MAX_VALUE) for each in digits)
    return first, second


def _merge_phis(rows: list[Buffer], phis: set[str]) -> list[Buffer]:
    """Return the rows after merging each phi with its values."""
    # The dump does not link a phi to its values. They are assumed to be the earlier rows with its offset and size: rows
    # a [0, 2), b [2, 5), phi [5, 9) become a+b+phi [0, 9), unless another row uses these bytes between two of them.
    if not phis:
        return rows
    places: dict[tuple[int, int], list[Buffer]] = {}
    for row in sorted(rows, key=lambda row: (row.birth, row.death, row.id.encode())):
        places.setdefault((row.offset, row.size), []).append(row)
    number = {id(row): k for k, row in enumerate(rows)}
    columns = ("birth", "death", "offset", "size")
    birth, death, offset, sizes = (np.array([getattr(row, name) for row in rows], np.int64) for name in columns)
    remaining = []
    for (start, size), same_place in places.items():
        phi: Buffer | None = None  # with the rows that are already merged into it
        if len(same_place) > 1:
            overlapping = np.flatnonzero((offset < start + size) & (start < offset + sizes))
        for row in reversed(same_place):
            if phi is not None:
                is_between = (row.death < death[overlapping]) & (birth[overlapping] < phi.birth)
                if row.death >= phi.birth or not is_between.any():
                    phi.names.extendleft(reversed(row.names))
                    phi.birth, phi.death = row.birth, max(row.death, phi.death)
                    phi.role = row.role if phi.role == "activation" else phi.role
                    birth[number[id(phi)]], death[number[id(phi)]] = phi.birth, phi.death
                    continue
            phi = row if row.id in phis else None
            remaining.append(row)
    return remaining


def _without_overlaps(rows: list[Buffer], births: Mapping[int, int]) -> list[Buffer]:
    """Return the rows without overlaps in bytes and steps. ``births``: step → number of values that begin at it.

    Overlapping rows are merged, unless the later row can reuse the older row in place; then the older row ends one step
    earlier. There is no reuse if another value begins at this step: it could be placed in bytes that are still read.
    """
    separate: list[Buffer | None] = []
    columns = np.zeros((3, len(rows)), np.int64)  # death, offset, end; rows are sorted by birth
    for row in sorted(rows, key=lambda row: (row.birth, -row.size, row.id.encode())):
        while True:
            death, offset, end = columns[:, : len(separate)]
            overlapping = np.flatnonzero((row.birth < death) & (offset < row.offset + row.size) & (row.offset < end))
            if not len(overlapping):
                break
            k = int(overlapping[0])
            other = separate[k]
            assert other is not None, "a merged row has the death 0, so that no row overlaps it"
            fits = (other.offset, other.death) == (row.offset, row.birth + 1) and row.size <= other.size
            if fits and other.birth < row.birth and births[row.birth] == 1:
                other.death, row.reuses = row.birth, other.id
                columns[0, k] = other.death
            else:
                separate[k], columns[0, k] = None, 0
                merged_end = max(other.offset + other.size, row.offset + row.size)
                other.names.extend(row.names)
                row.names, row.offset = other.names, min(other.offset, row.offset)
                row.size, row.birth = merged_end - row.offset, min(other.birth, row.birth)
                row.death, row.reuses = max(other.death, row.death), other.reuses
                row.role = other.role if row.role == "activation" else row.role
        columns[:, len(separate)] = row.death, row.offset, row.offset + row.size
        separate.append(row)
    return [row for row in separate if row is not None]


def _with_gaps(rows: list[Buffer], phis: set[str]) -> list[Buffer]:
    """Return the rows after joining the rows of each value that a loop carries."""
    # Such a value has two rows if the body uses its bytes for other values before it writes the next state. Both rows
    # are phis with the same offset, size and index (``{2}`` of the tuple), and must stay at one address.
    reused = {row.reuses for row in rows}
    latest: dict[tuple[int, int, str], Buffer] = {}
    joined = []
    for row in sorted(rows, key=lambda row: row.birth):
        keys = [(row.offset, row.size, name.partition("{")[2]) for name in row.names if name in phis]
        before = next((latest[key] for key in keys if key in latest), None)
        if before is None or row.reuses or not reused.isdisjoint((row.id, before.id)):
            joined.append(row)
        else:
            before.gaps += ((before.death, row.birth),) if before.death < row.birth else ()
            before.names.extend(row.names)
            before.death = row.death
            before.role = row.role if before.role == "activation" else before.role
            row = before
        latest.update(dict.fromkeys(keys, row))
    return joined


def modules(files: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Return module → its files, among the files ``name → bytes``; the largest buffer assignment first.

    A module has XLA's name with its number: ``module_0008.jit_step.cpu_after_optimizations``. Its files are the buffer
    assignment, the live ranges, and the program's text if small enough. A module without live ranges is omitted.
    """
    files_of: dict[str, tuple[str, ...]] = {}
    stems = [name.removesuffix(ASSIGNMENT_ENDING) for name in files if name.endswith(ASSIGNMENT_ENDING)]
    for stem in sorted(stems, key=lambda stem: (-files[stem + ASSIGNMENT_ENDING], stem)):
        ranges, program = companions(stem + ASSIGNMENT_ENDING)
        if ranges in files:
            is_readable = files.get(program, MAX_PROGRAM_BYTES + 1) <= MAX_PROGRAM_BYTES
            files_of[stem] = (stem + ASSIGNMENT_ENDING, ranges, *([program] if is_readable else []))
    return files_of


def sizes_in(folder: Path) -> dict[str, int]:
    """Return ``name → bytes`` of the files in a folder; omit files deleted meanwhile. Raises ``OSError``."""
    sizes = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_file():
                    sizes[entry.name] = entry.stat().st_size
    return sizes


def only_module(dump_modules: Mapping[str, Sequence[str]], folder: str) -> str:
    """Return the first file of the only module of a dump. Raises ``UnreadableInput`` if there are none or several."""
    first_files = [files[0] for files in dump_modules.values()]
    if len(first_files) == 1:
        return first_files[0]
    if not first_files:
        hint = "Dump XLA with XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text': a module is a "
        hint += f"*{ASSIGNMENT_ENDING} with its *{RANGES_ENDING}."
        raise UnreadableInput("the folder contains no PyTorch snapshot and no XLA dump.", source=folder, hint=hint)
    offered = [f"  {PurePath(folder) / file}" for file in first_files[:MAX_LISTED]]
    if len(first_files) > MAX_LISTED:
        offered.append(f"  and {len(first_files) - MAX_LISTED} smaller ones")
    hint = "\n".join(["Open one of these files (largest first), or open the folder with tmmu explore:", *offered])
    raise UnreadableInput(f"the dump contains {len(first_files)} modules.", source=folder, hint=hint)


def with_joined_modules(files: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Return uploaded files: the files of each module's plan joined, and the files that belong to no module."""
    data = dict(files)
    dump_modules = modules({name: len(content) for name, content in files})
    stems = tuple({name.partition(".")[0] + "." for name in dump_modules if "." in name})
    own = {file for module_files in dump_modules.values() for file in module_files}
    unrelated = [(name, content) for name, content in files if name not in own and not name.startswith(stems)]
    joined = ((f"{name}.txt", b"\n".join(data[file] for file in parts)) for name, parts in dump_modules.items())
    return [*unrelated, *joined]
