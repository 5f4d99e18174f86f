"""Recompute the lower bounds of a plan from its rows, and the status (optimal, claimed …) that they prove.

A plan file may state any lower bound. Only these count: the peak live bytes, the largest storage, the end of each
pinned tensor, and the sum of the storages in the file's witness (its proof of the bound) that cannot share bytes. Each
sum includes the reserved bytes below its end.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tmmu_core.judge.reference.liveness import ReferenceLiveness
from tmmu_core.judge.verifier.check_constraints import CostBounds
from tmmu_core.judge.verifier.check_figures import disjoint_bound, extent_outside_reserved
from tmmu_core.judge.verifier.row_columns import I64, PlanFacts, live_peak
from tmmu_core.plans.model import CLAIMED, FEASIBLE, INCOMPLETE, OPTIMAL, PART, ArenaSummary, Constraints, Plan

Bound = tuple[int, tuple[str, ...], int]
"""A lower bound in bytes, its witness, and the step for which it was computed (−1: none)."""


class Blocks:
    """The storages of a plan as columns (steps, bytes), and the pairs that must not alias.

    With ``liveness``, the columns are those of the graph's storages. Their live ranges assume every granted in-place
    reuse. The alignment of the arenas counts only if the configuration is known (``configured``).
    """

    def __init__(self, facts: PlanFacts, liveness: ReferenceLiveness | None, *, configured: bool) -> None:
        plan, terms = facts.plan, facts.plan.constraints or Constraints()
        self.arena, self.names = facts.arena, [facts.name(k) for k in range(facts.storages)]
        self.reserved = [terms.reserved.get(arena.name, ()) for arena in plan.arenas]
        self.birth, self.death = facts.birth.copy(), facts.death.copy()
        self.size, self.alignment = facts.size.copy(), facts.alignment.copy()
        # A planner that defines the arenas changes the live ranges, so those of the graph do not apply.
        for storage in liveness.storages.values() if liveness is not None and not plan.own_arenas else ():
            row = plan.row_of.get(storage.name, -1)
            if row >= 0:
                k, arena = plan.storage[row], plan.arenas[plan.arena[row]]
                self.birth[k], self.death[k], self.size[k] = storage.birth, storage.death, storage.size
                self.alignment[k] = max(storage.alignment, arena.alignment_bytes if configured else 1)
        self.parts: dict[str, list[int]] = {}  # name in a witness → its storages: one, or one per live part
        for tensor, number in zip(plan.tensor_ids, plan.storage.tolist(), strict=True):
            for name in {tensor, tensor.rpartition(PART)[0] or tensor}:
                self.parts.setdefault(name, []).append(number)
        separated = frozenset([pair for a, b in terms.separations for pair in ((a, b), (b, a))])
        self.must_not_alias = separated if liveness is None else liveness.must_not_alias
        excluded = {number for pair in terms.exclusions for name in pair for number in self.parts.get(name, ())}
        self.sharing_arenas = {int(facts.arena[number]) for number in excluded}
        """Arenas with storages that may share bytes although their live ranges overlap (temporal exclusions)."""

    def live_at(self, storages: I64, step: int) -> list[int]:
        """Return the elements of ``storages`` that are live at ``step``."""
        return storages[(self.birth[storages] <= step) & (step < self.death[storages])].tolist()

    def conflict(self, a: int, b: int) -> bool:
        """Return whether two storages cannot share a byte."""
        together = self.birth[a] < self.death[b] and self.birth[b] < self.death[a]
        return bool(together) or (self.names[a], self.names[b]) in self.must_not_alias


def certificates(
    facts: PlanFacts, liveness: ReferenceLiveness | None = None, *, configured: bool
) -> tuple[ArenaSummary, ...]:
    """Return every arena with the certificate that the rows prove.

    ``liveness``: the storages of the plan's graph. ``configured``: whether the arena configuration is known.
    """
    plan, blocks, costs = facts.plan, Blocks(facts, liveness, configured=configured), CostBounds(facts.plan)
    found = []
    for number, arena in enumerate(plan.arenas):
        in_arena = np.flatnonzero(blocks.arena == number)
        # If live ranges have gaps, the largest storage may have no live step, and the peak omits it.
        largest = [int(in_arena[np.argmax(blocks.size[in_arena])])] if len(in_arena) else []
        bounds = [_bound_of_storages(blocks, largest, -1)]
        if number not in blocks.sharing_arenas:
            peak, _ = live_peak(blocks.birth[in_arena], blocks.death[in_arena], blocks.size[in_arena])
            at_peak = _bound_of_storages(blocks, blocks.live_at(in_arena, peak), peak)
            bounds = [_witness_bound(blocks, in_arena, arena), at_peak, *bounds]
        bounds += _pin_bounds(plan, number)
        found.append(certificate(arena, *bounds, cost_bound=costs.bound_of(number)))
    return tuple(found)


def _pin_bounds(plan: Plan, arena: int) -> Iterator[Bound]:
    for name, offset in plan.constraints.pinned.items() if plan.constraints is not None else ():
        row = plan.row_of.get(name, -1)
        if row >= 0 and plan.arena[row] == arena and plan.size[row]:
            yield offset + int(plan.size[row]), (name,), int(plan.birth[row])


def with_recomputed_bounds(plan: Plan, arenas: tuple[ArenaSummary, ...]) -> Plan:
    """Return ``plan`` with recomputed certificates instead of the stated ones."""
    if arenas == plan.arenas:
        return plan
    metrics = plan.metrics
    if isinstance(metrics.get("totals"), dict):
        totals = {**metrics["totals"], "lower_bound_bytes": sum(arena.bound_bytes for arena in arenas)}
        metrics = {**metrics, "totals": totals}
    return replace(plan, arenas=arenas, metrics=metrics)


def certificate(arena: ArenaSummary, *bounds: Bound, cost_bound: int = 0) -> ArenaSummary:
    """Return the arena with the part of its certificate that the recomputed bounds support.

    ``proven_bytes`` is the bound that the file states, if it is larger than the recomputed bound. The status becomes
    ``claimed`` if a stated bound is not confirmed. Otherwise, ``optimal`` and ``claimed`` become ``optimal`` at the
    bounds and ``feasible`` above them. ``incomplete`` stays.
    """
    stated_bound, status = arena.stated_bound_bytes, arena.status
    stated_cost_bound = arena.reuse_cost_lower_bound
    confirmed_cost_bound = None if stated_cost_bound is None else min(stated_cost_bound, cost_bound)
    bound = min(max(bounds)[0], stated_bound if status == CLAIMED else arena.bound_bytes)
    _, witness, step = next((row for row in bounds if row[0] == bound), (bound, (), -1))
    if stated_bound > bound and arena.witness:  # keep the file's witness: it may prove the stated bound with the graph
        witness, step = arena.witness, arena.witness_step
    if (stated_bound > bound or confirmed_cost_bound != stated_cost_bound) and status != INCOMPLETE:
        status = CLAIMED
    elif status in (OPTIMAL, CLAIMED):
        is_at_bounds = arena.extent_bytes == bound and (arena.reuse_cost or 0) == (confirmed_cost_bound or 0)
        status = OPTIMAL if is_at_bounds else FEASIBLE
    proven = stated_bound if stated_bound > bound else None
    arena = replace(arena, status=status, lower_bound_bytes=bound, proven_bytes=proven)
    return replace(arena, witness=witness, witness_step=step, reuse_cost_lower_bound=confirmed_cost_bound)


def _witness_bound(blocks: Blocks, storages: I64, arena: ArenaSummary) -> Bound:
    """Return the bound of the witness's storages that conflict pairwise: those live at its step, then further ones."""
    in_arena, step = set(storages.tolist()), arena.witness_step
    alive = set(blocks.live_at(storages, step))
    chosen: dict[str, int] = {}
    not_live: list[str] = []
    for name in dict.fromkeys(arena.witness):
        live_block = next((block for block in blocks.parts.get(name, ()) if block in alive), None)
        if live_block is None:
            not_live.append(name)
        else:
            chosen[name] = live_block
    for name in not_live if blocks.must_not_alias else ():
        for block in in_arena.intersection(blocks.parts.get(name, ())):
            if all(blocks.conflict(block, other) for other in chosen.values()):
                chosen[name] = block
    bound, _, at = _bound_of_storages(blocks, list(set(chosen.values())), step)  # two names may be parts of one tensor
    return bound, tuple([name for name in arena.witness if name in chosen]), at


def _bound_of_storages(blocks: Blocks, rows: list[int], step: int) -> Bound:
    """Return the bound of storages that cannot share bytes; 0 without storages."""
    sizes, reserved = blocks.size[rows].tolist(), blocks.reserved[blocks.arena[rows[0]]] if rows else ()
    bound = max(disjoint_bound(sizes, blocks.alignment[rows].tolist()), extent_outside_reserved(sum(sizes), reserved))
    return bound, tuple([blocks.names[row] for row in rows]), step if rows else -1
