"""Faults to put into a plan: functions from a plan and a choice to a broken plan, or ``None``.

Hashes are recomputed afterwards unless the fault is in them.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.judge.canonical_hashes import hash_of, layout_hash, plan_hash
from tmmu_core.judge.verifier.row_columns import PlanFacts
from tmmu_core.plans.model import Plan

Fault = Callable[[Plan, Random], Plan | None]


def rehashed(plan: Plan) -> Plan:
    """Return the plan with recomputed hashes."""
    facts = PlanFacts(plan)
    names = [arena.name for arena in plan.arenas]
    places = zip(plan.tensor_ids, plan.arena.tolist(), plan.logical_slot.tolist(), strict=True)
    slot_rows = [(tensor, names[arena], slot) for tensor, arena, slot in places]
    starts = zip(facts.slots.arena.tolist(), facts.slots.number.tolist(), facts.slots.start.tolist(), strict=True)
    addresses = [(names[arena], slot, start) for arena, slot, start in starts]
    order_hash = hash_of(list(plan.execution_order))
    header: list[Any] = [plan.ir_hash, plan.mode, plan.arena_config_hash, order_hash]
    header += [plan.rank, plan.world_size, plan.shard_spec_hash]
    return replace(
        plan,
        execution_order_hash=order_hash,
        layout_hash=layout_hash(slot_rows, addresses),
        tmmu_plan_hash=plan_hash(header, plan.replay_token, slot_rows, addresses),
    )


def changed(plan: Plan, column: str, row: int, value: int) -> Plan:
    """Return the plan with one cell of one column changed."""
    values = getattr(plan, column).copy()
    values[row] = value
    return replace(plan, **{column: values})


def refigured(plan: Plan) -> Plan:
    """Return the plan with figures and taken in-place reuses recomputed, as an honest but wrong planner states them."""
    plan = replace(plan, taken=())
    facts = PlanFacts(plan)
    arenas = []
    for number, arena in enumerate(plan.arenas):
        here = facts.arena == number
        extent = int((facts.start + np.maximum(facts.size, np.uint64(1)))[here].max(initial=0))
        arenas.append(
            replace(
                arena,
                slots=int((facts.slots.arena == number).sum()),
                max_live=facts.max_live(number, facts.held_until),
                storages=int(here.sum()),
                peak_live_bytes=facts.live_peak_of(np.flatnonzero(here))[1],
                extent_bytes=extent,
                committed_bytes=-(-extent // arena.page_size) * arena.page_size if arena.page_size else extent,
                lower_bound_bytes=None,
                proven_bytes=None,
                status="feasible",
                witness=(),
                witness_step=-1,
            )
        )
    step, most = facts.live_peak_of(np.arange(facts.storages))
    totals = {
        "peak_live_bytes": most,
        "peak_step": step,
        "extent_bytes": sum(arena.extent_bytes for arena in arenas),
        "lower_bound_bytes": sum(arena.bound_bytes for arena in arenas),
    }
    slots, storages = sum(arena.slots for arena in arenas), sum(arena.storages for arena in arenas)
    extent, peaks = totals["extent_bytes"], sum(arena.peak_live_bytes for arena in arenas)
    metrics = {
        "peak_logical_slots": slots,
        "max_live": sum(arena.max_live for arena in arenas),
        "storages": storages,
        "peak_live_bytes": most,
        "extent_bytes": extent,
        "committed_bytes": sum(arena.committed_bytes for arena in arenas),
        "peak_physical_bytes_per_arena": {arena.name: arena.extent_bytes for arena in arenas},
        "peak_tmmu_usage_per_arena": {arena.name: arena.peak_live_bytes for arena in arenas},
        "memory_reuse_ratio": (storages - slots) / storages if storages else 0.0,
        "internal_fragmentation_ratio": (extent - peaks) / extent if extent else 0.0,
        "totals": totals,
    }
    return replace(plan, arenas=tuple(arenas), metrics={**plan.metrics, **metrics})


Rows = NDArray[np.bool_]


def cell(
    column: str, value: Callable[[Plan, int], Any], where: Callable[[Plan], Rows] = lambda plan: plan.size >= 0
) -> Fault:
    """Return a fault that changes the cell of one random row of a column, among the rows ``where`` [all]."""

    def alter(plan: Plan, choice: Random) -> Plan | None:
        rows = np.flatnonzero(where(plan))
        if not len(rows):
            return None
        row = int(choice.choice(rows))
        return changed(plan, column, row, int(value(plan, row)))

    return alter


def figure(name: str, by: int) -> Fault:
    """Return a fault that adds ``by`` to a figure of one random arena."""

    def alter(plan: Plan, choice: Random) -> Plan | None:
        if not plan.arenas:
            return None
        at = choice.randrange(len(plan.arenas))
        arena = replace(plan.arenas[at], **{name: getattr(plan.arenas[at], name) + by})
        return replace(plan, arenas=(*plan.arenas[:at], arena, *plan.arenas[at + 1 :]))

    return alter


def lasts(plan: Plan) -> Rows:
    """Return the rows that are live for several steps."""
    return plan.death - plan.birth > 1


CELLS: dict[str, Fault] = {
    "offset_moved_up": cell("offset", lambda plan, i: plan.offset[i] + plan.alignment[i]),
    "offset_moved_down": cell(
        "offset", lambda plan, i: plan.offset[i] - plan.alignment[i], lambda plan: plan.offset >= plan.alignment
    ),
    "offset_moved_one_byte": cell("offset", lambda plan, i: int(plan.offset[i]) + 1),
    "death_too_early": cell("death", lambda plan, i: plan.death[i] - 1, lasts),
    "death_too_late": cell("death", lambda plan, i: plan.death[i] + 1, lambda plan: plan.death < plan.steps),
    "birth_too_late": cell("birth", lambda plan, i: plan.birth[i] + 1, lasts),
    "birth_too_early": cell("birth", lambda plan, i: plan.birth[i] - 1, lambda plan: plan.birth > 0),
    "range_emptied": cell("death", lambda plan, i: plan.birth[i]),
    "size_grown": cell("size", lambda plan, i: int(plan.size[i]) + 1),
    "size_shrunk": cell("size", lambda plan, i: int(plan.size[i]) - 1, lambda plan: plan.size > 0),
    "alignment_odd": cell("alignment", lambda plan, i: 48),
    "arena_swapped": cell(
        "arena",
        lambda plan, i: (plan.arena[i] + 1) % len(plan.arenas),
        lambda plan: (plan.size >= 0) & (len(plan.arenas) > 1),
    ),
    "generation_changed": cell("generation", lambda plan, i: plan.generation[i] + 1),
}

FIGURES: dict[str, Fault] = {
    "extent_shrunk": figure("extent_bytes", -1),
    "peak_understated": figure("peak_live_bytes", -1),
    "slots_understated": figure("slots", -1),
    "max_live_overstated": figure("max_live", 1),
    "committed_understated": figure("committed_bytes", -1),
}
"""Faults that are gone once all figures are recomputed."""


# --- rows --------------------------------------------------------------------------------------------------------


def _row(plan: Plan, choice: Random) -> int | None:
    return choice.randrange(len(plan)) if len(plan) else None


def storage_moved(plan: Plan, choice: Random) -> Plan | None:
    """A storage has the offset of another one of its arena."""
    row, other = _row(plan, choice), _row(plan, choice)
    if row is None or other is None or plan.arena[row] != plan.arena[other]:
        return None
    members = plan.storage == plan.storage[row]
    shift = int(plan.offset[other]) - int(plan.offset[members].min())
    if shift == 0:
        return None
    offset = plan.offset.copy()
    offset[members] = [int(o) + shift for o in offset[members]]
    return replace(plan, offset=offset)


def storages_joined(plan: Plan, choice: Random) -> Plan | None:
    """Two storages have one number, which hides their overlap."""
    if not len(plan) or plan.storage.max() < 1:
        return None
    a, b = choice.sample(range(int(plan.storage.max()) + 1), 2)
    storage = np.where(plan.storage == max(a, b), min(a, b), plan.storage)
    return replace(plan, storage=np.where(storage > max(a, b), storage - 1, storage))


def storage_split(plan: Plan, choice: Random) -> Plan | None:
    """A member leaves its storage."""
    shared = np.flatnonzero(np.bincount(plan.storage)[plan.storage] > 1) if len(plan) else np.zeros(0, np.int64)
    if not len(shared):
        return None
    return changed(plan, "storage", int(choice.choice(shared)), int(plan.storage.max()) + 1)


def row_lost(plan: Plan, choice: Random) -> Plan | None:
    """One tensor has no row."""
    row = _row(plan, choice)
    if row is None or (plan.storage == plan.storage[row]).sum() == 1:
        # A storage that loses its only row leaves a hole in the numbers as well: found for that already.
        return None
    keep = np.arange(len(plan)) != row
    columns: dict[str, Any] = {
        name: getattr(plan, name)[keep]
        for name in ("arena", "logical_slot", "offset", "size", "alignment", "birth", "death", "generation", "storage")
    }
    for name in ("tensor_ids", "roles", "dtypes", "shapes", "alias_group_ids", "base_tensor_uids"):
        columns[name] = tuple(value for value, kept in zip(getattr(plan, name), keep, strict=True) if kept)
    return replace(plan, **columns)


def wrong_view(plan: Plan, choice: Random) -> Plan | None:
    """A view has other bytes of its storage."""
    views = [i for i, base in enumerate(plan.base_tensor_uids) if base is not None and plan.size[i]]
    if not views:
        return None
    row = choice.choice(views)
    first = int(plan.offset[plan.storage == plan.storage[row]].min())
    other = first if int(plan.offset[row]) != first else first + int(plan.alignment[row])
    return changed(plan, "offset", row, other)


def wrong_base(plan: Plan, choice: Random) -> Plan | None:
    """A view names another base."""
    views = [i for i, base in enumerate(plan.base_tensor_uids) if base is not None]
    if not views:
        return None
    row = choice.choice(views)
    others = [name for name in plan.tensor_ids if name not in (plan.tensor_ids[row], plan.base_tensor_uids[row])]
    if not others:
        return None
    bases = list(plan.base_tensor_uids)
    bases[row] = choice.choice(others)
    return replace(plan, base_tensor_uids=tuple(bases))


# --- slots -------------------------------------------------------------------------------------------------------


def slot_merged(plan: Plan, choice: Random) -> Plan | None:
    """A storage moves into a slot of its arena where another one is live at that time; figures are recomputed."""
    facts = PlanFacts(plan)
    pairs = [
        (a, b)
        for a in range(facts.storages)
        for b in range(facts.storages)
        if facts.arena[a] == facts.arena[b]
        and facts.slot[a] != facts.slot[b]
        and max(facts.birth[a], facts.birth[b]) < min(facts.death[a], facts.death[b])
    ]
    if not pairs:
        return None
    a, b = choice.choice(pairs)
    members = plan.storage == a
    offset, slot, generation = plan.offset.copy(), plan.logical_slot.copy(), plan.generation.copy()
    shift = int(facts.start[b]) - int(facts.start[a])
    offset[members] = [int(o) + shift for o in offset[members]]
    slot[members] = facts.slot[b]
    generation[members] = plan.generation[plan.storage == b][0] + 1
    return refigured(replace(plan, offset=offset, logical_slot=slot, generation=generation))


def slot_opened(plan: Plan, choice: Random) -> Plan | None:
    """A storage moves from a shared slot into a new one above all others: safe, but one slot too many."""
    facts = PlanFacts(plan)
    shared = [s for s in range(facts.storages) if np.bincount(facts.slot_of)[facts.slot_of[s]] > 1]
    if not shared:
        return None
    moved = choice.choice(shared)
    arena = plan.arenas[facts.arena[moved]]
    members = plan.storage == moved
    offset, slot, generation = plan.offset.copy(), plan.logical_slot.copy(), plan.generation.copy()
    start = -(-arena.extent_bytes // 4096) * 4096
    offset[members] = [int(o) - int(facts.start[moved]) + start for o in offset[members]]
    slot[members] = arena.slots
    generation[members] = 0
    later = (plan.arena == facts.arena[moved]) & (plan.logical_slot == facts.slot[moved]) & ~members
    generation[later & (plan.generation > plan.generation[members][0])] -= 1
    return refigured(replace(plan, offset=offset, logical_slot=slot, generation=generation))


# --- in-place reuse and figures ----------------------------------------------------------------------------------


def handoff_dropped(plan: Plan, choice: Random) -> Plan | None:
    """An in-place reuse that the ranges need is not listed."""
    if not plan.handoffs:
        return None
    at = choice.randrange(len(plan.handoffs))
    return replace(plan, handoffs=plan.handoffs[:at] + plan.handoffs[at + 1 :])


def handoff_invented(plan: Plan, choice: Random) -> Plan | None:
    """The plan lists an in-place reuse that no node permits; the ranges follow it."""
    granted = {(x, y) for _, x, y in plan.handoffs}
    pairs = [
        (i, j)
        for i in range(len(plan))
        for j in range(len(plan))
        if plan.death[i] == plan.birth[j] + 1
        and plan.birth[i] < plan.birth[j]
        and plan.storage[i] != plan.storage[j]
        and (plan.tensor_ids[i], plan.tensor_ids[j]) not in granted
    ]
    if not pairs:
        return None
    i, j = choice.choice(pairs)
    step = int(plan.birth[j])
    listed = (*plan.handoffs, (step, plan.tensor_ids[i], plan.tensor_ids[j]))
    return changed(replace(plan, handoffs=listed), "death", i, step)


def order_swapped(plan: Plan, choice: Random) -> Plan | None:
    """Two steps change places."""
    if len(plan.execution_order) < 2:
        return None
    a, b = sorted(choice.sample(range(len(plan.execution_order)), 2))
    order = list(plan.execution_order)
    order[a], order[b] = order[b], order[a]
    return replace(plan, execution_order=tuple(order))


def a_step_more(plan: Plan, choice: Random) -> Plan | None:
    """T is one too many."""
    return replace(plan, steps=plan.steps + 1)


def capacity_too_small(plan: Plan, choice: Random) -> Plan | None:
    """An arena holds a byte less than its plan needs."""
    used = [i for i, arena in enumerate(plan.arenas) if arena.extent_bytes]
    if not used:
        return None
    at = choice.choice(used)
    arena = replace(plan.arenas[at], capacity_bytes=plan.arenas[at].extent_bytes - 1)
    return replace(plan, arenas=(*plan.arenas[:at], arena, *plan.arenas[at + 1 :]))


def _altered(name: str) -> Fault:
    def alter(plan: Plan, choice: Random) -> Plan | None:
        digest = bytearray(getattr(plan, name))
        digest[choice.randrange(len(digest))] ^= 1 << choice.randrange(8)
        return replace(plan, **{name: bytes(digest)})

    return alter


def _mode_changed(plan: Plan, choice: Random) -> Plan | None:
    return replace(plan, mode="inference" if plan.mode != "inference" else "forward")


def _rank_changed(plan: Plan, choice: Random) -> Plan | None:
    return replace(plan, rank=plan.rank + 1)


IN_HASHES: dict[str, Fault] = {
    **{
        f"{name}_altered": _altered(name)
        for name in (
            *("ir_hash", "arena_config_hash", "execution_order_hash", "shard_spec_hash"),
            *("layout_hash", "tmmu_plan_hash", "replay_token"),
        )
    },
    "mode_changed": _mode_changed,
    "rank_changed": _rank_changed,
}
"""Faults that are found by a hash; the hashes are not recomputed."""

IN_CONTENT: dict[str, Fault] = {
    **CELLS,
    **FIGURES,
    **{
        fault.__name__: fault
        for fault in (
            *(
                storage_moved,
                storages_joined,
                storage_split,
                row_lost,
                wrong_view,
                wrong_base,
                slot_merged,
                slot_opened,
            ),
            *(handoff_dropped, handoff_invented, order_swapped, a_step_more, capacity_too_small),
        )
    },
}
"""Faults that are found although every hash fits."""
