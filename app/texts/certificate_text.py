"""The optimality of an arena as text and HTML: status, lower bound and planner."""

import numpy as np

from app.texts import numbers
from app.texts.markup import esc, fragment
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.problem import alignment_text
from tmmu_core.plans.figures.live_bytes import storages_alive
from tmmu_core.plans.model import CLAIMED, GIVEN_OFFSETS, INCOMPLETE, UNPROVEN, ArenaSummary, Plan, rows_of_parts


def certificate(plan: Plan, arena: str) -> str:
    """Return the card of an arena's optimality as HTML: status, lower bound and remark of the planner."""
    summary = plan.arena_of[arena]
    sentences = (status_text(plan, summary), bound_text(plan, summary), planner_remark(plan, arena))
    return fragment("certificate_card", arena=summary, sentences=sentences)


def status_text(plan: Plan, summary: ArenaSummary) -> str:
    """Return the optimality status of an arena as text."""
    bound, extent = summary.bound_bytes, summary.extent_bytes
    possible = f"At most {numbers.short_bytes(summary.open_bytes)} can still be saved."
    if summary.reuse_cost is not None:
        possible += " A smaller plan may have a higher reuse cost."
    if summary.status == "optimal":
        reason = "equal to the lower bound" if extent == bound else "search exhausted"
        # Views are left out: a view may have another alignment than its storage.
        has_no_base = np.array([base is None for base in plan.base_tensor_uids], bool)
        alignments = plan.alignment[has_no_base & (plan.arena == plan.arenas.index(summary))]
        size = f"{numbers.short_bytes(extent)} {alignment_text(alignments)}"
        size += " with the given offsets" if plan.remark(GIVEN_OFFSETS) else ""
        return f"Proven optimal: {size}, {reason}."
    if summary.status == "invalid":
        return "Invalid plan: the figures of this arena are not reliable."
    if summary.status == CLAIMED:
        if summary.proven_bytes is None:
            return f"The lower bound of the reuse cost in the file is higher than the recomputed bound. {possible}"
        claim, recomputed = numbers.short_bytes(summary.proven_bytes), numbers.short_bytes(bound)
        return f"The file claims a lower bound of {claim}; the recomputed bound is {recomputed}. {possible}"
    if summary.status == INCOMPLETE:
        return "Incomplete: a part of the graph is not planned, so more memory is needed."
    if summary.status == UNPROVEN:
        return f"Search limit reached; optimality unproven. {possible}"
    return f"Valid, not proven optimal. {possible}"


def bound_text(plan: Plan, summary: ArenaSummary) -> str:
    """Return the lower bound and the buffers that prove it as text; "" if :func:`status_text` names the bound."""
    if summary.status == CLAIMED and summary.proven_bytes is not None:
        return ""
    bound, step = numbers.short_bytes(summary.bound_bytes), summary.witness_step
    live = {plan.storage[row] for row, _ in storages_alive(plan, step, summary.name)}
    others = [name for name in summary.witness if live.isdisjoint(plan.storage[rows_of_parts(plan, name)].tolist())]
    proof = numbers.count(len(summary.witness) - (len(others) if step >= 0 else 0), "buffer")
    if step < 0:
        proof += " that overlap pairwise in time"
    else:
        proof += f" live at {numbers.step(step, numbers.shortened(plan.node_at(step), 24))}"
        proof += f" and {len(others):,} that may not share their bytes" if others else ""
    sentence = f"Lower bound: {bound}{f', {proof}' if summary.witness else ''}."
    if summary.proven_bytes is not None:
        sentence += f" The planner's search proved a higher bound: {numbers.short_bytes(summary.proven_bytes)}."
    return sentence


def planner_of(plan: Plan, arena: str) -> str:
    """Return the planner of an arena with its options; for ``auto`` also the planner it chose: ``auto → exact``."""
    given = sorted(plan.planner_options.items())
    options = [f"{name}={value}" if isinstance(value, int | str) else name for name, value in given]
    picked = plan.arena_notes(arena).get("picked")
    return plan.planner + (f" ({', '.join(options)})" if options else "") + (f" → {picked}" if picked else "")


def planner_label(plan: Plan, arena: str, detail: str = "") -> str:
    """Return :func:`planner_of` and ``detail`` as HTML. The hover text is the remark or the planner's summary."""
    summary = PLANNERS[plan.planner].summary if plan.planner in PLANNERS else "Offsets of the file."
    about = planner_remark(plan, arena) or summary
    return f'<abbr title="{esc(about)}">{esc(planner_of(plan, arena) + detail)}</abbr>'


def planner_remark(plan: Plan, arena: str) -> str:
    """Return why ``auto`` chose its planner, or what ``ffd`` saved by sharing; "" for other planners."""
    notes = plan.arena_notes(arena)
    if "sharing_pairs" in notes:
        shared, saved = int(notes["sharing_pairs"]), int(notes["saved_bytes"])
        return f"Pairs of buffers with equal offsets: {shared:,}. Saved by these pairs: {numbers.full_bytes(saved)}."
    if "picked" not in notes:
        return ""
    return f"{plan.planner} chose {notes['picked']}: {numbers.grouped(notes.get('why', 'no reason given'))}."
