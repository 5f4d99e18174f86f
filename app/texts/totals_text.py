"""Texts about the totals of all arenas, exceeded limits, and the differences between two plans."""

from collections.abc import Callable

from app.texts import numbers
from app.texts.markup import esc
from tmmu_core.plans.figures.metrics import over_limits, totals
from tmmu_core.plans.making.make import Better
from tmmu_core.plans.model import Plan

PEAK, EXTENT, BOUND, GAP = "peak use, all arenas", "total reserved", "total of lower bounds", "gap, all arenas"
COST = "reuse cost"


def rows(plan: Plan, name: Callable[[str], str] = str) -> tuple[tuple[str, str], ...]:
    """Return ``(name, figure)`` of each total. ``name``: function that escapes the name of a node."""
    sums = totals(plan)
    step = numbers.step(sums.peak_step, plan.node_at(sums.peak_step))
    least = sum(arena.reuse_cost_lower_bound or 0 for arena in plan.arenas)
    cost = () if sums.reuse_cost is None else ((COST, reuse_cost(sums.reuse_cost, least)),)
    return (
        (PEAK, f"{numbers.full_bytes(sums.peak_live_bytes)} at {name(step)}"),
        (EXTENT, numbers.full_bytes(sums.extent_bytes)),
        (BOUND, numbers.full_bytes(sums.lower_bound_bytes)),
        (GAP, numbers.over_bound(*sums.gap)),
        *cost,
    )


def changes(before: Plan, after: Plan) -> list[tuple[str, str]]:
    """Return ``(name, change)`` of each total of two plans."""
    one, two = dict(rows(before)), dict(rows(after))
    names = dict.fromkeys([*one, *two])
    return [(name, numbers.change(one.get(name, "–"), two.get(name, "–"))) for name in names]


def reuse_cost(cost: int, bound: int) -> str:
    """Return a reuse cost with its lower bound: ``5, optimal`` or ``9, lower bound 5``."""
    return f"{cost:,}, optimal" if cost == bound else f"{cost:,}, lower bound {bound:,}"


def excess(plan: Plan, budget: int | None) -> list[str]:
    """Return a text per exceeded limit: ``Over budget by 1.03 GiB (4.53 GiB of 3.50 GiB)``."""
    texts = []
    for arena, over in over_limits(plan, budget).items():
        used = plan.arena_of[arena].extent_bytes if arena else totals(plan).extent_bytes
        sizes = f"{numbers.short_bytes(used)} of {numbers.short_bytes(used - over)}"
        subject = f"{arena} over capacity" if arena else "Over budget"
        texts.append(f"{subject} by {numbers.short_bytes(over)} ({sizes})")
    return texts


def chips(plan: Plan) -> list[str]:
    """Return peak use and total reserved, in short form."""
    sums = totals(plan)
    return [
        f"{PEAK} {numbers.short_bytes(sums.peak_live_bytes)} at {numbers.step(sums.peak_step)}",
        f"{EXTENT} {numbers.short_bytes(sums.extent_bytes)}",
    ]


def better(found: Better | None, option: str = "--planner auto") -> str:
    """Return a hint about a planner that needs less memory: ``auto needs 7.20 MiB, 25 % less: add --planner auto``."""
    if found is None:
        return ""
    size = ("" if found.is_least else "at most ") + numbers.short_bytes(found.extent_bytes)
    return f"{found.planner} needs {size}, {found.saved_percent} % less: add {option}"


def handoffs(plan: Plan) -> str:
    """Return the number of in-place reuses of a plan: ``66 of 118 possible``, or ``3`` if the plan uses all."""
    granted, taken = len(plan.handoffs), sum(plan.taken)
    return f"{taken:,}" if taken == granted else f"{taken:,} of {granted:,} possible"


def changed(before: Plan, after: Plan) -> str:
    """Return the byte changes between two plans as HTML: ``slots → greedy: activations 9 MiB → 7 MiB``."""
    both = [arena for arena in after.arenas if arena.name in before.arena_of]
    sizes = [(arena.name, before.arena_of[arena.name].extent_bytes, arena.extent_bytes) for arena in both]
    sizes = [(name, old, new) for name, old, new in sizes if old != new]
    parts = []
    for name, old, new in [*sizes, (EXTENT, totals(before).extent_bytes, totals(after).extent_bytes)]:
        change = f" unchanged, {numbers.short_bytes(new)}"
        if old != new:
            delta = f'<b class="{"worse" if new > old else "better"}">({numbers.delta_bytes(new - old)})</b>'
            change = f" {numbers.short_bytes(old)} → {numbers.short_bytes(new)} {delta}"
        parts.append(esc(name) + change)
    return f"<b>{esc(numbers.change(how(before, after), how(after, before)))}</b>: {'; '.join(parts)}"


def how(plan: Plan, other: Plan) -> str:
    """Return the planner of a plan, with its mode and its preset if ``other`` has another mode or preset."""
    differs = [getattr(plan, name) for name in ("mode", "preset") if getattr(plan, name) != getattr(other, name)]
    return " ".join([plan.planner, *differs])
