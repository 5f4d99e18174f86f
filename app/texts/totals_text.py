"""Texts about the figures of a plan (totals, arenas, optimality of an arena), and the differences between two plans."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from app.texts import numbers
from app.texts.markup import esc, fragment, optimality
from tmmu_core.formats.planfile.compare_plans import ArenaChange, Comparison, Difference, TensorChange
from tmmu_core.graph.model import ONE_MEMORY
from tmmu_core.graph.quantities import short_bytes
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.problem import alignment_text
from tmmu_core.plans.figures.live_bytes import peak_step_of, storages_alive
from tmmu_core.plans.figures.metrics import LineChange, by_category, reserved_bytes, totals
from tmmu_core.plans.making.make import BetterPlanner
from tmmu_core.plans.model import CLAIMED, GIVEN_OFFSETS, INCOMPLETE, UNPROVEN, ArenaSummary, Plan, rows_of_parts

PEAK, EXTENT, BOUND, GAP = "peak use, all arenas", "total reserved", "total of lower bounds", "gap, all arenas"
COST = "reuse cost"
ARENA_COLUMNS = (
    *("arena", ">lower bound", ">arena size", ">gap", ">capacity", ">headroom"),
    *(">slots", ">max live buffers", ">reuse", "peak at", "optimality"),
)
"""Titles of the table of arenas; ">" aligns a column to the right."""
ARENA_FIGURES = ("lower bound", "arena size", "change", "gap", "optimality", "slots", "max live buffers")
TENSOR_FIGURES = ("arena", "slot", "offset", "size", "live range")
LINE_FIGURES = ("baseline", "candidate", "change", "buffers")
"""Titles of the tables of differences between two plans. Figures are "–" for a plan without the arena or tensor."""


def rows(plan: Plan, mark_up: Callable[[str], str] = str) -> tuple[tuple[str, str], ...]:
    """Return ``(name, figure)`` of each total. ``mark_up`` escapes or marks up the text of the peak step."""
    sums = totals(plan)
    step = numbers.step(sums.peak_step, plan.node_at(sums.peak_step))
    figures = (
        (PEAK, f"{numbers.full_bytes(sums.peak_live_bytes)} at {mark_up(step)}"),
        (EXTENT, numbers.full_bytes(sums.extent_bytes)),
        (BOUND, numbers.full_bytes(sums.lower_bound_bytes)),
        (GAP, numbers.over_bound(*sums.gap)),
    )
    if sums.reuse_cost is None:
        return figures
    bound = sum(arena.reuse_cost_lower_bound or 0 for arena in plan.arenas)
    proof = "optimal" if sums.reuse_cost == bound else f"lower bound {bound:,}"
    return (*figures, (COST, f"{sums.reuse_cost:,}, {proof}"))


def arena_rows(plan: Plan, status_text: Callable[[str], str] = str) -> list[list[str]]:
    """Return a row of :data:`ARENA_COLUMNS` for each arena."""
    rows = []
    for arena in plan.arenas:
        peak = peak_step_of(plan, arena.name)[0]
        slots = reuse = numbers.NO_SLOTS
        if plan.has_slots:
            slots, reuse = f"{arena.slots:,}", numbers.percent(arena.storages - arena.slots, arena.storages)
        row = [arena.name, *map(numbers.full_bytes, (arena.bound_bytes, arena.extent_bytes))]
        row += [numbers.over_bound(*arena.gap), numbers.capacity(arena.capacity_bytes)]
        row.append("–" if arena.headroom_bytes is None else numbers.full_bytes(arena.headroom_bytes))
        row += [slots, f"{arena.max_live:,}", reuse, numbers.step(peak, plan.node_at(peak))]
        rows.append([*row, status_text(arena.status)])
    return rows


def changes(before: Plan, after: Plan) -> list[tuple[str, str]]:
    """Return ``(name, change)`` of each total of two plans; "–" if a plan has no reuse cost."""
    old, new = dict(rows(before)), dict(rows(after))
    return [(name, numbers.change(old.get(name, "–"), new.get(name, "–"))) for name in old | new]


def chips(plan: Plan) -> list[str]:
    """Return peak use and total reserved, in short form."""
    sums = totals(plan)
    peak = f"{PEAK} {short_bytes(sums.peak_live_bytes)} at {numbers.step(sums.peak_step)}"
    return [peak, f"{EXTENT} {short_bytes(sums.extent_bytes)}"]


def better(found: BetterPlanner | None, option: str = "--planner auto") -> str:
    """Return a hint for a smaller plan: ``auto needs 7.20 MiB, 25 % less: add --planner auto``; "" for ``None``."""
    if found is None:
        return ""
    size = ("" if found.is_least else "at most ") + short_bytes(found.extent_bytes)
    return f"{found.planner} needs {size}, {found.saved_percent} % less: add {option}"


def handoffs(plan: Plan) -> str:
    """Return the number of in-place reuses of a plan: ``66 of 118 possible``, or ``3`` if the plan uses all."""
    possible, taken = len(plan.handoffs), sum(plan.taken)
    return f"{taken:,}" if taken == possible else f"{taken:,} of {possible:,} possible"


def changed(before: Plan, after: Plan) -> str:
    """Return the changed arena sizes and the total as HTML: ``slots → greedy: activations 900 B → 700 B (−200 B)``."""
    parts = []
    for name, old, new in changed_sizes(before, after):
        change = f" unchanged, {short_bytes(new)}"
        if old != new:
            delta = f'<b class="{"worse" if new > old else "better"}">({numbers.delta_bytes(new - old)})</b>'
            change = f" {numbers.change(*map(short_bytes, (old, new)))} {delta}"
        parts.append(esc(name) + change)
    settings = numbers.change(distinct_settings(before, after), distinct_settings(after, before))
    return f"<b>{esc(settings)}</b>: {'; '.join(parts)}"


def changed_sizes(before: Plan, after: Plan) -> list[tuple[str, int, int]]:
    """Return ``(name, old, new bytes)`` per changed arena, then the total, unless both plans have only this arena."""
    old, new = ({arena.name: arena.extent_bytes for arena in plan.arenas} for plan in (before, after))
    changed = [(name, old[name], new[name]) for name in new if name in old and old[name] != new[name]]
    total = (EXTENT, sum(old.values()), sum(new.values()))
    return changed if changed and len(old) == len(new) == 1 else [*changed, total]


def distinct_settings(plan: Plan, other: Plan) -> str:
    """Return the planner of a plan, and mode, preset, rank and "one memory" where they differ from ``other``."""
    texts = [(f"mode {p.mode}", f"preset {p.preset}", f"rank {p.rank:,} of {p.world_size:,}") for p in (plan, other)]
    distinct = [text for text in texts[0] if text not in (*texts[1], "rank 0 of 1")]
    distinct += ["in one memory"] if ONE_MEMORY in plan.arena_of.keys() - other.arena_of.keys() else []
    return ", ".join([plan.planner, *distinct])


def main_arena(plan: Plan) -> str:
    """Return the arena to show first: the one with the greatest ``rank``; "" without arenas."""

    def rank(arena: ArenaSummary) -> tuple[int, int, bool, int, int, str]:
        over_bytes = 0 if arena.headroom_bytes is None else max(0, -arena.headroom_bytes)
        reuses_bytes = arena.max_live < arena.storages
        return over_bytes, arena.reuse_cost or 0, reuses_bytes, arena.open_bytes, arena.extent_bytes, arena.name

    return max(plan.arenas, key=rank).name if plan.arenas else ""


def certificate(plan: Plan, arena: str) -> str:
    """Return the card of an arena's optimality as HTML: status, lower bound and remark of the planner."""
    summary = plan.arena_of[arena]
    sentences = (status_text(plan, summary), bound_text(plan, summary), planner_remark(plan, arena))
    return fragment("certificate_card", arena=summary, sentences=sentences)


def status_text(plan: Plan, summary: ArenaSummary) -> str:
    """Return the optimality status of an arena as text."""
    bound, extent = summary.bound_bytes, summary.extent_bytes
    saving = f"At most {short_bytes(summary.open_bytes)} can still be saved."
    if summary.reuse_cost is not None:
        saving += " A smaller plan may have a higher reuse cost."
    if summary.status == "optimal":
        reason = "equal to the lower bound" if extent == bound else "search exhausted"
        # Views are left out: a view may have another alignment than its storage.
        has_no_base = np.array([base is None for base in plan.base_tensor_uids], bool)
        alignments = plan.alignment[has_no_base & (plan.arena == plan.arenas.index(summary))]
        size = f"{short_bytes(extent)} {alignment_text(alignments)}"
        size += " with the given offsets" if plan.remark(GIVEN_OFFSETS) else ""
        return f"Proven optimal: {size}, {reason}."
    if summary.status == "invalid":
        return "Invalid plan: the figures of this arena are not reliable."
    if summary.status == CLAIMED:
        if summary.proven_bytes is None:
            return f"The lower bound of the reuse cost in the file is higher than the recomputed bound. {saving}"
        claim, recomputed = short_bytes(summary.proven_bytes), short_bytes(bound)
        return f"The file claims a lower bound of {claim}; the recomputed bound is {recomputed}. {saving}"
    if summary.status == INCOMPLETE:
        return "Incomplete: a part of the graph is not planned, so more memory is needed."
    if summary.status == UNPROVEN:
        return f"Search limit reached; optimality unproven. {saving}"
    return f"Valid, not proven optimal. {saving}"


def bound_text(plan: Plan, summary: ArenaSummary) -> str:
    """Return the lower bound and the buffers that prove it as text; "" if :func:`status_text` names the bound."""
    if summary.status == CLAIMED and summary.proven_bytes is not None:
        return ""
    bound, step = short_bytes(summary.bound_bytes), summary.witness_step
    live = {plan.storage[row] for row, _ in storages_alive(plan, step, summary.name)}
    others = [name for name in summary.witness if live.isdisjoint(plan.storage[rows_of_parts(plan, name)].tolist())]
    proof = numbers.count(len(summary.witness) - (len(others) if step >= 0 else 0), "buffer")
    if step < 0:
        proof += " that overlap pairwise in time"
    else:
        proof += f" live at {numbers.step(step, numbers.shortened(plan.node_at(step), 24))}"
        proof += f" and {len(others):,} more; no two may share bytes" if others else ""
    if reserved := reserved_bytes(plan, summary.name):
        proof += f", {short_bytes(reserved)} reserved"
    sentence = f"Lower bound: {bound}{f', {proof}' if summary.witness else ''}."
    lacks_reuses = summary.peak_live_bytes > summary.bound_bytes
    sentence += " It counts in-place reuses that the plan lacks." if lacks_reuses else ""
    if summary.proven_bytes is not None:
        sentence += f" The planner's search proved a higher bound: {short_bytes(summary.proven_bytes)}."
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
    return f'<abbr title="{esc(planner_remark(plan, arena) or summary)}">{esc(planner_of(plan, arena) + detail)}</abbr>'


def planner_remark(plan: Plan, arena: str) -> str:
    """Return why ``auto`` chose its planner, or what ``ffd`` saved by sharing; "" for other planners."""
    notes = plan.arena_notes(arena)
    if "sharing_pairs" in notes:
        shared, saved = int(notes["sharing_pairs"]), int(notes["saved_bytes"])
        return f"Pairs of buffers with equal offsets: {shared:,}. Saved by these pairs: {numbers.full_bytes(saved)}."
    if "picked" not in notes:
        return ""
    return f"{plan.planner} chose {notes['picked']}: {numbers.grouped(notes.get('why', 'no reason given'))}."


def arena_change(change: ArenaChange, compared: Comparison, size: Callable[[int], str] = short_bytes) -> list[str]:
    """Return the name of an arena and its :data:`ARENA_FIGURES` in both plans. ``size`` formats bytes."""
    left, right, texts = change.left, change.right, []
    for arena, plan in (left, compared.left), (right, compared.right):
        if arena is None:
            texts.append(("–",) * 6)
            continue
        slots = f"{arena.slots:,}" if plan.has_slots else numbers.NO_SLOTS
        gap, status = numbers.over_bound(*arena.gap), optimality(arena.status)
        texts.append((size(arena.bound_bytes), size(arena.extent_bytes), gap, status, slots, f"{arena.max_live:,}"))
    bound, extent, *others = map(numbers.change, *texts)
    growth = "" if left is None or right is None else numbers.delta_bytes(right.extent_bytes - left.extent_bytes)
    return [change.name, bound, extent, growth, *others]


def tensor_change(change: TensorChange, compared: Comparison) -> list[str]:
    """Return the id of a tensor, the kinds of its changes, and its :data:`TENSOR_FIGURES` in both plans."""
    texts = []
    for row, plan in (change.left, compared.left), (change.right, compared.right):
        if row is None:
            texts.append(("–",) * 5)
            continue
        slot = f"{row.logical_slot:,}" if plan.has_slots else numbers.NO_SLOTS
        live = numbers.live_range(row.birth, row.death)
        texts.append((row.arena, slot, f"{row.offset_bytes:,}", f"{row.size_bytes:,}", live))
    return [change.tensor_id, ", ".join(change.kinds).replace("_", " "), *map(numbers.change, *texts)]


def kind_rows(comparison: Comparison, size: Callable[[int], str] = numbers.full_bytes) -> list[list[str]]:
    """Return the kind, the number of tensors and their bytes for each kind of change. ``size`` formats bytes."""
    rows = [(kind, count, nbytes) for kind, (count, nbytes) in comparison.totals.items() if count]
    formats = {"resized": numbers.delta_bytes}
    return [[kind, f"{count:,}", formats.get(kind, size)(nbytes)] for kind, count, nbytes in rows]


def line_tables(
    lines: Sequence[LineChange], most: int, size: Callable[[int], str] = short_bytes
) -> tuple[list[tuple[str, list[list[str]]]], str]:
    """Return tables ``(title, rows)`` by category and by source line (at most ``most``), and the line count as text."""
    changed = [line for line in lines if line.growth_bytes or line.before_count != line.after_count]
    tables = []
    for title, listed in (("category at the peak", by_category(lines)), ("line at the peak", changed[:most])):
        rows = []
        for line in listed:
            name = " · ".join(filter(None, (line.line, line.category)))
            counts = numbers.change(f"{line.before_count:,}", f"{line.after_count:,}")
            status = "new" if not line.before_count else "gone" if not line.after_count else counts
            sizes = size(line.before_bytes), size(line.after_bytes), numbers.delta_bytes(line.growth_bytes)
            rows.append([name, *sizes, status])
        tables.append((title, rows))
    return tables, numbers.of(min(most, len(changed)), len(changed), "changed line")


def sides(difference: Difference) -> str:
    """Return both values of a difference as text, long values shortened: ``64 → 128``."""
    values = (difference.left, difference.right)
    both = ("none" if value is None else f"{value:,}" if type(value) is int else str(value) for value in values)
    return " → ".join(text[:12] if re.fullmatch("[0-9a-f]{64}", text) else numbers.shortened(text, 60) for text in both)
