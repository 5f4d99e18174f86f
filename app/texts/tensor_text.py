"""HTML cards of a tensor, of its offset, and of the largest buffers at a step."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from app.texts import numbers
from app.texts.markup import fragment
from tmmu_core.graph.checks import SHAPE_SOURCES
from tmmu_core.graph.model import Origin, StorageOrigin
from tmmu_core.liveness.timeline import REFUSAL_WORDS
from tmmu_core.liveness.why_live import Explanation, Idle, explain
from tmmu_core.planners.columns import align_up
from tmmu_core.plans.analysis.plan_notes import Residence, residences
from tmmu_core.plans.analysis.why_offset import OffsetReasons, PlacementOrder
from tmmu_core.plans.figures.metrics import line_of
from tmmu_core.plans.making.engine import Solution
from tmmu_core.plans.model import Plan

MOST_AT_PEAK = 12  # rows of the card of the largest buffers
MOST = 6  # entries of a list before "and N more"
NAME_LETTERS = 26  # letters of a name in a list, so that it fits into one line of the card
ORDER_WORDS = {
    "birth": "in order of first write",
    "size": "largest first",
    "area": "by bytes × steps, largest first",
    "length": "by number of buffers first written during the live range, largest first",
    "size_length": "by bytes × number of buffers first written during the live range, largest first",
    "breadth": "buffers of the peak step first",
    "offset": "from the bottom up",
}
FIT_WORDS = {
    "slot": "the offset of the lowest free slot",
    "lowest": "the lowest offset free for its whole live range",
    "tightest": "the tightest gap",
}


def _in_order(plan: Plan, mask: Any) -> list[int]:
    """Return the rows in ``mask`` sorted by first write, a base before its views."""
    rows: list[int] = np.flatnonzero(mask).tolist()
    return sorted(rows, key=lambda row: (plan.birth[row], plan.base_tensor_uids[row] is not None, row))


def explanation(solution: Solution | None, tensor_id: str) -> Explanation | None:
    """Return the reasons for a tensor's live range; ``None`` without a graph or for a tensor without a live range."""
    if solution is None:
        return None
    try:
        return explain(solution.liveness, tensor_id)
    except KeyError:
        return None


def details(
    plan: Plan,
    solution: Solution | None,
    tensor_id: str,
    idle: Idle | None = None,
    producer: StorageOrigin | None = None,
    colour: str = "",
) -> str:
    """Return the card of one tensor. ``producer``: origin in a file without a graph; ``colour``: colour of the box."""
    number, memories = plan.row_of[tensor_id], residences(plan)
    row, why, memory = plan.row(number), explanation(solution, tensor_id), memories[number] if memories else None
    shape_source = solution.graph.shapes_from.get(tensor_id) if solution is not None else None
    handoffs = zip(plan.handoffs, plan.taken, strict=True)  # ((step, source, target), is used)
    in_slot: dict[int, str] = {}  # generation in the slot → first tensor of its buffer
    for r in _in_order(plan, (plan.arena == plan.arena[number]) & (plan.logical_slot == plan.logical_slot[number])):
        in_slot.setdefault(int(plan.generation[r]), plan.tensor_ids[r])
    generation = int(plan.generation[number])
    neighbours = {"before": in_slot.get(generation - 1), "after": in_slot.get(generation + 1), "buffers": len(in_slot)}
    rows, buffer = [plan.row(r) for r in _in_order(plan, plan.storage == plan.storage[number])], {}
    if len(rows) > 1:
        birth, death = min(each.birth for each in rows), max(each.death for each in rows)
        last = next(each for each in rows if each.death == death)
        buffer = {"rows": rows, "birth": birth, "death": death, "last": last}
        buffer["why"] = explanation(solution, last.tensor_id)
    return fragment(
        "tensor_card",
        plan=plan,
        row=row,
        why=why,
        neighbours=neighbours,
        most=MOST,
        padded=align_up(row.size_bytes, row.alignment),
        colour=colour,
        shape_from=f" · {SHAPE_SOURCES[shape_source]}" if shape_source else "",
        origin=_origin(solution, tensor_id, producer),
        reuses=[(handoff, is_used) for handoff, is_used in handoffs if tensor_id in handoff[1:]],
        refusals=[(r.target, REFUSAL_WORDS.get(r.condition, r.condition)) for r in why.refusals] if why else [],
        buffer=buffer,
        memory=memory,
        placed_by=placed_by(memory),
        idle=_idle(plan, solution, tensor_id, idle) if idle is not None and solution is not None else [],
    )


def _origin(solution: Solution | None, tensor_id: str, producer: StorageOrigin | None) -> list[tuple[str, str]]:
    """Return ``(label, text)`` rows: operator and phase (only without a graph), then module and source line."""
    rows, origin = [], Origin()
    if solution is not None:
        index = solution.liveness.timeline.index
        node = int(index.producer[index.tensor_of[tensor_id]]) if tensor_id in index.tensor_of else -1
        origin = index.graph.origins.get(index.node_ids[node], origin) if node >= 0 else origin
    elif producer is not None:
        rows, origin = [("operator", producer.operator), ("phase", producer.phase or "")], producer.origin
    return [*rows, ("module", ".".join(origin.module)), ("source", origin.source)]


def _idle(plan: Plan, solution: Solution, tensor_id: str, idle: Idle) -> list[tuple[str, str]]:
    """Return ``(label, text)`` about the idle steps of a buffer and a way to free it earlier; [] if never idle."""
    liveness = solution.liveness
    storage = int(liveness.storage_of[liveness.timeline.index.tensor_of[tensor_id]])
    idle_steps, live_steps = int(idle.idle[storage]), int(idle.live[storage])
    if not idle_steps:
        return []
    longest = numbers.live_range(int(idle.gap_from[storage]), int(idle.gap_to[storage]))
    rows = [("idle", f"{idle_steps:,} of {numbers.count(live_steps, 'step')}, longest {longest}")]
    last, previous = int(idle.last_use[storage]), int(idle.previous_use[storage])
    if last >= 0 and previous >= 0 and last - previous > 1 and not bool(liveness.storages.persistent[storage]):
        saved = numbers.short_bytes(int(liveness.storages.size[storage]))
        reader, before = (numbers.step(t, numbers.shortened(plan.node_at(t), 30)) for t in (last, previous))
        earlier = f"Without the read by {reader}, {saved} are free after {before}, {last - previous:,} steps earlier"
        rows.append(("free earlier", f"{earlier}. Recompute the tensor for this read, or offload it until then."))
    return rows


def placed_by(residence: Residence | None) -> str:
    """Return what decided a tensor's memory: ``rule 2``, ``the order of the memories``; "" if unknown."""
    rule = "" if residence is None else residence.decided_by
    return {"order": "the order of the memories", "tensor": 'the tensor\'s field "arena"'}.get(rule, rule)


def largest(
    plan: Plan, where: tuple[str, int], storages: Sequence[tuple[int, int]], colour_of: Callable[[int], str]
) -> str:
    """Return the card of the largest buffers. ``where``: ``(arena, step)``; ``storages``: all live ``(row, bytes)``."""
    arena, step = where
    groups: dict[object, list[tuple[int, int]]] = {}
    for row, size in storages:  # in a snapshot, buffers with the same size and source line are one entry
        key = (size, line_of(plan.tensor_ids[row])) if plan.categories else row
        groups.setdefault(key, []).append((row, size))
    shown = sorted(groups.values(), key=lambda group: -len(group) * group[0][1])[:MOST_AT_PEAK]
    short, entries = numbers.shortener(plan.tensor_ids[row] for row, _ in storages), []
    for group in shown:
        row, size = group[0]
        name = plan.tensor_ids[row]
        entries.append((len(group), size, colour_of(row), name, short(name, NAME_LETTERS)))
    note = numbers.of(sum(map(len, shown)), len(storages), "buffer")
    at = numbers.step(step, numbers.shortened(plan.node_at(step), 20))
    return fragment("peak_card", arena=arena, step=at, note=note, groups=entries)


def why_offset(plan: Plan, why: OffsetReasons, placed: PlacementOrder) -> str:
    """Return the card that explains the offset of a storage."""
    blocked = [(blocker.start, blocker.end, blocker) for blocker in why.blockers]
    ranges_below = blocked + [(start, end, None) for start, end in why.free_ranges]
    return fragment(
        "why_card",
        plan=plan,
        why=why,
        placed=placed,
        most=MOST,
        order=ORDER_WORDS.get(placed.by, placed.by),
        fit=FIT_WORDS.get(placed.fit, placed.fit),
        below=sorted(ranges_below, key=lambda part: -part[0]),
    )
