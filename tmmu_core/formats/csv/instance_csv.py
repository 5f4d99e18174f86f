"""Read and write packing problems as CSV, and read any table, CSV or JSON, as a packing instance.

One row per buffer: ``id,lower,upper,size[,alignment][,gaps][,offset]``, live ranges half-open ``[lower, upper)``.
Columns can have any order. Numbers may be hexadecimal, ``1,048,576`` or ``64.0``; bytes may have a unit (``1.5 MiB``;
``KB`` also means KiB). Columns, with their names in other tools (MiniMalloc's converter):

* ``id``: also ``buffer``, ``buffer_id``; ``lower``: also ``start``, ``begin``;
* ``upper``: also ``end``; with this name, the ends of live ranges and gaps are inclusive;
* ``gaps``: ranges without live bytes, half-open, ``7-9 12-14``; gaps with a byte window, ``12-14@0:64``, are ignored;
* ``offset``: in all rows, a finished plan; in some rows, fixed offsets; in no row, a problem.

For :func:`read_table`, the user assigns the columns to :data:`FIELDS`. Without live ranges, all rows are live at the
same time. Without offsets, the instance has no packing. Without ids, rows are numbered. Rows with the same ``alias``
become one buffer. A JSON table is a list of objects, or the first list in an object. Bytes may have a unit in the cell
or in the column name (``Size (KiB)``).
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX, UnreadableInput, source_of_errors
from tmmu_core.base.escaping import csv_text
from tmmu_core.formats.allocator_plan import file_name, normative_order, stem_of
from tmmu_core.graph.native import document
from tmmu_core.planners.problem import U64, Packing, PlainInstance, Problem

ALIASES = {"id": ("buffer", "buffer_id"), "lower": ("start", "begin"), "upper": ("end",)}  # column → its other names
COLUMNS = ("id", "lower", "upper", "size", "alignment", "gaps", "offset")
COLUMN_OF = {name: column for column in COLUMNS for name in (column, *ALIASES.get(column, ()))}
REQUIRED = ("id", "lower", "upper", "size")
_HEADER_HINT = "The first line names the columns: id,lower,upper,size[,alignment][,gaps][,offset]."
OTHER_NAMES = "For other column names, use tmmu convert TABLE --columns size=…,lower=…,upper=… -o INSTANCE.csv."
LAST_STEP = 2**62  # maximum step in a file
LAST_FIXED = 2**63 - 1  # maximum fixed offset of a problem; offsets of a finished plan may be any uint64
FIELDS = ("id", "lower", "upper", "size", "alignment", "offset", "alias")
TABLE_HINT = "Assign the columns: --columns size=BYTES,lower=FROM,upper=TO,offset=AT,id=NAME,alias=SAME."
_NOT_TABLE = frozenset({"ir_schema", "schema", "tensors", "nodes", "graph", "ir"})  # keys of other JSON formats
_RANGE_FIELDS = ("lower", "upper")
_BYTE_FIELDS = ("size", "offset", "alignment")
# A unit at the end of a column name: ``Size (KiB)``, ``size_mb``.
_UNIT = re.compile(r"(?:[\s_(\[/]|^)(kib|mib|gib|kb|mb|gb)[)\]]?$", re.IGNORECASE)
_HEX = re.compile(r"0x[0-9a-f]{1,32}", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?P<whole>\d{1,3}(?:[,_ \u00a0]\d{3})+|\d{1,30})(?P<part>\.\d{1,12})?\s?(?P<unit>[kmgt]i?b|b|bytes)?", re.I
)
_GAP = re.compile(r"([0-9]{1,39})-([0-9]{1,39})(@[0-9]{1,39}:[0-9]{1,39})?")


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
        raise UnreadableInput("the file is empty.", place="line 1", hint=_HEADER_HINT)
    header = [cell.strip() for cell in header]
    position_of: dict[str, int] = {}
    for k, cell in enumerate(header):
        name_of_column = COLUMN_OF.get(cell.lower())
        if name_of_column is None:
            raise _fault(line, cell or str(k + 1), f"unknown column {cell!r}", f"{_HEADER_HINT} {OTHER_NAMES}")
        if name_of_column in position_of:
            what = f"two columns are read as {name_of_column!r}: {header[position_of[name_of_column]]!r} and {cell!r}"
            raise _fault(line, cell, what, "Keep one of the two.")
        position_of[name_of_column] = k
    for column in REQUIRED:
        if column not in position_of:
            called = f" {column} may be called {' or '.join(ALIASES[column])}." if column in ALIASES else ""
            raise _fault(line, column, f"missing column {column!r}", f"{_HEADER_HINT}{called} {OTHER_NAMES}")
    inclusive = header[position_of["upper"]].lower() == "end"
    with document.paused_gc():
        table = list(rows)
    for line, cells in table:
        if len(cells) != len(position_of):
            hint = "Give every row one field per column; an empty field is fine for gaps, alignment and offset."
            raise _fault(line, "", f"{len(cells)} fields, but the header names {len(position_of)}", hint)
    columns = {column: [cells[k] for _, cells in table] for column, k in position_of.items()}
    names = {column: header[k] for column, k in position_of.items()}
    instance = from_columns(columns, [line for line, _ in table], names, inclusive)
    return replace(instance, name=file_name(name).removesuffix(".csv"))


def from_columns(
    cells: Mapping[str, Sequence[str]], lines: Sequence[int], names: Mapping[str, str], inclusive: bool = False
) -> PlainInstance:
    """Return the instance. ``cells``: column → texts; ``names``: column → header; ``inclusive``: upper is included."""

    def numbers(column: str, most: int, empty: int | None = None) -> list[int]:
        parsed: list[int] = []
        try:
            for text in cells.get(column, absent):
                word = digits_of(text.strip())
                parsed.append(strict.whole_number(word, most) if word or empty is None else empty)
        except ValueError as error:
            raise _fault(lines[len(parsed)], names[column], str(error).rstrip("."), "Write an integer ≥ 0.") from None
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
            raise _fault(line, names["id"], "the id is empty", "Give each buffer an id.")
        if first_of.setdefault(name, row) != row:
            raise _fault(line, names["id"], f"{name!r} is on line {lines[first_of[name]]} already", "Use unique ids.")
        if upper[row] <= lower[row]:
            hint = "It must have at least one step" + (", end included." if inclusive else ": upper > lower.")
            raise _fault(line, names["upper"], f"the live range [{lower[row]}, {upper[row]}) is empty", hint)
        if alignment[row] < 1 or alignment[row] & (alignment[row] - 1):
            raise _fault(line, names["alignment"], f"{alignment[row]} is not a power of two", "Use 1, 2, 4, 8, …")
        if is_partial and offset[row] > LAST_FIXED:
            raise _fault(line, names["offset"], f"the fixed offset {offset[row]} is over {LAST_FIXED}", "Lower it.")
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


def write_csv(problem: Problem, offset: U64 | Sequence[int] | None = None) -> bytes:
    """Return a problem as CSV; with ``offset``, a finished plan. Constraints between buffers are omitted."""
    for name in problem.ids:
        if not name or name != name.strip():  # ``read_csv`` changes or refuses such an id
            fault = "begins or ends with a blank" if name else "is empty"
            hint = "Rename the tensor, or write the plan as JSON."
            raise UnreadableInput(f"a CSV cannot hold the id {name!r}, which {fault}.", hint=hint)
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


def digits_of(text: str, unit: str = "") -> str:
    """Return a number as digits, in bytes if either it or its column (``unit``) has a unit; other text unchanged."""
    if text.isdecimal() and not unit:
        return text
    text = str(int(text, 16)) if _HEX.fullmatch(text) else text
    match = _NUMBER.fullmatch(text)
    if match is None or (unit and match["unit"]):
        return text
    number = Fraction(re.sub(r"[,_ \u00a0]", "", match["whole"]) + (match["part"] or ""))
    exact = number * 1024 ** max(0, "bkmgt".find((match["unit"] or unit or "b")[0].lower()))
    return str(exact.numerator) if exact.denominator == 1 else text


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


def columns_of(data: bytes) -> tuple[str, ...]:
    """Return a table's column names; ``()`` for other data, fewer than two columns, or an empty or unprintable name."""
    try:
        data = document.unpack(data)
        if document.kind(data) == "json" and _NOT_TABLE & document.fields(data).keys():
            return ()
        first = next(_rows(data), (0, {}))[1]
    except UnreadableInput:
        return ()
    named = tuple(column for column in first if column and column.isprintable())
    return named if 2 <= len(named) == len(first) else ()


def read_table(data: bytes, columns: Mapping[str, str], name: str = "") -> PlainInstance:
    """Return the instance in a table; ``columns`` maps a field to its column's name. Raises ``UnreadableInput``."""
    with source_of_errors(name):
        instance = _instance(document.unpack(data), columns)
    return replace(instance, name=stem_of(name) or "table")


def _instance(data: bytes, columns: Mapping[str, str]) -> PlainInstance:
    unknown = next((field for field in columns if field not in FIELDS), None)
    if unknown is not None:
        raise UnreadableInput(f"there is no field {unknown!r}.", hint=strict.closest_hint(unknown, FIELDS))
    document.refuse_many_values(data)
    numbered = list(_rows(data))
    if not numbered:
        raise UnreadableInput("the table has no rows.", hint=TABLE_HINT)
    present = numbered[0][1].keys()
    expected = {field: columns.get(field, field) for field in FIELDS}
    assigned = {field: column for field, column in expected.items() if column in present}
    has_ranges = not assigned.keys().isdisjoint(_RANGE_FIELDS)
    required = {"size", *columns, *(_RANGE_FIELDS if has_ranges else ())}
    missing = next((expected[field] for field in FIELDS if field in required and field not in assigned), None)
    if missing is not None:
        closest = strict.closest_hint(missing, sorted(present)) if missing in columns.values() else ""
        what = f"the table has no column {missing!r}: it has {', '.join(sorted(present))[:400]}."
        raise UnreadableInput(what, hint=f"{closest} {TABLE_HINT}".strip())
    found_units = {field: _UNIT.search(assigned[field].strip()) for field in _BYTE_FIELDS if field in assigned}
    units = {field: found[1][0].lower() for field, found in found_units.items() if found}  # k, m or g
    count = len(numbered)
    cells = {"id": [f"row {k}" for k in range(1, count + 1)], "lower": ["0"] * count, "upper": ["1"] * count}
    for field, column in assigned.items():
        texts = ["" if row.get(column) is None else str(row[column]).strip() for _, row in numbered]
        is_number = field in (*_RANGE_FIELDS, *_BYTE_FIELDS)
        cells[field] = [digits_of(text, units.get(field, "")) for text in texts] if is_number else texts
    kept = _merge_aliases(cells, cells.pop("alias", [""] * count))
    cells = {field: [texts[row] for row in kept] for field, texts in cells.items()}
    instance = from_columns(cells, [numbered[row][0] for row in kept], assigned)
    notes = [f"{assigned[field]!r} is read as {unit.upper()}iB because of its name" for field, unit in units.items()]
    if len(kept) < count:
        notes.append(f"{count - len(kept):,} of {count:,} rows share the bytes of another row (same alias)")
    if not has_ranges:
        notes.append("the table has no live ranges: all rows are live at once")
    return replace(instance, notes=(*instance.notes, *notes))


def _rows(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(line, column → cell)`` of each row of a table; the lines of JSON rows are 2, 3, …, as in CSV."""
    if data.lstrip()[:1] not in (b"[", b"{"):
        rows = rows_of(data)
        header = [cell.strip() for cell in next(rows, (1, []))[1]]
        yield from ((line, dict(zip(header, cells, strict=False))) for line, cells in rows)
        return
    hint = "Write a list of objects."
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(f"the table is not JSON: {error}.", hint=hint) from error
    if isinstance(value, dict):
        value = next((member for member in value.values() if isinstance(member, list)), None)
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise UnreadableInput("the JSON contains no list of objects.", hint=hint)
    yield from enumerate(value, start=2)


def _merge_aliases(cells: dict[str, list[str]], aliases: Sequence[str]) -> list[int]:
    """Merge the rows of each alias into its first row: least lower, largest upper, largest size. Return the kept."""
    first_of: dict[str, int] = {}
    kept = []
    for row, alias in enumerate(aliases):
        first = first_of.setdefault(alias, row) if alias else row
        if first == row:
            kept.append(row)
            continue
        try:
            for field, merge in (("lower", min), ("upper", max), ("size", max)):
                cells[field][first] = str(merge(*[strict.whole_number(cells[field][k]) for k in (first, row)]))
        except ValueError as error:
            what = f"the rows of the alias {alias[:80]!r} contain a value that is not a whole number."
            raise UnreadableInput(what, hint="Write digits only.") from error
    return kept
