"""What is said of all arenas together, and of the hand-offs: in the same words wherever a plan is shown. Pure."""

from __future__ import annotations

from collections.abc import Callable

from app.say import words
from app.say.markup import esc
from tmmu_core.plan.figures.metrics import totals
from tmmu_core.plan.model import Plan

PEAK, EXTENT, BOUND, GAP = "peak over all arenas", "sum of extents", "sum of lower bounds", "gap over all arenas"


def rows(plan: Plan, name: Callable[[str], str] = str) -> tuple[tuple[str, str], ...]:
    """``(name, figure)`` of each total, bytes in full. ``name`` writes what other people have named."""
    sums = totals(plan)
    return (
        (PEAK, f"{words.full_bytes(sums.peak_live_bytes)} at {name(peak_at(plan))}"),
        (EXTENT, words.full_bytes(sums.extent_bytes)),
        (BOUND, words.full_bytes(sums.lower_bound_bytes)),
        (GAP, words.over_bound(*sums.gap)),
    )


def chips(plan: Plan) -> list[str]:
    """The two that are looked for first, in short: what is in use at most, and what must be reserved."""
    sums = totals(plan)
    return [
        f"{PEAK} {words.short_bytes(sums.peak_live_bytes)} at {words.step(sums.peak_step)}",
        f"{EXTENT} {words.short_bytes(sums.extent_bytes)}",
    ]


def peak_at(plan: Plan) -> str:
    """The step at which the most bytes are in use, with its node."""
    step = totals(plan).peak_step
    return words.step(step, plan.node_at(step))


def handoffs(plan: Plan) -> str:
    """``118 hand-offs, 66 of them taken``; ``3 hand-offs`` where all are."""
    granted, taken = len(plan.handoffs), sum(plan.taken)
    return words.count(granted, "hand-off") + ("" if taken == granted else f" granted, {taken:,} of them taken")


def changed(before: Plan, after: Plan) -> str:
    """What another choice changed, by arena and in all, as HTML: ``slots → greedy: activations 9 MiB → 7 MiB``."""
    said_how = words.change(how(before, after), how(after, before))
    figures = [
        (arena.name, before.arena_of[arena.name].extent_bytes, arena.extent_bytes)
        for arena in after.arenas
        if arena.name in before.arena_of
    ]
    figures = [(name, a, b) for name, a, b in figures if a != b]
    figures.append((EXTENT, totals(before).extent_bytes, totals(after).extent_bytes))
    parts = []
    for name, a, b in figures:
        if a == b:
            parts.append(f"{esc(name)} stays at {esc(words.short_bytes(b))}")
            continue
        css = "worse" if b > a else "better"
        parts.append(
            f"{esc(name)} {esc(words.short_bytes(a))} → {esc(words.short_bytes(b))} "
            f'<b class="{css}">({esc(words.delta_bytes(b - a))})</b>'
        )
    return f"<b>{esc(said_how)}</b>: {'; '.join(parts)}"


def how(plan: Plan, other: Plan) -> str:
    """Its planner; with it the mode and the preset where those of the other plan differ."""
    said = [plan.planner]
    said += [plan.mode] if plan.mode != other.mode else []
    said += [plan.preset] if plan.preset != other.preset else []
    return " ".join(said)
