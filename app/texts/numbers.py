"""Formats of numbers and names, for pages, report and command line. An unknown value is ``unknown``, never 0."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tmmu_core.base.escaping import shortened as shortened
from tmmu_core.graph.quantities import short_bytes as short_bytes

UNKNOWN = "unknown"
UNLIMITED = 2**64 - 1

NO_SLOTS = "–"  # slot figure of a plan without slots
_WORD = re.compile(r"([A-Za-z0-9]+)")  # ``split`` returns words at odd positions, separators at even ones
WHY_NO_SLOTS = "This planner assigns offsets, not slots."


def exact_bytes(n: int) -> str:
    """Return exact bytes: ``1,572,864 B``."""
    return f"{int(n):,} B".replace("-", "−")


def full_bytes(n: int | None) -> str:
    """Return short and exact bytes: ``1.50 MiB (1,572,864 B)``; below 1 KiB ``97 B``; ``unknown`` for ``None``."""
    if n is None:
        return UNKNOWN
    return exact_bytes(n) if abs(n) < 1024 else f"{short_bytes(n)} ({exact_bytes(n)})"


def round_bytes(n: int) -> str:
    """Return short bytes, without decimals if they are zeros, for axes and inputs: ``4 MiB``."""
    return short_bytes(n).replace(".00 ", " ").replace(".0 ", " ")


def capacity(n: int) -> str:
    """Return a capacity as bytes, or ``unlimited``."""
    return "unlimited" if n >= UNLIMITED else full_bytes(n)


def offset(n: int) -> str:
    """Return an offset: ``1,998,848 (0x1E8000)``."""
    return f"{int(n):,} (0x{int(n):X})"


def delta_bytes(n: int) -> str:
    """Return a change of bytes with its sign: ``+1.50 MiB``, ``−24 B``, ``±0 B``."""
    return "±0 B" if n == 0 else ("+" if n > 0 else "") + short_bytes(n)


def count(n: int, noun: str = "", plural: str = "") -> str:
    """Return a count with its noun: ``1 slot``, ``1,204 slots``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}" if noun else f"{n:,}"


def grouped(text: object) -> str:
    """Return a text with thousands separators in its integers; digits in names are not changed."""
    return re.sub(r"(?<![\w.,^])\d{4,}(?![\w.])", lambda found: f"{int(found[0]):,}", str(text))


def percent(part: int, whole: int) -> str:
    """Return ``part / whole`` in percent: ``10.4 %``, ``50 %``, ``<0.1 %``; ``unknown`` for n / 0, n ≠ 0."""
    if whole == 0:
        return "0 %" if part == 0 else UNKNOWN
    units, tenths = divmod((abs(part) * 2000 + whole) // (2 * whole), 10)  # rounded to 0.1 %, halves up
    if part and not units and not tenths:
        return "<0.1 %"
    return ("−" if part < 0 else "") + (f"{units:,}.{tenths} %" if tenths else f"{units:,} %")


def ratio(value: float | None) -> str:
    """Return a ratio in percent with at most one decimal: ``0.25`` is ``25 %``; ``unknown`` for ``None``."""
    return UNKNOWN if value is None else f"{value * 100:.1f} %".replace(".0 %", " %")


def step(t: int | None, node: str = "") -> str:
    """Return a step, with its node if given: ``#104 conv_12``; ``unknown`` for ``None`` and negative steps."""
    return UNKNOWN if t is None or t < 0 else f"#{t:,} {node}".rstrip()


def live_range(birth: int, death: int) -> str:
    """Return a half-open live range: ``[1104, 1131)``; its comma separates the steps, not groups of digits."""
    return f"[{birth}, {death})"


def short_hash(digest: bytes) -> str:
    """Return the first twelve hex digits of a digest."""
    return digest.hex()[:12]


def shape(dims: Iterable[int | str]) -> str:
    """Return a shape: ``1 × 64 × 56 × 56``; ``scalar`` for an empty shape."""
    return " × ".join(str(d) for d in dims) or "scalar"


def duration(nanoseconds: int | None) -> str:
    """Return a duration: ``780 µs``, ``12.3 ms``, ``1.42 s``; ``unknown`` for ``None``."""
    if nanoseconds is None:
        return UNKNOWN
    micros = nanoseconds / 1e3
    return f"{micros:.0f} µs" if micros < 1e3 else f"{micros / 1e3:.1f} ms" if micros < 1e6 else f"{micros / 1e6:.2f} s"


def ordinal(n: int) -> str:
    """Return an English ordinal: ``1st``, ``3rd``, ``11th``."""
    suffix = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{suffix}"


def of(shown: int, total: int, noun: str) -> str:
    """Return the number of shown items: ``250 of 1,204 tensors``, ``all 17 tensors``, ``1 tensor`` or ``0 tensors``."""
    if shown == total:
        return count(total, noun) if total < 2 else f"all {count(total, noun)}"
    return f"{shown:,} of {count(total, noun)}"


def some(names: Sequence[str], most: int = 6) -> str:
    """Return at most ``most`` names: ``a, b and 3 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def shortener(names: Iterable[str]) -> Callable[[str, int], str]:
    """Return a function ``short(name, letters)`` for the names of a plan; "…" replaces omitted words.

    Words that many names share are omitted first: ``layers.11`` keeps its number.
    """
    names_with_word = Counter(word for name in names for word in set(_WORD.split(name)[1::2]))

    def short(name: str, letters: int) -> str:
        parts, text = _WORD.split(name), name
        most_common_first = sorted(range(1, len(parts), 2), key=lambda k: -names_with_word[parts[k]])
        for k in most_common_first[:-1]:
            if len(text) <= letters:
                break
            parts[k - 1 : k + 2] = "", "…", ""  # a word and the separators around it
            text = re.sub("…+", "…", "".join(parts))
        return shortened(text, letters)

    return short


def change(before: str, after: str) -> str:
    """Return ``before → after``, or one value if both are equal."""
    return before if before == after else f"{before} → {after}"


def over_bound(over: int, bound: int) -> str:
    """Return a gap of ``over`` bytes in percent of the bound; ``impossible`` for a size below the lower bound."""
    return "impossible" if over < 0 else percent(over, bound)


def rank_ranges(ranks: Sequence[int]) -> str:
    """Return ascending ranks as at most four ranges, and the number of the other ranks: ``0–7, 16–23 and 40 more``."""
    ranges = np.split(np.array(ranks), np.flatnonzero(np.diff(ranks) != 1) + 1)
    parts = [f"{found[0]}" if len(found) == 1 else f"{found[0]}–{found[-1]}" for found in ranges[:4]]
    rest = sum(map(len, ranges[4:]))
    return ", ".join(parts) + (f" and {rest:,} more" if rest else "")


def ticks(top: int, most: int = 5) -> list[int]:
    """Return the ticks of an axis from 0 to ``top`` bytes: round byte counts, at most ``most`` (≥ 5) intervals."""
    unit = 1
    while unit * 1024 <= top:
        unit *= 1024
    step = next(unit * factor for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500) if top <= most * unit * factor)
    if unit > 1 and top <= 2 * unit:  # between one and two units, use quarters or halves
        step = unit // 4 if top <= unit + unit // 4 else unit // 2
    return list(range(0, top + 1, step))
