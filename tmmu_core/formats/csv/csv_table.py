"""Read any table, CSV or JSON, as a packing instance; the user assigns its columns to fields.

``columns`` maps the fields (``lower``, ``upper`` (half-open), ``size`` and others) to column names. Defaults: without
live ranges all rows are live at once, without offsets the table is a problem to plan, without ids rows are numbered.
Rows with the same ``alias`` share their bytes: one live range, from the first step to the last.

JSON is a list of objects, or an object with one such list.

Numbers may be hexadecimal, ``1,048,576``, ``64.0``, or bytes with a unit, in the cell (``1.5 MiB``) or in the column's
name (``Size (KiB)``).
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.escaping import csv_text
from tmmu_core.formats.allocator_plan import stem_of
from tmmu_core.formats.csv import instance_csv
from tmmu_core.graph.native import document
from tmmu_core.planners.problem import PlainInstance

FIELDS = ("id", "lower", "upper", "size", "alignment", "offset", "alias")
HINT = "Assign the columns: --columns size=BYTES,lower=FROM,upper=TO,offset=AT,id=NAME,alias=SAME."
MOST_ROWS = 1 << 22
_NOT_TABLE = frozenset({"ir_schema", "schema", "tensors", "nodes", "graph", "ir"})
"""Keys of graphs, plans and traces, which are not tables."""
BYTES = ("size", "offset", "alignment")
NUMBERS = ("lower", "upper", *BYTES)
_UNIT = re.compile(r"(?:[\s_(\[/]|^)(kib|mib|gib|kb|mb|gb)[)\]]?$", re.IGNORECASE)
_PLAIN = re.compile(
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
"""Field → common names of its column, the most likely first."""


def columns_of(data: bytes, name: str = "") -> tuple[str, ...]:
    """Return the columns of a table; none for bytes that are not a table with at least two named columns."""
    try:
        text = data.decode("utf-8-sig").lstrip()
        if text[:1] == "{" and _NOT_TABLE & set(msgspec.json.decode(text)):
            return ()
        first = next(iter(_rows(data, name)), {})
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError, UnreadableInput):
        return ()
    named = tuple(column for column in first if column and column.isprintable())
    return named if 2 <= len(named) == len(first) else ()


def likely(columns: Iterable[str]) -> dict[str, str]:
    """Return field → the column that probably holds it."""
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
    """Return the instance in a table. ``columns``: field → column name. Raises ``UnreadableInput``."""
    wrong = next((field for field in columns if field not in FIELDS), None)
    if wrong is not None:
        raise UnreadableInput(f'there is no field "{wrong}".', source=name, hint=strict.closest_hint(wrong, FIELDS))
    document.refuse_many_values(data, name)
    rows = list(_rows(data, name))
    named = {field: columns.get(field, field) for field in FIELDS}
    present = set(rows[0]) if rows else set()
    missing = [own for field, own in named.items() if own not in present and (field in columns or field == "size")]
    if not rows:
        raise UnreadableInput("the table has no rows.", source=name, hint=HINT)
    if missing:
        near = strict.closest_hint(missing[0], sorted(present)) if missing[0] in columns.values() else ""
        what = f'the table has no column "{missing[0]}": it has {", ".join(sorted(present))[:400]}.'
        raise UnreadableInput(what, source=name, hint=f"{near} {HINT}".strip())
    units = {field: unit_of(own) for field, own in named.items() if field in BYTES}
    cells = [_fields(row, named, present, k) for k, row in enumerate(rows)]
    for cell in cells:
        for field in NUMBERS:
            cell[field] = _plain(cell[field], units.get(field, ""))
    merged = _merged(cells, name)
    written = [field for field in FIELDS[:-1] if field in ("id", "lower", "upper", "size") or named[field] in present]
    text = csv_text([written, *([cell[field] for field in written] for cell in merged)])
    found = instance_csv.read_csv(text, source=name)
    notes = list(found.notes)
    notes += [
        f'"{named[field]}" is read as {unit.upper()}iB because of its name' for field, unit in units.items() if unit
    ]
    if len(merged) < len(rows):
        notes.append(f"{len(rows) - len(merged):,} rows share the bytes of another row (same alias)")
    if named["lower"] not in present or named["upper"] not in present:
        notes.append("the table has no live ranges: all rows are live at once")
    return replace(found, name=stem_of(name) or "table", notes=tuple(notes))


def _rows(data: bytes, name: str) -> Iterable[dict[str, Any]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte {error.start}"
        raise UnreadableInput("the table is not UTF-8.", source=name, place=place, hint="Save it as UTF-8.") from error
    if text.lstrip()[:1] in ("[", "{"):
        yield from _objects(text, name)
        return
    first = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    try:
        for k, row in enumerate(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)):
            if k >= MOST_ROWS:
                raise UnreadableInput(
                    f"the table has more than {MOST_ROWS:,} rows.", source=name, hint="Split the table."
                )
            yield {str(key).strip(): value for key, value in row.items() if key is not None}
    except csv.Error as error:
        raise UnreadableInput(f"the table is not valid CSV: {error}.", source=name, hint="Close the quotes.") from error


def _objects(text: str, name: str) -> list[dict[str, Any]]:
    hint = "Write a list of objects."
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableInput(f"the table is not JSON: {error}.", source=name, hint=hint) from error
    if isinstance(found, dict):
        found = next((value for value in found.values() if isinstance(value, list)), None)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UnreadableInput("the JSON contains no list of objects.", source=name, hint=hint)
    return found


_HEX = re.compile(r"0x[0-9a-f]{1,32}", re.IGNORECASE)


def _fields(row: Mapping[str, Any], named: Mapping[str, str], present: set[str], k: int) -> dict[str, str]:
    """Return one row's fields as text, with defaults for missing columns."""
    fields = {"id": f"row {k + 1}", "lower": "0", "upper": "1"} | dict.fromkeys(("size", *FIELDS[4:]), "")
    for field, own in named.items():
        if own in present:
            text = "" if row.get(own) is None else str(row[own]).strip()
            fields[field] = str(int(text, 16)) if _HEX.fullmatch(text) else text
    return fields


def unit_of(column: str) -> str:
    """Return the unit at the end of a column name (``Size (KiB)``, ``size_mb``): ``k``, ``m``, ``g``; ``""``: bytes."""
    found = _UNIT.search(column.strip())
    return found[1][0].lower() if found else ""


def _plain(text: str, unit: str) -> str:
    """Return a number as digits; other text is unchanged, so that :func:`.instance_csv.read_csv` refuses it."""
    if text.isdecimal() and not unit:
        return text
    part = _PLAIN.fullmatch(text)
    if part is None or (unit and part["unit"]):
        return text
    number = Fraction(re.sub(r"[,_ \u00a0]", "", part["whole"]) + (part["part"] or ""))
    exact = number * 1024 ** max(0, "bkmgt".find((part["unit"] or unit or "b")[0].lower()))
    return str(exact.numerator) if exact.denominator == 1 else text


def _merged(cells: list[dict[str, str]], name: str) -> list[dict[str, str]]:
    """Return the rows with one row per alias: its live range covers all rows of the alias, its size is the largest."""
    first: dict[str, dict[str, str]] = {}
    merged = []
    for cell in cells:
        first_row = cell["alias"] and first.setdefault(cell["alias"], cell)
        if not first_row or first_row is cell:
            merged.append(cell)
            continue
        try:
            first_row["lower"] = str(min(strict.whole_number(first_row["lower"]), strict.whole_number(cell["lower"])))
            for field in ("upper", "size"):
                first_row[field] = str(max(strict.whole_number(first_row[field]), strict.whole_number(cell[field])))
        except ValueError as error:
            what = f'the rows of the alias "{cell["alias"][:80]}" contain a value that is not a whole number.'
            raise UnreadableInput(what, source=name, hint="Write digits only.") from error
    return merged
