"""What a plan claims of an arena: how low any plan could be, what makes it so, who planned it. As words and HTML."""

from __future__ import annotations

import numpy as np

from app.say import words
from app.say.glossary import explained
from app.say.markup import esc
from tmmu_core.plan.model import ArenaSummary, Plan


def certificate(plan: Plan, arena: str) -> str:
    """How low any plan of an arena could be, what makes it so, what the plan claims, and what its planner says."""
    summary = plan.arena_of[arena]
    remark = planner_tells(plan, arena)
    return (
        f'<div class="tm tm-card" data-certificate="{esc(arena)}"><h3>Certificate: '
        f'<span class="{esc(summary.status)}">{esc(summary.status)}</span></h3><div class="kind">{esc(arena)}</div>'
        f"{_hint(claimed(summary))}{_hint(held(plan, summary))}"
        f"{_hint(remark) if remark else ''}</div>"
    )


def _hint(sentence: str) -> str:
    return f'<p class="hint">{explained(esc(sentence))}</p>'


def claimed(summary: ArenaSummary) -> str:
    """The status in one sentence."""
    bound, extent = summary.bound_bytes, summary.extent_bytes
    over = words.short_bytes(summary.open_bytes)
    if summary.status == "optimal":
        least = "the lower bound" if extent == bound else "for the search is exhausted"
        return f"Proven: no plan of this arena is smaller than {words.short_bytes(extent)}, {least}."
    if summary.status == "invalid":
        return "The plan does not verify: nothing that it says of this arena can be believed."
    if summary.status == "unproven":
        return f"The search ended before it knew: a plan up to {over} smaller may exist, or none."
    return f"Valid, and nothing more is claimed: a plan up to {over} smaller may exist, or none."


def held(plan: Plan, summary: ArenaSummary) -> str:
    """What makes the lower bound, in one sentence."""
    bound = words.short_bytes(summary.bound_bytes)
    beyond = ""
    if summary.proven_bytes is not None:
        beyond = f" This planner's search proved more: no plan is below {words.short_bytes(summary.proven_bytes)}."
    if not summary.witness:
        return f"The bound is {bound}; what makes it is not told.{beyond}"
    who = words.count(len(summary.witness), "storage")
    if summary.witness_step < 0:
        return f"The bound is {bound}: {who}, pairwise in each other's way.{beyond}"
    at = words.step(summary.witness_step, words.shortened(plan.node_at(summary.witness_step), 24))
    return f"The bound is {bound}: {who} held together at {at}.{beyond}"


def witness_rows(plan: Plan, summary: ArenaSummary) -> list[int]:
    """The rows of the storages that make an arena's lower bound, parts and views included, in order."""
    rows: list[int] = []
    for name in summary.witness:
        part, k = name, 0
        while part in plan.row_of:
            rows.append(plan.row_of[part])
            k += 1
            part = f"{name}@part{k}"
    found: list[int] = np.flatnonzero(np.isin(plan.storage, plan.storage[rows])).tolist() if rows else []
    return found


def planner_of(plan: Plan, arena: str) -> str:
    """The planner with its options and, for one that picks another, what it picked: ``auto → exact``."""
    options = [
        f"{name}={value}" if isinstance(value, int | str) else name
        for name, value in sorted(plan.planner_options.items())
    ]
    picked = dict(plan.notes.get(arena) or {}).get("picked")
    return plan.planner + (f" ({', '.join(options)})" if options else "") + (f" → {picked}" if picked else "")


def planner_tells(plan: Plan, arena: str) -> str:
    """What a planner that picks another says about it, and what one with regions saved; ``""`` for the others."""
    notes = dict(plan.notes.get(arena) or {})
    if "sharing_pairs" in notes:
        shared, saved = int(notes["sharing_pairs"]), int(notes["saved_bytes"])
        return (
            f"{words.count(shared, 'pair')} of storages share a region of {plan.planner}'s, which saves "
            f"{words.full_bytes(saved)} beside a region for each."
        )
    if "picked" not in notes:
        return ""
    return f"{plan.planner} picked {notes['picked']}: {words.grouped(notes.get('why', 'it does not say why'))}."
