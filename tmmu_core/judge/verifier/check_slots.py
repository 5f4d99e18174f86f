"""Check slots and their offsets: aligned prefix sums, numbers by offset, or hashed addresses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tmmu_core.base.extras import need
from tmmu_core.judge.finding import Finding, error
from tmmu_core.judge.reference.liveness import Lives
from tmmu_core.judge.verifier.row_columns import U64, PlanFacts


def check_slots(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``slot``."""
    plan, slots, order = facts.plan, facts.slots, facts.by_slot
    for s in np.flatnonzero(facts.start != slots.start[facts.slot_of]).tolist():
        yield error(
            "slot",
            f'"{facts.name(s)}" is at {facts.start[s]}, its slot {facts.slot[s]} at {slots.start[facts.slot_of[s]]}.',
            tensor=facts.name(s),
            arena=plan.arenas[facts.arena[s]].name,
        )
    for at in np.flatnonzero(~facts.opens_slot[1:] & (facts.death[order][:-1] > facts.birth[order][1:])).tolist():
        before, after = int(order[at]), int(order[at + 1])
        yield error(
            "slot",
            f'"{facts.name(before)}" is still live in slot {facts.slot[after]} at the birth of "{facts.name(after)}".',
            tensor=facts.name(before),
            other=facts.name(after),
            arena=plan.arenas[facts.arena[after]].name,
            step=int(facts.birth[after]),
        )
    tenant = np.arange(facts.storages) - np.flatnonzero(facts.opens_slot)[np.cumsum(facts.opens_slot) - 1]
    expected = np.zeros(facts.storages, np.int64)
    expected[order] = tenant
    for i in np.flatnonzero(plan.generation != expected[plan.storage]).tolist():
        yield error(
            "slot",
            f'"{plan.tensor_ids[i]}" has generation {plan.generation[i]} in its slot; expected '
            f"{expected[plan.storage[i]]}.",
            tensor=plan.tensor_ids[i],
        )
    for number, arena in enumerate(plan.arenas):
        used = slots.number[slots.arena == number]
        if not np.array_equal(used, np.arange(len(used))):
            yield error("slot", f"the slots of {arena.name} are not numbered 0, 1, 2, ….", arena=arena.name)
    if plan.has_slots:
        for k in np.flatnonzero(facts.slots_meet).tolist():
            name = plan.arenas[slots.arena[k]].name
            yield error("slot", f"slot {slots.number[k]} of {name} starts inside the slot below it.", arena=name)


def check_slot_offsets(facts: PlanFacts, lives: Lives | None) -> Iterator[Finding]:
    """Check rule ``slot_offset``: ``offset_{k+1} = align_up(offset_k + slot_size_k, align_{k+1})``.

    The alignment of each storage is that of the graph (``lives``). Without it that of the rows is used. A view's may be
    its own or that of its dtype, so both are accepted.
    """
    plan, slots = facts.plan, facts.slots
    possible = _grids(facts, lives)
    ends: dict[int, int] = {}
    for k, (arena, start, size) in enumerate(
        zip(slots.arena.tolist(), slots.start.tolist(), slots.backing.tolist(), strict=True)
    ):
        expected = {-(-ends.get(arena, 0) // int(required[k])) * int(required[k]) for required in possible}
        if start not in expected:
            name = plan.arenas[arena].name
            yield error(
                "slot_offset",
                f"slot {slots.number[k]} of {name} starts at {start}; the slots below it give {min(expected)}.",
                arena=name,
            )
        ends[arena] = start + size


def _grids(facts: PlanFacts, lives: Lives | None) -> list[U64]:
    """Return the alignment of each slot: one column with ``lives``, else two possible ones."""
    plan, slots = facts.plan, facts.slots
    floor = np.array([max(arena.alignment_bytes, 1) for arena in plan.arenas], np.uint64)[slots.arena]
    if lives is not None:
        own = [s for s in lives.storages.values() if s.name in plan.row_of]
        of_graph = plan.storage[[plan.row_of[s.name] for s in own]] if own else np.zeros(0, np.int64)
        np.maximum.at(floor, facts.slot_of[of_graph], np.array([s.alignment for s in own], np.uint64))
        return [floor]
    is_view = np.array([base is not None for base in plan.base_tensor_uids], np.bool_)
    tried = []
    for rows in (np.flatnonzero(~is_view), np.arange(len(plan))):
        required = floor.copy()
        np.maximum.at(required, facts.slot_of[plan.storage[rows]], plan.alignment[rows])
        tried.append(required)
    return tried


def ends_end_to_end(facts: PlanFacts, arena: int) -> set[int]:
    """Return the possible ends of the arena's slots at aligned prefix sums."""
    here = np.flatnonzero(facts.slots.arena == arena)
    ends = set()
    for grid in _grids(facts, None):
        end = 0
        for size, step in zip(facts.slots.backing[here].tolist(), grid[here].tolist(), strict=True):
            end = -(-end // step) * step + size
        ends.add(end)
    return ends


def check_numbering(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``numbering`` (contract §9). The live parts of an instance's storage share a number and an offset."""
    plan, slots, order = facts.plan, facts.slots, facts.by_slot
    first = order[facts.opens_slot]
    for s in order[~facts.opens_slot].tolist():
        opener = int(first[facts.slot_of[s]])
        part = facts.name(s).startswith(f"{facts.name(opener)}{PART}")
        if not part or facts.start[s] != facts.start[opener] or facts.size[s] != facts.size[opener]:
            yield error(
                "numbering",
                f'"{facts.name(s)}" and "{facts.name(opener)}" have one number but are different storages.',
                tensor=facts.name(s),
                other=facts.name(opener),
                arena=plan.arenas[facts.arena[s]].name,
            )
    keys = np.stack(
        [facts.start[first], facts.birth[first].astype(np.uint64), facts.first_row[first].astype(np.uint64)]
    )
    before, after = keys[:, :-1], keys[:, 1:]
    falls = before[2] > after[2]
    for key in (1, 0):
        falls = (before[key] > after[key]) | ((before[key] == after[key]) & falls)
    for k in np.flatnonzero(falls & (slots.arena[1:] == slots.arena[:-1])).tolist():
        yield error(
            "numbering",
            f'"{facts.name(int(first[k + 1]))}" has the number after "{facts.name(int(first[k]))}" but sorts before '
            "it by offset, birth and id.",
            tensor=facts.name(int(first[k + 1])),
            other=facts.name(int(first[k])),
            arena=plan.arenas[slots.arena[k]].name,
        )


def check_sparse_addresses(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``sparse_address``: recompute the draft's hash (001, ``MapToVirtualAddresses_v1``)."""
    plan, slots = facts.plan, facts.slots
    bits = plan.notes.get("addressing", {}).get("bits")
    if not isinstance(bits, int) or not 1 <= bits <= 64:
        yield error("sparse_address", "the plan does not state the number of bits of its hashed addresses.")
        return
    blake3 = need("blake3", "a plan at the superseded draft's addresses").blake3
    begins = plan.offset == facts.start[plan.storage]
    grid = np.ones(len(slots.number), np.uint64)
    np.maximum.at(grid, facts.slot_of[plan.storage[begins]], plan.alignment[begins])
    for k, (arena, number, start) in enumerate(
        zip(slots.arena.tolist(), slots.number.tolist(), slots.start.tolist(), strict=True)
    ):
        name = plan.arenas[arena].name
        hashed = blake3(plan.replay_token + b"tmmu_va" + name.encode() + number.to_bytes(8, "big")).digest()
        address = int.from_bytes(hashed, "big") >> (256 - bits)
        address -= address % int(grid[k])
        if start != address:
            yield error(
                "sparse_address",
                f"slot {number} of {name} starts at {start:#x}; its hash gives {address:#x}.",
                arena=name,
            )


def check_slot_counts(facts: PlanFacts, lives: Lives | None) -> Iterator[Finding]:
    """Check rule ``slots_max_live``, for the planner ``slots``.

    More slots are allowed only with must_not_alias pairs (warning ``slots_over_optimal``), which the graph has.
    """
    plan = facts.plan
    with_pairs = None if lives is None else {lives.storages[name].arena for pair in lives.apart for name in pair}
    for number, arena in enumerate(plan.arenas):
        slots, live = int((facts.slots.arena == number).sum()), facts.most_together(number, facts.death)
        if slots < live:
            yield error("slots_max_live", f"{arena.name} has {slots} slots, but {live} storages are live together.")
        if plan.planner != "slots" or slots <= live:
            continue
        if with_pairs is None or arena.name in with_pairs:
            why = "its must_not_alias pairs may need them" if with_pairs else "use --graph to check the cause"
            yield Finding(
                "slots_over_optimal",
                "warning",
                f"{arena.name} has {slots} slots, {slots - live} more than storages are live together: {why}.",
                arena=arena.name,
            )
        else:
            yield error(
                "slots_max_live",
                f"{arena.name} has {slots} slots, but at most {live} storages are live together.",
                arena=arena.name,
            )


PART = "@part"
"""The infix in the row ids of an instance's live parts, from the second part of a storage on."""
