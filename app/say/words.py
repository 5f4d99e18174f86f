"""How figures are said, on every page, in the report and on the command line. Pure: values in, text out.

Bytes come with the exact count (``1.50 MiB (1,572,864 B)``), offsets in decimal and hex, steps with the node that runs
there (``#104 conv_12``), ranges half-open (``[104, 131)``). What is not known is ``unknown``, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

UNKNOWN = "unknown"
UNLIMITED = 2**64 - 1
"""A capacity of this many bytes means that none was given (contract §4)."""

NO_SLOTS = "–"
"""Stands where a plan without slots would tell of them: it numbers its storages, which is no count of slots."""
WHY_NO_SLOTS = "This planner places bytes, not slots: it only numbers its storages."

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def _scaled(n: int) -> tuple[int, int]:
    """``(unit, hundredths)`` of a count of bytes: the unit in which it reads best, rounded half up, in integers."""
    unit = 0
    while unit < len(_UNITS) - 1 and n >= 1024 ** (unit + 1):
        unit += 1
    scale = 1024**unit
    hundredths = (n * 100 + scale // 2) // scale
    if hundredths >= 102_400 and unit < len(_UNITS) - 1:  # 1023.999 KiB reads as 1.00 MiB
        return unit + 1, (n * 100 + scale * 512) // (scale * 1024)
    return unit, hundredths


def short_bytes(n: int | None) -> str:
    """Bytes in three or more digits: ``1.50 MiB``, ``24.5 KiB``, ``97 B``."""
    if n is None:
        return UNKNOWN
    sign = "−" if n < 0 else ""
    n = abs(int(n))
    unit, hundredths = _scaled(n)
    if unit == 0:
        return f"{sign}{n} B"
    whole, part = divmod(hundredths, 100)
    if whole >= 100:
        text = str((hundredths + 50) // 100)
    elif whole >= 10:
        tenths = (hundredths + 5) // 10
        text = f"{tenths // 10}.{tenths % 10}"
    else:
        text = f"{whole}.{part:02d}"
    return f"{sign}{text} {_UNITS[unit]}"


def exact_bytes(n: int | None) -> str:
    """Bytes to the last one: ``1,572,864 B``."""
    return UNKNOWN if n is None else f"{int(n):,} B".replace("-", "−")


def full_bytes(n: int | None) -> str:
    """Both: ``1.50 MiB (1,572,864 B)``; small counts once: ``97 B``."""
    if n is None:
        return UNKNOWN
    return exact_bytes(n) if abs(n) < 1024 else f"{short_bytes(n)} ({exact_bytes(n)})"


def capacity(n: int | None) -> str:
    """A capacity; ``unlimited`` where none was given."""
    return UNKNOWN if n is None else "unlimited" if n >= UNLIMITED else full_bytes(n)


def offset(n: int | None) -> str:
    """An offset: ``1,998,848 (0x1E8000)``."""
    return UNKNOWN if n is None else f"{int(n):,} (0x{int(n):X})"


def delta_bytes(n: int | None) -> str:
    """A change of bytes with its sign: ``+1.50 MiB``, ``−24 B``, ``±0 B``."""
    if n is None:
        return UNKNOWN
    return "±0 B" if n == 0 else ("+" if n > 0 else "") + short_bytes(n)


def count(n: int | None, noun: str = "", plural: str = "") -> str:
    """A count with its noun: ``1 slot``, ``1,204 slots``."""
    if n is None:
        return f"{UNKNOWN} {plural or noun + 's'}" if noun else UNKNOWN
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}" if noun else f"{n:,}"


def grouped(text: object) -> str:
    """Our own sentence with the digits of its numbers in threes; a planner writes it into a plan as plain figures."""
    return re.sub(r"(?<![\w.,^])\d{4,}(?![\w.])", lambda found: f"{int(found[0]):,}", str(text))


def percent(part: int | None, whole: int | None) -> str:
    """``part / whole`` in percent with one decimal, rounded half up; a rest too small to show is ``<0.1 %``."""
    if part is None or whole is None:
        return UNKNOWN
    if whole == 0:
        return "0 %" if part == 0 else UNKNOWN
    tenths = (abs(part) * 1000 * 2 + whole) // (2 * whole)
    sign = "−" if part < 0 and tenths else ""
    if tenths == 0 and part:
        return f"{sign}<0.1 %"
    return f"{sign}{tenths // 10} %" if tenths % 10 == 0 else f"{sign}{tenths // 10:,}.{tenths % 10} %"


def ratio(value: float | None) -> str:
    """A reported ratio (0 … 1) in percent with one decimal."""
    return UNKNOWN if value is None else f"{value * 100:.1f} %".replace(".0 %", " %")


def step(t: int | None, node: str = "") -> str:
    """A step and the node that runs there: ``#104 conv_12``, ``#12,288``."""
    if t is None or t < 0:
        return UNKNOWN
    return f"#{t:,} {node}".rstrip()


def live_range(birth: int, death: int) -> str:
    """A live range, half-open: ``[104, 131)``."""
    return f"[{birth:,}, {death:,})"


def short_hash(digest: bytes | None) -> str:
    """The first twelve hex digits of a digest."""
    return UNKNOWN if not digest else digest.hex()[:12]


def shape(dims: Iterable[int | str]) -> str:
    """A shape: ``1 × 64 × 56 × 56``; ``scalar`` for none."""
    return " × ".join(str(d) for d in dims) or "scalar"


def takes(arena: str) -> str:
    """The subject and verb of a sentence about an arena: ``activations take``, ``arena takes``."""
    return f"{arena} take" if arena.endswith("s") else f"{arena} takes"


def duration(nanoseconds: int | None) -> str:
    """A time: ``780 µs``, ``12.3 ms``, ``1.42 s``."""
    if nanoseconds is None:
        return UNKNOWN
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1e3:.0f} µs"
    if nanoseconds < 1_000_000_000:
        return f"{nanoseconds / 1e6:.1f} ms"
    return f"{nanoseconds / 1e9:.2f} s"


def of(shown: int, total: int, noun: str) -> str:
    """``250 of 1,204 tensors``, or ``all 17 tensors``."""
    return f"all {count(total, noun)}" if shown == total else f"{shown:,} of {count(total, noun)}"


def shortened(text: str, width: int = 28) -> str:
    """A name cut in its middle, where names differ least."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def change(before: str, after: str) -> str:
    """``before → after``, or the one value where nothing changed."""
    return before if before == after else f"{before} → {after}"


def gap(extent: int | None, bound: int | None) -> str:
    """How far an extent is above its lower bound, in percent."""
    if extent is None or bound is None:
        return UNKNOWN
    return over_bound(extent - bound, bound)


def over_bound(over: int, bound: int) -> str:
    """A gap as its fraction is told, in percent; no valid plan is below a bound."""
    return "impossible" if over < 0 else percent(over, bound)


def runs(ranks: Sequence[int], most: int = 4) -> str:
    """Ascending ranks in words: ``0–7, 16–23 and 40 more``."""
    found: list[list[int]] = []
    for rank in ranks:
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    parts = [f"{a}" if a == b else f"{a}–{b}" for a, b in found[:most]]
    rest = sum(b - a + 1 for a, b in found[most:])
    return ", ".join(parts) + (f" and {rest:,} more" if rest else "")
