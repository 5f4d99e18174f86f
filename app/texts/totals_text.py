"""Texts about the totals of all arenas, and about the differences between two plans."""

from collections.abc import Callable

from app.texts import numbers
from app.texts.markup import esc
from tmmu_core.graph.model import ONE_MEMORY
from tmmu_core.plans.figures.live_bytes import peak_step_of
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.making.make import BetterPlanner
from tmmu_core.plans.model import ArenaSummary, Plan

PEAK, EXTENT, BOUND, GAP = "peak use, all arenas", "total reserved", "total of lower bounds", "gap, all arenas"
COST = "reuse cost"
ARENA_COLUMNS = (
    *("arena", ">lower bound", ">arena size", ">gap", ">capacity", ">headroom"),
    *(">slots", ">max live", ">reuse", "peak at", "optimality"),
)
"""Titles of the table of arenas; ">" aligns a column to the right."""


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
    """Return ``(name, change)`` of each total of two plans; "–" is the reuse cost of a plan without one."""
    old, new = dict(rows(before)), dict(rows(after))
    return [(name, numbers.change(old.get(name, "–"), new.get(name, "–"))) for name in old | new]


def chips(plan: Plan) -> list[str]:
    """Return peak use and total reserved, in short form."""
    sums = totals(plan)
    peak = f"{PEAK} {numbers.short_bytes(sums.peak_live_bytes)} at {numbers.step(sums.peak_step)}"
    return [peak, f"{EXTENT} {numbers.short_bytes(sums.extent_bytes)}"]


def better(found: BetterPlanner | None, option: str = "--planner auto") -> str:
    """Return a hint for a smaller plan: ``auto needs 7.20 MiB, 25 % less: add --planner auto``; "" for ``None``."""
    if found is None:
        return ""
    size = ("" if found.is_least else "at most ") + numbers.short_bytes(found.extent_bytes)
    return f"{found.planner} needs {size}, {found.saved_percent} % less: add {option}"


def handoffs(plan: Plan) -> str:
    """Return the number of in-place reuses of a plan: ``66 of 118 possible``, or ``3`` if the plan uses all."""
    possible, taken = len(plan.handoffs), sum(plan.taken)
    return f"{taken:,}" if taken == possible else f"{taken:,} of {possible:,} possible"


def changed(before: Plan, after: Plan) -> str:
    """Return the changed arena sizes and the total as HTML: ``slots → greedy: activations 9 MiB → 7 MiB (−2 MiB)``."""
    parts = []
    for name, old, new in changed_sizes(before, after):
        change = f" unchanged, {numbers.short_bytes(new)}"
        if old != new:
            delta = f'<b class="{"worse" if new > old else "better"}">({numbers.delta_bytes(new - old)})</b>'
            change = f" {numbers.change(*map(numbers.short_bytes, (old, new)))} {delta}"
        parts.append(esc(name) + change)
    settings = numbers.change(distinct_settings(before, after), distinct_settings(after, before))
    return f"<b>{esc(settings)}</b>: {'; '.join(parts)}"


def changed_sizes(before: Plan, after: Plan) -> list[tuple[str, int, int]]:
    """Return ``(name, bytes before, bytes after)`` per changed arena, and the total unless the only arena changed."""
    old, new = ({arena.name: arena.extent_bytes for arena in plan.arenas} for plan in (before, after))
    changed = [(name, old[name], new[name]) for name in new if name in old and old[name] != new[name]]
    total = (EXTENT, sum(old.values()), sum(new.values()))
    return changed if changed and len(old) == len(new) == 1 else [*changed, total]


def distinct_settings(plan: Plan, other: Plan) -> str:
    """Return the planner of a plan, and mode, preset, rank and "one memory" where they differ from ``other``."""
    distinct = [getattr(plan, name) for name in ("mode", "preset") if getattr(plan, name) != getattr(other, name)]
    distinct += [f"rank {plan.rank:,}"] if plan.world_size != other.world_size and plan.world_size > 1 else []
    distinct += ["in one memory"] if ONE_MEMORY in plan.arena_of.keys() - other.arena_of.keys() else []
    return " ".join([plan.planner, *distinct])


def main_arena(plan: Plan) -> str:
    """Return the arena that is shown first; "" for a plan without arenas.

    It is the arena with the most bytes over its capacity. Ties are decided by the reuse cost (highest first), then by
    whether bytes are reused, then by the bytes that can still be saved (most first), then by the size.
    """

    def rank(arena: ArenaSummary) -> tuple[int, int, bool, int, int, str]:
        over_bytes = 0 if arena.headroom_bytes is None else max(0, -arena.headroom_bytes)
        reuses_bytes = arena.max_live < arena.storages
        return over_bytes, arena.reuse_cost or 0, reuses_bytes, arena.open_bytes, arena.extent_bytes, arena.name

    return max(plan.arenas, key=rank).name if plan.arenas else ""
