"""``tmmu lint``: check a plan with the rules of seed VII.A."""

from __future__ import annotations

from app.cli.findings import AgainstGraph, report_findings, resolve_with_graph
from app.cli.options import AsJson, Source, planning, whole
from app.texts import numbers
from tmmu_core.plans.making.request import PlanRequest


@planning
def command(plan: Source, request: PlanRequest, graph: AgainstGraph = None, json: AsJson = False) -> int:
    """Check a plan for errors and questionable choices.

    Rules cover slots, live ranges, addresses and undeclared in-place reuse. Use --graph to check a finished plan
    against its graph.

    Exit code: 0 no errors, 1 errors.
    """
    from tmmu_core.judge.lint import lint_verdict

    found, against = resolve_with_graph(plan, graph, request)
    verdict = lint_verdict(whole(found), against, dims=request.dims, cut_from=found.cut_from)
    errors, warnings = numbers.count(len(verdict.errors), "error"), numbers.count(len(verdict.warnings), "warning")
    headline = f"{errors}, {warnings}; rules: {', '.join(verdict.checked)}"
    return report_findings(verdict.findings, [headline], json, checked=list(verdict.checked), warnings=found.warnings)
