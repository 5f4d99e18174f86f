"""``tmmu plan``: plan a graph or an instance."""

from collections.abc import Callable, Sequence
from pathlib import Path

from app.cli import console
from app.cli.console import FINDING, STREAM, SUCCESS, UsageError, print_lines, table
from app.cli.options import AS_JSON, MODEL, OUT, option
from app.cli.resolve import open_any, planning_options, print_findings, resolve_opened, show_warnings
from app.texts import numbers, totals_text
from tmmu_core.formats.planfile import plan_file
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.formats.pytorch.snapshot.torch_snapshot import RankSummary, largest_difference, snapshot_files, summaries
from tmmu_core.graph.checks import shape_sources_text
from tmmu_core.graph.model import Graph
from tmmu_core.plans.analysis.plan_notes import unplanned_parts
from tmmu_core.plans.analysis.reuse_costs import engine_instance, read_engines
from tmmu_core.plans.analysis.waste_ledger import explain_peak
from tmmu_core.plans.figures.metrics import LineChange, by_category, changes_at_peak, totals
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import ASSUMED, CLAIMED, OPTIMAL, UNPLANNED, Plan

MOST_LINES = 10  # maximum number of lines of code in a table


def writer_of(name: str) -> Callable[[Plan], bytes]:
    """Return the function that encodes a plan in the format of a file name. Raises :class:`UsageError`."""
    writer_of_ending = {f".{format_}": write for format_, write in plan_file.WRITERS.items()}
    return console.format_by_ending(name, writer_of_ending, plan_file.to_json)


def plan_command(
    request: PlanRequest,
    graph: str = MODEL,
    output: str | None = OUT,
    json: bool = AS_JSON,
    engines: str | None = option("JSON: engine of each node. Reuse between two engines has a cost.", "FILE"),
) -> int:
    """Plan the memory of a graph or a packing instance.

    Without --planner, an instance with all offsets is verified. A folder of snapshots is printed as a table of ranks.

    Exit code: 0 planned, 1 invalid offsets or an unreadable snapshot, 2 invalid offsets with -o or --json.
    """
    write = writer_of(output or STREAM)
    if files := snapshot_files(Path(graph)):
        unused = [name for name, value in (("-o", output), ("--engines", engines)) if value is not None]
        unused += planning_options(request)
        if unused:
            message = f"these options have no effect on a folder of snapshots: {', '.join(unused)}."
            raise UsageError(message, "Omit them, or pass one snapshot.")
        return _print_ranks(list(summaries(files)), json)
    opened = open_any(graph, request.dims)
    if engines is not None:
        if not isinstance(opened, Graph):
            raise UsageError("--engines needs a graph.", "Pass a model file, or set reuse_penalties in the instance.")
        opened = engine_instance(opened, read_engines(console.read_input(engines), engines), request)
        request = request.but(mode=None, preset=None, order=None, dims={}, one_memory=False)  # options of graphs
    if isinstance(opened, Plan | Trace):
        hint = "Check it with tmmu verify, show it with tmmu report or tmmu explore. To plan again, pass its graph."
        raise UsageError(f"{graph} contains a finished plan.", hint)
    resolved = resolve_opened(opened, graph, request)
    plan = resolved.valid_plan("export") if output is not None or json else resolved.plan
    if output is not None:
        console.write_output(output, write(plan), "the plan")
    if json or output == STREAM:
        show_warnings(resolved.warnings, on_stderr=True)
    if output == STREAM:
        return SUCCESS
    if json:
        console.write_bytes(plan_file.to_json(plan, resolved.warnings, resolved.better))
    else:
        print_plan(plan)
        if resolved.graph is not None and (shapes := shape_sources_text(resolved.graph)):
            console.print_lines(f"shapes: {shapes}")
        if plan.categories:
            print_live_lines(plan)
        if hint := totals_text.better(resolved.better):
            console.print_lines(f"hint: {hint}")
        printed_remarks = tuple(filter(None, (plan.remark(ASSUMED), plan.remark(UNPLANNED))))  # by print_plan()
        show_warnings([warning for warning in resolved.warnings if not warning.endswith(printed_remarks)])
    print_findings(resolved)
    return FINDING if resolved.findings else SUCCESS


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
    remarks = [(arena.name, totals_text.planner_remark(plan, arena.name)) for arena in plan.arenas]
    with_proof = [arena for arena in plan.arenas if arena.status in (OPTIMAL, CLAIMED)]
    remarks += [(arena.name, totals_text.status_text(plan, arena)) for arena in with_proof]
    print_lines(*(f"{name}: {remark}" for name, remark in remarks if remark))
    if plan.places == "sparse":
        print_lines("addresses  hashed (blake3_sparse): each offset is a hash; an arena size is the sum of its slots")
    print_lines(f"plan hash  {plan.tmmu_plan_hash.hex()}", f"layout     {plan.layout_hash.hex()}")


def print_live_lines(plan: Plan) -> None:
    """Print the live bytes at the peak of a snapshot's plan, by category and by line of code."""
    step, peak_bytes = totals(plan).peak_step, totals(plan).peak_live_bytes
    lines = changes_at_peak(plan, plan)  # with itself: only ``after``, the live bytes at the peak, is used
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
    tables, listed = totals_text.line_tables(lines, limit, numbers.full_bytes)
    for title, rows in tables:
        print_lines("")
        table((title, *(f">{name}" for name in totals_text.LINE_FIGURES)), rows)
    print_lines(listed)


def _print_ranks(ranks: Sequence[RankSummary], as_json: bool) -> int:
    """Print the peaks of ranks and their largest differences from the highest peak; return the exit code."""
    highest = max(ranks, key=lambda rank: (not rank.error, rank.peak))
    exit_code = FINDING if any(rank.error for rank in ranks) else SUCCESS
    if as_json:
        records = []
        for rank in ranks:
            largest = None if rank.error else largest_difference(highest, rank)
            growth = largest and dict(zip(("line", "category", "growth_bytes"), largest, strict=True))
            record = {"rank": rank.rank, "file": rank.file, "peak_live_bytes": rank.peak}
            record |= {"reserved_peak_bytes": rank.reserved, "difference": growth, "error": rank.error or None}
            records.append(record)
        console.write_json({"ranks": records})
        return exit_code
    groups: dict[tuple[int, int, str], list[RankSummary]] = {}
    for rank in ranks:
        groups.setdefault((rank.peak, rank.reserved, rank.error), []).append(rank)
    rows = []
    for (peak, reserved, error), group in sorted(groups.items(), key=lambda item: (-item[0][0], item[1][0].rank)):
        sizes = [error, ""] if error else [numbers.full_bytes(peak), numbers.full_bytes(reserved)]
        largest = None if error else largest_difference(highest, group[0])
        difference = "" if largest is None else f"{largest[0]} ({largest[1]}) {numbers.delta_bytes(largest[2])}"
        ids = [rank.rank for rank in group]
        rows.append([numbers.rank_ranges(ids), numbers.count(len(ids)), *sizes, difference])
    table(("ranks", ">number", ">peak", ">reserved peak", "largest difference from the highest peak"), rows)
    summary = numbers.count(len(ranks), "rank")
    if peaks := [rank.peak for rank in ranks if not rank.error]:
        mean, minimum = sum(peaks) // len(peaks), min(peaks)
        summary += f"; highest peak: rank {highest.rank} ({highest.file}), "
        summary += f"{numbers.over_bound(highest.peak - mean, mean)} above the mean, "
        summary += f"{numbers.over_bound(highest.peak - minimum, minimum)} above the minimum"
    print_lines("", summary)
    return exit_code
