"""What ``verify`` and ``lint`` share: findings as a table, as JSON, and as an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from app.cli.console import FINDING, FINE, Column, UsageFault, say, say_json, table
from app.cli.options import Resolved, judged_against, open_any, resolve_opened, whole
from app.say import words
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Finding
from tmmu_core.plan.canonical import ir_hash
from tmmu_core.plan.formats.trace import Trace
from tmmu_core.plan.making.engine import Solution
from tmmu_core.plan.making.ranks import plan_rank
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.model import Plan
from tmmu_core.runtime.shadow import ShadowVerdict, shadow_replay

AgainstGraph = Annotated[
    str | None, typer.Option("--graph", metavar="FILE", help="The graph of a finished plan, to judge it against.")
]
Replay = Annotated[
    bool, typer.Option("--replay", help="Execute the plan on shadow memory too: every read must find its bytes.")
]


def resolve_with_graph(name: str, graph: str | None, request: PlanRequest) -> tuple[Resolved, Graph | None]:
    """The plan to judge and the graph to judge it against, where there is one.

    With a finished plan, ``--dims`` and ``--arenas`` say under what it was made, and with its graph ``--shard`` how
    that is cut for the plan's rank; nothing else has a meaning there.
    """
    opened = open_any(name, request.dims)
    asked = request
    if isinstance(opened, Plan | Trace):
        asked = request.but(dims={}, arenas=None, shard_spec=None if graph else request.shard_spec)
    found = resolve_opened(opened, name, asked)
    if graph is None:
        return found, found.graph
    if found.graph is not None:
        raise UsageFault(f"{name} is a graph itself.", "Give --graph with a finished plan only.")
    against = open_any(graph, request.dims)
    if not isinstance(against, Graph):
        raise UsageFault(f"{graph} is not a graph.", "Give the graph that the plan was made from.")
    if request.shard_spec is not None:
        found = replace(found, cut_from=ir_hash(against))
        against = _share(found.plan, against, request)
    return judged_against(found, against, request), against


def _share(plan: Plan, graph: Graph, request: PlanRequest) -> Graph:
    """What the plan's rank runs of ``graph``."""
    own = {node.node_id for node in graph.nodes}
    order = tuple(node for node in plan.execution_order if node in own)
    under = request.but(mode=plan.mode, preset=plan.preset, order=order, rank=plan.rank, world_size=plan.world_size)
    return plan_rank(graph, under).graph


def solved_like(found: Resolved, graph: Graph, request: PlanRequest) -> Solution:
    """The graph's own solution under the plan's mode, preset and order, for what only liveness knows."""
    plan = found.plan
    if found.solution is not None:
        return found.solution
    own = {node.node_id for node in graph.nodes}
    order = tuple(node for node in plan.execution_order if node in own)
    asked = PlanRequest(token=plan.replay_token, dims=request.dims)
    asked = asked.but(mode=plan.mode, preset=plan.preset, order=order)
    solution = resolve_opened(graph, found.name, asked).solution
    assert solution is not None
    return solution


def replayed(found: Resolved, graph: Graph | None, request: PlanRequest) -> ShadowVerdict:
    """Execute the plan on shadow memory: along the graph where there is one, else by the plan's own rows."""
    timeline = None if graph is None else solved_like(found, graph, request).liveness.timeline
    return shadow_replay(whole(found), timeline)


def replay_findings(verdict: ShadowVerdict) -> list[Finding]:
    """The shadow replay's findings in the judge's form."""
    return [
        Finding(
            f"replay_{finding.kind}",
            "error",
            finding.message,
            tensor=finding.tensor,
            other=finding.culprit,
            step=finding.step,
        )
        for finding in verdict.findings
    ]


def replay_record(verdict: ShadowVerdict) -> dict[str, Any]:
    """What was executed, for ``--json``."""
    names = ("ok", "found", "steps", "reads", "writes", "cells", "with_graph")
    return {name: getattr(verdict, name) for name in names}


def tell(findings: Sequence[Finding], headlines: Sequence[str], as_json: bool, **more: Any) -> int:
    """Write findings under lines that sum them up; the exit code is 1 when there is an error among them."""
    red = any(finding.severity == "error" for finding in findings)
    if as_json:
        say_json({"ok": not red, **more, "findings": [asdict(finding) for finding in findings]})
        return FINDING if red else FINE
    say(*headlines)
    if findings:
        say("")
        table(
            (Column("severity"), Column("rule"), Column("arena"), Column("step"), Column("finding")),
            [[f.severity, f.rule, f.arena, words.step(f.step) if f.step >= 0 else "", f.message] for f in findings],
        )
    return FINDING if red else FINE
