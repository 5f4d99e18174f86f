"""What is said of all arenas together, and of the hand-offs: in the same words wherever a plan is shown. Pure."""

from __future__ import annotations

from app.say import words
from tmmu_core.plan.metrics import totals
from tmmu_core.plan.model import Plan

PEAK, EXTENT, BOUND, GAP = "peak over all arenas", "sum of extents", "sum of lower bounds", "gap over all arenas"


def rows(plan: Plan) -> tuple[tuple[str, str], ...]:
    """``(name, figure)`` of each total, bytes in full."""
    sums = totals(plan)
    return (
        (PEAK, f"{words.full_bytes(sums.peak_live_bytes)} at {peak_at(plan)}"),
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
