"""SVG figures of the waste ledger, for the report and for download."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from app.report.report_theme import Sheet
from app.texts import numbers
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, WasteLedger
from tmmu_core.plans.figures.live_bytes import peak_of
from tmmu_core.plans.model import Plan

WIDTH, HEIGHT = 1100, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 12, 20, 34
MOST_COLUMNS = 1000

ACCOUNT_LOOKS = {
    "live": ("live", "#0072B2", ""),
    "slot_rounding": ("slot rounding", "#E69F00", "M0 0L6 6"),
    "alignment_gaps": ("alignment gaps", "#56B4E9", "M3 0V6"),
    "holes": ("holes", "#CC79A7", "M0 6L6 0"),
    "tail": ("tail", "#DADFE4", ""),
}
"""Account → (name, colour, path of its pattern in a 6 × 6 tile)."""


def drawn_steps(ledger: WasteLedger) -> NDArray[np.int64]:
    """Return the steps to draw: all, or the step with the most live bytes of each of ``MOST_COLUMNS`` bins."""
    steps = len(ledger.live)
    if steps <= MOST_COLUMNS:
        return np.arange(steps, dtype=np.int64)
    edges = np.arange(MOST_COLUMNS + 1, dtype=np.int64) * steps // MOST_COLUMNS
    return np.array([a + int(np.argmax(ledger.live[a:b])) for a, b in pairwise(edges.tolist())], np.int64)


def ledger_figure(plan: Plan, ledger: WasteLedger, sheet: Sheet | None = None) -> Markup:
    """Return the stacked chart of live bytes and the four kinds of waste over the steps."""
    sheet = sheet or Sheet(WIDTH, HEIGHT)
    steps, capacity = drawn_steps(ledger), plan.arena_of[ledger.arena].capacity_bytes
    top = max(ledger.extent, 1)
    top, shown_capacity = (max(top, capacity), [(capacity, "7 5")]) if capacity <= 2 * top else (top, [])
    high = sheet.height - _TOP - _BOTTOM

    def x(k: float) -> float:
        return _LEFT + (sheet.width - _LEFT - _RIGHT) * k / max(1, len(steps))

    def y(count: int) -> float:
        return _TOP + high - high * count / top

    beat, most = peak_of(ledger.live)
    levels = [(ledger.extent, ""), (most, "2 3"), *shown_capacity]
    node = _step_text(plan, int(ledger.steps[beat]), 36)
    peak_text = f"peak {numbers.short_bytes(most)} at {node}"
    mark = x(int(np.searchsorted(steps, beat)) + 0.5)
    anchor, shift = ("end", -8) if mark > sheet.width * 0.7 else ("start", 8)
    parts = [
        *_account_areas(ledger, steps, x, y),
        *(sheet.level(y(value), _LEFT, _RIGHT, dash) for value, dash in levels),
        f'<path d="M{mark:.1f} {y(most):.1f}l-5 -9h10z" fill="{sheet.look.ink}"/>',
        f'<text x="{mark + shift:.1f}" y="{_TOP - 6}" text-anchor="{anchor}">{escape(peak_text)}</text>',
        *(_label(y(value), numbers.short_bytes(value)) for value in (0, ledger.extent)),
    ]
    if high * (ledger.extent - most) / top > 14 and high * most / top > 14:
        parts.append(_label(y(most), numbers.short_bytes(most)))
    parts += _step_axis(plan, ledger, steps, sheet, x)
    title = f"{ledger.arena}: {peak_text}; arena size {numbers.short_bytes(ledger.extent)}"
    shared = str(patterns()) if sheet.whole else ""
    return Markup(f"{sheet.opened(escape(title))}{shared}{''.join(parts)}</svg>")


def _step_text(plan: Plan, step: int, letters: int) -> str:
    return numbers.step(step, numbers.shortened(plan.node_at(step), letters))


def _account_areas(
    ledger: WasteLedger, steps: NDArray[np.int64], x: Callable[[float], float], y: Callable[[int], float]
) -> Iterator[str]:
    base = np.zeros(len(steps), np.uint64)
    for account in ACCOUNTS:
        column = np.asarray(getattr(ledger, account))[steps]
        if not column.any():
            continue
        ceiling = base + column
        outline = _steps(x, y, ceiling.tolist()) + _steps(x, y, base.tolist(), back=True)
        name, colour, pattern = ACCOUNT_LOOKS[account]
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in outline) + "Z"
        yield f'<path d="{path}" fill="{colour}"><title>{name}</title></path>'
        if pattern:
            yield f'<path d="{path}" fill="url(#p-{account})"/>'
        base = ceiling


def _step_axis(
    plan: Plan, ledger: WasteLedger, steps: NDArray[np.int64], sheet: Sheet, x: Callable[[float], float]
) -> Iterator[str]:
    count, last = len(ledger.live), len(steps) - 1
    for j in range(0, len(steps), _round(-(-len(steps) // 9))):
        node = escape(_step_text(plan, int(ledger.steps[steps[j]]), 14))
        anchor, at = ("start", x(0)) if j == 0 else ("end", x(last + 1)) if j == last else ("middle", x(j + 0.5))
        yield f'<text x="{at:.1f}" y="{sheet.height - 16}" text-anchor="{anchor}">{node}</text>'
    note = "" if len(steps) == count else f", {len(steps):,} of {numbers.count(count, 'step')} drawn"
    if count < plan.steps:
        note = f"s at which a range begins or ends{note}"
    end = f'x="{sheet.width - _RIGHT}" y="{sheet.height - 2}" text-anchor="end" class="soft"'
    yield f"<text {end}>step{escape(note)}</text>"


def patterns() -> Markup:
    """Return the SVG patterns that the figures of a page share."""
    tiles = "".join(
        f'<pattern id="p-{account}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<path d="{path}" stroke="#0006" stroke-width="1.2" fill="none"/></pattern>'
        for account, (_, _, path) in ACCOUNT_LOOKS.items()
        if path
    )
    return Markup(f'<svg width="0" height="0" aria-hidden="true" class="defs"><defs>{tiles}</defs></svg>')


def _round(least: int) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50 … that is at least ``least``."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least:
                return factor * power
        power *= 10


def _steps(
    x: Callable[[float], float], y: Callable[[int], float], values: Sequence[int], *, back: bool = False
) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for k, value in enumerate(values):
        level = y(value)
        if not points or points[-1][1] != level:
            points += [(x(k), level), (x(k + 1), level)]
        else:
            points[-1] = (x(k + 1), level)
    return points[::-1] if back else points


def _label(y: float, text: str) -> str:
    return f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
