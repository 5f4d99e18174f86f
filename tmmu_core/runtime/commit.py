"""``CommitExecution_v1``: barriers in one order, and a seal over what was done since the last one (seed §5)."""

from __future__ import annotations

from tmmu_core.cbor import H
from tmmu_core.runtime.apply import Applied, TmmuState
from tmmu_core.runtime.arena import barrier


def commit_execution(applied: Applied) -> TmmuState:
    """Pass the barriers and seal the batch.

    ``state_hash = H(["tmmu_state_v1", [plan hash, batch, the previous state hash, [[arena, extent, committed]…],
    SHA-256 of the batch's operations]])``. With nothing done since the last commit the state stays what it was, so a
    repeated commit changes nothing; the first commit seals even an empty batch.
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
