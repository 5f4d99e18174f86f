"""The arena map as a still picture: SVG of the report's own, so that it prints at once and needs no script. Pure."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup, escape

from app.report.figures import WIDTH
from app.say import words
from app.say.markup import PERSISTENT_COLOUR, ROLE_COLOURS
from app.say.scale import ticks
from tmmu_core.plan.metrics import arena_number, storages_of
from tmmu_core.plan.model import Plan

HEIGHT = 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 12, 22, 34
MOST_BOXES = 4_000
NAMED = (46.0, 13.0)
"""Width and height from which a box carries its storage's name."""
LETTER = 6.6


def map_figure(plan: Plan, arena: str, *, width: int = WIDTH, height: int = HEIGHT) -> Markup:
    """Steps to the right, offsets upwards from 0: a box per storage, coloured by its role.

    Beyond ``MOST_BOXES`` the storages with the most byte-steps are drawn, and that is said. ``width`` and ``height``
    are the picture's proportions; SVG is sharp at any size.
    """
    summary = plan.arena_of[arena]
    s = storages_of(plan)
    mine = np.flatnonzero(s.arena == arena_number(plan, arena))
    area = s.size[mine].astype(np.float64) * (s.death[mine] - s.birth[mine])
    drawn = mine[np.lexsort((mine, -area))][:MOST_BOXES]
    top = max(1, summary.extent_bytes)
    if summary.capacity_bytes <= 2 * top:
        top = max(top, summary.capacity_bytes)
    wide, high, steps = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM, max(1, plan.steps)

    def x(t: int) -> float:
        return _LEFT + wide * t / steps

    def y(offset: int) -> float:
        return _TOP + high - high * offset / top

    parts = [f'<rect x="{_LEFT}" y="{_TOP}" width="{wide}" height="{high}" fill="#f4f6f8"/>']
    for k in drawn.tolist():
        head, offset, size = int(s.head[k]), int(s.offset[k]), int(s.size[k])
        left, ceiling = x(int(s.birth[k])), y(offset + size)
        w, h = x(int(s.death[k])) - left, y(offset) - ceiling
        colour, name = ROLE_COLOURS.get(plan.roles[head], PERSISTENT_COLOUR), plan.tensor_ids[head]
        tip = f"{name}, {words.short_bytes(size)}, {words.live_range(int(s.birth[k]), int(s.death[k]))}"
        parts.append(
            f'<rect x="{left:.2f}" y="{ceiling:.2f}" width="{max(0.3, w - 0.5):.2f}" height="{max(0.3, h - 0.5):.2f}" '
            f'fill="{colour}"><title>{escape(tip)}</title></rect>'
        )
        if w >= NAMED[0] and h >= NAMED[1]:
            label, ink = words.shortened(name, int((w - 8) / LETTER)), _ink(colour)
            at = f'x="{left + 4:.1f}" y="{ceiling + min(h / 2, 30) + 4:.1f}"'
            parts.append(f'<text {at} style="fill:{ink}">{escape(label)}</text>')
    parts.append(_level(y(summary.extent_bytes), width, ""))
    parts.append(_level(y(summary.bound_bytes), width, "2 3"))
    if summary.capacity_bytes <= top:
        parts.append(_level(y(summary.capacity_bytes), width, "7 5"))
    parts += [
        f'<text x="{_LEFT - 7}" y="{y(mark) + 4:.1f}" text-anchor="end">{words.short_bytes(mark)}</text>'
        for mark in ticks(top, 8)
    ]
    for t in range(0, plan.steps, max(1, -(-plan.steps // 10))):
        node = escape(words.step(t, words.shortened(plan.node_at(t), 14)))
        parts.append(f'<text x="{x(t):.1f}" y="{height - 16}">{node}</text>')
    note = words.of(len(drawn), len(mine), "storage")
    title = f"Arena map of {arena}: extent {words.short_bytes(summary.extent_bytes)}, {note} drawn"
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 7}">{escape(title)}</text>')
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}" font-family="sans-serif" font-size="12">{"".join(parts)}</svg>'
    )


def _level(y: float, width: int, dash: str) -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="M{_LEFT} {y:.1f}H{width - _RIGHT}" stroke="#111" stroke-width="1.5"{dashes} fill="none"/>'


def _ink(colour: str) -> str:
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return "#000" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.22 else "#fff"
