"""The verifier: whether a plan, whoever made it, can be trusted (contract §1, §3, §4, §6; seed I.E).

Without the graph it holds the plan against itself: no byte is held twice at one step, offsets keep to their grid and
inside the arena, slots and figures and hashes are what the rows make them. With the graph (:mod:`.against_graph`) it
also works out again who lives when, who may share whose bytes and which hand-offs are legal, and walks every read and
write. Near-linear in rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tmmu_core.errors import U64_MAX
from tmmu_core.extras import need
from tmmu_core.graph.model import PERSISTENT_ROLES, Arena, Graph
from tmmu_core.judge import against_graph
from tmmu_core.judge.canonical import arena_config_object, hash_of, layout_hash, order_hash, plan_hash
from tmmu_core.judge.facts import I64, U64, Mask, PlanFacts
from tmmu_core.judge.finding import Finding, Verdict, shortened
from tmmu_core.judge.lives import Groups
from tmmu_core.judge.sweep import Box, overlapping
from tmmu_core.plan.model import CHANGED, UNSAID, Plan

OWN_RULES: dict[str, str] = {
    "columns": "columns are of one length, rows come by tensor id bytes, each tensor once, arenas and storages exist",
    "range": "live ranges are not empty and lie inside the timeline",
    "alignment": "every offset is a multiple of its row's alignment, alignments are powers of two",
    "bounds": "every row ends inside its arena's extent",
    "extent": "the extent is the end of the highest storage, committed bytes are whole pages of it",
    "capacity": "no arena's extent is over its capacity",
    "storage": "rows that share a storage are views, an alias group or an in-place chain, and say so",
    "overlap": "no two storages hold the same byte at the same step, but for a hand-off at exactly the giver's offset",
    "slot": "a slot has one tenant at a time, all at its offset; slots do not overlap and are numbered from 0",
    "slot_offset": "offsets are aligned prefix sums over the slots (plans of slots)",
    "numbering": "storages are numbered by offset, birth and id, one each (plans that place bytes)",
    "sparse_address": "every slot lies at the hash of its token, arena and number (draft-era plans)",
    "slots_max_live": "no slot less than storages are ever alive together, and under the planner slots none more",
    "figures": "slots, max live, storages, peak live bytes and totals are what the rows make them",
    "handoff": "a hand-off's giver dies when its taker is born, and is taken over where the plan says so",
    "hash": "order, layout and plan hash are those of what the plan says",
    "configuration": "arenas have the capacity, alignment and pages of their configuration",
    "places": "the plan says what it places, so that nobody has to guess which rules hold of its offsets",
}
"""What is checked of a plan alone: rule → what holds when it is not found."""

RULES: dict[str, str] = OWN_RULES | against_graph.RULES

_OF_PLACES: dict[str, dict[str, str]] = {
    "slots": {"numbering": "it places slots", "sparse_address": "it places slots"},
    "bytes": {"slot_offset": "it places bytes", "sparse_address": "it places bytes"},
    "sparse": {
        "bounds": "hashed addresses have no extent to stay in",
        "slot_offset": "its addresses are hashed",
        "numbering": "its addresses are hashed",
    },
}
"""What a plan places → rules that do not apply to it, and why."""


def verify_plan(
    plan: Plan,
    graph: Graph | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    arenas: Mapping[str, Arena | Mapping[str, Any]] | None = None,
    cut_from: bytes | None = None,
) -> Verdict:
    """Check a plan; with ``graph``, against the graph that it was made of.

    ``dims`` is the point at which it was planned (read off the plan's shapes where it is not said), ``arenas`` the
    configuration as given, where it is at hand. ``cut_from`` says that ``graph`` is a rank's own and names the ir_hash
    of the whole graph, which is what a rank's plan names (seed II.I). Never raises for a bad plan: what is wrong is in
    the verdict.
    """
    broken = list(check_columns(plan))
    if broken:
        # Nothing else can be looked up in such a plan.
        seen_first = ("columns", "range")
        rest = tuple((rule, "its columns are broken") for rule in RULES if rule not in seen_first)
        return Verdict(shortened(broken), seen_first, rest)
    facts = PlanFacts(plan)
    findings = [
        *check_alignment(facts),
        *check_arenas(facts),
        *check_storages(facts),
        *check_overlap(facts),
        *check_slots(facts),
        *check_handoffs(facts),
        *check_hashes(facts, arenas),
    ]
    left_out = dict(_OF_PLACES[plan.places])
    config = _configuration(plan, arenas)
    if config is not None:
        findings += check_configuration(plan, config)
    else:
        left_out["configuration"] = "its arenas are its own" if plan.own_arenas else "it is not at hand"
    alignment: Mapping[int, int] | None = None
    pairs: frozenset[str] | None = None
    if graph is None:
        left_out |= dict.fromkeys(against_graph.RULES, "no graph was given")
    else:
        seen = against_graph.examine(facts, graph, dims, cut_from)
        findings += seen.findings
        left_out |= seen.left_out
        alignment, pairs = seen.alignment, seen.arenas_with_pairs
    if plan.places == "slots":
        findings += check_slot_offsets(facts, alignment)
    elif plan.places == "bytes":
        findings += check_numbering(facts)
    else:
        findings += check_sparse_addresses(facts)
    findings += check_slot_counts(facts, pairs)
    findings += check_places(plan)
    checked = tuple(rule for rule in RULES if rule not in left_out)
    return Verdict(shortened(findings), checked, tuple((rule, left_out[rule]) for rule in RULES if rule in left_out))


def _error(rule: str, message: str, **fields: Any) -> Finding:
    return Finding(rule, "error", message, **fields)


# --- columns -----------------------------------------------------------------------------------------------------


def check_columns(plan: Plan) -> Iterator[Finding]:
    """Rules ``columns`` and ``range``."""
    n = len(plan)
    columns = {name: len(getattr(plan, name)) for name in _COLUMNS}
    for name, length in columns.items():
        if length != n:
            yield _error("columns", f"the column {name} has {length} rows, there are {n} tensors.")
    if set(columns.values()) - {n}:
        return
    for before, after in zip(plan.tensor_ids, plan.tensor_ids[1:], strict=False):
        if before >= after:
            yield _error("columns", f'row "{after}" does not come behind "{before}".', tensor=after, other=before)
    for i in np.flatnonzero((plan.arena < 0) | (plan.arena >= len(plan.arenas))).tolist():
        yield _error("columns", f'"{plan.tensor_ids[i]}" lies in arena number {plan.arena[i]}, which there is not.')
    names = [arena.name for arena in plan.arenas]
    if names != sorted(set(names)):
        yield _error("columns", "the arenas do not come by name, each once.")
    used = np.unique(plan.storage)
    if not np.array_equal(used, np.arange(len(used))):
        yield _error("columns", "the storages are not numbered 0, 1, 2, ….")
    for i in np.flatnonzero((plan.logical_slot < 0) | (plan.generation < 0)).tolist():
        yield _error("columns", f'"{plan.tensor_ids[i]}" has a slot or generation below 0.', tensor=plan.tensor_ids[i])
    end = max(plan.steps, 1)
    for i in np.flatnonzero((plan.birth < 0) | (plan.birth >= plan.death) | (plan.death > end)).tolist():
        yield _error(
            "range",
            f'"{plan.tensor_ids[i]}" lives [{plan.birth[i]}, {plan.death[i]}) in a timeline of {plan.steps} steps.',
            tensor=plan.tensor_ids[i],
            step=int(plan.birth[i]),
        )
    for i in np.flatnonzero(plan.offset > np.uint64(U64_MAX) - plan.size).tolist():
        yield _error("range", f'"{plan.tensor_ids[i]}" ends past 2^64 − 1.', tensor=plan.tensor_ids[i])
    run = len(plan.execution_order) + plan.has_inputs_step
    if plan.execution_order and run != plan.steps:
        yield _error("columns", f"{plan.steps} steps are said, {run} are run.")


# --- grid and arenas ---------------------------------------------------------------------------------------------


def check_alignment(facts: PlanFacts) -> Iterator[Finding]:
    """Rule ``alignment``: rows to their own grid, storages without a view's excuse to the arena's."""
    plan = facts.plan
    power = (plan.alignment > 0) & ((plan.alignment & (plan.alignment - np.uint64(1))) == 0)
    for i in np.flatnonzero(~power).tolist():
        yield _error(
            "alignment",
            f'"{plan.tensor_ids[i]}" has the alignment {plan.alignment[i]}, no power of two.',
            tensor=plan.tensor_ids[i],
        )
    off = np.flatnonzero(plan.offset % np.where(power, plan.alignment, np.uint64(1)) != 0)
    for i in off.tolist():
        yield _error(
            "alignment",
            f'"{plan.tensor_ids[i]}" lies at {plan.offset[i]}, off its grid of {plan.alignment[i]} bytes.',
            tensor=plan.tensor_ids[i],
            arena=plan.arenas[plan.arena[i]].name,
        )
    for number, arena in enumerate(plan.arenas):
        grid = arena.alignment_bytes
        if grid < 1 or grid & (grid - 1):
            yield _error("alignment", f"arena {arena.name} has the alignment {grid}.", arena=arena.name)
            continue
        # A tensor that is no view and not written into the middle of another storage begins on the arena's grid.
        slots = facts.slots
        here = np.flatnonzero(slots.arena == number)
        begins = facts.start[facts.by_slot][facts.opens_slot]
        own = np.array([plan.base_tensor_uids[row] is None for row in facts.first_row.tolist()], np.bool_)
        own = own[facts.by_slot][facts.opens_slot]
        for k in here[(begins[here] % np.uint64(grid) != 0) & own[here]].tolist():
            yield _error(
                "alignment",
                f"slot {slots.number[k]} of {arena.name} lies at {begins[k]}, off the arena's grid of {grid} bytes.",
                arena=arena.name,
            )


def check_arenas(facts: PlanFacts) -> Iterator[Finding]:
    """Rules ``bounds``, ``extent``, ``capacity``, ``figures``."""
    plan = facts.plan
    ends = facts.start + np.maximum(facts.size, np.uint64(plan.places != "bytes"))
    extents = np.array([min(max(arena.extent_bytes, 0), U64_MAX) for arena in plan.arenas] or [0], np.uint64)
    sparse = plan.places == "sparse"
    for i in np.flatnonzero(plan.offset + plan.size > extents[plan.arena]).tolist() if not sparse else ():
        arena = plan.arenas[plan.arena[i]]
        yield _error(
            "bounds",
            f'"{plan.tensor_ids[i]}" ends at {plan.offset[i] + plan.size[i]}, its arena at {arena.extent_bytes}.',
            tensor=plan.tensor_ids[i],
            arena=arena.name,
        )
    for number, arena in enumerate(plan.arenas):
        here = facts.arena == number
        # Hashed addresses end nowhere: the extent is that of the same slots end to end.
        possible = _end_to_end(facts, number) if sparse else {int(ends[here].max(initial=0))}
        highest = max(possible)
        if arena.extent_bytes not in possible:
            yield _error(
                "extent",
                f"{arena.name} says an extent of {arena.extent_bytes} bytes, its highest storage ends at {highest}.",
                arena=arena.name,
            )
        for what, said, counted in (
            ("slots", arena.slots, int((facts.slots.arena == number).sum())),
            ("max_live", arena.max_live, facts.most_together(number, facts.held_until)),
            ("storages", arena.storages, int(here.sum())),
            ("peak_live_bytes", arena.peak_live_bytes, facts.peak_live_bytes(number)),
        ):
            if said != counted:
                yield _error("figures", f"{arena.name} says {what} {said}, the rows make {counted}.", arena=arena.name)
    yield from _totals(facts)
    yield from impossible(plan)


def impossible(plan: Plan) -> Iterator[Finding]:
    """What the arenas' figures alone prove wrong: rules ``extent``, ``capacity`` and ``figures``, without any row."""
    for arena in plan.arenas:
        pages = -(-arena.extent_bytes // arena.page_size) * arena.page_size if arena.page_size else arena.extent_bytes
        if arena.committed_bytes != pages:
            yield _error(
                "extent",
                f"{arena.name} commits {arena.committed_bytes} bytes; {arena.extent_bytes} in whole pages of "
                f"{arena.page_size} are {pages}.",
                arena=arena.name,
            )
        if arena.extent_bytes > arena.capacity_bytes:
            yield _error(
                "capacity",
                f"{arena.name} needs {arena.extent_bytes} bytes and has {arena.capacity_bytes}.",
                arena=arena.name,
            )
        for bound, why in (
            (max(arena.lower_bound_bytes or 0, arena.proven_bytes or 0), "no packing is below"),
            (arena.peak_live_bytes, "are alive together"),
        ):
            if bound > arena.extent_bytes:
                yield _error(
                    "figures",
                    f"{arena.name} has an extent of {arena.extent_bytes} bytes, where {bound} {why}: it cannot be.",
                    arena=arena.name,
                )


def _totals(facts: PlanFacts) -> Iterator[Finding]:
    """Rule ``figures``, for what is said of all arenas together."""
    plan = facts.plan
    said = plan.metrics.get("totals")
    step, most = facts.peak_together(np.arange(facts.storages))
    counted = {
        "peak_live_bytes": most,
        "peak_step": step,
        "extent_bytes": sum(arena.extent_bytes for arena in plan.arenas),
        "lower_bound_bytes": sum(arena.bound_bytes for arena in plan.arenas),
    }
    for what, number in counted.items():
        if isinstance(said, dict) and said.get(what) != number:
            yield _error("figures", f"the totals say {what} {said.get(what)}, the rows and arenas make {number}.")


# --- sharing -----------------------------------------------------------------------------------------------------


def check_storages(facts: PlanFacts) -> Iterator[Finding]:
    """Rule ``storage``: who shares bytes says why, and who says so does.

    The storage column is not believed. Rows of one storage must be linked: by a base, by an alias group, or as an
    in-place chain (one ends where the next begins, or is resident, at the same byte).
    """
    plan = facts.plan
    row_of, storage = plan.row_of, plan.storage
    group_storage: dict[str, int] = {}
    for i, group in enumerate(plan.alias_group_ids):
        if group is not None and group_storage.setdefault(group, int(storage[i])) != storage[i]:
            yield _error("storage", f'alias group "{group}" lies in two storages.', tensor=plan.tensor_ids[i])
    base = np.array([-1 if name is None else row_of.get(name, -1) for name in plan.base_tensor_uids], np.int64)
    at, of = np.flatnonzero(base >= 0), base[base >= 0]
    inside = (plan.offset[of] <= plan.offset[at]) & (plan.offset[at] + plan.size[at] <= plan.offset[of] + plan.size[of])
    astray = (storage[at] != storage[of]) | (plan.arena[at] != plan.arena[of]) | ~inside
    for k in np.flatnonzero(astray).tolist():
        view, its_base = plan.tensor_ids[at[k]], plan.tensor_ids[of[k]]
        message = f'"{view}" is a view of "{its_base}" and does not lie inside it.'
        yield _error("storage", message, tensor=view, other=its_base)
    members: dict[int, list[int]] = {}
    for row in np.flatnonzero(~_linked_by_views(facts, base)[storage]).tolist():
        members.setdefault(int(storage[row]), []).append(row)
    for rows in members.values():
        yield from _unlinked(plan, rows)


def _linked_by_views(facts: PlanFacts, base: I64) -> Mask:
    """Per storage: whether its rows lie in one slot and are one tensor and its views. ``base``: a row's, or −1.

    These are nearly all of them; the others are looked at one by one.
    """
    plan, storage = facts.plan, facts.plan.storage
    root = np.arange(len(plan))
    mine = (base >= 0) & (storage[base] == storage)
    root[mine] = base[mine]
    for _ in range(len(plan).bit_length()):  # along all bases at once, twice as far every time
        root = root[root]
    first = np.full(facts.storages, len(plan), np.int64)
    np.minimum.at(first, storage, np.arange(len(plan)))
    head = first[storage]
    apart = (root != root[head]) | mine[root]  # two tensors; a circle of views has no end
    for column in (plan.arena, plan.logical_slot, plan.generation):
        apart |= column != column[head]
    linked = np.ones(facts.storages, np.bool_)
    linked[storage[apart]] = False
    return linked


def _unlinked(plan: Plan, rows: list[int]) -> Iterator[Finding]:
    if len({(int(plan.arena[i]), int(plan.logical_slot[i]), int(plan.generation[i])) for i in rows}) > 1:
        yield _error(
            "storage",
            f'"{plan.tensor_ids[rows[0]]}" and others are one storage in several places.',
            tensor=plan.tensor_ids[rows[0]],
        )
    names = [plan.tensor_ids[i] for i in rows]
    named = {base for i in rows if (base := plan.base_tensor_uids[i]) is not None}
    groups = Groups([*(f"t:{name}" for name in dict.fromkeys((*names, *sorted(named))))])
    sure = (plan.tensor_ids[i] for i in rows if (base := plan.base_tensor_uids[i]) is None or base in plan.row_of)
    anchor = next(sure, names[0])
    first_of_group: dict[str, str] = {}
    by_place: dict[tuple[int, int], str] = {}
    resident: dict[int, str] = {}
    for i in rows:
        name, base, group = plan.tensor_ids[i], plan.base_tensor_uids[i], plan.alias_group_ids[i]
        if base is not None:
            groups.join(f"t:{name}", f"t:{base}")
            if base not in plan.row_of:  # a view that the mode does not write: what it lies in, the rows do not tell
                groups.join(f"t:{name}", f"t:{anchor}")
        if group is not None:
            groups.join(f"t:{name}", f"t:{first_of_group.setdefault(group, name)}")
        by_place.setdefault((int(plan.death[i]), int(plan.offset[i])), name)
        if plan.roles[i] in PERSISTENT_ROLES:
            resident.setdefault(int(plan.offset[i]), name)
    for i in rows:
        offset = int(plan.offset[i])
        for before in (by_place.get((int(plan.birth[i]), offset)), resident.get(offset)):
            if before is not None:
                groups.join(f"t:{plan.tensor_ids[i]}", f"t:{before}")
    leader = groups.leader(f"t:{names[0]}")
    for name in names:
        if groups.leader(f"t:{name}") != leader:
            yield _error(
                "storage",
                f'"{name}" and "{names[0]}" are said to be one storage, and nothing says why.',
                tensor=name,
                other=names[0],
            )


def check_overlap(facts: PlanFacts) -> Iterator[Finding]:
    """Rule ``overlap``. Where slots alone prove it (disjoint slots, one tenant at a time) nothing is swept."""
    if _proven_by_slots(facts):
        return
    for space, storages in facts.spaces:
        boxes, owner = _boxes(facts, storages.tolist())
        for a, b in overlapping(boxes):
            first, second = facts.name(owner[a]), facts.name(owner[b])
            low, high = max(boxes[a][2], boxes[b][2]), min(boxes[a][3], boxes[b][3])
            step = max(boxes[a][0], boxes[b][0])
            yield _error(
                "overlap",
                f'"{first}" and "{second}" both hold bytes [{low}, {high}) of {space} at step {step}.',
                tensor=first,
                other=second,
                arena=facts.plan.arenas[facts.arena[owner[a]]].name,
                step=step,
            )


def overlaps(facts: PlanFacts) -> Iterator[tuple[int, int]]:
    """Pairs of storages (earlier, later) that hold one byte at one step, each storage at least once."""
    if not _proven_by_slots(facts):
        for _, storages in facts.spaces:
            boxes, owner = _boxes(facts, storages.tolist())
            for a, b in overlapping(boxes):
                yield owner[a], owner[b]


def _boxes(facts: PlanFacts, storages: list[int]) -> tuple[list[Box], list[int]]:
    """Boxes of the storages and whose they are.

    A storage that is handed off at k is read at k. There it keeps all its bytes, unless the taker lies exactly at its
    offset: then those above the taker's end.
    """
    boxes: list[Box] = []
    owner: list[int] = []
    birth, death = facts.birth.tolist(), facts.read_until.tolist()
    start, stop = facts.start.tolist(), facts.stop.tolist()
    for s in storages:
        step, taker = facts.granted.get(s, (-1, -1))
        in_place = taker >= 0 and facts.takes_over(s, taker) and death[s] == step + 1 == birth[taker] + 1
        if in_place:
            boxes += [(birth[s], step, start[s], stop[s]), (step, step + 1, max(start[s], stop[taker]), stop[s])]
            owner += [s, s]
        else:
            boxes.append((birth[s], death[s], start[s], stop[s]))
            owner.append(s)
    return boxes, owner


def _proven_by_slots(facts: PlanFacts) -> bool:
    """Disjoint slots, in each one tenant after the other, all at its start: then no two storages can overlap."""
    slots, order = facts.slots, facts.by_slot
    if (facts.start != slots.start[facts.slot_of]).any() or _slots_meet(facts).any():
        return False
    birth, held = facts.birth[order], facts.read_until[order]
    inside = ~facts.opens_slot[1:]
    close = np.flatnonzero(inside & (held[:-1] > birth[1:]))
    for at in close.tolist():
        before, after = int(order[at]), int(order[at + 1])
        if facts.granted.get(before) != (int(birth[at + 1]), after) or facts.death[before] > birth[at + 1]:
            return False
    return True  # ranges are not empty, so who is over before the next one is over before all later ones


def _slots_meet(facts: PlanFacts) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Per slot, along (arena, start): whether it begins before the one below it ends."""
    slots = facts.slots
    space = np.zeros_like(slots.arena) if facts.plan.places == "sparse" else slots.arena
    order = np.lexsort((slots.number, slots.start, space))
    arena, start, end = space[order], slots.start[order], (slots.start + slots.backing)[order]
    meet = np.zeros(len(order), np.bool_)
    meet[order[1:]] = (arena[1:] == arena[:-1]) & (start[1:] < end[:-1])
    return meet


# --- slots -------------------------------------------------------------------------------------------------------


def check_slots(facts: PlanFacts) -> Iterator[Finding]:
    """Rule ``slot``."""
    plan, slots, order = facts.plan, facts.slots, facts.by_slot
    for s in np.flatnonzero(facts.start != slots.start[facts.slot_of]).tolist():
        yield _error(
            "slot",
            f'"{facts.name(s)}" lies at {facts.start[s]}, its slot {facts.slot[s]} at {slots.start[facts.slot_of[s]]}.',
            tensor=facts.name(s),
            arena=plan.arenas[facts.arena[s]].name,
        )
    for at in np.flatnonzero(~facts.opens_slot[1:] & (facts.death[order][:-1] > facts.birth[order][1:])).tolist():
        before, after = int(order[at]), int(order[at + 1])
        yield _error(
            "slot",
            f'"{facts.name(before)}" is still in slot {facts.slot[after]} when "{facts.name(after)}" moves in.',
            tensor=facts.name(before),
            other=facts.name(after),
            arena=plan.arenas[facts.arena[after]].name,
            step=int(facts.birth[after]),
        )
    tenant = np.arange(facts.storages) - np.flatnonzero(facts.opens_slot)[np.cumsum(facts.opens_slot) - 1]
    expected = np.zeros(facts.storages, np.int64)
    expected[order] = tenant
    for i in np.flatnonzero(plan.generation != expected[plan.storage]).tolist():
        yield _error(
            "slot",
            f'"{plan.tensor_ids[i]}" says it is tenant {plan.generation[i]} of its slot, it is number '
            f"{expected[plan.storage[i]]}.",
            tensor=plan.tensor_ids[i],
        )
    for number, arena in enumerate(plan.arenas):
        used = slots.number[slots.arena == number]
        if not np.array_equal(used, np.arange(len(used))):
            yield _error("slot", f"the slots of {arena.name} are not numbered 0, 1, 2, ….", arena=arena.name)
    if plan.has_slots:
        for k in np.flatnonzero(_slots_meet(facts)).tolist():
            name = plan.arenas[slots.arena[k]].name
            yield _error("slot", f"slot {slots.number[k]} of {name} begins inside the slot below it.", arena=name)


def check_slot_offsets(facts: PlanFacts, alignment: Mapping[int, int] | None) -> Iterator[Finding]:
    """Rule ``slot_offset``: ``offset_{k+1} = align_up(offset_k + slot_size_k, align_{k+1})``.

    ``alignment`` is what each storage (by number) asks for, from the graph. Without it the rows' own must do: those of
    rows at the storage's start, where a view's may be its own wish or its dtype's grid, so both are tried.
    """
    plan, slots = facts.plan, facts.slots
    tried = _grids(facts, alignment)
    end, before = 0, -1
    for k, (arena, start, size) in enumerate(
        zip(slots.arena.tolist(), slots.start.tolist(), slots.backing.tolist(), strict=True)
    ):
        end = end if arena == before else 0
        expected = {-(-end // int(asked[k])) * int(asked[k]) for asked in tried}
        if start not in expected:
            name = plan.arenas[arena].name
            yield _error(
                "slot_offset",
                f"slot {slots.number[k]} of {name} lies at {start}; the slots below it put it at {min(expected)}.",
                arena=name,
            )
        end, before = start + size, arena


def _grids(facts: PlanFacts, alignment: Mapping[int, int] | None) -> list[U64]:
    """Per slot, what its start may be asked to be a multiple of: one answer with ``alignment``, else two."""
    plan, slots = facts.plan, facts.slots
    floor = np.array([max(arena.alignment_bytes, 1) for arena in plan.arenas] or [1], np.uint64)[slots.arena]
    if alignment is not None:
        asked = floor.copy()
        np.maximum.at(asked, facts.slot_of, np.array([alignment.get(s, 1) for s in range(facts.storages)], np.uint64))
        return [asked]
    is_view = np.array([base is not None for base in plan.base_tensor_uids], np.bool_)
    tried = []
    for rows in (np.flatnonzero(~is_view), np.arange(len(plan))):
        asked = floor.copy()
        np.maximum.at(asked, facts.slot_of[plan.storage[rows]], plan.alignment[rows])
        tried.append(asked)
    return tried


def _end_to_end(facts: PlanFacts, arena: int) -> set[int]:
    """Where the arena's slots could end if they lay at aligned prefix sums."""
    here = np.flatnonzero(facts.slots.arena == arena)
    ends = set()
    for grid in _grids(facts, None):
        end = 0
        for size, step in zip(facts.slots.backing[here].tolist(), grid[here].tolist(), strict=True):
            end = -(-end // step) * step + size
        ends.add(end)
    return ends


def check_numbering(facts: PlanFacts) -> Iterator[Finding]:
    """Rule ``numbering`` (contract §9). An instance's storage with gaps holds its number once a part, at one place."""
    plan, slots, order = facts.plan, facts.slots, facts.by_slot
    first = order[facts.opens_slot]
    for s in order[~facts.opens_slot].tolist():
        opener = int(first[facts.slot_of[s]])
        part = facts.name(s).startswith(f"{facts.name(opener)}{PART}")
        if not part or facts.start[s] != facts.start[opener] or facts.size[s] != facts.size[opener]:
            yield _error(
                "numbering",
                f'"{facts.name(s)}" and "{facts.name(opener)}" have one number, which bytes placed apart have not.',
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
        yield _error(
            "numbering",
            f'"{facts.name(int(first[k + 1]))}" has the number behind "{facts.name(int(first[k]))}" and comes before '
            "it by offset, birth and id.",
            tensor=facts.name(int(first[k + 1])),
            other=facts.name(int(first[k])),
            arena=plan.arenas[slots.arena[k]].name,
        )


def check_sparse_addresses(facts: PlanFacts) -> Iterator[Finding]:
    """Rule ``sparse_address``: the draft's hash, worked out again (001, ``MapToVirtualAddresses_v1``)."""
    plan, slots = facts.plan, facts.slots
    bits = plan.notes.get("addressing", {}).get("bits")
    if not isinstance(bits, int) or not 1 <= bits <= 64:
        yield _error("sparse_address", "the plan does not say how many bits its hashed addresses have.")
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
            yield _error(
                "sparse_address",
                f"slot {number} of {name} lies at {start:#x}, its hash puts it at {address:#x}.",
                arena=name,
            )


def check_slot_counts(facts: PlanFacts, arenas_with_pairs: frozenset[str] | None) -> Iterator[Finding]:
    """Rule ``slots_max_live``, for the planner ``slots``.

    Only ``must_not_alias`` pairs excuse more (warning ``slots_over_optimal``); ``None``: not known whether there are.
    """
    plan = facts.plan
    for number, arena in enumerate(plan.arenas):
        slots, live = int((facts.slots.arena == number).sum()), facts.most_together(number, facts.death)
        if slots < live:
            yield _error("slots_max_live", f"{arena.name} has {slots} slots for {live} storages at once.")
        if plan.planner != "slots" or slots <= live:
            continue
        if arenas_with_pairs is None or arena.name in arenas_with_pairs:
            why = "its must_not_alias pairs may ask for them" if arenas_with_pairs else "give the graph to know why"
            yield Finding(
                "slots_over_optimal",
                "warning",
                f"{arena.name} has {slots} slots, {slots - live} more than are ever alive together: {why}.",
                arena=arena.name,
            )
        else:
            yield _error(
                "slots_max_live",
                f"{arena.name} has {slots} slots, but at most {live} storages are alive together.",
                arena=arena.name,
            )


# --- hand-offs and hashes ----------------------------------------------------------------------------------------


def check_handoffs(facts: PlanFacts) -> Iterator[Finding]:
    """Rule ``handoff``: what a plan's list of hand-offs says of its rows."""
    plan = facts.plan
    disjoint = not _slots_meet(facts).any()
    gave: set[str] = set()
    took: set[str] = set()
    for (step, x, y), taken in zip(plan.handoffs, plan.taken, strict=True):
        fields: dict[str, Any] = {"tensor": x, "other": y, "step": step}
        if x not in plan.row_of or y not in plan.row_of:
            yield _error("handoff", f'"{x}" is handed to "{y}" at step {step}, and one of them has no row.', **fields)
            continue
        if x in gave or y in took:
            yield _error("handoff", f'"{x}" gives, or "{y}" takes, a second time at step {step}.', **fields)
        gave.add(x)
        took.add(y)
        i, j = plan.row_of[x], plan.row_of[y]
        a, b = int(plan.storage[i]), int(plan.storage[j])
        if plan.death[i] != step or facts.death[a] != step or plan.birth[j] != step or facts.birth[b] != step:
            yield _error(
                "handoff",
                f'"{x}" is handed to "{y}" at step {step}, but dies at {facts.death[a]}, and "{y}" is born at '
                f"{facts.birth[b]}.",
                **fields,
            )
        if plan.arena[i] != plan.arena[j]:
            yield _error("handoff", f'"{x}" and "{y}" lie in different arenas.', **fields)
        # Where slots do not keep storages apart, the taker must begin exactly where the giver does.
        here = facts.takes_over(a, b)
        if plan.places == "bytes" and not disjoint and not here:
            yield _error("handoff", f'"{y}" does not lie exactly where "{x}" lay.', **fields)
        if taken != here:
            says = ("is", "is not") if taken else ("is not", "is")
            yield _error("handoff", f'"{x}" {says[0]} said to be taken over by "{y}", and it {says[1]}.', **fields)


def check_places(plan: Plan) -> Iterator[Finding]:
    """Rule ``places``: a warning where a reader had to derive it."""
    if UNSAID in plan.notes:
        yield Finding(
            "places",
            "warning",
            f"the file does not say what it places; it is judged as a plan of {plan.places}: {plan.notes[UNSAID]}.",
        )


def check_hashes(facts: PlanFacts, arenas: Mapping[str, Arena | Mapping[str, Any]] | None) -> Iterator[Finding]:
    """Rule ``hash``: recomputed from what the plan says, by the judge's own encoder."""
    plan, slots = facts.plan, facts.slots
    for name in ("ir_hash", "shard_spec_hash", "arena_config_hash", "replay_token"):
        if len(getattr(plan, name)) != 32:
            yield _error("hash", f"{name} has {len(getattr(plan, name))} bytes, not 32.")
    if plan.execution_order_hash != order_hash(plan.execution_order):
        yield _error("hash", "the execution order hash is not that of the execution order.")
    names = [arena.name for arena in plan.arenas]
    slot_rows = [
        (tensor, names[arena], slot)
        for tensor, arena, slot in zip(plan.tensor_ids, plan.arena.tolist(), plan.logical_slot.tolist(), strict=True)
    ]
    address_rows = [
        (names[arena], slot, start)
        for arena, slot, start in zip(slots.arena.tolist(), slots.number.tolist(), slots.start.tolist(), strict=True)
    ]
    if plan.layout_hash != layout_hash(slot_rows, address_rows):
        yield _error("hash", "the layout hash is not that of the rows.")
    header: list[Any] = [plan.ir_hash, plan.mode, plan.arena_config_hash, plan.execution_order_hash]
    header += [plan.rank, plan.world_size, plan.shard_spec_hash]
    if plan.tmmu_plan_hash != plan_hash(header, plan.replay_token, slot_rows, address_rows):
        yield _error("hash", "the plan hash is not that of the plan.")
    if CHANGED in plan.notes:
        yield _error("hash", f"the file was changed after it was written: {plan.notes[CHANGED]}.")
    if arenas is not None and plan.arena_config_hash != hash_of(arena_config_object(arenas)):
        yield _error("hash", "the arena configuration hash is not that of the configuration.")


def _configuration(
    plan: Plan, arenas: Mapping[str, Arena | Mapping[str, Any]] | None
) -> Mapping[str, Arena | Mapping[str, Any]] | None:
    """The arenas' configuration, where there is one and it is known: given, or none by the hash of it."""
    if plan.own_arenas:
        return None
    return {} if plan.arena_config_hash == hash_of({}) else arenas


def check_configuration(plan: Plan, arenas: Mapping[str, Arena | Mapping[str, Any]]) -> Iterator[Finding]:
    """Rule ``configuration``."""
    for arena in plan.arenas:
        default = Arena()
        given = arenas.get(arena.name, default) if arenas else default
        said = given if isinstance(given, Arena) else Arena(**{k: v for k, v in given.items() if k in _ARENA_FIELDS})
        for name in _ARENA_FIELDS:
            if getattr(arena, name) != getattr(said, name):
                yield _error(
                    "configuration",
                    f"{arena.name} says {name} {getattr(arena, name)}, its configuration {getattr(said, name)}.",
                    arena=arena.name,
                )


PART = "@part"
"""What an instance's rows are called behind a storage's id, from its second live part on."""

_COLUMNS = (
    *("arena", "logical_slot", "offset", "size", "alignment", "birth", "death", "generation", "storage"),
    *("roles", "dtypes", "shapes", "alias_group_ids", "base_tensor_uids"),
)
_ARENA_FIELDS = ("capacity_bytes", "alignment_bytes", "page_size")
