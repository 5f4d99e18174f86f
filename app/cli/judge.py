"""What ``verify`` and ``lint`` share: findings as a table, as JSON, and as an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app import words
from app.cli.console import FINDING, FINE, Column, UsageFault, say, say_json, table
from app.cli.options import PlanRequest, Resolved, open_any, resolve_opened
from tmmu_core.graph.model import Graph
from tmmu_core.plan.engine import Solution
from tmmu_core.plan.model import Plan
from tmmu_core.plan.trace import Trace

if TYPE_CHECKING:
    from tmmu_core.judge.finding import Finding

AgainstGraph = Annotated[
    str | None, typer.Option("--graph", metavar="FILE", help="The graph of a finished plan, to judge it against.")
]


def resolve_with_graph(name: str, graph: str | None, request: PlanRequest) -> tuple[Resolved, Graph | None]:
    """The plan to judge and the graph to judge it against, where there is one.

    With a finished plan, ``--dims`` and ``--arenas`` say under what it was made; nothing else has a meaning there.
    """
    opened = open_any(name)
    finished = isinstance(opened, Plan | Trace)
    found = resolve_opened(opened, name, replace(request, dims=None, arenas=None) if finished else request)
    if graph is None:
        return found, found.graph
    if found.graph is not None:
        raise UsageFault(f"{name} is a graph itself.", "Give --graph with a finished plan only.")
    against = open_any(graph)
    if not isinstance(against, Graph):
        raise UsageFault(f"{graph} is not a graph.", "Give the graph that the plan was made from.")
    return found, against


def solved_like(found: Resolved, graph: Graph, request: PlanRequest) -> Solution:
    """The graph's own solution under the plan's mode, preset and order, for what only liveness knows."""
    plan = found.plan
    if found.solution is not None:
        return found.solution
    own = {node.node_id for node in graph.nodes}
    order = tuple(node for node in plan.execution_order if node in own)
    asked = PlanRequest(mode=plan.mode, preset=plan.preset, order=order, token=plan.replay_token, dims=request.dims)
    solution = resolve_opened(graph, found.name, asked).solution
    assert solution is not None
    return solution


def tell(findings: Sequence[Finding], headline: str, as_json: bool, **more: Any) -> int:
    """Write findings; the exit code is 1 when there is an error among them."""
    red = any(finding.severity == "error" for finding in findings)
    if as_json:
        say_json({"ok": not red, **more, "findings": [asdict(finding) for finding in findings]})
        return FINDING if red else FINE
    say(headline)
    if findings:
        say("")
        table(
            (Column("severity"), Column("rule"), Column("arena"), Column("step"), Column("finding")),
            [[f.severity, f.rule, f.arena, words.step(f.step) if f.step >= 0 else "", f.message] for f in findings],
        )
    return FINDING if red else FINE
