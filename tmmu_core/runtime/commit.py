"""``CommitExecution_v1``: pass the barriers in order and seal the operations since the last commit (seed §5)."""

from __future__ import annotations

from tmmu_core.base.cbor import H
from tmmu_core.runtime.apply import Applied, TmmuState
from tmmu_core.runtime.arena import barrier


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
