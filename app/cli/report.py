"""``tmmu report``: one HTML file that works offline; on paper, or in short."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.console import FINDING, FINE, UsageFault, format_by_ending, note, write_output
from app.cli.options import AsJson, Source, planning, resolve, whole
from app.cli.stores import StoreUrl, resolve_side
from tmmu_core.graph import unpacking
from tmmu_core.plan.making.request import PlanRequest

FORMS = {".html": "html", ".htm": "html", ".pdf": "pdf", ".md": "md"}
To = Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Write to this file; - for standard output.")]
Against = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A plan, trace, graph or store:MODEL@COMMIT to tell the difference from."),
]
Title = Annotated[str, typer.Option(metavar="TEXT", help="The report's title [the graph's name].")]
On = Annotated[str, typer.Option("--theme", metavar="light|dark", help="The ground on which the report stands.")]


@planning
def command(
    plan: Source,
    request: PlanRequest,
    output: To,
    baseline: Against = None,
    title: Title = "",
    theme: On = "light",
    store: StoreUrl = None,
    json: AsJson = False,
) -> int:
    """Write the report of a plan (or of a graph's plan) as one HTML file without outside references.

    To a name that ends in .pdf it is printed by the browser that is installed; to one in .md a summary is written that
    reads well in a pull request; HTML to one in .html, or without an ending.

    Exit code: 0, or 1 for a plan that does not verify; its report says so.
    """
    from app.report.build import Known, build_report
    from app.report.look import LOOKS
    from app.report.summary import markdown
    from tmmu_core.judge.lint import lint_verdict
    from tmmu_core.judge.verifier import verify_plan

    form, gzipped = ("html", False) if not Path(output).suffix else format_by_ending(output.lower(), FORMS, "html")
    if theme not in LOOKS:
        raise UsageFault(f"there is no theme {theme!r}.", f"Choose one of {', '.join(LOOKS)}.")
    found = resolve(plan, request)
    before = None if baseline is None else whole(resolve_side(baseline, request, store, found.plan))
    how: dict[str, Any] = {"dims": request.dims, "cut_from": found.cut_from}
    verified = verify_plan(whole(found), found.graph, **how)
    if form == "md":
        summary = markdown(whole(found), verified, title)
        write_output(output, unpacking.pack(summary) if gzipped else summary, "the summary")
    else:
        data = build_report(
            found.solution or whole(found),
            baseline=before,
            title=title,
            known=Known(verified, lint_verdict(whole(found), found.graph, **how), given=request.dims),
            theme=theme,
        )
        data = _printed(data) if form == "pdf" else data
        write_output(output, unpacking.pack(data) if gzipped else data, "the report")
    if not verified.ok:
        note(f"{plan} is an invalid plan, and its report says so: {verified}")
        return FINDING
    return FINE


def _printed(report: bytes) -> bytes:
    """The report as PDF. Raises :class:`UsageFault` where no browser can print it."""
    from app.report.pdf import browser, pdf

    program = browser()
    if program is None:
        raise UsageFault("a PDF is printed by a browser, and none is installed.", "Install chromium, or write .html.")
    try:
        return pdf(report, program)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageFault(f"the report was not printed: {error}.", "Write .html, and print that.") from error
