"""Storages that are live while a node runs, whatever is recomputed, offloaded or reordered.

A storage that no allowed move drops is live from the first node that touches it to the last one. If the order can
change, it is live at each node that must run after one of these nodes and before another. Results of operators with
unknown properties are left out: they could be recomputed if the properties were known.
"""

import numpy as np

from tmmu_core.fitting.order.order_exact import bits
from tmmu_core.fitting.order.order_model import order_model
from tmmu_core.fitting.problem.answer import Allowed
from tmmu_core.fitting.problem.planner_calls import Candidate
from tmmu_core.fitting.recompute.recompute_model import recompute_model
from tmmu_core.fitting.unknown import unknown_operators

ORDERED_UP_TO = 2_500
"""Maximum number of units (``order/order_model.py``); for more, no storages are listed."""


def always_live(start: Candidate, allowed: Allowed) -> list[list[int]]:
    """Return node → storages that are live when it first runs. Persistent ones, and some that it touches, are left out.

    O(nodes² / 64 · operands).
    """
    liveness = start.liveness
    order = order_model(liveness, keep_phases=allowed.keep_phases)
    found: list[list[int]] = [[] for _ in liveness.timeline.graph.nodes]
    if order is None or len(order) > ORDERED_UP_TO:
        return found
    model = recompute_model(start.plan_input)
    droppable = model.movable if "offload" in allowed.kinds else model.droppable
    is_kept = ~droppable & ~liveness.storages.persistent
    unknown = {each.name for each in unknown_operators(liveness.timeline, allowed.kinds)}
    is_kept[[s for s, n in enumerate(model.producer.tolist()) if n >= 0 and model.instr(n) in unknown]] = False
    before, after = [0] * len(order), [0] * len(order)
    """Unit → units that must run before it, and after it, as bit masks."""
    units = range(len(order))
    later = order.successors if "order" in allowed.kinds else [[u + 1] for u in units[:-1]] + [[]]
    for u in units:
        for other in later[u]:
            before[other] |= before[u] | 1 << u
    for u in reversed(units):
        for other in later[u]:
            after[u] |= after[other] | 1 << other
    all_units = (1 << len(order)) - 1
    after_first = [all_units if each else 0 for each in order.starts_live.tolist()]
    before_last = [all_units if each else 0 for each in order.stays_live.tolist()]
    for u in units:
        for s in {s for node in order.units[u] for s in order.touches[node]}:
            after_first[s] |= after[u]
            before_last[s] |= before[u]
    for s in np.flatnonzero(is_kept).tolist():
        for u in bits(after_first[s] & before_last[s]):
            for node in order.units[u]:
                found[node].append(s)
    return found
