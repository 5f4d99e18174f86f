"""Explain the size of a plan in two sentences: the bytes that it needs, and why it exceeds its lower bound.

The cause is the largest loss of bytes (missed reuse, holes, slot rounding, alignment) at the *deciding step* of an
arena: the step with the most live bytes in the live range of the storage with the highest end. O(n) for n rows.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tmmu_core.base.escaping import shortened, visible
from tmmu_core.graph.quantities import short_bytes
from tmmu_core.plans.analysis.waste_ledger import waste_ledger
from tmmu_core.plans.figures.live_bytes import arena_number, curve_points_of, live_bytes, peak_step_of, storages_of
from tmmu_core.plans.figures.metrics import over_limits, totals
from tmmu_core.plans.model import GIVEN_OFFSETS, ArenaSummary, Plan

Cause = Literal["reuse", "holes", "slot_rounding", "alignment_gaps", "unknown"]
CAUSES: tuple[Cause, ...] = ("reuse", "holes", "slot_rounding", "alignment_gaps")
"""Known causes; of causes with equal losses, the first one is reported."""
LONGEST_NAME = 32  # maximum number of characters of a name in a sentence


@dataclass(frozen=True)
class Gap:
    """Why an arena may be larger than needed."""

    arena: str
    bytes: int  # maximum number of bytes that another plan can save in this arena
    step: int  # the deciding step
    cause: Cause  # the largest loss at that step
    cause_bytes: int
    reuse: tuple[str, str] | None = None
    """The largest in-place reuse that is not taken at that step, as ``(from, to)``; for the cause ``reuse``."""


@dataclass(frozen=True)
class Explanation:
    """Two sentences about a plan, and the gap that they name."""

    headline: str  # the bytes that the plan needs, and its limit
    reason: str  # why the plan exceeds its lower bound; without a gap, the step of the peak or why it is unknown
    gap: Gap | None = None  # the gap that ``reason`` names, if any

    def __str__(self) -> str:
        return f"{self.headline} {self.reason}".rstrip()


def explain_peak(plan: Plan, budget: int | None = None, name: str = "") -> Explanation:
    """Return the explanation of a plan; ``budget`` limits the sum of its arenas, in bytes."""
    name = _short(name or plan.ir_name or "the graph")
    if not plan.arenas or not len(plan):
        return Explanation(f"{name} has no tensors to plan.", "")
    headline, limited = _headline(plan, budget, name)
    if plan.is_invalid:
        return Explanation(headline, "The plan is invalid: some of its checks failed.")
    if plan.incomplete:
        return Explanation(headline, "A part of the graph is not planned and needs more memory.")
    gaps = [arena for arena in plan.arenas if arena.open_bytes]
    explained = limited or max(gaps, default=plan.arenas[0], key=lambda arena: (arena.open_bytes, arena.name))
    if explained in gaps:
        gap = gap_of(plan, explained.name)
        return Explanation(headline, _reason(plan, gap, is_named=limited is not None), gap)
    in_arena = "" if limited is None or len(plan.arenas) == 1 else f" of {_short(limited.name)}"
    figures = totals(plan)
    step, live = peak_step_of(plan, explained.name) if in_arena else (figures.peak_step, figures.peak_live_bytes)
    scope = "with the given offsets" if plan.remark(GIVEN_OFFSETS) else "of this execution order"
    peak = f"{short_bytes(live)}{in_arena} are live at {_step(plan, step)}"
    return Explanation(headline, f"{peak}; no plan {scope} is smaller.")


def gap_of(plan: Plan, arena: str) -> Gap:
    """Return the gap of an arena and its cause."""
    summary, step = plan.arena_of[arena], _deciding_step(plan, arena)
    untaken = []
    for (at, source, target), taken in zip(plan.handoffs, plan.taken, strict=True):
        row = plan.row_of[source]
        if at == step and not taken and plan.arenas[plan.arena[row]].name == arena:
            untaken.append((int(plan.size[row]), source, target))
    lost_bytes = {**waste_ledger(plan, arena).at(step), "reuse": sum(size for size, _, _ in untaken)}
    cause = max(CAUSES, key=lost_bytes.__getitem__)
    if not lost_bytes[cause]:
        return Gap(arena, summary.open_bytes, step, "unknown", 0)
    reuse = max(untaken)[1:] if cause == "reuse" else None
    return Gap(arena, summary.open_bytes, step, cause, lost_bytes[cause], reuse)


def _headline(plan: Plan, budget: int | None, name: str) -> tuple[str, ArenaSummary | None]:
    """Return ``(headline, arena)``: the first sentence, and the arena whose size and limit it states, or ``None``."""
    total = short_bytes(sum(arena.extent_bytes for arena in plan.arenas))
    limited = [arena for arena in plan.arenas if arena.headroom_bytes is not None]
    only_arena = limited[0] if len(limited) == len(plan.arenas) == 1 else None
    over = over_limits(plan, budget)
    if over:
        exceeded = max(over, key=lambda arena: (over[arena], arena))
        arena, excess = plan.arena_of.get(exceeded), short_bytes(over[exceeded])
        if arena is None:  # the budget
            limit = short_bytes(budget)
            return f"{name} does not fit: it needs {total}, {excess} over the budget of {limit}.", None
        subject = "it needs" if only_arena else f"{_short(exceeded)} {'need' if exceeded.endswith('s') else 'needs'}"
        need, limit = short_bytes(arena.extent_bytes), short_bytes(arena.capacity_bytes)
        return f"{name} does not fit: {subject} {need}, {excess} over the limit of {limit}.", arena
    if budget is not None:
        return f"{name} needs {total}, within the budget of {short_bytes(budget)}.", None
    listed = ", ".join(f"{_short(arena.name)} {short_bytes(arena.capacity_bytes)}" for arena in limited)
    within = f"limit of {short_bytes(only_arena.capacity_bytes)}" if only_arena else f"limits ({listed})"
    return f"{name} needs {total}, within the {within}." if limited else f"{name} needs {total}.", only_arena


def _deciding_step(plan: Plan, arena: str) -> int:
    s, points = storages_of(plan), curve_points_of(plan)
    here = np.flatnonzero(s.arena == arena_number(plan, arena))
    ends = (s.offset + s.size)[here]
    live = live_bytes(plan, arena)
    candidates = []
    for k in here[ends == ends.max()].tolist():
        first, last = int(points.birth[k]), max(int(points.death[k]), int(points.birth[k]) + 1)
        candidates.append(first + int(np.argmax(live[first:last])))
    return int(points.steps[max(sorted(candidates), key=live.__getitem__)])


def _step(plan: Plan, step: int) -> str:
    return f"#{step:,} {_short(plan.node_at(step))}".rstrip()


def _short(name: str) -> str:
    return shortened(visible(name), LONGEST_NAME)


def _reason(plan: Plan, gap: Gap, *, is_named: bool) -> str:
    """Return the gap and its cause as text. ``is_named``: whether the headline has the name and size of the arena."""
    at, lost, arena = _step(plan, gap.step), short_bytes(gap.cause_bytes), plan.arena_of[gap.arena]
    source, target = map(_short, gap.reuse or ("", ""))
    causes = {
        "reuse": f"at {at}, {target} does not reuse {source}'s memory in place ({lost})",
        "holes": f"at {at}, {lost} are free between live tensors",
        "slot_rounding": f"at {at}, {lost} are unused inside the slots of live tensors",
        "alignment_gaps": f"at {at}, alignment costs {lost}",
        "unknown": "no smaller plan is known",
    }
    above = f"{short_bytes(gap.bytes)} are above"
    if not is_named and len(plan.arenas) > 1:
        verb = "take" if gap.arena.endswith("s") else "takes"
        above = f"{_short(gap.arena)} {verb} {short_bytes(arena.extent_bytes)}, {short_bytes(gap.bytes)} above"
    bound = short_bytes(arena.extent_bytes - gap.bytes)
    text = f"{above} the lower bound of {bound}: {causes[gap.cause]}."
    return text[0].upper() + text[1:]
