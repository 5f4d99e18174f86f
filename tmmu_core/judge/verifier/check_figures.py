"""Check the figures that a plan states (arenas, totals, metrics, certificates) against its rows and each other.

The certificate of an arena is a status, a lower bound and a witness: storages that cannot share bytes, so the sum of
their sizes (with padding or reserved bytes) is a lower bound. A file may state any bound. An extent is proven optimal
only by a recomputed bound: of the witness, the peak live bytes, the largest storage or the end of a pinned tensor.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tmmu_core.base.errors import U64_MAX
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Finding, error
from tmmu_core.judge.reference.liveness import ReferenceLiveness
from tmmu_core.judge.verifier.check_bytes import ends_of_prefix_sums
from tmmu_core.judge.verifier.check_constraints import CostBounds
from tmmu_core.judge.verifier.row_columns import I64, PlanFacts, live_peak
from tmmu_core.plans import model
from tmmu_core.plans.model import CLAIMED, INCOMPLETE, OPTIMAL, PART, ArenaSummary, Constraints, Plan

Bound = tuple[int, tuple[str, ...], int]  # bytes, the witness, and the step of the witness (−1: none)


def check_arenas(facts: PlanFacts) -> Iterator[Finding]:
    """Check rules ``bounds``, ``extent``, ``capacity`` and ``figures``."""
    plan = facts.plan
    backed_bytes = np.maximum(facts.size, np.uint64(plan.places != "bytes"))  # at least 1 if the plan has slots
    ends = np.where(backed_bytes > 0, facts.start + backed_bytes, np.uint64(0))
    extents = np.array([min(max(arena.extent_bytes, 0), U64_MAX) for arena in plan.arenas], np.uint64)
    is_sparse, totals = plan.places == "sparse", plan.metrics.get("totals")
    # The one arena of a snapshot has at least the bytes that the allocator reserved.
    reserved = int(totals.get("reserved_peak_bytes", 0)) if isinstance(totals, dict) and len(plan.arenas) == 1 else 0
    is_outside = (plan.size > 0) & (plan.offset + plan.size > extents[plan.arena])
    for i in np.flatnonzero(is_outside).tolist() if not is_sparse else ():
        name, arena = plan.tensor_ids[i], plan.arenas[plan.arena[i]]
        message = f"{name!r} ends at {plan.offset[i] + plan.size[i]}, past the extent {arena.extent_bytes}."
        yield error("bounds", message, tensor=name, arena=arena.name)
    for number, arena in enumerate(plan.arenas):
        in_arena = facts.arena == number
        # With hashed addresses, the stated extent is that of the slots placed one after the other, each aligned.
        highest_end = max(int(ends[in_arena].max(initial=0)), reserved)
        possible = ends_of_prefix_sums(facts, number) if is_sparse else {highest_end}
        if arena.extent_bytes not in possible:
            message = f"an extent of {arena.extent_bytes:,} bytes; its highest storage ends at {max(possible):,}"
            yield error("extent", f"{arena.name} has {message}.", arena=arena.name)
        counts = {
            "slots": int((facts.slots.arena == number).sum()),
            "max_live": facts.max_live(number, facts.held_until),
            "storages": int(in_arena.sum()),
            "peak_live_bytes": facts.live_peak_of(np.flatnonzero(in_arena))[1],
        }
        yield from _differences(arena.name, vars(arena), counts, arena.name)
    step, peak = facts.live_peak_of(np.arange(facts.storages))
    if isinstance(totals, dict):
        counted = {
            "peak_live_bytes": peak,
            "peak_step": step,
            "extent_bytes": sum(arena.extent_bytes for arena in plan.arenas),
            "lower_bound_bytes": sum(arena.bound_bytes for arena in plan.arenas),
            "reuse_cost": None if plan.constraints is None else sum(arena.reuse_cost or 0 for arena in plan.arenas),
        }
        yield from _differences("totals", totals, counted)
    if plan.metrics.get("activation_bytes") is not None:  # the metric of a packing problem is 0
        is_activation = np.array([role == "activation" for role in plan.roles], np.bool_) & ~facts.is_view
        is_of_graph = bool(plan.execution_order) or plan.has_inputs_step
        activation_bytes = sum(plan.size[is_activation].tolist()) if is_of_graph else 0
        yield from _differences("metrics", plan.metrics, {"activation_bytes": activation_bytes})
    yield from check_arena_figures(plan)


def _differences(subject: str, stated: dict[str, Any], counted: dict[str, Any], arena: str = "") -> Iterator[Finding]:
    """Yield a finding of rule ``figures`` for every figure that the plan omits or states with another value."""
    for what, figure in counted.items():
        if stated.get(what) != figure:
            yield error("figures", f"{subject}: {what} is {stated.get(what)}; counted: {figure}.", arena=arena)


def check_arena_figures(plan: Plan) -> Iterator[Finding]:
    """Check rules ``extent``, ``capacity`` and ``figures`` by the arenas' figures alone, without rows."""
    for arena in plan.arenas:
        extent, page, name = arena.extent_bytes, arena.page_size, arena.name
        committed = -(-extent // page) * page if page else extent
        if arena.committed_bytes != committed:
            message = f"{name}: committed_bytes is {arena.committed_bytes:,}; in whole pages it is {committed:,}."
            yield error("extent", message, arena=name)
        if extent > arena.capacity_bytes:
            message = f"{name} needs {extent:,} bytes; its capacity is {arena.capacity_bytes:,}."
            yield error("capacity", message, arena=name)
        live_may_share = plan.constraints is not None and plan.constraints.exclusions
        for bound, why in (
            (max(arena.lower_bound_bytes or 0, arena.proven_bytes or 0), "are the stated lower bound"),
            (0 if live_may_share else arena.peak_live_bytes, "are live at one step"),
        ):
            if bound > extent:
                message = f"{name} has an extent of {extent:,} bytes, but {bound:,} {why}."
                yield error("figures", message, arena=name)


def check_metrics(plan: Plan) -> Iterator[Finding]:
    """Check rule ``figures`` for the ratios and the other metrics that need no rows, only arenas and totals."""
    stated, arenas = plan.metrics, plan.arenas
    slots, storages = sum(arena.slots for arena in arenas), sum(arena.storages for arena in arenas)
    extent, peaks = sum(arena.extent_bytes for arena in arenas), sum(arena.peak_live_bytes for arena in arenas)
    totals = stated.get("totals")
    retained, activations = stated.get("activation_bytes_retained", 0), stated.get("activation_bytes", 0)
    counted: dict[str, Any] = {
        "peak_logical_slots": slots,
        "max_live": sum(arena.max_live for arena in arenas),
        "storages": storages,
        "extent_bytes": extent,
        "committed_bytes": sum(arena.committed_bytes for arena in arenas),
        "peak_physical_bytes_per_arena": {arena.name: arena.extent_bytes for arena in arenas},
        "peak_tmmu_usage_per_arena": {arena.name: arena.peak_live_bytes for arena in arenas},
    }
    if isinstance(totals, dict):
        counted["peak_live_bytes"] = totals.get("peak_live_bytes")
    yield from _differences("metrics", stated, {what: number for what, number in counted.items() if what in stated})
    # Files of an older version have 1 − (whole − part) / whole, which may differ in the last bit.
    for what, part, whole in (
        ("memory_reuse_ratio", storages - slots, storages),
        ("internal_fragmentation_ratio", extent - peaks, extent),
        ("activation_retention_ratio", retained, activations),
    ):
        ratios = (part / whole, 1 - (whole - part) / whole) if whole else (0.0,)
        if what in stated and stated[what] not in ratios:
            yield error("figures", f"metrics: {what} is {stated[what]}; the counts give {ratios[0]}.")
    if retained > activations:
        yield error("figures", f"metrics: {retained:,} activation bytes are retained; the plan has {activations:,}.")


def check_certificates(facts: PlanFacts, graph: Graph | None) -> Iterator[Finding]:
    """Check rule ``certificate``: status, bound and witness of each arena."""
    plan = facts.plan
    nodes = graph.nodes if graph is not None else ()
    is_incomplete = plan.remark(model.UNPLANNED) or any(node.unplanned for node in nodes)
    for number, arena in enumerate(plan.arenas):
        bound = max(arena.bound_bytes, arena.proven_bytes or 0)
        problems = []
        if arena.status not in model.STATUSES:
            problems.append(f"has the unknown status {arena.status!r}")
        if arena.status == OPTIMAL and arena.extent_bytes > bound:
            problems.append(f"has the status optimal with {arena.extent_bytes:,} bytes, but a bound of {bound:,}")
        if arena.witness:
            problems += _witness_problems(facts, number, arena)
        if is_incomplete and arena.status not in (INCOMPLETE, model.INVALID):
            problems.append(f"has the status {arena.status!r}, but a part of the graph is not planned")
        yield from (error("certificate", f"{arena.name} {problem}.", arena=arena.name) for problem in problems)


def _witness_problems(facts: PlanFacts, number: int, arena: ArenaSummary) -> Iterator[str]:
    """Yield a text for each fault of the witness of arena ``number``, or of the lower bound that it should prove."""
    plan, step = facts.plan, arena.witness_step
    storages = [int(plan.storage[plan.row_of[name]]) for name in arena.witness if name in plan.row_of]
    if len(set(storages)) < len(arena.witness) or any(facts.arena[s] != number for s in storages):
        yield "has a witness whose ids are not distinct storages of the arena"
        return
    # Storages of a witness can conflict without being live together (must not alias), so one live storage is enough.
    live_rows = np.flatnonzero((plan.birth <= step) & (step < plan.death))
    is_live = not set(storages).isdisjoint(plan.storage[live_rows].tolist())
    is_live = is_live or any(plan.tensor_ids[row].rpartition(PART)[0] in arena.witness for row in live_rows.tolist())
    if step != -1 and not is_live:
        yield f"has a witness of which no storage is live at step {step}"
    sizes = [int(facts.size[s]) for s in storages]
    bound = disjoint_bound(sizes, [int(facts.alignment[s]) for s in storages])
    # The lower bound of a single storage at a fixed offset is its end.
    ends = {int(facts.stop[storages[0]])} if len(storages) == 1 else set()
    terms = facts.plan.constraints
    outside = extent_outside_reserved(sum(sizes), terms.reserved.get(arena.name, ()) if terms else ())
    stated = {arena.lower_bound_bytes or 0, (arena.proven_bytes or 0) if arena.status == CLAIMED else -1}
    if stated.isdisjoint({sum(sizes), bound, outside} | ends):
        yield f"has a lower bound of {arena.lower_bound_bytes or 0:,} bytes; its witness gives {max(bound, outside):,}"


def extent_outside_reserved(size: int, reserved: Iterable[tuple[int, int]]) -> int:
    """Return the least extent with ``size`` bytes outside of the reserved byte ranges."""
    end = 0
    for low, high in sorted(reserved):
        free = max(0, low - end)
        if size <= free:
            break
        size, end = size - free, max(end, high)
    return end + size


def disjoint_bound(sizes: list[int], alignments: list[int]) -> int:
    """Return a lower bound of the bytes of disjoint blocks, each at a multiple of its alignment."""
    bound = 0
    # For each alignment, the blocks with at least this alignment give a bound. Each takes a multiple of the alignment,
    # except the highest, which needs no padding. Any block may be the highest, so the bound omits the largest padding.
    for alignment in sorted(set(alignments)):
        aligned = [size for size, own in zip(sizes, alignments, strict=True) if own >= alignment]
        padding = [-size % alignment for size in aligned]
        bound = max(bound, sum(aligned) + sum(padding) - max(padding))
    return bound


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
    """Return every arena with the certificate that the rows prove, or with ``liveness``, the rows and the graph."""
    plan, blocks, costs = facts.plan, Blocks(facts, liveness, configured=configured), CostBounds(facts.plan)
    found = []
    for number, arena in enumerate(plan.arenas):
        in_arena = np.flatnonzero(blocks.arena == number)
        # If live ranges have gaps, the peak may omit the largest storage, so this storage gives another bound.
        largest = [int(in_arena[np.argmax(blocks.size[in_arena])])] if len(in_arena) else []
        bounds = [_bound_of_storages(blocks, largest, -1)]
        if number not in blocks.sharing_arenas:
            peak, _ = live_peak(blocks.birth[in_arena], blocks.death[in_arena], blocks.size[in_arena])
            at_peak = _bound_of_storages(blocks, blocks.live_at(in_arena, peak), peak)
            bounds = [_witness_bound(blocks, in_arena, arena), at_peak, *bounds]
        for name, offset in plan.constraints.pinned.items() if plan.constraints is not None else ():
            row = plan.row_of.get(name, -1)
            if row >= 0 and plan.arena[row] == number and plan.size[row]:
                bounds.append((offset + int(plan.size[row]), (name,), int(plan.birth[row])))
        found.append(certificate(arena, *bounds, cost_bound=costs.bound_of(number)))
    return tuple(found)


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

    The file states a bound of 100. If 80 is recomputed, the status is ``claimed``, with the bound 80. If 100 is
    recomputed, ``optimal`` stays for an extent of 100, else it becomes ``feasible``. The cost of reuse has a bound too.
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
        status = OPTIMAL if is_at_bounds else model.FEASIBLE
    proven = stated_bound if stated_bound > bound else None
    arena = replace(arena, status=status, lower_bound_bytes=bound, proven_bytes=proven)
    return replace(arena, witness=witness, witness_step=step, reuse_cost_lower_bound=confirmed_cost_bound)


def _witness_bound(blocks: Blocks, storages: I64, arena: ArenaSummary) -> Bound:
    """Return the bound of the part of the witness that cannot share bytes; ``storages``: those of the arena."""
    in_arena, step = set(storages.tolist()), arena.witness_step
    alive = set(blocks.live_at(storages, step))
    live_parts = {name: [block for block in blocks.parts.get(name, ()) if block in alive] for name in arena.witness}
    chosen = {name: live[0] for name, live in live_parts.items() if live}
    not_live = [name for name, live in live_parts.items() if not live]  # one counts if it conflicts with all chosen
    for name in not_live if blocks.must_not_alias else ():
        for block in in_arena.intersection(blocks.parts.get(name, ())):
            if all(blocks.conflict(block, other) for other in chosen.values()):
                chosen[name] = block
    bound, _, at = _bound_of_storages(blocks, list(set(chosen.values())), step)  # two names may be parts of one tensor
    return bound, tuple([name for name in arena.witness if name in chosen]), at


def _bound_of_storages(blocks: Blocks, chosen: list[int], step: int) -> Bound:
    """Return the bound of the storages ``chosen``, which cannot share bytes; 0 without storages."""
    sizes, reserved = blocks.size[chosen].tolist(), blocks.reserved[blocks.arena[chosen[0]]] if chosen else ()
    bound = max(disjoint_bound(sizes, blocks.alignment[chosen].tolist()), extent_outside_reserved(sum(sizes), reserved))
    return bound, tuple([blocks.names[storage] for storage in chosen]), step if chosen else -1
