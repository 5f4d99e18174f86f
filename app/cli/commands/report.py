"""``tmmu report``: write an HTML, PDF or Markdown report of a plan."""

from pathlib import Path
from typing import Any

from app.cli.console import FINDING, SUCCESS, UsageError, format_by_ending, print_note, write_output
from app.cli.options import AS_JSON, OUTPUT, REQUIRED, SOURCE, STORE, option
from app.cli.resolve import resolve, resolve_side, show_warnings, warnings_of
from tmmu_core.base import strict
from tmmu_core.plans.making.request import PlanRequest

FORMATS = {".html": "html", ".htm": "html", ".pdf": "pdf", ".md": "md"}


def report_command(
    request: PlanRequest,
    plan: str = SOURCE,
    output: str = option("Write to this .html, .pdf or .md file; - prints HTML.", "FILE", *OUTPUT, default=REQUIRED),
    baseline: str | None = option("Plan, trace, graph or store:MODEL@COMMIT to compare against.", "FILE"),
    title: str = option("Title of the report [graph, mode and planner].", "TEXT", default=""),
    theme: str = option("Theme of the report.", "light|dark", default="light"),
    store: str | None = STORE,
    json: bool = AS_JSON,
) -> int:
    """Write a report of a plan (HTML, PDF or Markdown).

    The extension of the output file selects the format. An HTML report (.html, or no extension) works offline. A PDF
    report (.pdf) needs an installed Chrome, Chromium or Edge. A Markdown file (.md) is a short summary for a pull
    request, without the comparison to --baseline.

    Exit code: 0 valid plan, 1 invalid plan.
    """
    from app.report.html_report import build_report, pdf
    from app.report.pictures import LOOKS
    from app.report.summary import markdown
    from tmmu_core.judge.verifier.verify import verify_plan

    format_ = "html" if not Path(output).suffix else format_by_ending(output, FORMATS, "html")
    if theme not in LOOKS:
        raise UsageError(f"unknown theme {theme!r}.", strict.closest_hint(theme, LOOKS))
    resolved = resolve(plan, request)
    resolved_baseline = None if baseline is None else resolve_side(baseline, request, store, resolved.plan)
    show_warnings(warnings_of(resolved_baseline), on_stderr=True)
    baseline_plan = None if resolved_baseline is None else resolved_baseline.complete_plan()
    complete_plan = resolved.complete_plan()
    verified = verify_plan(complete_plan, resolved.graph, dims=request.dims, cut_from=resolved.whole_graph_hash)
    if format_ == "md":
        write_output(output, markdown(complete_plan, verified, title, resolved.better), "the summary")
    else:
        settings: dict[str, Any] = {"title": title, "theme": theme, "verified": verified}
        data = build_report(resolved.solution or complete_plan, baseline=baseline_plan, **settings)
        write_output(output, pdf(data) if format_ == "pdf" else data, "the report")
    if not verified.ok:
        print_note(f"{plan} is an invalid plan: {verified}")
        return FINDING
    return SUCCESS
