"""Plans and labels for the tests of the store."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.build import graph, node, tensor
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan
from tmmu_core.store.runs import Label

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
LINE = 32
"""Floats in 128 bytes, an arena's alignment: in whole lines nothing is lost between tensors."""


def label(commit: str, hour: int = 0, *, model: str = "net", branch: str = "main") -> Label:
    return Label(model, commit, NEW_YEAR + timedelta(hours=hour), branch)


def graph_of(lines: dict[str, int], name: str = "net") -> Graph:
    """Return tensors of so many lines of 128 bytes, live until ``last`` reads them and writes ``y`` of one line."""
    tensors = [tensor(t, n * LINE) for t, n in lines.items()]
    nodes = [node(f"make_{t}", "", t) for t in lines]
    nodes.append(node("last", " ".join(lines), "y", inplace="none"))
    order = tuple(n.node_id for n in nodes)
    return graph([*tensors, tensor("y", LINE)], nodes, "", "y", name=name, execution_order=order)


def plan_of(lines: dict[str, int], *, planner: str = "slots", name: str = "net") -> Plan:
    """Return the verified plan of :func:`graph_of`."""
    made = graph_of(lines, name)
    plan = plan_graph(made, planner=planner).plan
    assert verify_plan(plan, made).ok
    return plan


def swept(message: str = "") -> dict[str, Any]:
    """Return the stored row of a sweep's point without a plan."""
    row = dict.fromkeys(("mode", "preset", "alignment", "lower_bound_bytes", "extent_bytes"))
    return {"planner": "slots", **row, "error": {"code_id": "ALIGNMENT_VIOLATION", "message": message}}
