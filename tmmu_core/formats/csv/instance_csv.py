"""Packing problems without a graph: read and write the CSV format of the field.

One row per buffer: ``id,lower,upper,size[,alignment][,gaps][,offset]``, live ranges half-open ``[lower, upper)``.
Columns come in any order. Names of other tools are accepted (MiniMalloc's converter is the reference):

========  ==========================================================================================
column    also
========  ==========================================================================================
id        ``buffer``, ``buffer_id``
lower     ``start``, ``begin``
upper     ``end``: the last step, included; the gaps of such a file include their ends too
gaps      ``7-9 12-14``: half-open ranges without bytes; one with a window, ``12-14@0:64``, is ignored
offset    all rows: a finished plan; some rows: those are fixed; none: a problem
========  ==========================================================================================
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX, UnreadableInput
from tmmu_core.formats.allocator_plan import file_name
from tmmu_core.formats.csv.plain_columns import plain_columns
from tmmu_core.graph.native import document
from tmmu_core.planners.problem import I64, U64, UNLIMITED, Packing, PlainInstance, Problem

NAMES = {
    "id": "id",
    "buffer": "id",
    "buffer_id": "id",
    "lower": "lower",
    "start": "lower",
    "begin": "lower",
    "upper": "upper",
    "end": "upper",
    "size": "size",
    "alignment": "alignment",
    "gaps": "gaps",
    "offset": "offset",
}
NEEDED = ("id", "lower", "upper", "size")
LAST_STEP = 2**62
LAST_FIXED = 2**63 - 1
"""Maximum offset that a problem can fix; a finished plan may have any uint64."""


@dataclass(frozen=True)
class _Row:
    id: str
    lower: int
    upper: int
    size: int
    alignment: int
    gaps: tuple[tuple[int, int], ...]
    offset: int | None
    windowed: bool

    def key(self) -> tuple[int, int, bytes]:
        return self.lower, -self.size, self.id.encode()


def refuses(data: bytes) -> str:
    """Return why bytes are no packing instance; ``""`` for a CSV whose first line names its columns."""
    if not data:
        return "the file is empty"
    if document.kind(data):
        return "it begins like a JSON object or a CBOR map"
    line = data.removeprefix(document.BYTE_ORDER_MARK).lstrip(b"\r\n").partition(b"\n")[0][:4096]
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return "it is not text"
    cells = _cells(text, ",")
    if cells[:3] == ["tensor_id", "arena", "logical_slot"]:
        return "it holds the rows of a plan without its head, which cannot be read back; keep plans as JSON or CBOR"
    if _names_columns(cells):
        return ""
    separator = next((name for mark, name in _SEPARATORS.items() if _names_columns(_cells(text, mark))), "")
    if separator:
        return f"its first line separates the columns by {separator}, not by commas"
    return f"its first line does not name the columns {', '.join(NEEDED)}"


_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def _cells(line: str, mark: str) -> list[str]:
    return [cell.strip().strip('"').lower() for cell in line.split(mark)]


def _names_columns(cells: list[str]) -> bool:
    return len({NAMES[cell] for cell in cells if cell in NAMES}) >= 2


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the instance in a CSV, with its packing if it has offsets. Raises as :func:`read_csv`."""
    return replace(read_csv(data, source=name), name=file_name(name).removesuffix(".csv"))


def read_csv(
    data: str | bytes, *, source: str = "", arena: str = "arena", capacity: int = UNLIMITED, alignment: int = 1
) -> PlainInstance:
    """Read one instance. ``alignment`` is the minimum for every buffer.

    A gap with a window of bytes is ignored, which ``notes`` reports. Raises ``UnreadableInput`` with the row (the
    header is line 1) and the column of the first error.
    """
    lines = _lines(data, source)
    header = next(lines, None)
    if header is None:
        raise UnreadableInput("the file is empty", source=source, place="line 1", hint=_HEADER_HINT)
    where, inclusive = _header([cell.strip() for cell in header[1]], source)
    plain = plain_columns(data, where) if isinstance(data, bytes) else None
    if plain is not None and (found := _of_columns(*plain, inclusive, arena, capacity, alignment)) is not None:
        return found
    rows: list[_Row] = []
    seen: dict[str, int] = {}
    for line, cells in lines:
        row = _row(line, cells, where, inclusive, source)
        if row.id in seen:
            raise _fault(
                source, line, "id", f"{row.id!r} is on line {seen[row.id]} already", "Give each buffer its own id."
            )
        seen[row.id] = line
        rows.append(row)
    rows.sort(key=_Row.key)
    given = {row.id: row.offset for row in rows if row.offset is not None}
    some = 0 < len(given) < len(rows)
    for name, at in given.items() if some else ():
        if at > LAST_FIXED:
            raise _fault(source, seen[name], "offset", f"the fixed offset {at} is over {LAST_FIXED}", "Lower it.")
    problem = Problem(
        arena=arena,
        ids=tuple(row.id for row in rows),
        birth=np.array([row.lower for row in rows], dtype=np.int64),
        death=np.array([row.upper for row in rows], dtype=np.int64),
        size=np.array([row.size for row in rows], dtype=np.uint64),
        alignment=np.array([max(row.alignment, alignment) for row in rows], dtype=np.uint64),
        capacity=capacity,
        arena_alignment=alignment,
        gaps=tuple(row.gaps for row in rows) if any(row.gaps for row in rows) else None,
        fixed=(np.array([given.get(row.id, -1) for row in rows], dtype=np.int64) if some else None),
    )
    packing = Packing(np.array([*given.values()], dtype=np.uint64)) if given and not some else None
    windowed = [row.id for row in rows if row.windowed]
    if not windowed:
        return PlainInstance("", problem, packing)
    note = f"{len(windowed)} buffers have a gap with a window of bytes ({windowed[0]!r} first), which is ignored."
    return PlainInstance("", problem, packing, (note,))


def _of_columns(
    ids: list[str], columns: dict[str, I64], inclusive: bool, arena: str, capacity: int, alignment: int
) -> PlainInstance | None:
    """Return the instance in plain columns; ``None`` if a row is invalid, for the reader that names it."""
    birth, death, size = columns["lower"], columns["upper"] + inclusive, columns["size"]
    aligned = columns.get("alignment", np.ones(len(ids), np.int64))
    if (death <= birth).any() or (aligned < 1).any() or (aligned & (aligned - 1)).any():
        return None
    order = np.lexsort((-size, birth))
    is_tie = (np.diff(birth[order]) == 0) & (np.diff(size[order]) == 0)
    tied = np.flatnonzero(np.append(is_tie, False) | np.insert(is_tie, 0, False))
    run = np.cumsum(~np.insert(is_tie, 0, False))[tied].tolist()
    keyed = [(at, ids[row].encode(), row) for at, row in zip(run, order[tied].tolist(), strict=True)]
    order[tied] = [row for _, _, row in sorted(keyed)]
    problem = Problem(
        arena=arena,
        ids=tuple([ids[row] for row in order.tolist()]),
        birth=birth[order],
        death=death[order],
        size=size[order].astype(np.uint64),
        alignment=np.maximum(aligned[order], alignment).astype(np.uint64),
        capacity=capacity,
        arena_alignment=alignment,
    )
    packing = Packing(columns["offset"][order].astype(np.uint64)) if "offset" in columns else None
    return PlainInstance("", problem, packing)


def write_csv(problem: Problem, offset: U64 | Sequence[int] | None = None) -> str:
    """Return a problem, or with ``offset`` a finished plan, as CSV that :func:`read_csv` reads back.

    The alignment and gap columns are omitted if they are empty. Without ``offset`` the fixed offsets are written.
    Hand-offs and must-not-alias pairs cannot be written in this format.
    """
    aligned = any(int(a) != 1 for a in problem.alignment)
    gapped = problem.gaps is not None and any(problem.gaps)
    fixed = problem.fixed is not None and bool((problem.fixed >= 0).any())
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*NEEDED, *["alignment"] * aligned, *["gaps"] * gapped, *["offset"] * (offset is not None or fixed)])
    for i, name in enumerate(problem.ids):
        row = [name, str(int(problem.birth[i])), str(int(problem.death[i])), str(int(problem.size[i]))]
        if aligned:
            row.append(str(int(problem.alignment[i])))
        if gapped and problem.gaps is not None:
            row.append(" ".join(f"{begin}-{stop}" for begin, stop in problem.gaps[i]))
        if offset is not None:
            row.append(str(int(offset[i])))
        elif fixed and problem.fixed is not None:
            row.append(str(int(problem.fixed[i])) if problem.fixed[i] >= 0 else "")
        table.writerow(row)
    return text.getvalue()


_HEADER_HINT = "The first line names the columns: id,lower,upper,size[,alignment][,gaps][,offset]."
OTHER_NAMES = "A table with other column names: tmmu convert TABLE --columns size=…,lower=…,upper=… -o INSTANCE.csv."


def _lines(data: str | bytes, source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of every line that is not blank."""
    if isinstance(data, bytes):
        try:
            data = data.decode("utf-8-sig")
        except UnicodeDecodeError as fault:
            raise UnreadableInput(
                "not UTF-8 text", source=source, place=f"byte {fault.start}", hint="Save it as UTF-8 CSV."
            ) from None
    reader = csv.reader(io.StringIO(data.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as fault:
        raise UnreadableInput(
            f"no CSV: {fault}", source=source, place=f"line {reader.line_num}", hint="Close the quotes."
        ) from None


def _fault(source: str, line: int, column: str, what: str, hint: str) -> UnreadableInput:
    return UnreadableInput(what, source=source, place=f"line {line}, column {column}", hint=hint)


def _header(cells: list[str], source: str) -> tuple[dict[str, int], bool]:
    where: dict[str, int] = {}
    for k, cell in enumerate(cells):
        name = NAMES.get(cell.lower())
        if name is None and cell == "tensor_id":
            hint = "Open the plan as .json or .cbor, or export it as an instance."
            raise _fault(source, 1, cell, "the table of a plan, without its arenas and hashes", hint)
        if name is None:
            raise _fault(source, 1, cell or str(k + 1), f"unknown column {cell!r}", f"{_HEADER_HINT} {OTHER_NAMES}")
        if name in where:
            raise _fault(source, 1, cell, f"it means {name!r}, as {cells[where[name]]!r} does", "Keep one of the two.")
        where[name] = k
    for name in NEEDED:
        if name not in where:
            also = [key for key, value in NAMES.items() if value == name and key != name]
            called = f" {name} may be called {' or '.join(also)}." if also else ""
            hint = f"{_HEADER_HINT}{called} {OTHER_NAMES}"
            raise _fault(source, 1, name, f"missing column {name!r}", hint)
    return where, cells[where["upper"]].lower() == "end"


def _row(line: int, cells: list[str], where: dict[str, int], inclusive: bool, source: str) -> _Row:
    if len(cells) != len(where):
        raise UnreadableInput(
            f"{len(cells)} fields where the header names {len(where)}",
            source=source,
            place=f"line {line}",
            hint="Give every row one field per column; an empty field is fine for gaps, alignment and offset.",
        )

    def cell(name: str) -> str:
        return cells[where[name]].strip() if name in where else ""

    def whole(name: str, most: int) -> int:
        try:
            return strict.whole_number(cell(name), most)
        except ValueError as error:
            raise _fault(source, line, name, str(error).rstrip("."), "Write digits only, 0 or more.") from None

    lower, upper = whole("lower", LAST_STEP), whole("upper", LAST_STEP) + inclusive
    if not cell("id"):
        raise _fault(source, line, "id", "the id is empty", "Give each buffer an id.")
    if upper <= lower:
        hint = "It must have at least one step" + (", end included." if inclusive else ": upper > lower.")
        raise _fault(source, line, "upper", f"the live range [{lower}, {upper}) is empty", hint)
    alignment = whole("alignment", 2**63) if cell("alignment") else 1
    if alignment < 1 or alignment & (alignment - 1):
        raise _fault(source, line, "alignment", f"{alignment} is not a power of two", "Use 1, 2, 4, 8, …")
    try:
        gaps, windowed = _gaps(cell("gaps"), inclusive, lower, upper)
    except _InvalidGap as error:
        raise _fault(source, line, "gaps", *error.args) from None
    return _Row(
        cell("id"),
        lower,
        upper,
        whole("size", U64_MAX),
        alignment,
        gaps,
        whole("offset", U64_MAX) if cell("offset") else None,
        windowed,
    )


class _InvalidGap(Exception):
    """An invalid gap: message and hint."""


def _gaps(text: str, inclusive: bool, lower: int, upper: int) -> tuple[tuple[tuple[int, int], ...], bool]:
    """Parse MiniMalloc's ``begin-stop[@low:high]``, separated by blanks; return the gaps, and whether windows were
    ignored.

    Gaps are inside of the live range ``[lower, upper)``; ``inclusive`` if ends are included. Raises ``_NoGap``.
    """
    gaps: list[tuple[int, int]] = []
    windowed = False
    for word in text.split():
        span, at, window = word.partition("@")
        begin, dash, stop = span.partition("-")
        numbers = [begin, stop, *(window.split(":") if at else ())]
        if (
            not dash
            or len(numbers) not in (2, 4)
            or not all(n.isascii() and n.isdigit() and len(n) < 40 for n in numbers)
        ):
            hint = "Write begin-stop, several with blanks between, each with @low:high if it keeps these bytes."
            raise _InvalidGap(f"{word!r} is not a gap", hint)
        one, two = int(begin), int(stop) + inclusive
        if not lower <= one < two <= upper:
            hint = "Gaps are inside of the live range and not empty."
            raise _InvalidGap(f"the gap [{one}, {two}) is not in [{lower}, {upper})", hint)
        if at:
            windowed = True
        else:
            gaps.append((one, two))
    gaps.sort()
    for (_, stop_one), (begin_two, _) in pairwise(gaps):
        if begin_two < stop_one:
            raise _InvalidGap(f"two gaps overlap at step {begin_two}", "Join them into one.")
    if gaps == [(lower, upper)]:
        raise _InvalidGap(f"the gap [{lower}, {upper}) is the whole live range", "Omit a buffer that is never live.")
    return tuple(gaps), windowed
