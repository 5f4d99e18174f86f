"""What to do next, in one sentence and at most one click, on every page: by what the plan is and where one is. Pure.

Which of these holds is decided by the core's figures alone: the bytes over a limit, the lower bound, the headroom.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.say import words
from tmmu_core.plan.figures.metrics import totals
from tmmu_core.plan.making.over import over_limits, packing_may_do
from tmmu_core.plan.model import Plan

BEST = "best"
"""The action that plans anew with the planner that suits the size; the other actions are names of pages."""

HERE = {
    "plan": "Click a box: its card says who made it, who holds it, and why it lies where it lies.",
    "peak": "Click an area or a row: its card says who holds the bytes, and what would free them earlier.",
    "device": "Click a box of the map for its card; where the stack is highest, the peak over all arenas is.",
    "fragmentation": "Click the curve to choose a step; the account that is widest there is where bytes are lost.",
    "compare": "Choose a baseline: another planner, mode, order, a sample or a file.",
    "planners": "Click a planner in the table to make its plan the one that all pages show.",
    "fit": "Type the memory that there is, or look at what single moves bring.",
    "shapes": "Click the curve: all pages plan at that size.",
    "ranks": "Choose a preset, then click a rank to open its plan.",
    "graph": "Click a node to follow what it reads and writes.",
    "history": "Click one commit, then another: they are compared.",
    "report": "Take the report, a picture or the C project; the command repeats the plan to the byte.",
}
"""Page → what can be done on it."""


@dataclass(frozen=True)
class Next:
    """A sentence, and what a click does about it."""

    says: str
    action: str = ""
    """``BEST``, a page, or ``""`` for none."""
    label: str = ""


@dataclass(frozen=True)
class Known:
    """What a plan does not say itself."""

    budget: int | None = None
    """Bytes that all arenas together may have."""
    of_graph: bool = True
    """Whether there is a graph to change."""
    fixed: bool = False
    """Whether it is a finished plan, which keeps its planner."""
    valid: bool = True
    """Whether it verifies: known at once of a plan that came finished."""


def next_step(plan: Plan, known: Known, page: str, best: str = "auto") -> Next:
    """What to do next; where that is to be where one is, what can be done there."""
    found = _by_figures(plan, known, best)
    return Next(HERE.get(page, "")) if found.action == page else found


def _by_figures(plan: Plan, known: Known, best: str) -> Next:
    over = over_limits(plan, known.budget)
    if not known.valid:
        return Next(
            "It contradicts itself: the findings say where, conflicts are red in the drawing.", "plan", "The findings"
        )
    if over:
        return _over(plan, known, best)
    sums = totals(plan)
    limited = known.budget is not None or any(a.headroom_bytes is not None for a in plan.arenas)
    gap = sums.extent_bytes - sums.lower_bound_bytes
    if limited:
        return Next("It fits: there is the report, its pictures, the C project.", "report", "Take it away")
    if gap > 0 and not known.fixed and plan.planner != best:
        more = words.short_bytes(gap)
        return Next(f"{more} more than the lower bound: another planner may need less.", BEST, "Pack it anew")
    if known.of_graph and not known.fixed:
        least = (
            "No packing is smaller"
            if gap == 0
            else f"The best packing found is {words.short_bytes(gap)} over its bound"
        )
        return Next(f"{least}. Does it fit your memory? Say how much there is.", "fit", "Fit")
    return Next("See what is alive at the peak, and who holds it.", "peak", "What is alive")


def _over(plan: Plan, known: Known, best: str) -> Next:
    may = packing_may_do(plan, known.budget)
    if known.fixed:
        return Next("A finished plan keeps its planner: open its graph to make it fit.", "peak", "What is alive")
    if may and plan.planner != best:
        return Next("The lower bound is within the limit: another packing may be enough.", BEST, "Pack it anew")
    if not known.of_graph:
        why = "The best packing is over" if may else "The lower bound is over: no packing fits"
        return Next(f"{why}. See what is held together at the peak.", "peak", "What is alive")
    why = "The best packing is not enough" if may else "The lower bound itself is over: no packing fits"
    return Next(f"{why}. Recompute, offload or reorder.", "fit", "Make it fit")
