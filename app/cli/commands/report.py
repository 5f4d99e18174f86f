"""``tmmu report``: write an HTML, PDF or Markdown report of a plan."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cli.console import FINDING, SUCCESS, UsageError, format_by_ending, print_note, write_output
from app.cli.options import OUTPUT, REQUIRED, AsJson, Source, StoreUrl, option
from app.cli.resolve import resolve, resolve_side, show_warnings, warnings_of
from tmmu_core.base import strict
from tmmu_core.plans.making.request import PlanRequest

FORMS = {".html": "html", ".htm": "html", ".pdf": "pdf", ".md": "md"}


@dataclass(frozen=True)
class ReportOptions:
    """Options for the report file and its contents."""

    output: str = option(
        "Write to this file (.html, .pdf, .md); - writes to standard output.", "FILE", *OUTPUT, default=REQUIRED
    )
    baseline: str | None = option("Plan, trace, graph or store:MODEL@COMMIT to compare against.", "FILE")
    title: str = option("Title of the report [name of the graph].", "TEXT", default="")
    theme: str = option("Theme of the report.", "light|dark", default="light")


def report_command(
    plan: Source, request: PlanRequest, wanted: ReportOptions, store: StoreUrl = None, json: AsJson = False
) -> int:
    """Write a report of a plan (HTML, PDF or Markdown).

    The extension of the output file selects the format: .html (also without an extension) is a report that works
    offline, .pdf needs an installed Chrome or Chromium, .md is a short summary for a pull request.

    Exit code: 0 valid plan, 1 invalid plan.
    """
    from app.report.html_report import Known, build_report, pdf
    from app.report.pictures import LOOKS
    from app.report.summary import markdown
    from tmmu_core.judge.lint import lint_verdict
    from tmmu_core.judge.verifier.verify import verify_plan

    output, title, theme = wanted.output, wanted.title, wanted.theme
    form = "html" if not Path(output).suffix else format_by_ending(output.lower(), FORMS, "html")
    if theme not in LOOKS:
        raise UsageError(f"unknown theme {theme!r}.", strict.closest_hint(theme, LOOKS))
    found = resolve(plan, request)
    base = None if wanted.baseline is None else resolve_side(wanted.baseline, request, store, found.plan)
    show_warnings(warnings_of(base), on_stderr=True)
    before = None if base is None else base.complete_plan()
    how: dict[str, Any] = {"dims": request.dims, "cut_from": found.cut_from}
    verified = verify_plan(found.complete_plan(), found.graph, **how)
    if form == "md":
        better = found.better
        write_output(output, markdown(found.complete_plan(), verified, title, better), "the summary")
    else:
        data = build_report(
            found.solution or found.complete_plan(),
            baseline=before,
            title=title,
            known=Known(verified, lint_verdict(found.complete_plan(), found.graph, **how, verified=verified)),
            theme=theme,
        )
        write_output(output, pdf(data) if form == "pdf" else data, "the report")
    if not verified.ok:
        print_note(f"{plan} is an invalid plan: {verified}")
        return FINDING
    return SUCCESS
