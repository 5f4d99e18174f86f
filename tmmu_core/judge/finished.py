"""A plan that came finished: whoever reads one asks here first whether it can be trusted.

:func:`finished` gives the plan with its verdict, for those who show it; :func:`refuse_invalid` is for those who act on
it (``apply``, ``checkpoint``, ``export``), and raises what the contract has for what is wrong (§5, §11). A plan that is
invalid claims nothing any more: its arenas' status is :data:`INVALID`, whatever the file says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tmmu_core.errors import AddressCollision, AlignmentViolation, ArenaTooSmall, ContractError, InvalidIrShapes
from tmmu_core.graph.model import Graph
from tmmu_core.judge.facts import I64, Mask, PlanFacts
from tmmu_core.judge.figures import check_metrics, impossible
from tmmu_core.judge.finding import Finding, Verdict
from tmmu_core.judge.places import overlaps
from tmmu_core.judge.verifier import RULES, check_changes, check_columns, check_held, verify_plan
from tmmu_core.plan.model import INVALID, Plan

LOOKED_AT = 50_000_000
"""Pairs of storages that are looked at one by one where many overlap, before it is left at those found by the sweep."""


@dataclass(frozen=True, eq=False)
class Finished:
    """A finished plan and what the judge says of it."""

    plan: Plan
    verdict: Verdict

    @property
    def ok(self) -> bool:
        """Whether it can be trusted."""
        return self.verdict.ok


def finished(plan: Plan, graph: Graph | None = None, *, complete: bool = True, **how: Any) -> Finished:
    """``plan`` with its verdict. ``how`` are further arguments of :func:`verify_plan`.

    Of a digest (``complete`` false), which does not tell its rows, only the figures are looked at.
    """
    verdict = verify_plan(plan, graph, **how) if complete else _of_digest(plan)
    return Finished(believed(plan, verdict), verdict)


def believed(plan: Plan, verdict: Verdict) -> Plan:
    """What can be said of a plan after the verdict: an invalid one proves nothing of any arena."""
    if verdict.ok:
        return plan
    return replace(plan, arenas=tuple([replace(arena, status=INVALID) for arena in plan.arenas]))


def _of_digest(plan: Plan) -> Verdict:
    tried = ("extent", "capacity", "figures", "hash", "held")
    left_out = tuple((rule, "a digest does not tell its tensors") for rule in RULES if rule not in tried)
    return Verdict((*impossible(plan), *check_metrics(plan), *check_changes(plan), *check_held(plan)), tried, left_out)


def refuse_invalid(plan: Plan, operator: str, verdict: Verdict | None = None) -> None:
    """Raise for a plan that does not verify; ``verdict`` is that of :func:`verify_plan`, where it is known.

    Raises ``AddressCollision`` for two live tensors on one byte, ``ArenaTooSmall`` for a tensor outside its arena,
    ``AlignmentViolation`` for one off its grid, else ``InvalidIrShapes`` (reason ``invalid_plan``).
    """
    verdict = verify_plan(plan) if verdict is None else verdict
    if verdict.ok:
        return
    error = _error(plan, min(verdict.errors, key=lambda finding: _WORST_FIRST.index(_kind(finding))), operator)
    error.hint = "The plan contradicts itself: look at it with tmmu verify, and plan again."
    error.fill(replay_token=plan.replay_token.hex(), rank=plan.rank, findings=len(verdict.errors))
    raise error


_WORST_FIRST = ("overlap", "bounds", "capacity", "alignment", "other")


def _kind(finding: Finding) -> str:
    return finding.rule if finding.rule in _WORST_FIRST else "other"


def _error(plan: Plan, found: Finding, operator: str) -> ContractError:
    row = plan.row_of.get(found.tensor)
    of_arena: dict[str, Any] = {
        "operator": operator,
        "t": found.step,
        "arena": found.arena,
        "tensor": found.tensor,
        "rule": found.rule,
    }
    slot = "unknown" if row is None else int(plan.logical_slot[row])
    arena = plan.arena_of.get(found.arena)
    if found.rule == "overlap":
        return AddressCollision(found.message, logical_slot=slot, other=found.other, **of_arena)
    if found.rule == "alignment":
        return AlignmentViolation(found.message, logical_slot=slot, **of_arena)
    if found.rule in ("bounds", "capacity") and arena is not None:
        capacity = arena.extent_bytes if found.rule == "bounds" else arena.capacity_bytes
        end = arena.extent_bytes if row is None else int(plan.offset[row]) + int(plan.size[row])
        return ArenaTooSmall(found.message, capacity=capacity, required=end, **of_arena)
    return InvalidIrShapes(found.message, reason="invalid_plan", node_id="", ir_hash=plan.ir_hash.hex(), **of_arena)


def conflicting_rows(plan: Plan) -> Mask:
    """Shape (n,): the rows that hold a byte at a step at which a row of another storage holds it too."""
    rows = np.zeros(len(plan), np.bool_)
    if next(check_columns(plan), None) is not None:
        return rows
    facts = PlanFacts(plan)
    hit = np.zeros(facts.storages, np.bool_)
    aside: list[int] = []
    for a, b in overlaps(facts):
        hit[[a, b]] = True
        aside.append(b)
    # The sweep goes on without what met somebody; who overlaps only such a one is found by looking at it.
    aside = sorted(set(aside))
    for storage in aside if len(aside) * facts.storages <= LOOKED_AT else ():
        hit[_meeting(facts, storage)] = True
    rows[:] = hit[plan.storage]
    return rows


def _meeting(facts: PlanFacts, storage: int) -> I64:
    space = facts.arena == facts.arena[storage] if facts.plan.places != "sparse" else np.ones(facts.storages, np.bool_)
    meets = space & (facts.birth < facts.death[storage]) & (facts.birth[storage] < facts.death)
    meets &= (facts.start < facts.stop[storage]) & (facts.start[storage] < facts.stop)
    return np.flatnonzero(meets)
