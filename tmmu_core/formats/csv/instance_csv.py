"""Read and write packing problems as CSV.

One row per buffer: ``id,lower,upper,size[,alignment][,gaps][,offset]``, live ranges half-open ``[lower, upper)``.
Columns can have any order. Numbers may be hexadecimal, ``1,048,576`` or ``64.0``; bytes may have a unit (``1.5 MiB``;
``KB`` also means KiB). Columns, with their names in other tools (MiniMalloc's converter):

* ``id``: also ``buffer``, ``buffer_id``; ``lower``: also ``start``, ``begin``;
* ``upper``: also ``end``; with this name, the ends of live ranges and gaps are inclusive;
* ``gaps``: ranges without live bytes, half-open, ``7-9 12-14``; gaps with a byte window, ``12-14@0:64``, are ignored;
* ``offset``: in all rows, a finished plan; in some rows, fixed offsets; in no row, a problem.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX, UnreadableInput
from tmmu_core.base.escaping import csv_text
from tmmu_core.formats.allocator_plan import file_name, normative_order
from tmmu_core.graph.native import document
from tmmu_core.planners.problem import U64, Packing, PlainInstance, Problem

ALIASES = {"id": ("buffer", "buffer_id"), "lower": ("start", "begin"), "upper": ("end",)}  # column → its other names
COLUMNS = ("id", "lower", "upper", "size", "alignment", "gaps", "offset")
COLUMN_OF = {name: column for column in COLUMNS for name in (column, *ALIASES.get(column, ()))}
REQUIRED = ("id", "lower", "upper", "size")
_HEADER_HINT = "The first line names the columns: id,lower,upper,size[,alignment][,gaps][,offset]."
OTHER_NAMES = "For other column names, use tmmu convert TABLE --columns size=…,lower=…,upper=… -o INSTANCE.csv."
LAST_STEP = 2**62
LAST_FIXED = 2**63 - 1  # maximum fixed offset of a problem; offsets of a finished plan may be any uint64


def refusal(data: bytes) -> str:
    """Return why bytes are not a packing instance; ``""`` for a CSV whose first line names its columns."""
    if document.kind(data):
        return "it begins like a JSON object or a CBOR map"
    line = data.lstrip(b"\r\n").partition(b"\n")[0][:4096]
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return "it is not text"
    if _columns_in(text, ",")[:3] == ["tensor_id", "arena", "logical_slot"]:
        return "it contains the rows of a plan without its other fields: store plans as JSON or CBOR"
    is_known = len({COLUMN_OF[cell] for cell in _columns_in(text, delimiter_of(text)) if cell in COLUMN_OF}) >= 2
    return "" if is_known else f"its first line does not name the columns {', '.join(REQUIRED)}"


def delimiter_of(text: str) -> str:
    """Return the most frequent delimiter in the first line of a table: comma, semicolon, tab or bar."""
    return max(",;\t|", key=text.lstrip().partition("\n")[0].count)


def _columns_in(line: str, delimiter: str) -> list[str]:
    return [cell.strip().strip('"').lower() for cell in line.split(delimiter)]


def read_csv(data: bytes, name: str = "") -> PlainInstance:
    """Return the instance, with its packing if all rows have offsets. Raises ``UnreadableInput`` with the place."""
    rows = rows_of(data)
    line, header = next(rows, (1, None))
    if header is None:
        raise UnreadableInput("the file is empty", place="line 1", hint=_HEADER_HINT)
    position_of, inclusive = _header([cell.strip() for cell in header], line)
    with document.paused_gc():
        table = list(rows)
    for line, cells in table:
        if len(cells) != len(position_of):
            hint = "Give every row one field per column; an empty field is fine for gaps, alignment and offset."
            raise _fault(line, "", f"{len(cells)} fields, but the header names {len(position_of)}", hint)
    columns = {name: [cells[k] for _, cells in table] for name, k in position_of.items()}
    instance = from_columns(columns, [line for line, _ in table], inclusive)
    return replace(instance, name=file_name(name).removesuffix(".csv"))


def from_columns(cells: Mapping[str, Sequence[str]], lines: Sequence[int], inclusive: bool = False) -> PlainInstance:
    """Return the instance. ``cells``: column → cells; ``inclusive``: ``upper`` and the ends of gaps are last steps."""

    def numbers(column: str, most: int, empty: int | None = None) -> list[int]:
        parsed: list[int] = []
        try:
            for text in cells.get(column, absent):
                word = digits_of(text.strip())
                parsed.append(strict.whole_number(word, most) if word or empty is None else empty)
        except ValueError as error:
            raise _fault(lines[len(parsed)], column, str(error).rstrip("."), "Write a whole number ≥ 0.") from None
        return parsed

    absent = [""] * len(lines)
    ids = [name.strip() for name in cells["id"]]
    lower, upper = numbers("lower", LAST_STEP), [step + inclusive for step in numbers("upper", LAST_STEP)]
    size, alignment = numbers("size", U64_MAX), numbers("alignment", 2**63, 1)
    offset = numbers("offset", U64_MAX, -1)
    is_partial = min(offset, default=0) < 0
    gaps: list[tuple[tuple[int, int], ...]] = [()] * len(ids)
    is_windowed = [False] * len(ids)
    first_of: dict[str, int] = {}
    for row, (line, name) in enumerate(zip(lines, ids, strict=True)):
        if not name:
            raise _fault(line, "id", "the id is empty", "Give each buffer an id.")
        if first_of.setdefault(name, row) != row:
            raise _fault(line, "id", f"{name!r} is on line {lines[first_of[name]]} already", "Give each its own id.")
        if upper[row] <= lower[row]:
            hint = "It must have at least one step" + (", end included." if inclusive else ": upper > lower.")
            raise _fault(line, "upper", f"the live range [{lower[row]}, {upper[row]}) is empty", hint)
        if alignment[row] < 1 or alignment[row] & (alignment[row] - 1):
            raise _fault(line, "alignment", f"{alignment[row]} is not a power of two", "Use 1, 2, 4, 8, …")
        if is_partial and offset[row] > LAST_FIXED:
            raise _fault(line, "offset", f"the fixed offset {offset[row]} is over {LAST_FIXED}", "Lower it.")
        if "gaps" in cells:
            gaps[row], is_windowed[row] = _gaps(line, cells["gaps"][row], inclusive, lower[row], upper[row])
    begins, sizes = np.array(lower, np.int64), np.array(size, np.uint64)
    order = normative_order(ids, begins, sizes)
    rows = order.tolist()
    ends, alignments = np.array(upper, np.int64), np.array(alignment, np.uint64)
    problem = Problem(
        *("arena", tuple([ids[row] for row in rows]), begins[order], ends[order], sizes[order], alignments[order]),
        gaps=tuple([gaps[row] for row in rows]) if any(gaps) else None,
        fixed=np.array(offset, np.int64)[order] if is_partial and max(offset) >= 0 else None,
    )
    packing = None if is_partial or not ids else Packing(np.array(offset, np.uint64)[order])
    notes = []
    if windowed_ids := [ids[row] for row in rows if is_windowed[row]]:
        what = f"{len(windowed_ids)} ({windowed_ids[0]!r} first)"
        notes.append(f"gaps with a window of bytes are ignored; buffers with them: {what}.")
    return PlainInstance("", problem, packing, tuple(notes))


def refuse_unreadable_ids(ids: Iterable[str]) -> None:
    """Raise ``UnreadableInput`` for the first id that :func:`read_csv` would change or refuse."""
    for name in ids:
        if not name or name != name.strip():
            fault = "begins or ends with a blank" if name else "is empty"
            hint = "Rename the tensor, or write the plan as JSON."
            raise UnreadableInput(f"a CSV cannot hold the id {name!r}, which {fault}.", hint=hint)


def write_csv(problem: Problem, offset: U64 | Sequence[int] | None = None) -> bytes:
    """Return a problem as CSV; with ``offset``, a finished plan. Hand-offs, exclusions and reuse terms are omitted."""
    refuse_unreadable_ids(problem.ids)
    columns: dict[str, list[Any]] = {"id": list(problem.ids), "lower": problem.birth.tolist()}
    columns |= {"upper": problem.death.tolist(), "size": problem.size.tolist()}
    if (problem.alignment != 1).any():
        columns["alignment"] = problem.alignment.tolist()
    if problem.gaps is not None and any(problem.gaps):
        columns["gaps"] = [" ".join(f"{begin}-{stop}" for begin, stop in gaps) for gaps in problem.gaps]
    if offset is not None:
        columns["offset"] = [int(at) for at in offset]
    elif problem.fixed is not None and (problem.fixed >= 0).any():
        columns["offset"] = [at if at >= 0 else "" for at in problem.fixed.tolist()]
    return csv_text([columns, *zip(*columns.values(), strict=True)]).encode()


def rows_of(data: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of every line that is not blank. Raises ``UnreadableInput``."""
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        raise UnreadableInput("not UTF-8 text.", place=f"byte {fault.start}", hint="Save it as UTF-8 CSV.") from None
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # a buffer may have many gaps
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text), strict=True)
    try:
        for cells in reader:
            if "".join(cells).strip():
                yield reader.line_num, cells
    except csv.Error as fault:
        raise _fault(reader.line_num, "", f"invalid CSV: {fault}", "Close the quotes.") from None


def _fault(line: int, column: str, what: str, hint: str) -> UnreadableInput:
    return UnreadableInput(f"{what}.", place=f"line {line}" + f", column {column}" * bool(column), hint=hint)


def _header(cells: list[str], line: int) -> tuple[dict[str, int], bool]:
    """Return column → position, and whether the column ``upper`` is named ``end``."""
    position_of: dict[str, int] = {}
    for k, cell in enumerate(cells):
        name = COLUMN_OF.get(cell.lower())
        if name is None:
            raise _fault(line, cell or str(k + 1), f"unknown column {cell!r}", f"{_HEADER_HINT} {OTHER_NAMES}")
        if name in position_of:
            what = f"two columns are read as {name!r}: {cells[position_of[name]]!r} and {cell!r}"
            raise _fault(line, cell, what, "Keep one of the two.")
        position_of[name] = k
    for name in REQUIRED:
        if name not in position_of:
            called = f" {name} may be called {' or '.join(ALIASES[name])}." if name in ALIASES else ""
            raise _fault(line, name, f"missing column {name!r}", f"{_HEADER_HINT}{called} {OTHER_NAMES}")
    return position_of, cells[position_of["upper"]].lower() == "end"


_HEX = re.compile(r"0x[0-9a-f]{1,32}", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?P<whole>\d{1,3}(?:[,_ \u00a0]\d{3})+|\d{1,30})(?P<part>\.\d{1,12})?\s?(?P<unit>[kmgt]i?b|b|bytes)?", re.I
)


def digits_of(text: str, unit: str = "") -> str:
    """Return a number as digits, in bytes if it or the column (``unit``) has a unit. Return other text unchanged."""
    if text.isdecimal() and not unit:
        return text
    text = str(int(text, 16)) if _HEX.fullmatch(text) else text
    match = _NUMBER.fullmatch(text)
    if match is None or (unit and match["unit"]):
        return text
    number = Fraction(re.sub(r"[,_ \u00a0]", "", match["whole"]) + (match["part"] or ""))
    exact = number * 1024 ** max(0, "bkmgt".find((match["unit"] or unit or "b")[0].lower()))
    return str(exact.numerator) if exact.denominator == 1 else text


_GAP = re.compile(r"([0-9]{1,39})-([0-9]{1,39})(@[0-9]{1,39}:[0-9]{1,39})?")


def _gaps(line: int, text: str, inclusive: bool, lower: int, upper: int) -> tuple[tuple[tuple[int, int], ...], bool]:
    """Parse ``begin-stop[@low:high] …``. Return the gaps without a byte window, and whether any gap has a window."""
    gaps: list[tuple[int, int]] = []
    windowed = False
    for word in text.split():
        match = _GAP.fullmatch(word)
        if match is None:
            raise _fault(line, "gaps", f"{word!r} is not a gap", "Write gaps as begin-stop, such as 7-9 12-14.")
        begin, end = int(match[1]), int(match[2]) + inclusive
        if not lower <= begin < end <= upper:
            hint = "Gaps are inside of the live range and not empty."
            raise _fault(line, "gaps", f"the gap [{begin}, {end}) is not in [{lower}, {upper})", hint)
        windowed = windowed or bool(match[3])
        gaps += [] if match[3] else [(begin, end)]
    gaps.sort()
    for (_, end), (begin, _) in pairwise(gaps):
        if begin < end:
            raise _fault(line, "gaps", f"two gaps overlap at step {begin}", "Join them into one.")
    if sum(end - begin for begin, end in gaps) == upper - lower:
        raise _fault(line, "gaps", f"the gaps are the whole live range [{lower}, {upper})", "Omit the buffer.")
    return tuple(gaps), windowed
