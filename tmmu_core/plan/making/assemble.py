"""The last step of planning: hash the columns, and make the plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tmmu_core.plan import canonical, metrics
from tmmu_core.plan.making.rows import PlanColumns
from tmmu_core.plan.model import ArenaSummary, Plan


def assemble(
    columns: PlanColumns,
    summaries: Sequence[ArenaSummary],
    *,
    ir_hash: bytes,
    arena_config_hash: bytes,
    shard_spec_hash: bytes,
    mode: str,
    replay_token: bytes,
    rank: int,
    world_size: int,
    execution_order: tuple[str, ...],
    peak: tuple[int, int],
    retained: tuple[int, int],
    started: int,
    **rest: Any,
) -> Plan:
    """Hash the columns (contract §6) and make the plan.

    ``peak`` is the step at which the most bytes are in use, and those bytes; ``started`` the clock (ns) at which
    planning began.
    """
    names = [summary.name for summary in summaries]
    slots = canonical.slot_rows(columns.tensor_ids, names, columns.arena, columns.logical_slot)
    addresses = canonical.logical_address_table(names, columns.arena, columns.logical_slot, columns.offset)
    order_hash = canonical.execution_order_hash(execution_order)
    plan_hash = canonical.plan_hash(
        ir_hash=ir_hash,
        mode=mode,
        arena_config_hash=arena_config_hash,
        execution_order_hash=order_hash,
        rank=rank,
        world_size=world_size,
        shard_spec_hash=shard_spec_hash,
        slot_assignment_table=canonical.slot_assignment_table(replay_token, slots),
        logical_address_table=addresses,
    )
    return Plan(
        ir_hash=ir_hash,
        mode=mode,
        replay_token=replay_token,
        rank=rank,
        world_size=world_size,
        shard_spec_hash=shard_spec_hash,
        arena_config_hash=arena_config_hash,
        execution_order_hash=order_hash,
        tmmu_plan_hash=plan_hash,
        layout_hash=canonical.layout_hash(slots, addresses),
        execution_order=execution_order,
        arenas=tuple(summaries),
        metrics=metrics.plan_metrics(
            summaries, peak, retained=retained, allocation_time_ns=time.perf_counter_ns() - started
        ),
        **columns._asdict(),
        **rest,
    )
