"""``tmmu checkpoint``: plan a graph and keep the plan as a checkpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.console import FINE, UsageFault, write_output
from app.cli.judge import AgainstGraph, resolve_with_graph, solved_like
from app.cli.options import AsJson, Source, planning, sound
from tmmu_core.graph import unpacking
from tmmu_core.plan.formats.checkpoint import checkpoint
from tmmu_core.plan.making.request import PlanRequest

To = Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Write to this file; - for standard output.")]


@planning
def command(graph: Source, request: PlanRequest, output: To, of: AgainstGraph = None, json: AsJson = False) -> int:
    """Write the checkpoint of a graph's plan, or of a finished plan and its --graph."""
    found, against = resolve_with_graph(graph, of, request)
    if against is None:
        raise UsageFault(
            f"{graph} does not say which node makes a tensor.", "Give the graph, or the plan's graph by --graph."
        )
    plan = sound(found, "checkpoint")
    solved = solved_like(found, against, request)
    if found.plan.ir_hash != (found.cut_from or solved.plan.ir_hash):
        raise UsageFault(f"{graph} is not a plan of {of}: their ir_hash differs.", "Give the graph it was made from.")
    data = checkpoint(plan, solved.liveness)
    write_output(output, unpacking.pack(data) if output.endswith(".gz") else data, "the checkpoint")
    return FINE
