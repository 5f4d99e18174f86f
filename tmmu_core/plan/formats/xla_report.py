"""XLA's ``*-memory-usage-report.txt``: what lies at which offset of which allocation, without lives.

::

    Memory Space: default (color=0)
    Total bytes: 112656 (110.0KiB)
      cumulative_size;       size;       offset; used_by_n_values; shapes_list        an allocation
      ------------------------------------------------------------
         8.0KiB( 80%);     8.0KiB;            0;                2; 2×f32[16,128]      a place in it
        10.0KiB(100%);     2.0KiB;         8192;                1; f32[16,32]

All places are taken to be there at once: one moment, which is what the report's own total is. Sizes are printed
rounded; where the shapes that use a place say one that rounds to the same, it is taken from them. The finished plan
with lives is in the dump's buffer assignment and live ranges, beside the report.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import prod

from tmmu_core.errors import UnreadableInput
from tmmu_core.plan.formats.given import LAST_BYTE, Life, apart, instance_of, stem_of
from tmmu_core.planners.problem import PlainInstance

MARK = b"Memory Space:"
HINT = "Dump the module again, or open its buffer assignment with its live ranges, which lie beside the report."
_TOTAL = re.compile(r"Total bytes: (\d{1,19}) ", re.A)
_ROW = re.compile(
    r"\s+[\d.]{1,20}\w{1,20}\(\s*\d{1,20}%\);\s+([\d.]{1,20})(B|KiB|MiB|GiB|TiB);\s+(\d{1,19});\s+(\d{1,19}); (.*)",
    re.A,
)
_SHAPE = re.compile(r"\b(?:pred|token|([a-z]{1,8})(\d{1,3}))(?:[a-z]\w{0,20})?\[([\d,]{0,200})\]", re.A)
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def refuses(data: bytes) -> str:
    """Why these bytes are no memory usage report; ``""`` when they are."""
    if data.lstrip()[: len(MARK)] == MARK:
        return ""
    return f"it does not begin with {MARK.decode()}" if data else "the file is empty"


def read(data: bytes, name: str = "") -> PlainInstance:
    """The places of the report, all at once, as a finished plan. Raises ``UnreadableInput``."""
    lives: list[Life] = []
    base = end = allocation = total = rounded = 0
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if found := _TOTAL.match(line):
            total += int(found[1])
        elif "cumulative_size;" in line:
            base, allocation = end, allocation + 1
        elif ";" in line:
            row = _ROW.match(line)
            if row is None or not allocation:
                raise _damaged(line, number, name)
            size, exact = _size(row[1], row[2], row[5])
            start = base + int(row[3])
            if start + size > LAST_BYTE:
                raise _damaged(line, number, name)
            rounded += not exact
            end = max(end, start + size)
            if size:
                lives.append(Life(f"allocation {allocation}: {row[5].strip()[:120]}", 0, 1, size, start))
    if not lives:
        raise UnreadableInput("the report holds no place.", source=name, hint=HINT)
    notes = ["the report says no lives: all places are taken to be there at once; " + HINT[0].lower() + HINT[1:]]
    notes.append(f"the report's total is {total:,} bytes, its places end at {end:,}")
    if rounded:
        notes.append(f"{rounded} sizes are as the report rounds them")
    stem = stem_of(name).removesuffix("-memory-usage-report")
    return instance_of(stem or "xla", apart(lives), notes)


def _size(digits: str, unit: str, shapes: str) -> tuple[int, bool]:
    """``(bytes, whether they are exact)`` of a place: of its largest shape, where that is what was rounded."""
    try:
        written = Fraction(digits) * _UNITS[unit]
    except ValueError:
        return 0, False
    if unit == "B":
        return int(written), True
    sizes = [_bytes(found) for found in _SHAPE.finditer(shapes)]
    near = [size for size in sizes if 20 * abs(size - written) <= _UNITS[unit]]
    return (max(near), True) if near else (int(written), False)


def _bytes(shape: re.Match[str]) -> int:
    bits = int(shape[2]) if shape[2] else 8
    bits = 2 * bits if shape[1] == "c" else bits
    sides = [int(side) for side in shape[3].split(",") if side and len(side) < 20]
    return (prod(sides) * bits + 7) // 8


def _damaged(line: str, number: int, name: str) -> UnreadableInput:
    return UnreadableInput(
        f"this is no line of a memory usage report: {line.strip()[:80]!r}.",
        source=name,
        place=f"line {number}",
        hint=HINT,
    )
