"""``tmmu lint``: the rules of seed VII.A, and advice."""

from __future__ import annotations

from app import words
from app.cli.console import UsageFault
from app.cli.judge import AgainstGraph, resolve_with_graph, solved_like, tell
from app.cli.options import AsJson, PlanRequest, Source, planning


@planning
def command(graph: Source, request: PlanRequest, of: AgainstGraph = None, json: AsJson = False) -> int:
    """Lint a graph and its plan: slots, lifetimes, addresses, hand-offs through an undeclared default.

    Exit code: 0 no error (warnings may be), 1 an error.
    """
    from tmmu_core.judge import lint

    found, against = resolve_with_graph(graph, of, request)
    if against is None:
        raise UsageFault(f"{graph} does not hold a graph.", "Give the graph, or the plan's graph by --graph.")
    solved = solved_like(found, against)
    assert solved.solution is not None
    findings = list(lint(against, found.plan, solved.solution.liveness))
    errors = sum(finding.severity == "error" for finding in findings)
    headline = f"{words.count(errors, 'error')}, {words.count(len(findings) - errors, 'warning')}"
    return tell(findings, headline, json)
