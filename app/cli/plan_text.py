"""A plan as text for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.cli.console import print_lines, table
from app.texts import certificate_text, numbers, totals_text
from tmmu_core.formats.pytorch.snapshot.rank_table import RankSummary, first_difference
from tmmu_core.plans.analysis.explain_peak import explain_peak
from tmmu_core.plans.analysis.peak_lines import Change, by_category, changes_at_peak
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.figures.plan_storages import peak_step_of
from tmmu_core.plans.model import ASSUMED, CLAIMED, OPTIMAL, ArenaSummary, Plan

ARENA_COLUMNS = (
    *("arena", ">lower bound", ">arena size", ">gap", ">capacity", ">headroom"),
    *(">slots", ">max live", ">reuse", "peak at", "optimality"),
)


def print_plan(plan: Plan) -> None:
    """Print a plan's name, explanation, assumed sizes, missing parts, arenas and hashes."""
    print_lines(
        " · ".join(
            filter(None, (plan.ir_name or "unnamed", plan.mode, plan.preset, plan.planner, plan.remark(ASSUMED)))
        )
    )
    print_lines(str(explain_peak(plan)))
    print_lines(*certificate_text.missing(plan))
    counts = (
        numbers.count(plan.steps, "step"),
        numbers.count(len(plan), "tensor"),
        numbers.count(sum(a.storages for a in plan.arenas), "buffer"),
        f"in-place reuse: {totals_text.handoffs(plan)}",
    )
    print_lines(", ".join(counts), "")
    peaks = {} if plan.steps > 1 << 28 else {a.name: peak_step_of(plan, a.name)[0] for a in plan.arenas}
    table(ARENA_COLUMNS, [_arena(plan, arena, peaks.get(arena.name)) for arena in plan.arenas])
    print_lines("", *(f"{name:<21}  {value}" for name, value in totals_text.rows(plan)))
    remarks = {arena.name: certificate_text.planner_remark(plan, arena.name) for arena in plan.arenas}
    print_lines(*(f"{name}: {remark}" for name, remark in remarks.items() if remark))
    print_lines(
        *(
            f"{arena.name}: {certificate_text.claimed(plan, arena)}"
            for arena in plan.arenas
            if arena.status in (OPTIMAL, CLAIMED)
        )
    )
    if plan.places == "sparse":
        print_lines("addresses  hashed (blake3_sparse): offsets are hashes; arena sizes are the sum of the slots")
    print_lines(f"plan hash  {plan.tmmu_plan_hash.hex()}", f"layout     {plan.layout_hash.hex()}")


def _arena(plan: Plan, arena: ArenaSummary, peak: int | None) -> list[str]:
    return [
        arena.name,
        numbers.full_bytes(arena.bound_bytes),
        numbers.full_bytes(arena.extent_bytes),
        numbers.over_bound(*arena.gap),
        numbers.capacity(arena.capacity_bytes),
        "–" if arena.headroom_bytes is None else numbers.full_bytes(arena.headroom_bytes),
        numbers.count(arena.slots) if plan.has_slots else numbers.NO_SLOTS,
        numbers.count(arena.max_live),
        numbers.percent(arena.storages - arena.slots, arena.storages) if plan.has_slots else numbers.NO_SLOTS,
        numbers.step(peak, plan.node_at(peak) if peak is not None else ""),
        arena.status,
    ]


# --- snapshots of an allocator ----------------------------------------------------------------------------------

MOST_LINES = 10
"""Lines of code in a table, unless more are requested."""


def print_live_lines(plan: Plan) -> None:
    """Print what is live at the peak of a snapshot's plan, by category and by line of code."""
    step = totals(plan).peak_step
    live = changes_at_peak(plan, plan)
    columns = (">live", ">of peak", ">buffers")
    most = totals(plan).peak_live_bytes
    for heads, found in (
        ((f"category at #{step:,}",), by_category(live)),
        (("line", "category"), live[:MOST_LINES]),
    ):
        print_lines("")
        rows = sorted(found, key=lambda one: -one.after_bytes)
        cells = [[*_who(one), *_share(one.after_bytes, most), numbers.count(one.after_count)] for one in rows]
        table((*heads, *columns), cells)
    print_lines(numbers.of(min(MOST_LINES, len(live)), len(live), "line"))


def print_line_changes(lines: Sequence[Change], limit: int = MOST_LINES) -> None:
    """Print what changed between the peaks of two snapshots, by category and by line of code."""
    columns = (">baseline", ">candidate", ">change", ">buffers")
    changed = [one for one in lines if one.growth_bytes or one.before_count != one.after_count]
    for heads, found in (
        (("category at the peak",), by_category(lines)),
        (("line at the peak", "category"), changed[:limit]),
    ):
        print_lines("")
        table((*heads, *columns), [[*_who(one), *_change_cells(one)] for one in found])
    print_lines(numbers.of(min(limit, len(changed)), len(changed), "changed line"))


def _who(one: Change) -> list[str]:
    return [*filter(None, (one.line, one.category))]


def _share(size: int, whole: int) -> list[str]:
    return [numbers.full_bytes(size), numbers.percent(size, whole)]


def _change_cells(one: Change) -> list[str]:
    sides = (numbers.full_bytes(size) for size in (one.before_bytes, one.after_bytes))
    ends = "new" if not one.before_count else "gone" if not one.after_count else ""
    counts = ends or numbers.change(f"{one.before_count:,}", f"{one.after_count:,}")
    return [*sides, numbers.delta_bytes(one.growth_bytes), counts]


def print_ranks(found: Sequence[RankSummary]) -> None:
    """Print a row for all ranks with equal snapshots, the fullest first, and the imbalance."""
    fullest = max(found, key=lambda one: one.peak)
    alike: dict[tuple[int, int, str], list[RankSummary]] = {}
    for one in found:
        alike.setdefault((one.peak, one.reserved, one.error), []).append(one)
    rows = []
    for (most, reserved, error), ranks in sorted(alike.items(), key=lambda item: (-item[0][0], item[1][0].rank)):
        sizes = [error, ""] if error else [numbers.full_bytes(most), numbers.full_bytes(reserved)]
        differs = "" if error else _difference_text(fullest, ranks[0])
        rows.append([numbers.runs([one.rank for one in ranks]), numbers.count(len(ranks)), *sizes, differs])
    columns = ("ranks", ">number", ">peak", ">reserved peak")
    table((*columns, "largest difference from the fullest rank"), rows)
    peaks = [one.peak for one in found if not one.error]
    least, mean = min(peaks, default=0), sum(peaks) // max(1, len(peaks))
    print_lines(
        "",
        f"{numbers.count(len(found), 'rank')}; fullest: rank {fullest.rank} ({fullest.file}), "
        f"{numbers.over_bound(fullest.peak - mean, mean)} above the mean, "
        f"{numbers.over_bound(fullest.peak - least, least)} above the least",
    )


def _difference_text(fullest: RankSummary, one: RankSummary) -> str:
    found = first_difference(fullest, one)
    return "" if found is None else f"{found[0]} ({found[1]}) {numbers.delta_bytes(found[2])}"


def rank_record(one: RankSummary, fullest: RankSummary) -> dict[str, Any]:
    """Return a rank as JSON values."""
    found = None if one.error else first_difference(fullest, one)
    names = ("line", "category", "growth_bytes")
    return {
        "rank": one.rank,
        "file": one.file,
        "peak_live_bytes": one.peak,
        "reserved_peak_bytes": one.reserved,
        "difference": None if found is None else dict(zip(names, found, strict=True)),
        "error": one.error or None,
    }
