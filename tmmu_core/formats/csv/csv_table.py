"""Read any table, CSV or JSON, as a packing instance; the user assigns its columns to :data:`FIELDS`.

A live range is ``[lower, upper)``. Defaults: without live ranges all rows are live at once, without offsets the table
is a problem to plan, without ids rows are numbered. Rows with the same ``alias`` share their bytes: they become one
buffer. JSON is a list of objects, or an object whose first list is one. Bytes may have a unit in the name of the column
(``Size (KiB)``), or in the cell, as in an instance.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import UnreadableInput, source_of_errors
from tmmu_core.formats.allocator_plan import stem_of
from tmmu_core.formats.csv import instance_csv
from tmmu_core.formats.csv.instance_csv import digits_of
from tmmu_core.graph.native import document, unpacking
from tmmu_core.planners.problem import PlainInstance

FIELDS = ("id", "lower", "upper", "size", "alignment", "offset", "alias")
HINT = "Assign the columns: --columns size=BYTES,lower=FROM,upper=TO,offset=AT,id=NAME,alias=SAME."
_NOT_TABLE = frozenset({"ir_schema", "schema", "tensors", "nodes", "graph", "ir"})  # keys of other documents
RANGE = ("lower", "upper")
BYTES = ("size", "offset", "alignment")
# In the name of a column: ``Size (KiB)``, ``size_mb``.
_UNIT = re.compile(r"(?:[\s_(\[/]|^)(kib|mib|gib|kb|mb|gb)[)\]]?$", re.IGNORECASE)
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
        data = unpacking.unpack(data)
        if document.kind(data) == "json" and _NOT_TABLE & document.fields(data).keys():
            return ()
        first = next(_rows(data), (0, {}))[1]
    except UnreadableInput:
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
    """Return the instance in a table. ``columns``: field → column [the field's name]. Raises ``UnreadableInput``."""
    with source_of_errors(name):
        instance = _instance(unpacking.unpack(data), columns)
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
    found_units = {field: _UNIT.search(column.strip()) for field, column in assigned.items() if field in BYTES}
    units = {field: unit[1][0].lower() if unit else "" for field, unit in found_units.items()}  # k, m or g
    count = len(numbered)
    cells = {"id": [f"row {k}" for k in range(1, count + 1)], "lower": ["0"] * count, "upper": ["1"] * count}
    for field, column in assigned.items():
        texts = ["" if row.get(column) is None else str(row[column]).strip() for _, row in numbered]
        is_number = field in (*RANGE, *BYTES)
        cells[field] = [digits_of(text, units.get(field, "")) for text in texts] if is_number else texts
    buffers = _merged(cells, cells.pop("alias", [""] * count))
    cells = {field: [texts[row] for row in buffers] for field, texts in cells.items()}
    instance = instance_csv.from_columns(cells, [numbered[row][0] for row in buffers])
    from_name = {assigned[field]: f"{unit.upper()}iB" for field, unit in units.items() if unit}
    notes = [f'"{column}" is read as {unit} because of its name' for column, unit in from_name.items()]
    if len(buffers) < count:
        notes.append(f"{count - len(buffers):,} rows share the bytes of another row (same alias)")
    if not has_ranges:
        notes.append("the table has no live ranges: all rows are live at once")
    return replace(instance, notes=(*instance.notes, *notes))


def _rows(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(line, column → cell)`` of each row of a table; JSON counts as one row per line, from line 2."""
    if data.lstrip()[:1] in (b"[", b"{"):
        yield from enumerate(_objects(data), start=2)
        return
    rows = instance_csv.rows_of(data)
    header = [cell.strip() for cell in next(rows, (1, []))[1]]
    yield from ((line, dict(zip(header, cells, strict=False))) for line, cells in rows)


def _objects(data: bytes) -> list[dict[str, Any]]:
    hint = "Write a list of objects."
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(f"the table is not JSON: {error}.", hint=hint) from error
    if isinstance(found, dict):
        found = next((value for value in found.values() if isinstance(value, list)), None)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UnreadableInput("the JSON contains no list of objects.", hint=hint)
    return found


def _merged(cells: dict[str, list[str]], aliases: Sequence[str]) -> list[int]:
    """Return the rows that stay; the first row of each alias gets the hull of its live ranges and the largest size."""
    first_of: dict[str, int] = {}
    kept = []
    for row, alias in enumerate(aliases):
        first = first_of.setdefault(alias, row) if alias else row
        if first == row:
            kept.append(row)
            continue
        try:
            for field, choose in (("lower", min), ("upper", max), ("size", max)):
                cells[field][first] = str(choose(*[strict.whole_number(cells[field][k]) for k in (first, row)]))
        except ValueError as error:
            what = f'the rows of the alias "{alias[:80]}" contain a value that is not a whole number.'
            raise UnreadableInput(what, hint="Write digits only.") from error
    return kept
