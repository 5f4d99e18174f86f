"""Read any table, CSV or JSON, as a packing instance; the user assigns its columns to :data:`FIELDS`.

A live range is ``[lower, upper)``. Defaults: without live ranges all rows are live at once, without offsets the table
is a problem to plan, without ids rows are numbered. Rows with the same ``alias`` share their bytes: they become one
buffer, with a live range from their first step to their last, the largest size, and the other fields of the first row.

JSON is a list of objects, or an object whose first list is one.

Numbers may be hexadecimal, ``1,048,576`` or ``64.0``. Bytes may have a unit, in the cell (``1.5 MiB``) or in the name
of the column (``Size (KiB)``); ``KB`` means KiB too.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import UnreadableInput, source_of_errors
from tmmu_core.formats.allocator_plan import stem_of
from tmmu_core.formats.csv import instance_csv
from tmmu_core.graph.native import document
from tmmu_core.planners.problem import PlainInstance

FIELDS = ("id", "lower", "upper", "size", "alignment", "offset", "alias")
HINT = "Assign the columns: --columns size=BYTES,lower=FROM,upper=TO,offset=AT,id=NAME,alias=SAME."
MOST_ROWS = 1 << 22
"""Maximum number of rows of a CSV table."""
_NOT_TABLE = frozenset({"ir_schema", "schema", "tensors", "nodes", "graph", "ir"})
"""Keys of graphs, plans and traces, which are not tables."""
RANGE = ("lower", "upper")
BYTES = ("size", "offset", "alignment")
_HEX = re.compile(r"0x[0-9a-f]{1,32}", re.IGNORECASE)
_UNIT = re.compile(r"(?:[\s_(\[/]|^)(kib|mib|gib|kb|mb|gb)[)\]]?$", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?P<whole>\d{1,3}(?:[,_ \u00a0]\d{3})+|\d{1,30})(?P<part>\.\d{1,12})?\s?(?P<unit>[kmgt]i?b|b|bytes)?",
    re.IGNORECASE,
)
_LIKELY: dict[str, tuple[str, ...]] = {
    "id": ("id", "name", "buffer", "tensor", "buf", "label"),
    "lower": ("lower", "start", "begin", "first", "from", "birth", "alloc"),
    "upper": ("upper", "end", "stop", "until", "to", "death", "free"),
    "size": ("size", "bytes", "nbytes", "length", "len"),
    "alignment": ("alignment", "align"),
    "offset": ("offset", "address", "addr", "at"),
    "alias": ("alias", "same", "group", "storage"),
}
"""Field → words in common names of its column, the most likely first."""


def columns_of(data: bytes) -> tuple[str, ...]:
    """Return the columns of a table; none for bytes that are not a table with at least two columns, all named."""
    try:
        text = data.decode("utf-8-sig").lstrip()
        if text[:1] == "{" and _NOT_TABLE & set(msgspec.json.decode(text)):
            return ()
        first = next(_rows(data), (0, {}))[1]
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError, UnreadableInput):
        return ()
    named = tuple(column for column in first if column and column.isprintable())
    return named if 2 <= len(named) == len(first) else ()


def likely(columns: Iterable[str]) -> dict[str, str]:
    """Return the assignment that the column names suggest: field → column."""
    unassigned = list(columns)
    found: dict[str, str] = {}
    for field, words in _LIKELY.items():
        parts = {column: column.lower().replace("-", "_").replace(" ", "_").split("_") for column in unassigned}
        column = next((column for word in words for column in unassigned if word in parts[column]), None)
        if column is not None:
            found[field] = column
            unassigned.remove(column)
    return found


def read(data: bytes, columns: Mapping[str, str], name: str = "") -> PlainInstance:
    """Return the instance in a table. ``columns``: field → column name [the name of the field].

    Raises ``UnreadableInput``, also if only one of ``lower`` and ``upper`` has a column.
    """
    with source_of_errors(name):
        instance = _instance(data, columns)
    return replace(instance, name=stem_of(name) or "table")


def _instance(data: bytes, columns: Mapping[str, str]) -> PlainInstance:
    unknown = next((field for field in columns if field not in FIELDS), None)
    if unknown is not None:
        raise UnreadableInput(f'there is no field "{unknown}".', hint=strict.closest_hint(unknown, FIELDS))
    document.refuse_many_values(data)
    numbered = list(_rows(data))
    if not numbered:
        raise UnreadableInput("the table has no rows.", hint=HINT)
    first = numbered[0][1]
    named = {field: columns.get(field, field) for field in FIELDS}
    assigned = {field: column for field, column in named.items() if column in first}
    has_ranges = not assigned.keys().isdisjoint(RANGE)
    required = {"size", *columns, *(RANGE if has_ranges else ())}
    missing = next((named[field] for field in FIELDS if field in required and field not in assigned), None)
    if missing is not None:
        present = sorted(first)
        near = strict.closest_hint(missing, present) if missing in columns.values() else ""
        what = f'the table has no column "{missing}": it has {", ".join(present)[:400]}.'
        raise UnreadableInput(what, hint=f"{near} {HINT}".strip())
    units = {field: _unit_of(column) for field, column in assigned.items() if field in BYTES}
    rows = [_fields(row, assigned, units, k) | {"line": str(line)} for k, (line, row) in enumerate(numbered, 1)]
    buffers = _merged(rows)
    written = [field for field in FIELDS[:-1] if field in ("id", *RANGE, "size") or field in assigned]
    cells = ((int(buffer["line"]), [buffer[field] for field in written]) for buffer in buffers)
    instance = instance_csv.from_cells(chain([(1, written)], cells))
    from_name = {assigned[field]: f"{unit.upper()}iB" for field, unit in units.items() if unit}
    notes = [f'"{column}" is read as {unit} because of its name' for column, unit in from_name.items()]
    if len(buffers) < len(rows):
        notes.append(f"{len(rows) - len(buffers):,} rows share the bytes of another row (same alias)")
    if not has_ranges:
        notes.append("the table has no live ranges: all rows are live at once")
    return replace(instance, notes=(*instance.notes, *notes))


def _rows(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(line, column → cell)`` of each row of a table; JSON counts as one row per line, from line 2."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte {error.start}"
        raise UnreadableInput("the table is not UTF-8.", place=place, hint="Save it as UTF-8.") from error
    if text.lstrip()[:1] in ("[", "{"):
        yield from enumerate(_objects(text), start=2)
        return
    first = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        for k, row in enumerate(reader):
            if k >= MOST_ROWS:
                raise UnreadableInput(f"the table has more than {MOST_ROWS:,} rows.", hint="Split the table.")
            yield reader.line_num, {str(key).strip(): value for key, value in row.items() if key is not None}
    except csv.Error as error:
        raise UnreadableInput(f"the table is not valid CSV: {error}.", hint="Close the quotes.") from error


def _objects(text: str) -> list[dict[str, Any]]:
    hint = "Write a list of objects."
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableInput(f"the table is not JSON: {error}.", hint=hint) from error
    if isinstance(found, dict):
        found = next((value for value in found.values() if isinstance(value, list)), None)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UnreadableInput("the JSON contains no list of objects.", hint=hint)
    return found


def _fields(row: Mapping[str, Any], assigned: Mapping[str, str], units: Mapping[str, str], k: int) -> dict[str, str]:
    """Return the fields of row ``k``, from 1, as text, with defaults for fields without a column."""
    fields = {"id": f"row {k}", "lower": "0", "upper": "1"}
    fields |= dict.fromkeys(("size", *FIELDS[4:]), "")
    for field, column in assigned.items():
        text = "" if row.get(column) is None else str(row[column]).strip()
        fields[field] = _digits(text, units.get(field, "")) if field in (*RANGE, *BYTES) else text
    return fields


def _unit_of(column: str) -> str:
    """Return the unit in a column name (``Size (KiB)``, ``size_mb``) as ``k``, ``m`` or ``g``; ``""`` without one."""
    found = _UNIT.search(column.strip())
    return found[1][0].lower() if found else ""


def _digits(text: str, unit: str) -> str:
    """Return a number as digits, in bytes if it has a unit. Other text is returned as it is, to be refused later."""
    text = str(int(text, 16)) if _HEX.fullmatch(text) else text
    if text.isdecimal() and not unit:
        return text
    part = _NUMBER.fullmatch(text)
    if part is None or (unit and part["unit"]):
        return text
    number = Fraction(re.sub(r"[,_ \u00a0]", "", part["whole"]) + (part["part"] or ""))
    exact = number * 1024 ** max(0, "bkmgt".find((part["unit"] or unit or "b")[0].lower()))
    return str(exact.numerator) if exact.denominator == 1 else text


def _merged(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows with one row per alias; it has the hull of their live ranges and the largest size."""
    first_of: dict[str, dict[str, str]] = {}
    merged = []
    for row in rows:
        first = first_of.setdefault(row["alias"], row) if row["alias"] else row
        if first is row:
            merged.append(row)
            continue
        try:
            for field, choose in (("lower", min), ("upper", max), ("size", max)):
                first[field] = str(choose(strict.whole_number(first[field]), strict.whole_number(row[field])))
        except ValueError as error:
            what = f'the rows of the alias "{row["alias"][:80]}" contain a value that is not a whole number.'
            raise UnreadableInput(what, hint="Write digits only.") from error
    return merged
