"""Print a plan, the lines of a snapshot, and the ranks of a job as text."""

from collections.abc import Sequence
from typing import Any

from app.cli.console import print_lines, table
from app.texts import certificate_text, numbers, totals_text
from app.texts.change_text import LINE_FIGURES, line_tables
from tmmu_core.formats.pytorch.snapshot.rank_table import RankSummary, largest_difference
from tmmu_core.plans.analysis.peak_lines import LineChange, by_category, changes_at_peak
from tmmu_core.plans.analysis.plan_notes import unplanned_parts
from tmmu_core.plans.analysis.waste_ledger import explain_peak
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import ASSUMED, CLAIMED, OPTIMAL, Plan


def print_plan(plan: Plan) -> None:
    """Print a plan: name, explanation of the peak, unplanned parts, counts, arenas, totals, remarks and hashes."""
    preset = "" if plan.preset == plan.mode else plan.preset
    title = (plan.ir_name or "unnamed", plan.mode, preset, plan.planner, plan.remark(ASSUMED))
    print_lines(" · ".join(filter(None, title)), str(explain_peak(plan)), *unplanned_parts(plan))
    steps, tensors = numbers.count(plan.steps, "step"), numbers.count(len(plan), "tensor")
    buffers = numbers.count(sum(arena.storages for arena in plan.arenas), "buffer")
    print_lines(f"{steps}, {tensors}, {buffers}, in-place reuse: {totals_text.handoffs(plan)}", "")
    table(totals_text.ARENA_COLUMNS, totals_text.arena_rows(plan))
    print_lines("", *(f"{name:<21}  {value}" for name, value in totals_text.rows(plan)))
    remarks = [(arena.name, certificate_text.planner_remark(plan, arena.name)) for arena in plan.arenas]
    with_proof = [arena for arena in plan.arenas if arena.status in (OPTIMAL, CLAIMED)]
    remarks += [(arena.name, certificate_text.status_text(plan, arena)) for arena in with_proof]
    print_lines(*(f"{name}: {remark}" for name, remark in remarks if remark))
    if plan.places == "sparse":
        print_lines("addresses  hashed (blake3_sparse): each offset is a hash; an arena size is the sum of its slots")
    print_lines(f"plan hash  {plan.tmmu_plan_hash.hex()}", f"layout     {plan.layout_hash.hex()}")


MOST_LINES = 10  # lines of code in a table


def print_live_lines(plan: Plan) -> None:
    """Print the live bytes at the peak of a snapshot's plan, by category and by line of code."""
    step, peak_bytes = totals(plan).peak_step, totals(plan).peak_live_bytes
    lines = changes_at_peak(plan, plan)
    for title, groups in ((f"category at #{step:,}", by_category(lines)), ("line", lines[:MOST_LINES])):
        rows = []
        for group in sorted(groups, key=lambda group: -group.after_bytes):
            share = numbers.percent(group.after_bytes, peak_bytes)
            name = " · ".join(filter(None, (group.line, group.category)))
            rows.append([name, numbers.full_bytes(group.after_bytes), share, numbers.count(group.after_count)])
        print_lines("")
        table((title, ">live", ">of peak", ">buffers"), rows)
    print_lines(numbers.of(min(MOST_LINES, len(lines)), len(lines), "line"))


def print_line_changes(lines: Sequence[LineChange], limit: int = MOST_LINES) -> None:
    """Print the changes between the peaks of two snapshots, by category and by line of code."""
    tables, listed = line_tables(lines, limit, numbers.full_bytes)
    for title, rows in tables:
        print_lines("")
        table((title, *(f">{name}" for name in LINE_FIGURES)), rows)
    print_lines(listed)


def print_ranks(ranks: Sequence[RankSummary]) -> None:
    """Print a row per group of ranks with equal peaks, highest first, then the highest peak over mean and minimum."""
    fullest = max(ranks, key=lambda rank: (not rank.error, rank.peak))
    groups: dict[tuple[int, int, str], list[RankSummary]] = {}
    for rank in ranks:
        groups.setdefault((rank.peak, rank.reserved, rank.error), []).append(rank)
    rows = []
    for (peak, reserved, error), group in sorted(groups.items(), key=lambda item: (-item[0][0], item[1][0].rank)):
        sizes = [error, ""] if error else [numbers.full_bytes(peak), numbers.full_bytes(reserved)]
        found = None if error else largest_difference(fullest, group[0])
        difference = "" if found is None else f"{found[0]} ({found[1]}) {numbers.delta_bytes(found[2])}"
        ids = [rank.rank for rank in group]
        rows.append([numbers.rank_ranges(ids), numbers.count(len(ids)), *sizes, difference])
    table(("ranks", ">number", ">peak", ">reserved peak", "largest difference from the fullest rank"), rows)
    summary = numbers.count(len(ranks), "rank")
    if peaks := [rank.peak for rank in ranks if not rank.error]:
        mean, minimum = sum(peaks) // len(peaks), min(peaks)
        summary += f"; fullest: rank {fullest.rank} ({fullest.file}), "
        summary += f"{numbers.over_bound(fullest.peak - mean, mean)} above the mean, "
        summary += f"{numbers.over_bound(fullest.peak - minimum, minimum)} above the minimum"
    print_lines("", summary)


def rank_records(ranks: Sequence[RankSummary]) -> list[dict[str, Any]]:
    """Return the JSON record of each rank, with its largest difference from the rank with the highest peak."""
    fullest = max(ranks, key=lambda rank: rank.peak)
    records = []
    for rank in ranks:
        found = None if rank.error else largest_difference(fullest, rank)
        difference = found and dict(zip(("line", "category", "growth_bytes"), found, strict=True))
        record = {"rank": rank.rank, "file": rank.file, "peak_live_bytes": rank.peak}
        record |= {"reserved_peak_bytes": rank.reserved, "difference": difference, "error": rank.error or None}
        records.append(record)
    return records
