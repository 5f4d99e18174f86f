"""Plans broken in one way each. No plan from here can be executed."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from tmmu_core.plans.making.engine import Solution
from tmmu_core.plans.model import Plan

Fault = Callable[[], Plan]


def changed(plan: Plan, column: str, rows: Any, values: Any) -> Plan:
    """Return the plan with some cells of one column replaced."""
    cells = getattr(plan, column).copy()
    cells[rows] = values
    return replace(plan, **{column: cells})


def overlap(solution: Solution) -> Iterator[Fault]:
    """Yield plans with a storage moved onto bytes of another one that is live at the same time."""
    plan = solution.plan
    start = starts(plan)
    for a in range(len(plan)):
        for b in range(len(plan)):
            alive = max(plan.birth[a], plan.birth[b]) < min(plan.death[a], plan.death[b])
            if alive and plan.arena[a] == plan.arena[b] and plan.storage[a] != plan.storage[b]:
                inside = int(plan.offset[b] - start[plan.storage[b]])
                if plan.size[a] and plan.size[b] and int(plan.offset[a]) >= inside:
                    rows = plan.storage == plan.storage[b]
                    moved = plan.offset[rows] - plan.offset[b] + plan.offset[a]
                    yield partial(changed, plan, "offset", rows, moved)


def taken_over(plan: Plan, rows: Any, onto: Any, giver: int, handoff: tuple[int, str, str]) -> Plan:
    """Return the plan with a storage at the giver's offset, listed as an in-place reuse at the giver's death."""
    moved = changed(changed(plan, "offset", rows, onto), "death", giver, handoff[0])
    return replace(moved, handoffs=(*plan.handoffs, handoff))


def illegal_in_place(solution: Solution) -> Iterator[Fault]:
    """Yield plans with an in-place reuse of an input that the node does not permit, or that is read later."""
    plan, timeline = solution.plan, solution.liveness.timeline
    granted = set(plan.handoffs)
    start = starts(plan)
    for step, node in enumerate(timeline.node_at.tolist()):
        if node < 0:
            continue
        node_ = timeline.graph.nodes[node]
        for y in node_.outputs:
            for x in dict.fromkeys(node_.inputs):
                if (step, x, y) in granted:
                    continue
                giver, taker = plan.row_of[x], plan.row_of[y]
                apart = plan.storage[giver] != plan.storage[taker] and plan.arena[giver] == plan.arena[taker]
                apart &= plan.base_tensor_uids[giver] is None
                still_read = any(x in timeline.graph.nodes[n].inputs for n in timeline.node_at[step + 1 :].tolist())
                offered = node_.inplace in (None, "any") and len(node_.outputs) == 1
                if apart and plan.size[giver] and plan.size[taker] and (still_read or not offered):
                    rows = plan.storage == plan.storage[taker]
                    onto = plan.offset[rows] - start[plan.storage[taker]] + start[plan.storage[giver]]
                    yield partial(taken_over, plan, rows, onto, giver, (step, x, y))


KINDS = {f.__name__: f for f in (overlap, illegal_in_place)}


def starts(plan: Plan) -> Any:
    """Return the offset of each storage."""
    low = np.full(int(plan.storage.max(initial=-1)) + 1, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(low, plan.storage, plan.offset)
    return low


def spread(found: Iterator[Fault], most: int) -> list[Plan]:
    """Return at most ``most`` broken plans, spread over the first 4,000 faults."""
    every = list(islice(found, 4000))
    return [fault() for fault in every[:: max(1, -(-len(every) // most))]]
