"""Findings of ``verify`` and ``lint`` as a table, as JSON and as an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from app.cli.console import FINDING, SUCCESS, Column, UsageError, print_lines, table, write_json
from app.cli.options import Resolved, open_any, resolve_opened, show_warnings
from app.texts import numbers
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Finding
from tmmu_core.plans.canonical import ir_hash
from tmmu_core.plans.making.engine import Solution
from tmmu_core.plans.making.ranks import plan_rank
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan

AgainstGraph = Annotated[
    str | None, typer.Option("--graph", metavar="FILE", help="Check a finished plan also against this graph.")
]


def resolve_with_graph(name: str, graph: str | None, request: PlanRequest) -> tuple[Resolved, Graph | None]:
    """Return the plan to check and its graph, or ``None`` without one.

    For a finished plan, ``--dims``, ``--arenas`` and, with its graph, ``--shard`` describe how it was made; other
    planning options are rejected.
    """
    opened = open_any(name, request.dims)
    query = request
    if isinstance(opened, Plan | Trace):
        query = request.but(dims={}, arenas=None, shard_spec=None if graph else request.shard_spec)
    if graph is None:
        found = resolve_opened(opened, name, query)
        return found, found.graph
    if not isinstance(opened, Plan | Trace):
        raise UsageError(f"{name} is not a finished plan.", "Use --graph only with a finished plan.")
    against = open_any(graph, request.dims)
    if not isinstance(against, Graph):
        raise UsageError(f"{graph} is not a graph.", "Pass the graph that the plan was made from.")
    plan, cut_from = opened if isinstance(opened, Plan) else opened.plan, None
    if request.shard_spec is not None:
        cut_from = ir_hash(against)
        against = _share(plan, against, request)
    how: dict[str, Any] = {"dims": request.dims or None, "arenas": request.arenas, "cut_from": cut_from}
    return resolve_opened(opened, name, query, graph=against, **how), against


def _share(plan: Plan, graph: Graph, request: PlanRequest) -> Graph:
    """Return the part of ``graph`` that the plan's rank runs."""
    own = {node.node_id for node in graph.nodes}
    order = tuple(node for node in plan.execution_order if node in own)
    under = request.but(mode=plan.mode, preset=plan.preset, order=order, rank=plan.rank, world_size=plan.world_size)
    return plan_rank(graph, under).graph


def solved_like(found: Resolved, graph: Graph, request: PlanRequest) -> Solution:
    """Return the graph planned with the plan's mode, preset and order, for its liveness."""
    plan = found.plan
    if found.solution is not None:
        return found.solution
    own = {node.node_id for node in graph.nodes}
    order = tuple(node for node in plan.execution_order if node in own)
    query = PlanRequest(token=plan.replay_token, dims=request.dims)
    query = query.but(mode=plan.mode, preset=plan.preset, order=order)
    solution = resolve_opened(graph, found.name, query).solution
    assert solution is not None
    return solution


def report_findings(findings: Sequence[Finding], headlines: Sequence[str], as_json: bool, **more: Any) -> int:
    """Print findings, ``headlines`` and ``warnings``; return the exit code: 1 if a finding is an error."""
    red = any(finding.severity == "error" for finding in findings)
    if as_json:
        write_json({"ok": not red, **more, "findings": [asdict(finding) for finding in findings]})
        return FINDING if red else SUCCESS
    print_lines(*headlines)
    if findings:
        print_lines("")
        table(
            (Column("severity"), Column("rule"), Column("arena"), Column("step"), Column("finding")),
            [[f.severity, f.rule, f.arena, numbers.step(f.step) if f.step >= 0 else "", f.message] for f in findings],
        )
    show_warnings(more["warnings"])
    return FINDING if red else SUCCESS
