"""The last step of planning: hash the columns, and make the plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from tmmu_core.cbor import encoded
from tmmu_core.plan import canonical
from tmmu_core.plan.figures import metrics
from tmmu_core.plan.model import ArenaSummary, Plan, PlanColumns


class Use(NamedTuple):
    """What only the storages say of a plan, and how long it took."""

    peak: tuple[int, int]
    """The step at which the most bytes are in use together, and those bytes."""
    retained: tuple[int, int]
    """As :func:`metrics.activation_retention` gives it."""
    started: int
    """The clock (ns) at which planning began."""


def assemble(
    columns: PlanColumns, summaries: Sequence[ArenaSummary], identity: canonical.Identity, use: Use, **rest: Any
) -> Plan:
    """Hash the columns (contract §6) and make the plan; ``rest`` are its other fields by name, the token among them."""
    names = [summary.name for summary in summaries]
    slots = encoded(canonical.slot_rows(columns.tensor_ids, names, columns.arena, columns.logical_slot))
    addresses = encoded(canonical.logical_address_table(names, columns.arena, columns.logical_slot, columns.offset))
    bound = canonical.slot_assignment_table(rest["replay_token"], slots)
    plan_hash, layout_hash = canonical.plan_hash(identity, bound, addresses), canonical.layout_hash(slots, addresses)
    return Plan(
        tmmu_plan_hash=plan_hash,
        layout_hash=layout_hash,
        arenas=tuple(summaries),
        metrics=metrics.plan_metrics(
            summaries,
            use.peak,
            retained=use.retained,
            allocation_time_ns=time.perf_counter_ns() - use.started,
        ),
        **identity._asdict(),
        **vars(columns),
        **rest,
    )
