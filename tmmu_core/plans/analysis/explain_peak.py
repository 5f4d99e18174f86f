"""Explain the size of a plan in two sentences: the bytes that it needs, and why it exceeds its lower bound.

The cause is the largest loss of bytes (missed reuse, holes, slot rounding, alignment, tail) at the *deciding step* of
an arena. Candidates are the steps at which a storage with the highest end is live. The deciding step is the candidate
with the most live bytes; on a tie, with the fewest bytes of missed in-place reuses. The loss by missed reuse is the
larger of these bytes and the live bytes above the lower bound. O(n) for n rows.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from tmmu_core.base.escaping import shortened, visible
from tmmu_core.graph.quantities import short_bytes
from tmmu_core.plans.analysis.waste_ledger import waste_ledger
from tmmu_core.plans.figures.live_bytes import arena_number, curve_points_of, live_bytes, peak_step_of, storages_of
from tmmu_core.plans.figures.metrics import over_limits, totals
from tmmu_core.plans.model import GIVEN_OFFSETS, ArenaSummary, Plan

Cause = Literal["reuse", "holes", "slot_rounding", "alignment_gaps", "tail"]
CAUSES: tuple[Cause, ...] = get_args(Cause)  # of causes with equal losses, the first one is reported
LONGEST_NAME = 32  # maximum number of characters of a name in a sentence


@dataclass(frozen=True)
class Gap:
    """Why an arena may be larger than needed."""

    arena: str
    bytes: int  # maximum number of bytes that another plan can save in this arena
    step: int  # the deciding step
    cause: Cause  # the largest loss at that step
    cause_bytes: int
    reuse: tuple[str, str] | None = None  # ``(input, output)`` of the largest in-place reuse missed at that step


@dataclass(frozen=True)
class Explanation:
    """Two sentences about a plan, and the gap that they name."""

    headline: str  # the bytes that the plan needs, and its limit
    reason: str  # why the plan is not smaller or does not fit, or that it is invalid or incomplete; may be empty
    gap: Gap | None = None  # the gap of the arena that the sentences are about, if any

    def __str__(self) -> str:
        return f"{self.headline} {self.reason}".rstrip()


def explain_peak(plan: Plan, budget: int | None = None, name: str = "") -> Explanation:
    """Return the explanation of a plan; ``budget`` limits the sum of its arenas, in bytes."""
    name = _short(name or plan.ir_name or "the graph")
    if not plan.arenas or not len(plan):
        return Explanation(f"{name} has no tensors to plan.", "")
    headline, limited = _headline(plan, budget, name)
    figures = totals(plan)
    if figures.reuse_cost is not None:
        headline = f"{headline[:-1]}, with a reuse cost of {figures.reuse_cost:,}."
    if plan.is_invalid:
        return Explanation(headline, "The plan is invalid: some of its checks failed.")
    if plan.incomplete:
        return Explanation(headline, "A part of the graph is not planned and needs more memory.")
    explained = limited or max(plan.arenas, key=lambda arena: (arena.open_bytes, arena.name))
    place = "" if limited is None or len(plan.arenas) == 1 else f" of {_short(limited.name)}"
    scope = "with the given offsets" if plan.remark(GIVEN_OFFSETS) else "of this execution order"
    bound = sum(arena.extent_bytes - arena.open_bytes for arena in ([limited] if limited else plan.arenas))
    limit, least = limited.capacity_bytes if limited else budget, short_bytes(bound)
    if explained.open_bytes:
        gap = gap_of(plan, explained.name)
        reason = _reason(plan, gap, is_named=limited is not None)
        if limit is not None and limit < bound:
            reason = f"No plan {scope} fits: the lower bound{place} is {least}."
        return Explanation(headline, reason, gap)
    step, live = peak_step_of(plan, explained.name) if place else (figures.peak_step, figures.peak_live_bytes)
    if (peak := short_bytes(live)) != least:
        reason = f"At most {peak}{place} are live, at {_step(plan, step)}, but no plan {scope} needs less than {least}."
        return Explanation(headline, reason)
    return Explanation(headline, f"{peak}{place} are live at {_step(plan, step)}; no plan {scope} is smaller.")


def gap_of(plan: Plan, arena: str) -> Gap:
    """Return the gap of an arena and its cause."""
    untaken: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for (at, source, target), taken in zip(plan.handoffs, plan.taken, strict=True):
        row = plan.row_of[source]
        if not taken and plan.arenas[plan.arena[row]].name == arena:
            untaken[at].append((int(plan.size[row]), source, target))
    summary = plan.arena_of[arena]
    missed = {step: sum(size for size, _, _ in untaken[step]) for step in _deciding_steps(plan, arena)}
    step = min(missed, key=missed.__getitem__)
    lost_bytes = waste_ledger(plan, arena).at(step)
    lost_bytes["reuse"] = max(missed[step], lost_bytes["live"] - (summary.extent_bytes - summary.open_bytes))
    cause = max(CAUSES, key=lost_bytes.__getitem__)
    reuse = max(untaken[step])[1:] if cause == "reuse" and untaken[step] else None
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
            return f"{name} does not fit: it needs {total}, {excess} over the budget of {short_bytes(budget)}.", None
        subject = "it needs" if only_arena else f"{_short(exceeded)} {'need' if exceeded.endswith('s') else 'needs'}"
        need, limit = short_bytes(arena.extent_bytes), short_bytes(arena.capacity_bytes)
        return f"{name} does not fit: {subject} {need}, {excess} over the limit of {limit}.", arena
    if budget is not None:
        return f"{name} needs {total}, within the budget of {short_bytes(budget)}.", None
    listed = ", ".join(f"{_short(arena.name)} {short_bytes(arena.capacity_bytes)}" for arena in limited)
    within = f"limit of {short_bytes(only_arena.capacity_bytes)}" if only_arena else f"limits ({listed})"
    return f"{name} needs {total}, within the {within}." if limited else f"{name} needs {total}.", only_arena


def _deciding_steps(plan: Plan, arena: str) -> list[int]:
    s, points = storages_of(plan), curve_points_of(plan)
    here = np.flatnonzero(s.arena == arena_number(plan, arena))
    ends = (s.offset + s.size)[here]
    top, live = here[ends == ends.max()], live_bytes(plan, arena)
    is_candidate = np.zeros(len(live), np.bool_)
    for first, last in zip(points.birth[top].tolist(), points.death[top].tolist(), strict=True):
        is_candidate[first : max(last, first + 1)] = True
    return points.steps[is_candidate & (live == live[is_candidate].max())].tolist()


def _step(plan: Plan, step: int) -> str:
    return f"#{step:,} {_short(plan.node_at(step))}".rstrip()


def _short(name: str) -> str:
    return shortened(visible(name), LONGEST_NAME)


def _reason(plan: Plan, gap: Gap, *, is_named: bool) -> str:
    """Return the gap and its cause as text. ``is_named``: whether the headline states the size of the arena."""
    at, lost, arena = _step(plan, gap.step), short_bytes(gap.cause_bytes), plan.arena_of[gap.arena]
    source, target = map(_short, gap.reuse or ("", ""))
    missed = f"{target} does not reuse {source}'s memory in place ({lost})"
    causes = {
        "reuse": f"at {at}, {missed if gap.reuse else f'{lost} are not reused in place'}",
        "holes": f"at {at}, {lost} are free between live tensors",
        "slot_rounding": f"at {at}, {lost} are unused inside the slots of live tensors",
        "alignment_gaps": f"at {at}, alignment costs {lost}",
        "tail": f"no tensor uses the last {lost}",
    }
    above = f"that is {short_bytes(gap.bytes)} above"
    if not is_named and len(plan.arenas) > 1:
        verb = "take" if gap.arena.endswith("s") else "takes"
        above = f"{_short(gap.arena)} {verb} {short_bytes(arena.extent_bytes)}, {short_bytes(gap.bytes)} above"
    text = f"{above} the lower bound of {short_bytes(arena.extent_bytes - gap.bytes)}: {causes[gap.cause]}."
    return text[0].upper() + text[1:]
