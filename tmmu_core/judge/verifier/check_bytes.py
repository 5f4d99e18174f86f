"""Check rows, alignments, links between the rows of a storage, overlaps of live storages, slots and their offsets."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from tmmu_core.base.errors import AllocationOverflow, InvalidIrShapes, need
from tmmu_core.graph.dtypes import canonical, tensor_bytes
from tmmu_core.graph.model import PERSISTENT_ROLES, PRESETS, ROLES
from tmmu_core.judge.finding import Finding, error, warning
from tmmu_core.judge.reference.liveness import Groups, ReferenceLiveness
from tmmu_core.judge.verifier.check_constraints import excluded_storages
from tmmu_core.judge.verifier.row_columns import U64, PlanFacts
from tmmu_core.plans.model import PART, Plan

Box = tuple[int, int, int, int]  # (first step, step after the last, first byte, byte after the last), half-open


def check_rows(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``row``: the row's own fields, and that a view is inside its base's bytes."""
    plan, stop = facts.plan, facts.plan.offset + facts.plan.size
    if plan.preset not in PRESETS:
        yield error("row", f"the plan has the unknown preset {plan.preset!r}.")
    known_dtypes = {dtype for dtype in set(plan.dtypes) if canonical(dtype) is not None}
    storages_with_root = set(plan.storage[~facts.is_view].tolist())
    for i, (name, role, dtype) in enumerate(zip(plan.tensor_ids, plan.roles, plan.dtypes, strict=True)):
        base = plan.base_tensor_uids[i]
        if role not in ROLES:
            yield error("row", f"{name!r} has the unknown role {role!r}.", tensor=name)
        elif role in PERSISTENT_ROLES and (plan.birth[i], plan.death[i]) != (0, facts.end):
            yield error("row", f"{name!r} is a {role} but is not live in every step.", tensor=name)
        if dtype not in known_dtypes:
            yield error("row", f"{name!r} has the unknown dtype {dtype!r}.", tensor=name)
        else:
            size, expected_bytes = int(plan.size[i]), None
            with suppress(InvalidIrShapes, AllocationOverflow):
                expected_bytes = tensor_bytes(plan.shapes[i], dtype)
            # A view may be smaller than its shape: a dimension with stride 0 adds no bytes.
            if expected_bytes is None or size > expected_bytes or (size != expected_bytes and base is None):
                expected = "no size" if expected_bytes is None else f"{expected_bytes:,} bytes"
                yield error("row", f"{name!r} has {size:,} bytes; its shape and dtype give {expected}.", tensor=name)
        if base is not None:
            j = plan.row_of.get(base, -1)
            problem = ""
            if j < 0:  # a base that only another mode writes has no row: then the root must have one
                problem = "" if int(plan.storage[i]) in storages_with_root else "which has no row"
            elif j == i or plan.storage[i] != plan.storage[j]:
                problem = "which is itself" if j == i else "which is in another storage"
            elif plan.offset[i] < plan.offset[j] or stop[i] > stop[j]:
                problem = "but is not inside its bytes"
            if problem:
                yield error("row", f"{name!r} is a view of {base!r}, {problem}.", tensor=name, other=base)


def check_alignment(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``alignment``: rows are aligned as they declare, slots as their arena declares."""
    plan, slots = facts.plan, facts.slots
    is_power_of_two = (plan.alignment > 0) & ((plan.alignment & (plan.alignment - np.uint64(1))) == 0)
    misaligned = plan.offset % np.where(is_power_of_two, plan.alignment, np.uint64(1)) != 0
    for i in np.flatnonzero(~is_power_of_two | misaligned).tolist():
        name, alignment = plan.tensor_ids[i], plan.alignment[i]
        fault = f"the offset {plan.offset[i]}, misaligned to {alignment} bytes"
        fault = fault if is_power_of_two[i] else f"the alignment {alignment}, which is not a power of two"
        yield error("alignment", f"{name!r} has {fault}.", tensor=name, arena=plan.arenas[plan.arena[i]].name)
    opener = facts.by_slot[facts.opens_slot]
    for number, arena in enumerate(plan.arenas):
        alignment = arena.alignment_bytes
        if alignment < 1 or alignment & (alignment - 1):
            message = f"arena {arena.name} has the alignment {alignment}, which is not a power of two."
            yield error("alignment", message, arena=arena.name)
            continue
        # A slot starts at a multiple of the arena's alignment, unless its first row is a view whose base has no row.
        misaligned = (facts.start[opener] % np.uint64(alignment) != 0) & ~facts.is_view[facts.first_row[opener]]
        for k in np.flatnonzero(misaligned & (slots.arena == number)).tolist():
            message = f"slot {slots.number[k]} of {arena.name} starts at {facts.start[opener[k]]}"
            yield error("alignment", f"{message}, misaligned to {alignment} bytes.", arena=arena.name)


def check_storages(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``storage``: an alias group has one storage; the rows of a storage are linked and in one slot.

    Two rows are linked by a base tensor, by an alias group, or by an in-place write. For an in-place write, both have
    the same offset, and the first is persistent or dies at the birth of the second.
    """
    plan, storage = facts.plan, facts.plan.storage
    group_storage: dict[str, int] = {}
    for i, group in enumerate(plan.alias_group_ids):
        if group is not None and group_storage.setdefault(group, int(storage[i])) != storage[i]:
            yield error("storage", f"alias group {group!r} is in two storages.", tensor=plan.tensor_ids[i])
    members: dict[int, list[int]] = {}
    for row in np.flatnonzero(np.bincount(storage)[storage] > 1).tolist():
        members.setdefault(int(storage[row]), []).append(row)
    for rows in members.values():
        first = plan.tensor_ids[rows[0]]
        places = [(plan.arena[i], plan.logical_slot[i], plan.generation[i]) for i in rows]
        if moved := [plan.tensor_ids[i] for i, place in zip(rows, places, strict=True) if place != places[0]]:
            message = f"{first!r} and {moved[0]!r} are one storage, but differ in arena, slot or generation."
            yield error("storage", message, tensor=first, other=moved[0])
        for name in _unlinked(plan, rows):
            message = f"{name!r} and {first!r} are one storage, but no view, alias group or in-place write links them."
            yield error("storage", message, tensor=name, other=first)


def _unlinked(plan: Plan, rows: list[int]) -> list[str]:
    """Return the tensors of ``rows``, a storage, without a chain of links (:func:`check_storages`) to the first row."""
    ids, bases = plan.tensor_ids, plan.base_tensor_uids
    names = [ids[i] for i in rows]
    groups = Groups(dict.fromkeys((*names, *sorted({base for i in rows if (base := bases[i]) is not None}))))
    # A base can have no row in this mode. Its views are linked to the first tensor that is not such a view.
    first_known = next((ids[i] for i in rows if (base := bases[i]) is None or base in plan.row_of), names[0])
    first_of_group, ended_at = dict[str, str](), dict[tuple[int, int], str]()  # ended_at: (step, offset) → tensor
    for i in rows:
        name, base, group = ids[i], bases[i], plan.alias_group_ids[i]
        if base is not None:
            groups.join(name, base)
            if base not in plan.row_of:
                groups.join(name, first_known)
        if group is not None:
            groups.join(name, first_of_group.setdefault(group, name))
        ended_at.setdefault((int(plan.death[i]), int(plan.offset[i])), name)
    persistent_groups = {groups.leader(ids[i]) for i in rows if plan.roles[i] in PERSISTENT_ROLES}
    persistent_rows = [i for i in rows if plan.birth[i] == 0 and groups.leader(ids[i]) in persistent_groups]
    persistent_at = {int(plan.offset[i]): ids[i] for i in reversed(persistent_rows)}  # offset → its first tensor
    for i in rows:  # in-place writes
        offset = int(plan.offset[i])
        for overwritten in (ended_at.get((int(plan.birth[i]), offset)), persistent_at.get(offset)):
            if overwritten is not None:
                groups.join(ids[i], overwritten)
    return [name for name in names if groups.leader(name) != groups.leader(names[0])]


def check_overlap(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``overlap``: storages that are live at the same step share no byte."""
    for space, a, b, box_a, box_b in overlaps(facts):
        first, second, step = facts.name(a), facts.name(b), max(box_a[0], box_b[0])
        where = f"bytes [{max(box_a[2], box_b[2])}, {min(box_a[3], box_b[3])}) of {space} at step {step}"
        fields = {"tensor": first, "other": second, "arena": facts.arena_name(a), "step": step}
        yield error("overlap", f"{first!r} and {second!r} both use {where}.", **fields)


def overlaps(facts: PlanFacts) -> Iterator[tuple[str, int, int, Box, Box]]:
    """Yield ``(address space, earlier storage, later storage, their boxes)`` of overlaps, at least one if any exist."""
    plan, excluded = facts.plan, excluded_storages(facts.plan)
    spaces = [(arena.name, np.flatnonzero(facts.arena == k)) for k, arena in enumerate(plan.arenas)]
    if plan.places == "sparse":
        spaces = [("the sparse space", np.arange(facts.storages))]
    for space, storages in spaces:
        boxes, owner = _boxes(facts, storages.tolist())
        for a, b in overlapping(boxes) if not excluded else _all_overlapping(boxes):
            if frozenset((owner[a], owner[b])) not in excluded:
                yield space, owner[a], owner[b], boxes[a], boxes[b]


def _all_overlapping(boxes: list[Box]) -> Iterator[tuple[int, int]]:
    """Yield all pairs (earlier, later) of boxes that overlap; :func:`overlapping` may yield only excluded ones."""
    for b, box_b in enumerate(boxes):
        for a, box_a in enumerate(boxes[:b]):
            if box_a[0] < box_b[1] and box_b[0] < box_a[1] and box_a[2] < box_b[3] and box_b[2] < box_a[3]:
                yield (a, b) if box_a[0] <= box_b[0] else (b, a)


def _boxes(facts: PlanFacts, storages: list[int]) -> tuple[list[Box], list[int]]:
    """Return the boxes of the storages that have bytes, and the storage of each box."""
    boxes, owner = list[Box](), list[int]()
    storages = [s for s in storages if facts.size[s]]
    birth, death = facts.birth.tolist(), facts.read_until.tolist()
    start, stop = facts.start.tolist(), facts.stop.tolist()
    for s in storages:
        # A storage that is reused in place at step k is still read at k. If the reusing storage has the same start, its
        # bytes may overlap at k, so the box of step k has only the bytes past the end of the reusing storage.
        reuse = facts.reused_by.get(s)
        if reuse and death[s] == reuse[0] + 1 == birth[reuse[1]] + 1 and facts.has_same_start(s, reuse[1]):
            step, reusing = reuse
            boxes += [(birth[s], step, start[s], stop[s]), (step, step + 1, max(start[s], stop[reusing]), stop[s])]
            owner += [s, s]
        else:
            boxes.append((birth[s], death[s], start[s], stop[s]))
            owner.append(s)
    return boxes, owner


def overlapping(boxes: Sequence[Box]) -> Iterator[tuple[int, int]]:
    """Yield pairs (earlier, later) of boxes that overlap, at least one if any do."""
    # A sweep over time keeps the bytes in use as disjoint intervals, sorted by start. A box that overlaps an interval
    # is reported and not added, so not all pairs are found.
    nonempty = [i for i, (birth, death, start, end) in enumerate(boxes) if birth < death and start < end]
    events = [(boxes[i][1], 0, i) for i in nonempty] + [(boxes[i][0], 1, i) for i in nonempty]
    events.sort()  # at one step, ends sort before begins
    in_use: list[tuple[int, int, int]] = []  # (start, end, box)
    added: set[int] = set()
    for _, begins, i in events:
        _, _, start, end = boxes[i]
        if begins:
            at = bisect_left(in_use, (start,))
            first = at - 1 if at and in_use[at - 1][1] > start else at
            overlapped = in_use[first : bisect_left(in_use, (end,), lo=at)]
            if overlapped:
                yield from ((other, i) for _, _, other in overlapped)
            else:
                in_use.insert(at, (start, end, i))
                added.add(i)
        elif i in added:
            del in_use[bisect_left(in_use, (start, end, i))]


def check_slots(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``slot``: start, order and generation of storages in a slot, numbers and overlaps of slots."""
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
    if liveness is None:  # the alignment in a view's row counts only if the graph declares it: try without and with it
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
    """Return the possible ends of the arena's last slot if the slots follow each other, each one aligned."""
    slots_of_arena = np.flatnonzero(facts.slots.arena == arena)
    sizes, ends = facts.slots.backing[slots_of_arena].tolist(), set()
    for column in _slot_alignments(facts, None):
        end = 0
        for size, alignment in zip(sizes, column[slots_of_arena].tolist(), strict=True):
            end = -(-end // alignment) * alignment + size
        ends.add(end)
    return ends


def check_numbering(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``numbering`` (contract §9). Only the live parts of one tensor may share a number."""
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
    """Check rule ``sparse_address``: recompute the hash of the draft (``MapToVirtualAddresses_v1``)."""
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
    """Check rule ``slots_max_live``: an arena has at least as many slots as storages that are live at one step."""
    # Planner ``slots`` must not use more slots than that; other planners may. must_not_alias pairs can require more, so
    # in an arena with such pairs, or if they are unknown (``liveness`` is ``None``), more slots are only a warning.
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
