"""Print a plan, the lines of a snapshot, and the ranks of a job as text."""

from collections.abc import Sequence
from typing import Any

from app.cli.console import print_lines, table
from app.texts import certificate_text, numbers, totals_text
from app.texts.change_text import LINE_FIGURES, line_tables
from tmmu_core.formats.pytorch.snapshot.rank_table import RankSummary, largest_difference
from tmmu_core.plans.analysis.explain_peak import explain_peak
from tmmu_core.plans.analysis.peak_lines import LineChange, by_category, changes_at_peak
from tmmu_core.plans.analysis.plan_notes import unplanned_parts
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import ASSUMED, CLAIMED, OPTIMAL, Plan


def print_plan(plan: Plan) -> None:
    """Print name, peak explanation, unplanned parts, counts, arenas and hashes of a plan."""
    title = (plan.ir_name or "unnamed", plan.mode, plan.preset, plan.planner, plan.remark(ASSUMED))
    print_lines(" · ".join(filter(None, title)), str(explain_peak(plan)), *unplanned_parts(plan))
    counted = {"step": plan.steps, "tensor": len(plan), "buffer": sum(a.storages for a in plan.arenas)}
    counts = [numbers.count(n, noun) for noun, n in counted.items()]
    print_lines(", ".join([*counts, f"in-place reuse: {totals_text.handoffs(plan)}"]), "")
    table(totals_text.ARENA_COLUMNS, totals_text.arena_rows(plan))
    print_lines("", *(f"{name:<21}  {value}" for name, value in totals_text.rows(plan)))
    remarks = [(arena.name, certificate_text.planner_remark(plan, arena.name)) for arena in plan.arenas]
    proven = [arena for arena in plan.arenas if arena.status in (OPTIMAL, CLAIMED)]
    remarks += [(arena.name, certificate_text.status_text(plan, arena)) for arena in proven]
    print_lines(*(f"{name}: {remark}" for name, remark in remarks if remark))
    if plan.places == "sparse":
        print_lines("addresses  hashed (blake3_sparse): each offset is a hash; an arena size is the sum of its slots")
    print_lines(f"plan hash  {plan.tmmu_plan_hash.hex()}", f"layout     {plan.layout_hash.hex()}")


# --- allocator snapshots ----------------------------------------------------------------------------------------

MOST_LINES = 10  # lines of code in a table


def print_live_lines(plan: Plan) -> None:
    """Print the live bytes at the peak of a snapshot's plan, by category and by line of code."""
    step, peak_bytes = totals(plan).peak_step, totals(plan).peak_live_bytes
    live = changes_at_peak(plan, plan)
    for title, found in ((f"category at #{step:,}", by_category(live)), ("line", live[:MOST_LINES])):
        rows = []
        for one in sorted(found, key=lambda one: -one.after_bytes):
            share = numbers.percent(one.after_bytes, peak_bytes)
            name = " · ".join(filter(None, (one.line, one.category)))
            rows.append([name, numbers.full_bytes(one.after_bytes), share, numbers.count(one.after_count)])
        print_lines("")
        table((title, ">live", ">of peak", ">buffers"), rows)
    print_lines(numbers.of(min(MOST_LINES, len(live)), len(live), "line"))


def print_line_changes(lines: Sequence[LineChange], limit: int = MOST_LINES) -> None:
    """Print the changes between the peaks of two snapshots, by category and by line of code."""
    tables, listed = line_tables(lines, limit, numbers.full_bytes)
    for title, rows in tables:
        print_lines("")
        table((title, *(f">{name}" for name in LINE_FIGURES)), rows)
    print_lines(listed)


def print_ranks(found: Sequence[RankSummary]) -> None:
    """Print a row per group of ranks with equal peaks, highest first, and the highest peak over mean and minimum."""
    fullest = max(found, key=lambda one: (not one.error, one.peak))
    groups: dict[tuple[int, int, str], list[RankSummary]] = {}
    for one in found:
        groups.setdefault((one.peak, one.reserved, one.error), []).append(one)
    rows = []
    for (peak, reserved, error), ranks in sorted(groups.items(), key=lambda item: (-item[0][0], item[1][0].rank)):
        sizes = [error, ""] if error else [numbers.full_bytes(peak), numbers.full_bytes(reserved)]
        change = None if error else largest_difference(fullest, ranks[0])
        differs = "" if change is None else f"{change[0]} ({change[1]}) {numbers.delta_bytes(change[2])}"
        rows.append([numbers.rank_ranges([one.rank for one in ranks]), numbers.count(len(ranks)), *sizes, differs])
    columns = ("ranks", ">number", ">peak", ">reserved peak")
    table((*columns, "largest difference from the fullest rank"), rows)
    summary = numbers.count(len(found), "rank")
    if peaks := [one.peak for one in found if not one.error]:
        mean = sum(peaks) // len(peaks)
        above_mean, above_least = (numbers.over_bound(fullest.peak - size, size) for size in (mean, min(peaks)))
        summary += f"; fullest: rank {fullest.rank} ({fullest.file}), {above_mean} above the mean, "
        summary += f"{above_least} above the minimum"
    print_lines("", summary)


def rank_records(ranks: Sequence[RankSummary]) -> list[dict[str, Any]]:
    """Return the JSON record of each rank, with its largest difference from the rank with the highest peak."""
    fullest = max(ranks, key=lambda one: one.peak)
    records = []
    for one in ranks:
        found = None if one.error else largest_difference(fullest, one)
        difference = found and dict(zip(("line", "category", "growth_bytes"), found, strict=True))
        record = {"rank": one.rank, "file": one.file, "peak_live_bytes": one.peak, "reserved_peak_bytes": one.reserved}
        records.append({**record, "difference": difference, "error": one.error or None})
    return records
