"""Check slots and their offsets: aligned prefix sums, numbers by offset, or hashed addresses."""

from collections.abc import Iterator

import numpy as np

from tmmu_core.base.errors import need
from tmmu_core.judge.finding import Finding, error, warning
from tmmu_core.judge.reference.liveness import ReferenceLiveness
from tmmu_core.judge.verifier.row_columns import U64, PlanFacts
from tmmu_core.plans.model import PART


def check_slots(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``slot``: storages in their slot (start, order, generation), slots in an arena (number, overlap)."""
    plan, slots, order = facts.plan, facts.slots, facts.by_slot
    for s in np.flatnonzero(facts.start != slots.start[facts.slot_of]).tolist():
        name, slot_start = facts.name(s), slots.start[facts.slot_of[s]]
        message = f"{name!r} is at {facts.start[s]}, its slot {facts.slot[s]} at {slot_start}."
        yield error("slot", message, tensor=name, arena=facts.arena_name(s))
    for k in np.flatnonzero(~facts.opens_slot[1:] & (facts.death[order][:-1] > facts.birth[order][1:])).tolist():
        first, second = order[k], order[k + 1]
        name, next_name, step = facts.name(first), facts.name(second), int(facts.birth[second])
        message = f"{name!r} is still live in slot {facts.slot[first]} at the birth of {next_name!r}."
        yield error("slot", message, tensor=name, other=next_name, arena=facts.arena_name(first), step=step)
    generation = np.zeros(facts.storages, np.int64)
    generation[order] = np.arange(facts.storages) - np.flatnonzero(facts.opens_slot)[facts.slot_of[order]]
    for i in np.flatnonzero(plan.generation != generation[plan.storage]).tolist():
        name, expected = plan.tensor_ids[i], generation[plan.storage[i]]
        message = f"{name!r} has generation {plan.generation[i]} in its slot; expected {expected}."
        yield error("slot", message, tensor=name)
    for a, arena in enumerate(plan.arenas):
        slot_numbers = slots.number[slots.arena == a]
        if not np.array_equal(slot_numbers, np.arange(len(slot_numbers))):
            yield error("slot", f"the slots of {arena.name} are not numbered 0, 1, 2, ….", arena=arena.name)
    for k in np.flatnonzero(facts.overlaps_slot_below).tolist() if plan.has_slots else ():
        name = plan.arenas[slots.arena[k]].name
        yield error("slot", f"slot {slots.number[k]} of {name} starts inside the slot below it.", arena=name)


def check_slot_offsets(facts: PlanFacts, liveness: ReferenceLiveness | None) -> Iterator[Finding]:
    """Check rule ``slot_offset``: ``offset_{k+1} = align_up(offset_k + slot_size_k, align_{k+1})``."""
    plan, slots = facts.plan, facts.slots
    alignments = _slot_alignments(facts, liveness)
    ends = [0] * len(plan.arenas)
    for k, arena in enumerate(slots.arena.tolist()):
        expected = {-(-ends[arena] // int(required[k])) * int(required[k]) for required in alignments}
        start, name = int(slots.start[k]), plan.arenas[arena].name
        if start not in expected:
            message = f"slot {slots.number[k]} of {name} starts at {start}; expected {min(expected)}."
            yield error("slot_offset", message, arena=name)
        ends[arena] = start + int(slots.backing[k])


def _slot_alignments(facts: PlanFacts, liveness: ReferenceLiveness | None) -> list[U64]:
    """Return the slots' alignments as one column. Without ``liveness``, return two possible columns."""
    plan, slots = facts.plan, facts.slots
    if liveness is None:  # the row of a view may have the alignment of the view or of its dtype
        sources = [(rows, plan.alignment[rows]) for rows in (np.flatnonzero(~facts.is_view), np.arange(len(plan)))]
    else:
        storages = [s for s in liveness.storages.values() if s.name in plan.row_of]
        rows = np.array([plan.row_of[s.name] for s in storages], np.int64)
        sources = [(rows, np.array([s.alignment for s in storages], np.uint64))]
    columns = []
    for rows, alignment in sources:
        column = np.array([max(arena.alignment_bytes, 1) for arena in plan.arenas], np.uint64)[slots.arena]
        np.maximum.at(column, facts.slot_of[plan.storage[rows]], alignment)
        columns.append(column)
    return columns


def ends_of_prefix_sums(facts: PlanFacts, arena: int) -> set[int]:
    """Return the possible ends of the arena's last slot if the slots are at aligned prefix sums."""
    slots_of_arena = np.flatnonzero(facts.slots.arena == arena)
    sizes, ends = facts.slots.backing[slots_of_arena].tolist(), set()
    for column in _slot_alignments(facts, None):
        end = 0
        for size, alignment in zip(sizes, column[slots_of_arena].tolist(), strict=True):
            end = -(-end // alignment) * alignment + size
        ends.add(end)
    return ends


def check_numbering(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``numbering`` (contract §9). Only the live parts of one storage of an instance share a number."""
    order = facts.by_slot
    first = order[facts.opens_slot]
    for s in order[~facts.opens_slot].tolist():
        name, opener = facts.name(s), int(first[facts.slot_of[s]])
        is_part = name.startswith(f"{facts.name(opener)}{PART}")
        if not is_part or (facts.start[s], facts.size[s]) != (facts.start[opener], facts.size[opener]):
            message = f"{name!r} and {facts.name(opener)!r} have one number but are different storages."
            yield error("numbering", message, tensor=name, other=facts.name(opener), arena=facts.arena_name(s))
    # The slot numbers must rise with (offset, birth, id) in each arena.
    expected = np.lexsort((facts.first_row[first], facts.birth[first], facts.start[first], facts.slots.arena))
    rank = np.argsort(expected)
    for k in np.flatnonzero((rank[1:] < rank[:-1]) & (facts.slots.arena[1:] == facts.slots.arena[:-1])).tolist():
        name, next_name = facts.name(first[k]), facts.name(first[k + 1])
        message = f"{next_name!r} has the number after {name!r} but sorts before it by offset, birth and id."
        yield error("numbering", message, tensor=next_name, other=name, arena=facts.arena_name(first[k]))


def check_sparse_addresses(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``sparse_address``: recompute the draft's hash (001, ``MapToVirtualAddresses_v1``)."""
    plan, slots = facts.plan, facts.slots
    bits = plan.arena_notes("addressing").get("bits")
    if not isinstance(bits, int) or not 1 <= bits <= 64:
        yield error("sparse_address", "the plan does not state the number of bits of its hashed addresses.")
        return
    blake3 = need("blake3", "a plan at the superseded draft's addresses").blake3
    # An address is a multiple of the alignments of the rows at the start of their storage.
    is_at_start = plan.offset == facts.start[plan.storage]
    alignment = np.ones(len(slots.number), np.uint64)
    np.maximum.at(alignment, facts.slot_of[plan.storage[is_at_start]], plan.alignment[is_at_start])
    for k, (number, start) in enumerate(zip(slots.number.tolist(), slots.start.tolist(), strict=True)):
        name = plan.arenas[slots.arena[k]].name
        hashed = blake3(plan.replay_token + b"tmmu_va" + name.encode() + number.to_bytes(8, "big")).digest()
        address = int.from_bytes(hashed, "big") >> (256 - bits)
        address -= address % int(alignment[k])
        if start != address:
            message = f"slot {number} of {name} starts at {start:#x}; its hash gives {address:#x}."
            yield error("sparse_address", message, arena=name)


def check_slot_counts(facts: PlanFacts, liveness: ReferenceLiveness | None) -> Iterator[Finding]:
    """Check rule ``slots_max_live``: an arena has as many slots as storages that are live at one step.

    Planners other than ``slots`` may use more. If ``slots`` does, must_not_alias pairs can be the cause: in an arena
    with such pairs, or if ``liveness`` is ``None``, this is only the warning ``slots_over_optimal``.
    """
    plan = facts.plan
    paired = set() if liveness is None else {liveness.arena[name] for pair in liveness.must_not_alias for name in pair}
    for number, arena in enumerate(plan.arenas):
        slots, live = int((facts.slots.arena == number).sum()), facts.max_live(number, facts.death)
        message = f"{arena.name} has {slots} slots, but at most {live} storages are live together"
        is_over = plan.planner == "slots" and slots > live
        if slots < live or (is_over and liveness is not None and arena.name not in paired):
            yield error("slots_max_live", f"{message}.", arena=arena.name)
        elif is_over:
            why = "its must_not_alias pairs may need them" if liveness is not None else "use --graph to check the cause"
            yield warning("slots_over_optimal", f"{message}: {why}.", arena=arena.name)
