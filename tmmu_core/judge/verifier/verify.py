"""Verify a plan of any planner or file (contract §1, §3, §4, §6; TMMU v2 I.E).

The rules of :mod:`.against_graph` need the plan's graph. Near-linear in rows; quadratic with temporal exclusions.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from typing import Any

import msgspec
import numpy as np

from tmmu_core.base.errors import U64_MAX
from tmmu_core.graph.model import Arena, Graph
from tmmu_core.judge.canonical_hashes import hash_of, hash_of_rows, layout_hash, plan_hash
from tmmu_core.judge.finding import Finding, Verdict, error, limited, warning
from tmmu_core.judge.verifier import against_graph, check_bytes
from tmmu_core.judge.verifier.against_graph import OWN_ARENAS
from tmmu_core.judge.verifier.check_constraints import check_constraints, check_reuse_cost
from tmmu_core.judge.verifier.check_figures import certificates, check_arenas, check_certificates, check_metrics
from tmmu_core.judge.verifier.row_columns import PlanFacts
from tmmu_core.plans.model import CHANGED, COLUMN_OF, NO_CONTENT_HASH, PLACES_DERIVED, Plan

OWN_RULES: dict[str, str] = {
    "columns": "columns have one length, rows are unique and sorted by id bytes, arenas exist, steps match the order",
    "range": "live ranges are not empty and are inside the timeline, bytes end by 2^64 − 1",
    "row": "preset, role, dtype and size are valid, persistent tensors are always live, views are inside their bases",
    "alignment": "offsets are multiples of the row's alignment, slots of the arena's; alignments are powers of two",
    "bounds": "every row ends within its arena's extent",
    "extent": "the extent is the end of the highest storage, committed bytes are the extent in whole pages",
    "capacity": "no arena's extent is over its capacity",
    "storage": "rows that share a storage are linked by views, an alias group or an in-place chain",
    "overlap": "no two storages use the same byte at the same step, except for in-place reuse at the same offset",
    "slot": "a slot has one storage at a time, at its offset; slots do not overlap and are numbered from 0",
    "slot_offset": "offsets are aligned prefix sums over the slots (plans of slots)",
    "numbering": "each storage has its own number, in the order of offset, birth and id (plans that place bytes)",
    "sparse_address": "every slot is at the hash of replay token, arena and slot number (superseded draft)",
    "slots_max_live": "an arena has as many slots as storages live at one step; planners other than slots may use more",
    "figures": "slots, max live, storages, peak live bytes, totals and ratios follow from the rows",
    "certificate": "a stated bound equals the bound of its witness, and an optimal extent equals its bound",
    "handoff": "in-place reuse is at the input's death and the output's birth, and is marked if and only if taken",
    "hash": "the hashes of order, layout and plan follow from the plan",
    "configuration": "arenas have the capacity, alignment and page size of their configuration",
    "constraint": "separations, colocations, pinned offsets and reserved ranges are observed",
    "reuse_cost": "the reuse cost is the sum of the penalties whose tensors share bytes",
    "places": "the file states the unit of placement, which selects the rules for offsets",
    "content_hash": "the file has a content hash, which detects every edit",
}
"""Rule of a plan without its graph → the property that it checks."""

RULES: dict[str, str] = OWN_RULES | against_graph.RULES

_RULES_NOT_APPLIED: dict[str, dict[str, str]] = {
    "slots": {"numbering": "the planner places slots", "sparse_address": "the planner places slots"},
    "bytes": {"slot_offset": "the planner places bytes", "sparse_address": "the planner places bytes"},
    "sparse": {
        "bounds": "hashed addresses are not limited by the extent",
        "slot_offset": "its addresses are hashed",
        "numbering": "its addresses are hashed",
    },
}
"""``Plan.places`` → rules that do not apply to it, with the reason."""

DECLARED_ARENAS = "no arena configuration is given; the plan's own is used"
UNKNOWN_ARENAS = "the arena configuration is not given, and the plan's arenas do not reproduce its hash"

Arenas = Mapping[str, Mapping[str, Any]]
_ARENA_DEFAULTS = msgspec.structs.asdict(Arena())


def verify_plan(
    plan: Plan,
    graph: Graph | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    arenas: Arenas | None = None,
    whole_hash: bytes | None = None,
) -> Verdict:
    """Verify a plan; with ``graph``, also against its graph.

    ``dims``: the values of the named dimensions; by default the values in the plan's shapes. ``arenas``: the arena
    configuration as given, if known. ``whole_hash``: the ir_hash of the whole graph if ``graph`` is a rank's part
    (TMMU v2 II.I). Does not raise for an invalid plan: findings are in the verdict.
    """
    broken = list(check_columns(plan))
    if broken:
        # The other rules need valid columns.
        checked_rules = ("columns", "range")
        others = tuple((rule, "its columns are invalid") for rule in RULES if rule not in checked_rules)
        return Verdict(limited(broken), checked_rules, others)
    facts = PlanFacts(plan)
    first_checks = (check_bytes.check_rows, check_bytes.check_alignment, check_arenas, check_bytes.check_storages)
    checks = (*first_checks, check_bytes.check_overlap, check_bytes.check_slots, check_handoffs)
    findings = [finding for check in checks for finding in check(facts)]
    findings += [*check_hashes(facts, arenas), *check_metrics(plan), *check_constraints(plan), *check_reuse_cost(plan)]
    findings += [*check_certificates(facts, graph)]
    config, unchecked = _configuration(plan, arenas)
    not_checked = {**_RULES_NOT_APPLIED[plan.places], **unchecked}
    if config is not None:
        findings += check_configuration(plan, config)
    liveness = None
    if graph is None:
        not_checked |= dict.fromkeys(against_graph.RULES, "no graph was given")
    else:
        graph_findings, liveness = against_graph.examine(facts, graph, dims, whole_hash)
        findings += graph_findings
        if liveness is None:
            reason = graph_findings[0].message.partition(":")[0]
            not_checked |= {rule: reason for rule in against_graph.RULES if rule != "graph"}
        elif plan.own_arenas:
            not_checked["arena"] = OWN_ARENAS
    if plan.places == "slots":
        findings += check_bytes.check_slot_offsets(facts, liveness)
    elif plan.places == "bytes":
        findings += check_bytes.check_numbering(facts)
    else:
        findings += check_bytes.check_sparse_addresses(facts)
    findings += [*check_bytes.check_slot_counts(facts, liveness), *check_remarks(plan)]
    certified = certificates(facts, liveness, configured=config is not None)
    claiming_arenas = [arena.name for arena in certified if arena.proven_bytes is not None]
    if claiming_arenas:
        not_checked["certificate"] = f"the bound of {', '.join(claiming_arenas)} was not recomputed"
    rules = tuple(rule for rule in RULES if rule not in not_checked)
    reasons = tuple((rule, not_checked[rule]) for rule in RULES if rule in not_checked)
    return Verdict(limited(findings), rules, reasons, certified, "graph" if liveness else "rows")


def _configuration(plan: Plan, arenas: Arenas | None) -> tuple[Arenas | None, dict[str, str]]:
    """Return the arena configuration (``None``: not known), and rule → why it is not checked."""
    if plan.own_arenas:
        return None, {"configuration": OWN_ARENAS}
    if plan.arena_config_hash == hash_of({}):
        return {}, {}
    if arenas is not None:
        return arenas, {}
    # The configuration may give a field for all arenas, for none, or where it is not the default: try all forms.
    for forms in product(("changed", "all", "none"), repeat=len(_ARENA_DEFAULTS)):
        config = {
            arena.name: {
                field: getattr(arena, field)
                for (field, default), form in zip(_ARENA_DEFAULTS.items(), forms, strict=True)
                if form == "all" or (form == "changed" and getattr(arena, field) != default)
            }
            for arena in plan.arenas
        }
        if hash_of(config) == plan.arena_config_hash:
            return config, {"configuration": DECLARED_ARENAS}
    return None, {"configuration": UNKNOWN_ARENAS}


def verdict_warnings(verdict: Verdict) -> tuple[str, ...]:
    """Return a warning for a digest; else one per reason (own or unknown arenas) for which rules are not checked."""
    if verdict.examined == "totals":
        return ("the file is a digest; its totals were checked, but no placement.",)
    rules: dict[str, list[str]] = {}
    for rule, why in verdict.not_checked:
        if why in (OWN_ARENAS, UNKNOWN_ARENAS):
            rules.setdefault(why, []).append(rule)
    return tuple([f"not checked: {', '.join(names)} ({why})." for why, names in rules.items()])


def check_columns(plan: Plan) -> Iterator[Finding]:
    """Check rules ``columns`` and ``range``."""
    n, ids = len(plan), plan.tensor_ids
    lengths = {name: len(getattr(plan, name)) for name in (*COLUMN_OF.values(), "storage") if name != "categories"}
    for name, length in lengths.items():
        if length != n:
            yield error("columns", f"the column {name} has {length} rows for {n} tensors.")
    if set(lengths.values()) - {n}:
        return
    for before, after in pairwise(ids):
        if before >= after:
            yield error("columns", f"row {after!r} does not sort after {before!r}.", tensor=after, other=before)
    for i in np.flatnonzero((plan.arena < 0) | (plan.arena >= len(plan.arenas))).tolist():
        yield error("columns", f"{ids[i]!r} is in arena number {plan.arena[i]}, which does not exist.", tensor=ids[i])
    for i in np.flatnonzero((plan.birth < 0) | (plan.birth >= plan.death) | (plan.death > plan.end)).tolist():
        message = f"{ids[i]!r} has the live range [{plan.birth[i]}, {plan.death[i]}) of {plan.steps} steps."
        yield error("range", message, tensor=ids[i], step=int(plan.birth[i]))
    for i in np.flatnonzero(plan.offset > np.uint64(U64_MAX) - plan.size).tolist():
        yield error("range", f"{ids[i]!r} ends past 2^64 − 1.", tensor=ids[i])
    ordered_steps = len(plan.execution_order) + plan.has_inputs_step
    if plan.execution_order and ordered_steps != plan.steps:
        yield error("columns", f"the plan has {plan.steps} steps; its execution order has {ordered_steps}.")


def check_handoffs(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``handoff``: the plan's list of in-place reuse against its rows."""
    plan = facts.plan
    disjoint = not facts.overlaps_slot_below.any()
    used_inputs, used_outputs = set[str](), set[str]()
    for (step, x, y), taken in zip(plan.handoffs, plan.taken, strict=True):
        reuse, problems = f"the reuse of {x!r} by {y!r} at step {step}", []
        if x not in plan.row_of or y not in plan.row_of:
            yield error("handoff", f"{reuse} names a tensor without a row.", tensor=x, other=y, step=step)
            continue
        if x in used_inputs or y in used_outputs:
            problems.append("repeats the input or the output of an earlier reuse")
        used_inputs.add(x)
        used_outputs.add(y)
        i, j = plan.row_of[x], plan.row_of[y]
        a, b = int(plan.storage[i]), int(plan.storage[j])
        if {plan.death[i], facts.death[a], plan.birth[j], facts.birth[b]} != {step}:
            ends = f"the death of {x!r} ({facts.death[a]}) and the birth of {y!r} ({facts.birth[b]})"
            problems.append(f"is not at {ends}")
        if plan.arena[i] != plan.arena[j]:
            problems.append("is between two arenas")
        # A plan that places bytes lists only reuses at one offset. If no slots overlap, another offset does no harm.
        is_at_one_offset = facts.has_same_start(a, b)
        if plan.places == "bytes" and not disjoint and not is_at_one_offset:
            problems.append("is between two offsets")
        if taken != is_at_one_offset:
            problems.append(f"is marked as {'taken' if taken else 'not taken'}, which is wrong")
        yield from (error("handoff", f"{reuse} {problem}.", tensor=x, other=y, step=step) for problem in problems)


def check_remarks(plan: Plan) -> Iterator[Finding]:
    """Check rules ``places``, ``content_hash`` and ``hash`` by the remarks of the plan's reader."""
    if derived := plan.remark(PLACES_DERIVED):
        message = f"the file does not state its unit of placement; checked as a plan of {plan.places}: {derived}."
        yield warning("places", message)
    if plan.remark(NO_CONTENT_HASH):
        yield warning("content_hash", "the file has no content hash, so an edit may be undetected.")
    if parts := plan.remark(CHANGED):
        yield error("hash", f"the file was changed after it was written: {parts}.")


def check_hashes(facts: PlanFacts, arenas: Arenas | None) -> Iterator[Finding]:
    """Check rule ``hash``: recompute derived hashes with the judge's encoder."""
    plan, slots = facts.plan, facts.slots
    for name in ("ir_hash", "shard_spec_hash", "arena_config_hash", "replay_token"):
        is_draft_token = name == "replay_token" and plan.places == "sparse" and len(plan.replay_token) >= 64
        if len(getattr(plan, name)) != 32 and not is_draft_token:
            yield error("hash", f"{name} has {len(getattr(plan, name))} bytes, not 32.")
    names = [arena.name for arena in plan.arenas]
    rows = zip(plan.tensor_ids, plan.arena.tolist(), plan.logical_slot.tolist(), strict=True)
    slot_rows = [(tensor, names[arena], slot) for tensor, arena, slot in rows]
    places = zip(slots.arena.tolist(), slots.number.tolist(), slots.start.tolist(), strict=True)
    address_rows = [(names[arena], slot, start) for arena, slot, start in places]
    header: list[Any] = [plan.ir_hash, plan.mode, plan.arena_config_hash, plan.execution_order_hash]
    header += [plan.rank, plan.world_size, plan.shard_spec_hash]
    expected = {
        "execution_order_hash": hash_of_rows(list(plan.execution_order)),
        "layout_hash": layout_hash(slot_rows, address_rows),
        "tmmu_plan_hash": plan_hash(header, plan.replay_token, slot_rows, address_rows),
    }
    if arenas is not None:
        expected["arena_config_hash"] = hash_of({name: dict(arena) for name, arena in arenas.items()})
    for name, digest in expected.items():
        if getattr(plan, name) != digest:
            yield error("hash", f"{name} does not match the plan.")


def check_configuration(plan: Plan, arenas: Arenas) -> Iterator[Finding]:
    """Check rule ``configuration``."""
    for arena in plan.arenas:
        for name, expected in {**_ARENA_DEFAULTS, **arenas.get(arena.name, {})}.items():
            if name in _ARENA_DEFAULTS and getattr(arena, name) != expected:
                message = f"{name} {getattr(arena, name)}; its configuration has {expected}"
                yield error("configuration", f"{arena.name} has {message}.", arena=arena.name)
