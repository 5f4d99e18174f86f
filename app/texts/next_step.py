"""The recommended next action of a page: one sentence and at most one button. Pure.

The core's figures alone select it: bytes over a limit, the lower bound, the headroom.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.texts import numbers
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.making.over_capacity import over_limits, packing_may_do
from tmmu_core.plans.model import Plan

BEST = "best"
"""The action that plans with ``auto``. Every other action is the name of a page."""

HERE = {
    "plan": "Click a box: its card shows producer, readers, live range and the reason for its offset.",
    "peak": "Click an area or a row: its card shows what holds the bytes and what would free them earlier.",
    "device": "Click a box of the map for its card. The highest point of the stack is the peak of all arenas.",
    "fragmentation": "Click the curve to choose a step; the widest band shows the largest loss.",
    "compare": "Choose a baseline: another planner, mode or order, a sample or a file.",
    "planners": "Choose a planner below the table: all pages then show its plan.",
    "fit": "Enter a limit, or see what each change saves.",
    "shapes": "Click the curve to plan all pages at that size.",
    "ranks": "Choose a preset, then click a rank to see its plan.",
    "graph": "Click a node to follow what it reads and writes.",
    "history": "Click two commits to compare them.",
    "report": "Download a report, pictures or C code. The command reproduces the plan byte by byte.",
}
"""Page → its main action."""


@dataclass(frozen=True)
class Next:
    """A sentence and its button."""

    text: str
    action: str = ""
    """``BEST``, a page, or ``""`` for none."""
    label: str = ""


@dataclass(frozen=True)
class PlanContext:
    """Facts about the request that the plan does not hold."""

    budget: int | None = None
    """Limit for all arenas together, in bytes."""
    of_graph: bool = True
    """Whether the plan has a graph that Fit can change."""
    fixed: bool = False
    """Whether it is a finished plan, whose planner cannot change."""
    valid: bool = True
    """Whether it verifies; known only for finished plans."""


def next_step(plan: Plan, known: PlanContext, page: str, best: str = "auto") -> Next:
    """Return the next action; on the page that it leads to, that page's main action."""
    found = _by_figures(plan, known, best)
    return Next(HERE.get(page, "")) if found.action == page else found


def _by_figures(plan: Plan, known: PlanContext, best: str) -> Next:
    over = over_limits(plan, known.budget)
    if not known.valid:
        return Next(
            "The plan is invalid: see the failed checks; conflicts are red in the map.", "plan", "Show failed checks"
        )
    if over:
        return _over(plan, known, best)
    sums = totals(plan)
    limited = known.budget is not None or any(a.headroom_bytes is not None for a in plan.arenas)
    gap = sums.extent_bytes - sums.lower_bound_bytes
    if limited:
        return Next("It fits. Export a report, pictures or C code.", "report", "Export")
    if gap > 0 and not known.fixed and plan.planner != best:
        more = numbers.short_bytes(gap)
        return Next(f"{more} over the lower bound: another planner may need less.", BEST, "Find the best plan")
    if known.of_graph and not known.fixed:
        least = (
            "This is the minimum"
            if gap == 0
            else f"The best plan found is {numbers.short_bytes(gap)} over the lower bound"
        )
        return Next(f"{least}. Does it fit your device? Set a memory limit.", "fit", "Make it fit")
    return Next("See which tensors are live at the peak.", "peak", "Show the peak")


def _over(plan: Plan, known: PlanContext, best: str) -> Next:
    may = packing_may_do(plan, known.budget)
    if known.fixed:
        return Next("A finished plan cannot change: open its graph to make it fit.", "peak", "Show the peak")
    if may and plan.planner != best:
        return Next("The lower bound is within the limit: another planner may be enough.", BEST, "Find the best plan")
    if not known.of_graph:
        why = "The best plan found exceeds the limit" if may else "The lower bound exceeds the limit: no plan fits"
        return Next(f"{why}. See which tensors are live at the peak.", "peak", "Show the peak")
    why = (
        "The best plan found exceeds the limit"
        if may
        else "The lower bound exceeds the limit: no plan of this graph fits"
    )
    return Next(f"{why}. Recompute, offload or reorder.", "fit", "Make it fit")
