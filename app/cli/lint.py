"""``tmmu lint``: the rules of seed VII.A, and advice."""

from __future__ import annotations

from app.cli.judge import AgainstGraph, resolve_with_graph, tell
from app.cli.options import AsJson, Source, planning, whole
from app.say import words
from tmmu_core.plan.making.request import PlanRequest


@planning
def command(plan: Source, request: PlanRequest, graph: AgainstGraph = None, json: AsJson = False) -> int:
    """Lint a graph's plan, or a finished one: slots, lifetimes, addresses, hand-offs through an undeclared default.

    With a finished plan, --graph gives the graph that lifetimes and hand-offs are checked against.
    Exit code: 0 no error (warnings may be), 1 an error.
    """
    from tmmu_core.judge.lint import lint_verdict

    found, against = resolve_with_graph(plan, graph, request)
    verdict = lint_verdict(whole(found), against, dims=request.dims, cut_from=found.cut_from)
    errors, warnings = words.count(len(verdict.errors), "error"), words.count(len(verdict.warnings), "warning")
    headline = f"{errors}, {warnings}; rules: {', '.join(verdict.checked)}"
    return tell(verdict.findings, [headline], json, checked=list(verdict.checked))
