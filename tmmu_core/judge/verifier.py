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
from tmmu_core.graph.model import Arena, Graph
from tmmu_core.judge import against_graph
from tmmu_core.judge.canonical import arena_config_object, hash_of, layout_hash, order_hash, plan_hash
from tmmu_core.judge.facts import PlanFacts
from tmmu_core.judge.figures import check_arenas, check_certificates, check_metrics
from tmmu_core.judge.finding import Finding, Verdict, error, shortened
from tmmu_core.judge.places import check_alignment, check_overlap, check_storages
from tmmu_core.judge.rows import check_rows
from tmmu_core.judge.slotting import (
    check_numbering,
    check_slot_counts,
    check_slot_offsets,
    check_slots,
    check_sparse_addresses,
)
from tmmu_core.plan.model import CHANGED, UNHELD, UNSAID, Plan

OWN_RULES: dict[str, str] = {
    "columns": "columns are of one length, rows come by tensor id bytes, each tensor once, arenas and storages exist",
    "range": "live ranges are not empty and lie inside the timeline",
    "row": "role and dtype are known, bytes are the shape's, what persists lives through, views lie in their bases",
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
    "figures": "slots, max live, storages, peak live bytes, totals and ratios are what the rows make them",
    "certificate": "what is called optimal is as small as its bound, and the storages that make a bound add up to it",
    "handoff": "a hand-off's giver dies when its taker is born, and is taken over where the plan says so",
    "hash": "order, layout and plan hash are those of what the plan says",
    "configuration": "arenas have the capacity, alignment and pages of their configuration",
    "places": "the plan says what it places, so that nobody has to guess which rules hold of its offsets",
    "held": "a file holds hashes of what was written, so that an edit in any one place is found",
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
        *check_rows(facts),
        *check_alignment(facts),
        *check_arenas(facts),
        *check_storages(facts),
        *check_overlap(facts),
        *check_slots(facts),
        *check_handoffs(facts),
        *check_hashes(facts, arenas),
        *check_metrics(plan),
        *check_certificates(facts),
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
    findings += [*check_places(plan), *check_held(plan)]
    checked = tuple(rule for rule in RULES if rule not in left_out)
    return Verdict(shortened(findings), checked, tuple((rule, left_out[rule]) for rule in RULES if rule in left_out))


# --- columns -----------------------------------------------------------------------------------------------------


def check_columns(plan: Plan) -> Iterator[Finding]:
    """Rules ``columns`` and ``range``."""
    n = len(plan)
    columns = {name: len(getattr(plan, name)) for name in _COLUMNS}
    for name, length in columns.items():
        if length != n:
            yield error("columns", f"the column {name} has {length} rows, there are {n} tensors.")
    if set(columns.values()) - {n}:
        return
    for before, after in zip(plan.tensor_ids, plan.tensor_ids[1:], strict=False):
        if before >= after:
            yield error("columns", f'row "{after}" does not come behind "{before}".', tensor=after, other=before)
    for i in np.flatnonzero((plan.arena < 0) | (plan.arena >= len(plan.arenas))).tolist():
        yield error("columns", f'"{plan.tensor_ids[i]}" lies in arena number {plan.arena[i]}, which there is not.')
    names = [arena.name for arena in plan.arenas]
    if names != sorted(set(names)):
        yield error("columns", "the arenas do not come by name, each once.")
    used = np.unique(plan.storage)
    if not np.array_equal(used, np.arange(len(used))):
        yield error("columns", "the storages are not numbered 0, 1, 2, ….")
    for i in np.flatnonzero((plan.logical_slot < 0) | (plan.generation < 0)).tolist():
        yield error("columns", f'"{plan.tensor_ids[i]}" has a slot or generation below 0.', tensor=plan.tensor_ids[i])
    end = max(plan.steps, 1)
    for i in np.flatnonzero((plan.birth < 0) | (plan.birth >= plan.death) | (plan.death > end)).tolist():
        yield error(
            "range",
            f'"{plan.tensor_ids[i]}" lives [{plan.birth[i]}, {plan.death[i]}) in a timeline of {plan.steps} steps.',
            tensor=plan.tensor_ids[i],
            step=int(plan.birth[i]),
        )
    for i in np.flatnonzero(plan.offset > np.uint64(U64_MAX) - plan.size).tolist():
        yield error("range", f'"{plan.tensor_ids[i]}" ends past 2^64 − 1.', tensor=plan.tensor_ids[i])
    run = len(plan.execution_order) + plan.has_inputs_step
    if plan.execution_order and run != plan.steps:
        yield error("columns", f"{plan.steps} steps are said, {run} are run.")


# --- hand-offs and hashes ----------------------------------------------------------------------------------------


def check_handoffs(facts: PlanFacts) -> Iterator[Finding]:
    """Rule ``handoff``: what a plan's list of hand-offs says of its rows."""
    plan = facts.plan
    disjoint = not facts.slots_meet.any()
    gave: set[str] = set()
    took: set[str] = set()
    for (step, x, y), taken in zip(plan.handoffs, plan.taken, strict=True):
        fields: dict[str, Any] = {"tensor": x, "other": y, "step": step}
        if x not in plan.row_of or y not in plan.row_of:
            yield error("handoff", f'"{x}" is handed to "{y}" at step {step}, and one of them has no row.', **fields)
            continue
        if x in gave or y in took:
            yield error("handoff", f'"{x}" gives, or "{y}" takes, a second time at step {step}.', **fields)
        gave.add(x)
        took.add(y)
        i, j = plan.row_of[x], plan.row_of[y]
        a, b = int(plan.storage[i]), int(plan.storage[j])
        if plan.death[i] != step or facts.death[a] != step or plan.birth[j] != step or facts.birth[b] != step:
            yield error(
                "handoff",
                f'"{x}" is handed to "{y}" at step {step}, but dies at {facts.death[a]}, and "{y}" is born at '
                f"{facts.birth[b]}.",
                **fields,
            )
        if plan.arena[i] != plan.arena[j]:
            yield error("handoff", f'"{x}" and "{y}" lie in different arenas.', **fields)
        # Where slots do not keep storages apart, the taker must begin exactly where the giver does.
        here = facts.takes_over(a, b)
        if plan.places == "bytes" and not disjoint and not here:
            yield error("handoff", f'"{y}" does not lie exactly where "{x}" lay.', **fields)
        if taken != here:
            says = ("is", "is not") if taken else ("is not", "is")
            yield error("handoff", f'"{x}" {says[0]} said to be taken over by "{y}", and it {says[1]}.', **fields)


def check_places(plan: Plan) -> Iterator[Finding]:
    """Rule ``places``: a warning where a reader had to derive it."""
    if plan.remark(UNSAID):
        yield Finding(
            "places",
            "warning",
            f"the file does not say what it places; it is judged as a plan of {plan.places}: {plan.remark(UNSAID)}.",
        )


def check_held(plan: Plan) -> Iterator[Finding]:
    """Rule ``held``: a warning where a file holds no hashes, so that an edit after which it is a sound plan is lost."""
    if plan.remark(UNHELD):
        yield Finding("held", "warning", f"nothing vouches for the file: {plan.remark(UNHELD)}.")


def check_hashes(facts: PlanFacts, arenas: Mapping[str, Arena | Mapping[str, Any]] | None) -> Iterator[Finding]:
    """Rule ``hash``: recomputed from what the plan says, by the judge's own encoder."""
    plan, slots = facts.plan, facts.slots
    for name in ("ir_hash", "shard_spec_hash", "arena_config_hash", "replay_token"):
        drafts = name == "replay_token" and plan.places == "sparse" and len(plan.replay_token) >= 64
        if len(getattr(plan, name)) != 32 and not drafts:
            yield error("hash", f"{name} has {len(getattr(plan, name))} bytes, not 32.")
    if plan.execution_order_hash != order_hash(plan.execution_order):
        yield error("hash", "the execution order hash is not that of the execution order.")
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
        yield error("hash", "the layout hash is not that of the rows.")
    header: list[Any] = [plan.ir_hash, plan.mode, plan.arena_config_hash, plan.execution_order_hash]
    header += [plan.rank, plan.world_size, plan.shard_spec_hash]
    if plan.tmmu_plan_hash != plan_hash(header, plan.replay_token, slot_rows, address_rows):
        yield error("hash", "the plan hash is not that of the plan.")
    yield from check_changes(plan)
    if arenas is not None and plan.arena_config_hash != hash_of(arena_config_object(arenas)):
        yield error("hash", "the arena configuration hash is not that of the configuration.")


def check_changes(plan: Plan) -> Iterator[Finding]:
    """Rule ``hash``, for what a reader found changed in a file that holds hashes of what was written."""
    if plan.remark(CHANGED):
        yield error("hash", f"the file was changed after it was written: {plan.remark(CHANGED)}.")


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
        given = arenas.get(arena.name, default)
        said = given if isinstance(given, Arena) else Arena(**{k: v for k, v in given.items() if k in _ARENA_FIELDS})
        for name in _ARENA_FIELDS:
            if getattr(arena, name) != getattr(said, name):
                yield error(
                    "configuration",
                    f"{arena.name} says {name} {getattr(arena, name)}, its configuration {getattr(said, name)}.",
                    arena=arena.name,
                )


_COLUMNS = (
    *("arena", "logical_slot", "offset", "size", "alignment", "birth", "death", "generation", "storage"),
    *("roles", "dtypes", "shapes", "alias_group_ids", "base_tensor_uids"),
)
_ARENA_FIELDS = ("capacity_bytes", "alignment_bytes", "page_size")
