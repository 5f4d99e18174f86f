"""``tmmu report``: one HTML file that works offline."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.console import FINE, UsageFault, write_output
from app.cli.options import AsJson, PlanRequest, Source, planning, resolve

To = Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Write to this file; - for standard output.")]


@planning
def command(plan: Source, request: PlanRequest, output: To, json: AsJson = False) -> int:
    """Write the report of a plan (or of a graph's plan) as one HTML file without outside references."""
    from app.report import render

    found = resolve(plan, request)
    if found.trace is not None and not found.trace.complete:
        raise UsageFault(f"{plan} is a digest: it does not tell its tensors.", "Report the plan, or a whole trace.")
    write_output(output, render(found.plan, found.solution).encode(), "the report")
    return FINE
