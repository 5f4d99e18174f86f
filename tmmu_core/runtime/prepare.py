"""``PrepareMemory_v2``: plan a graph, apply the plan, commit (seed §5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack

from tmmu_core.base.errors import AllocationFailure
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.engine import RequestFields, Solution, plan_graph
from tmmu_core.runtime.apply import Applied, Bound, TmmuState, apply_plan
from tmmu_core.runtime.arena import ArenaHandle
from tmmu_core.runtime.commit import commit_execution


@dataclass(frozen=True, eq=False)
class Prepared:
    """The result of ``PrepareMemory_v2``: the seed's ``tensor_map`` and ``metrics``, with the plan and the state."""

    solution: Solution
    applied: Applied
    state: TmmuState

    @property
    def tensor_map(self) -> dict[str, Bound]:
        """All tensors, sorted by id bytes."""
        return self.applied.tensor_map()

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the plan."""
        return self.solution.plan.metrics


def prepare_memory(
    graph: Graph,
    *,
    handles: Mapping[str, ArenaHandle] | None = None,
    security: str = "standard",
    allocation_failures: int = 0,
    **fields: Unpack[RequestFields],
) -> Prepared:
    """``PrepareMemory_v2``: plan, apply, commit.

    ``fields`` are the arguments of :func:`~tmmu_core.plans.making.engine.plan_graph`, ``budget`` (the quota, in bytes)
    among them. A breached quota raises ``AllocationFailure`` before any memory is mapped or written; its diagnostics
    tell the ledger's new ``allocation_failures``, one more than the count handed in.
    """
    try:
        solution = plan_graph(graph, **fields)
        if allocation_failures:
            metrics = {**solution.plan.metrics, "allocation_failures": allocation_failures}
            solution = replace(solution, plan=replace(solution.plan, metrics=metrics))
        applied = apply_plan(solution.plan, handles, security=security, verified=True)
    except AllocationFailure as error:
        error.diagnostics["allocation_failures"] = allocation_failures + 1
        raise
    return Prepared(solution, applied, commit_execution(applied))
