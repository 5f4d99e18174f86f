"""``tmmu plan``: plan a graph or an instance."""

from collections.abc import Callable
from pathlib import Path

from app.cli import console
from app.cli.console import FINDING, STREAM, SUCCESS, UsageError
from app.cli.options import AS_JSON, MODEL, OUT, option
from app.cli.plan_text import print_live_lines, print_plan, print_ranks, rank_records
from app.cli.resolve import open_any, planning_options, print_findings, resolve_opened, show_warnings
from app.texts import totals_text
from tmmu_core.formats.planfile import plan_file
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.formats.pytorch.snapshot.rank_table import snapshot_files, summaries
from tmmu_core.graph.assumed_sizes import shape_sources_text
from tmmu_core.graph.model import Graph
from tmmu_core.plans.analysis.engine_costs import engine_instance, read_engines
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import ASSUMED, UNPLANNED, Plan

ENDINGS = {".json": "json", ".cbor": "cbor", ".csv": "csv", ".parquet": "parquet"}


def writer_of(name: str) -> Callable[[Plan], bytes]:
    """Return the function that encodes a plan in the format of a file name. Raises :class:`UsageError`."""
    return plan_file.WRITERS[console.format_by_ending(name, ENDINGS, "json")]


def plan_command(
    request: PlanRequest,
    graph: str = MODEL,
    output: str | None = OUT,
    json: bool = AS_JSON,
    engines: str | None = option("JSON: engine of each node. Reuse of bytes by two engines has a cost.", "FILE"),
) -> int:
    """Plan the memory of a graph or a packing instance.

    If an instance file has all offsets, these are verified. A folder of snapshots is printed as a table of its ranks.

    Exit code: 0 planned, 1 invalid offsets (2 with -o or --json) or an unreadable snapshot.
    """
    write = writer_of(output or STREAM)
    if files := snapshot_files(Path(graph)):
        unused = [name for name, value in (("-o", output), ("--engines", engines)) if value is not None]
        unused += planning_options(request)
        if unused:
            message = f"these options have no effect on a folder of snapshots: {', '.join(unused)}."
            raise UsageError(message, "Omit them, or pass one snapshot.")
        ranks = list(summaries(files))
        if json:
            console.write_json({"ranks": rank_records(ranks)})
        else:
            print_ranks(ranks)
        return FINDING if any(rank.error for rank in ranks) else SUCCESS
    opened = open_any(graph, request.dims)
    if engines is not None:
        if not isinstance(opened, Graph):
            raise UsageError("--engines needs a graph.", "Pass a model file, or set reuse_penalties in the instance.")
        opened = engine_instance(opened, read_engines(console.read_input(engines), engines), request)
        request = request.but(mode=None, preset=None, order=None, dims={}, one_memory=False)
    if isinstance(opened, Plan | Trace):
        hint = "Check it with tmmu verify, show it with tmmu report or tmmu explore. To plan again, pass its graph."
        raise UsageError(f"{graph} contains a finished plan.", hint)
    found = resolve_opened(opened, graph, request)
    plan = found.valid_plan("export") if output is not None or json else found.plan
    if output is not None:
        console.write_output(output, write(plan), "the plan")
    if json or output == STREAM:
        show_warnings(found.warnings, on_stderr=True)
    if output == STREAM:
        return SUCCESS
    if json:
        console.write_bytes(plan_file.to_json(plan, found.warnings, found.better))
    else:
        print_plan(plan)
        if found.graph is not None and (shapes := shape_sources_text(found.graph)):
            console.print_lines(f"shapes: {shapes}")
        if plan.categories:
            print_live_lines(plan)
        if hint := totals_text.better(found.better):
            console.print_lines(f"hint: {hint}")
        printed = tuple(filter(None, (plan.remark(ASSUMED), plan.remark(UNPLANNED))))  # by print_plan
        show_warnings([warning for warning in found.warnings if not warning.endswith(printed)])
    print_findings(found)
    return FINDING if found.findings else SUCCESS
