"""Verify a finished plan: a plan that comes from a file, not from a planner of this process (contract §5, §11, §12)."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tmmu_core.base.errors import AddressCollision, AlignmentViolation, ArenaTooSmall, ContractError, InvalidIrShapes
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Finding, Verdict
from tmmu_core.judge.verifier import check_figures
from tmmu_core.judge.verifier.check_bytes import overlaps
from tmmu_core.judge.verifier.check_constraints import excluded_storages
from tmmu_core.judge.verifier.row_columns import Mask, PlanFacts
from tmmu_core.judge.verifier.verify import RULES, check_columns, check_remarks, verify_plan
from tmmu_core.plans.model import INVALID, Plan

MAX_PAIRS = 50_000_000  # number of compared pairs above which :func:`conflicting_rows` misses some conflicts


class FinishedPlan(NamedTuple):
    """A finished plan with its verdict."""

    plan: Plan
    verdict: Verdict


def verify_finished(plan: Plan, graph: Graph | None = None, *, complete: bool = True, **options: Any) -> FinishedPlan:
    """Return ``plan`` with its verdict. If it is not ``complete`` (a digest), only figures and remarks are checked."""
    if complete:
        verdict = verify_plan(plan, graph, **options)
    else:
        checked = ("extent", "capacity", "figures", "hash", "content_hash")
        not_checked = tuple((rule, "a digest has no rows") for rule in RULES if rule not in checked)
        findings = (*check_figures.check_arena_figures(plan), *check_figures.check_metrics(plan), *check_remarks(plan))
        no_bound = (0, (), -1)  # without rows, no bound can be recomputed
        arenas = tuple([check_figures.certificate(arena, no_bound) for arena in plan.arenas])
        verdict = Verdict(findings, checked, not_checked, arenas, "totals")
    return FinishedPlan(with_certificates(plan, verdict), verdict)


def with_certificates(plan: Plan, verdict: Verdict) -> Plan:
    """Return ``plan`` with the certificates of ``verdict``; the status of an invalid plan is ``invalid``."""
    if verdict.ok:
        return check_figures.with_recomputed_bounds(plan, verdict.arenas)
    return replace(plan, arenas=tuple([replace(arena, status=INVALID) for arena in plan.arenas]))


def with_bounds_of_rows(plan: Plan) -> Plan:
    """Return ``plan`` with the lower bounds that its rows prove without its graph."""
    return with_certificates(plan, verify_plan(plan))


def refuse_invalid(plan: Plan, operator: str, verdict: Verdict | None = None) -> None:
    """Raise for an invalid plan. ``operator``: operator in the error record; ``verdict``: the plan's verdict, if known.

    Raises the first that applies: ``AddressCollision`` for an overlap, ``ArenaTooSmall`` for a tensor outside its
    arena or an exceeded capacity, ``AlignmentViolation``, or else ``InvalidIrShapes`` (reason ``invalid_plan``).
    """
    verdict = verify_plan(plan) if verdict is None else verdict
    if verdict.ok:
        return
    rank = {rule: k for k, rule in enumerate(("overlap", "bounds", "capacity", "alignment"))}
    error = _error(plan, min(verdict.errors, key=lambda finding: rank.get(finding.rule, len(rank))), operator)
    error.hint = "The plan is invalid. List the findings with tmmu verify, and plan again."
    error.fill(replay_token=plan.replay_token.hex(), rank=plan.rank, findings=len(verdict.errors))
    raise error


def _error(plan: Plan, found: Finding, operator: str) -> ContractError:
    row, arena = plan.row_of.get(found.tensor), plan.arena_of.get(found.arena)
    fields: dict[str, Any] = {name: getattr(found, name) for name in ("arena", "tensor", "rule")}
    fields |= {"operator": operator, "t": found.step}
    slot = "unknown" if row is None else int(plan.logical_slot[row])
    if found.rule == "overlap":
        return AddressCollision(found.message, logical_slot=slot, other=found.other, **fields)
    if found.rule == "alignment":
        return AlignmentViolation(found.message, logical_slot=slot, **fields)
    if found.rule in ("bounds", "capacity") and arena is not None:
        capacity = arena.extent_bytes if found.rule == "bounds" else arena.capacity_bytes
        end = arena.extent_bytes if row is None else int(plan.offset[row]) + int(plan.size[row])
        return ArenaTooSmall(found.message, capacity=capacity, required=end, **fields)
    return InvalidIrShapes(found.message, reason="invalid_plan", node_id="", ir_hash=plan.ir_hash.hex(), **fields)


def conflicting_rows(plan: Plan) -> Mask:
    """Return a mask (n,) of rows in conflict with a row of another storage; all false if columns are invalid."""
    if next(check_columns(plan), None) is not None:
        return np.zeros(len(plan), np.bool_)
    facts = PlanFacts(plan)
    in_conflict = np.zeros(facts.storages, np.bool_)
    pairs = [(a, b) for _, a, b, _, _ in overlaps(facts)]
    in_conflict[[storage for pair in pairs for storage in pair]] = True
    # In a plan without excluded pairs, `overlaps` does not compare the later storage of a reported pair with storages
    # that are born after it. So these later storages are compared with all storages here.
    incomplete = [] if excluded_storages(plan) else sorted({b for _, b in pairs})
    until = facts.held_until
    for storage in incomplete if len(incomplete) * facts.storages <= MAX_PAIRS else ():
        is_overlap = (facts.birth < until[storage]) & (facts.birth[storage] < until)
        is_overlap &= (facts.start < facts.stop[storage]) & (facts.start[storage] < facts.stop)
        in_conflict |= is_overlap & ((facts.arena == facts.arena[storage]) | (plan.places == "sparse"))
    return in_conflict[plan.storage]
