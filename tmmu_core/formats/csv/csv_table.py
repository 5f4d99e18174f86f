"""Read any table, CSV or JSON, as a packing instance; the user assigns its columns to :data:`FIELDS`.

A live range is ``[lower, upper)``. Without live ranges, all rows are live at the same time. Without offsets, the
instance has no packing. Without ids, rows are numbered. Rows with the same ``alias`` become one buffer. A JSON table is
a list of objects, or the first list in an object. Sizes, offsets and alignments are in bytes, unless the column name
(``Size (KiB)``) or the cell contains another unit.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
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
_NOT_TABLE = frozenset({"ir_schema", "schema", "tensors", "nodes", "graph", "ir"})  # keys of other JSON formats
_RANGE_FIELDS = ("lower", "upper")
_BYTE_FIELDS = ("size", "offset", "alignment")
# A unit at the end of a column name: ``Size (KiB)``, ``size_mb``.
_UNIT = re.compile(r"(?:[\s_(\[/]|^)(kib|mib|gib|kb|mb|gb)[)\]]?$", re.IGNORECASE)


def columns_of(data: bytes) -> tuple[str, ...]:
    """Return a table's column names; ``()`` for other data, fewer than two columns, or an empty or unprintable name."""
    try:
        data = unpacking.unpack(data)
        if document.kind(data) == "json" and _NOT_TABLE & document.fields(data).keys():
            return ()
        first = next(_rows(data), (0, {}))[1]
    except UnreadableInput:
        return ()
    named = tuple(column for column in first if column and column.isprintable())
    return named if 2 <= len(named) == len(first) else ()


def read(data: bytes, columns: Mapping[str, str], name: str = "") -> PlainInstance:
    """Return the instance in a table; ``columns`` maps a field to its column's name. Raises ``UnreadableInput``."""
    with source_of_errors(name):
        instance = _instance(unpacking.unpack(data), columns)
    return replace(instance, name=stem_of(name) or "table")


def _instance(data: bytes, columns: Mapping[str, str]) -> PlainInstance:
    unknown = next((field for field in columns if field not in FIELDS), None)
    if unknown is not None:
        raise UnreadableInput(f"there is no field {unknown!r}.", hint=strict.closest_hint(unknown, FIELDS))
    document.refuse_many_values(data)
    numbered = list(_rows(data))
    if not numbered:
        raise UnreadableInput("the table has no rows.", hint=HINT)
    present = numbered[0][1].keys()
    expected = {field: columns.get(field, field) for field in FIELDS}
    assigned = {field: column for field, column in expected.items() if column in present}
    has_ranges = not assigned.keys().isdisjoint(_RANGE_FIELDS)
    required = {"size", *columns, *(_RANGE_FIELDS if has_ranges else ())}
    missing = next((expected[field] for field in FIELDS if field in required and field not in assigned), None)
    if missing is not None:
        closest = strict.closest_hint(missing, sorted(present)) if missing in columns.values() else ""
        what = f"the table has no column {missing!r}: it has {', '.join(sorted(present))[:400]}."
        raise UnreadableInput(what, hint=f"{closest} {HINT}".strip())
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
    instance = instance_csv.from_columns(cells, [numbered[row][0] for row in kept])
    notes = [f"{assigned[field]!r} is read as {unit.upper()}iB because of its name" for field, unit in units.items()]
    if len(kept) < count:
        notes.append(f"{count - len(kept):,} of {count:,} rows share the bytes of another row (same alias)")
    if not has_ranges:
        notes.append("the table has no live ranges: all rows are live at once")
    return replace(instance, notes=(*instance.notes, *notes))


def _rows(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(line, column → cell)`` of each row of a table; the lines of JSON rows are 2, 3, …, as in CSV."""
    if data.lstrip()[:1] in (b"[", b"{"):
        yield from enumerate(_objects(data), start=2)
        return
    rows = instance_csv.rows_of(data)
    header = [cell.strip() for cell in next(rows, (1, []))[1]]
    yield from ((line, dict(zip(header, cells, strict=False))) for line, cells in rows)


def _objects(data: bytes) -> list[dict[str, Any]]:
    hint = "Write a list of objects."
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableInput(f"the table is not JSON: {error}.", hint=hint) from error
    if isinstance(value, dict):
        value = next((member for member in value.values() if isinstance(member, list)), None)
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise UnreadableInput("the JSON contains no list of objects.", hint=hint)
    return value


def _merge_aliases(cells: dict[str, list[str]], aliases: Sequence[str]) -> list[int]:
    """Merge the rows of each alias into its first row: least lower, largest upper and size. Return the rows to keep."""
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
