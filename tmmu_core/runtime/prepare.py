"""``PrepareMemory_v2``: plan a graph, apply the plan, commit; and ``CommitExecution_v1`` (TMMU v2 §5)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tmmu_core.base.cbor import H
from tmmu_core.base.errors import AllocationFailure
from tmmu_core.graph.model import Graph
from tmmu_core.plans.making.engine import Solution, plan_graph
from tmmu_core.runtime.apply import Applied, Bound, TmmuState, apply_plan
from tmmu_core.runtime.arena import ArenaHandle, barrier


@dataclass(frozen=True, eq=False)
class Prepared:
    """The result of ``PrepareMemory_v2``: the ``tensor_map`` and ``metrics`` of TMMU v2, with the plan and the
    state.
    """

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
    **fields: Any,
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


def commit_execution(applied: Applied) -> TmmuState:
    """Pass the barriers and seal the batch.

    ``state_hash = H(["tmmu_state_v1", [plan hash, batch, the previous state hash, [[arena, extent, committed]…],
    SHA-256 of the batch's operations]])``. Without operations since the last commit the state is unchanged; the first
    commit seals even an empty batch.
    """
    order = barrier(applied.arenas.values())
    before = applied.state
    if before is not None and not applied.pending:
        return before
    plan = applied.plan
    batch = before.batch + 1 if before else 0
    state = TmmuState(
        tmmu_plan_hash=plan.tmmu_plan_hash,
        batch=batch,
        barriers=order,
        operations=applied.pending,
        state_hash=H(
            [
                "tmmu_state_v1",
                [
                    plan.tmmu_plan_hash,
                    batch,
                    before.state_hash if before else b"",
                    [[arena.name, arena.extent_bytes, arena.committed_bytes] for arena in plan.arenas],
                    applied.journal_digest,
                ],
            ]
        ),
    )
    applied.seal(state)
    return state
