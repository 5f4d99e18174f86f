"""``tmmu checkpoint``: write the checkpoint of a plan."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.console import SUCCESS, UsageError, write_output
from app.cli.findings import AgainstGraph, resolve_with_graph, solved_like
from app.cli.options import AsJson, Source, note_input_warnings, planning, sound
from tmmu_core.formats.planfile.checkpoint import checkpoint
from tmmu_core.graph.native import unpacking
from tmmu_core.plans.making.request import PlanRequest

To = Annotated[
    str, typer.Option("-o", "--output", metavar="FILE", help="Write to this file; - writes to standard output.")
]


@planning
def command(graph: Source, request: PlanRequest, output: To, of: AgainstGraph = None, json: AsJson = False) -> int:
    """Write the checkpoint of a plan."""
    found, against = resolve_with_graph(graph, of, request)
    note_input_warnings(found)
    if against is None:
        raise UsageError(
            f"{graph} does not name the producers of tensors.", "Pass the graph, or use --graph with the plan's graph."
        )
    plan = sound(found, "checkpoint")
    solved = solved_like(found, against, request)
    if found.plan.ir_hash != (found.cut_from or solved.plan.ir_hash):
        raise UsageError(
            f"{graph} is not a plan of {of}: the ir_hash differs.", "Pass the graph that the plan was made from."
        )
    data = checkpoint(plan, solved.liveness)
    write_output(output, unpacking.pack(data) if output.endswith(".gz") else data, "the checkpoint")
    return SUCCESS
