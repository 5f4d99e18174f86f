"""Read the allocations and offsets in XLA's ``*-memory-usage-report.txt``, which has no live ranges.

::

    Memory Space: default (color=0)
    Total bytes: 112656 (110.0KiB)
      cumulative_size;       size;       offset; used_by_n_values; shapes_list        an allocation
      ------------------------------------------------------------
         8.0KiB( 80%);     8.0KiB;            0;                2; 2×f32[16,128]      a buffer in it
        10.0KiB(100%);     2.0KiB;         8192;                1; f32[16,32]

All buffers are read as live at the same step. The printed sizes are rounded: a buffer gets the size of its largest
shape that rounds to the printed size.
"""

import re
from fractions import Fraction
from math import prod

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.allocator_plan import MAX_VALUE, LiveRange, instance_of, stem_of
from tmmu_core.planners.problem import PlainInstance

MARK = b"Memory Space:"
HINT = "Dump the module again, or open its buffer assignment and live ranges, which are in the same folder."
_TOTAL = re.compile(r"Total bytes: (\d{1,19}) ", re.A)
_ROW = re.compile(
    r"(?a)\s+[\d.]{1,20}\w{1,20}\(\s*\d{1,20}%\);\s+(\d{1,15}(?:\.\d{1,4})?)(B|KiB|MiB|GiB|TiB);"
    r"\s+(\d{1,19});\s+(\d{1,19}); (.*)"
)
_SHAPE = re.compile(r"\b(?:pred|token|([a-z]{1,8})(\d{1,3}))(?:[a-z]\w{0,20})?\[([\d,]{0,200})\]", re.A)
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def refusal(data: bytes) -> str:
    """Return why bytes are not a memory usage report; ``""`` if they are."""
    return "" if data.lstrip().startswith(MARK) else f"it does not begin with {MARK.decode()}"


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the buffers of the report, all live at once, as a plan. Raises ``UnreadableInput``."""
    buffers: list[LiveRange] = []
    base = end = allocation = total = rounded_count = 0
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if found := _TOTAL.match(line):
            total += int(found[1])
        elif "cumulative_size;" in line:
            base, allocation = end, allocation + 1
        elif ";" in line:
            row = _ROW.match(line)
            size, is_exact = _size(row[1], row[2], row[5]) if row is not None else (0, False)
            start = base + int(row[3]) if row is not None else 0
            if row is None or not allocation or start + size > MAX_VALUE:
                what = f"invalid line of a memory usage report: {line.strip()[:80]!r}."
                raise UnreadableInput(what, place=f"line {number}", hint=HINT)
            rounded_count += not is_exact
            end = max(end, start + size)
            if size:
                buffers.append(LiveRange(f"allocation {allocation}: {row[5].strip()[:120]}", 0, 1, size, start))
    if not buffers:
        raise UnreadableInput("the report contains no buffer.", hint=HINT)
    notes = ["the report has no live ranges: all buffers are read as live at once. " + HINT]
    notes.append(f"the report's total is {total:,} bytes, its buffers end at byte {end:,}")
    if rounded_count:
        notes.append(f"{rounded_count} sizes are rounded in the report")
    return instance_of(stem_of(name).removesuffix("-memory-usage-report") or "xla", buffers, notes)


def _size(digits: str, unit: str, shapes: str) -> tuple[int, bool]:
    """Return ``(bytes, is_exact)``. Without a shape that rounds to the printed size, the printed size is used."""
    printed = Fraction(digits) * _UNITS[unit]
    sizes = [_bytes(shape) for shape in _SHAPE.finditer(shapes)] if unit != "B" else []
    matching = [size for size in sizes if 20 * abs(size - printed) <= _UNITS[unit]]  # printed with one decimal place
    return max(matching, default=int(printed)), bool(matching) or unit == "B"


def _bytes(shape: re.Match[str]) -> int:
    bits = int(shape[2] or 8) * (2 if shape[1] == "c" else 1)
    dims = [int(dim) for dim in shape[3].split(",") if dim and len(dim) < 20]
    return (prod(dims) * bits + 7) // 8
