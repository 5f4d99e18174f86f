"""Check the figures of arenas, totals, metrics and certificates against the rows and each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tmmu_core.base.errors import U64_MAX
from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Finding, error
from tmmu_core.judge.verifier.check_slots import PART, ends_end_to_end
from tmmu_core.judge.verifier.row_columns import PlanFacts
from tmmu_core.plans.model import CLAIMED, FEASIBLE, INCOMPLETE, INVALID, OPTIMAL, UNPLANNED, ArenaSummary, Plan

STATUSES = (OPTIMAL, "unproven", FEASIBLE, CLAIMED, INCOMPLETE, INVALID)


def check_arenas(facts: PlanFacts) -> Iterator[Finding]:
    """Check rules ``bounds``, ``extent``, ``capacity`` and ``figures``."""
    plan = facts.plan
    ends = facts.start + np.maximum(facts.size, np.uint64(plan.places != "bytes"))
    extents = np.array([min(max(arena.extent_bytes, 0), U64_MAX) for arena in plan.arenas], np.uint64)
    sparse, totals = plan.places == "sparse", plan.metrics.get("totals")
    # The one arena of a snapshot has at least the bytes that the allocator reserved.
    reserved = int(totals.get("reserved_peak_bytes", 0)) if isinstance(totals, dict) and len(plan.arenas) == 1 else 0
    for i in np.flatnonzero(plan.offset + plan.size > extents[plan.arena]).tolist() if not sparse else ():
        arena = plan.arenas[plan.arena[i]]
        yield error(
            "bounds",
            f'"{plan.tensor_ids[i]}" ends at {plan.offset[i] + plan.size[i]}, past the extent {arena.extent_bytes}.',
            tensor=plan.tensor_ids[i],
            arena=arena.name,
        )
    for number, arena in enumerate(plan.arenas):
        here = facts.arena == number
        # The extent of hashed addresses is that of the same slots at aligned prefix sums.
        highest = max(int(ends[here].max(initial=0)), reserved)
        possible = ends_end_to_end(facts, number) if sparse else {highest}
        highest = max(possible)
        if arena.extent_bytes not in possible:
            yield error(
                "extent",
                f"{arena.name} has an extent of {arena.extent_bytes:,} bytes; its highest storage ends at {highest:,}.",
                arena=arena.name,
            )
        for what, stated, counted in (
            ("slots", arena.slots, int((facts.slots.arena == number).sum())),
            ("max_live", arena.max_live, facts.most_together(number, facts.held_until)),
            ("storages", arena.storages, int(here.sum())),
            ("peak_live_bytes", arena.peak_live_bytes, facts.peak_live_bytes(number)),
        ):
            if stated != counted:
                yield error("figures", f"{arena.name}: {what} is {stated}; the rows give {counted}.", arena=arena.name)
    yield from _sums_of_rows(facts)
    yield from impossible(plan)


def impossible(plan: Plan) -> Iterator[Finding]:
    """Check rules ``extent``, ``capacity`` and ``figures`` by the arenas' figures alone, without rows."""
    for arena in plan.arenas:
        pages = -(-arena.extent_bytes // arena.page_size) * arena.page_size if arena.page_size else arena.extent_bytes
        if arena.committed_bytes != pages:
            yield error(
                "extent",
                f"{arena.name}: committed_bytes is {arena.committed_bytes:,}; {arena.extent_bytes:,} bytes in pages of "
                f"{arena.page_size:,} are {pages:,}.",
                arena=arena.name,
            )
        if arena.extent_bytes > arena.capacity_bytes:
            yield error(
                "capacity",
                f"{arena.name} needs {arena.extent_bytes:,} bytes; its capacity is {arena.capacity_bytes:,}.",
                arena=arena.name,
            )
        shared = plan.constraints is not None and plan.constraints.exclusions  # live bytes may share bytes
        for bound, why in (
            (max(arena.lower_bound_bytes or 0, arena.proven_bytes or 0), "are the stated lower bound"),
            (0 if shared else arena.peak_live_bytes, "are live at one step"),
        ):
            if bound > arena.extent_bytes:
                yield error(
                    "figures",
                    f"{arena.name} has an extent of {arena.extent_bytes:,} bytes, but {bound:,} {why}.",
                    arena=arena.name,
                )


def _sums_of_rows(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``figures`` for ``metrics.totals``, and for ``activation_bytes``, which is 0 for an instance."""
    plan = facts.plan
    stated = plan.metrics.get("totals")
    step, most = facts.peak_together(np.arange(facts.storages))
    counted = {
        "peak_live_bytes": most,
        "peak_step": step,
        "extent_bytes": sum(arena.extent_bytes for arena in plan.arenas),
        "lower_bound_bytes": sum(arena.bound_bytes for arena in plan.arenas),
        "reuse_cost": None if plan.constraints is None else sum(arena.reuse_cost or 0 for arena in plan.arenas),
    }
    for what, number in counted.items():
        if isinstance(stated, dict) and stated.get(what) != number:
            yield error("figures", f"totals: {what} is {stated.get(what)}; the rows and arenas give {number}.")
    own = [role == "activation" and base is None for role, base in zip(plan.roles, plan.base_tensor_uids, strict=True)]
    runs = bool(plan.execution_order) or plan.has_inputs_step
    activations = sum(plan.size[np.array(own, np.bool_)].tolist()) if runs else 0
    if plan.metrics.get("activation_bytes") not in (None, activations):
        what = plan.metrics["activation_bytes"]
        yield error("figures", f"metrics: activation_bytes is {what}; the rows give {activations}.")


def check_metrics(plan: Plan) -> Iterator[Finding]:
    """Check rule ``figures`` for the metrics that are sums over the arenas, and for the ratios."""
    stated, arenas = plan.metrics, plan.arenas
    slots, storages = sum(arena.slots for arena in arenas), sum(arena.storages for arena in arenas)
    extent, peaks = sum(arena.extent_bytes for arena in arenas), sum(arena.peak_live_bytes for arena in arenas)
    totals = stated.get("totals")
    kept, activations = stated.get("activation_bytes_retained", 0), stated.get("activation_bytes", 0)
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
    for what, number in counted.items():
        if what in stated and stated[what] != number:
            yield error("figures", f"metrics: {what} is {stated[what]}; the arenas give {number}.")
    # Older files subtracted after the division, which may differ in the last bit.
    for what, part, whole in (
        ("memory_reuse_ratio", storages - slots, storages),
        ("internal_fragmentation_ratio", extent - peaks, extent),
        ("activation_retention_ratio", kept, activations),
    ):
        ratios = (part / whole, 1 - (whole - part) / whole) if whole else (0.0,)
        if what in stated and stated[what] not in ratios:
            yield error("figures", f"metrics: {what} is {stated[what]}; the counts give {ratios[0]}.")
    if kept > activations:
        yield error("figures", f"metrics: {kept:,} activation bytes are retained, of {activations:,}.")


def check_certificates(facts: PlanFacts) -> Iterator[Finding]:
    """Check rule ``certificate``."""
    plan = facts.plan
    for number, arena in enumerate(plan.arenas):
        least = max(arena.bound_bytes, arena.proven_bytes or 0)
        if arena.status not in STATUSES:
            yield error("certificate", f'{arena.name} has the unknown status "{arena.status}".', arena=arena.name)
        if arena.status == "optimal" and arena.extent_bytes > least:
            yield error(
                "certificate",
                f"{arena.name} has the status optimal with {arena.extent_bytes:,} bytes, but a bound of {least:,}.",
                arena=arena.name,
            )
        if arena.witness:
            yield from _witness(facts, number, arena)


def check_completeness(plan: Plan, graph: Graph | None = None) -> Iterator[Finding]:
    """Check rule ``certificate``: every arena of a plan without a part of its graph has the status incomplete."""
    parts = plan.remark(UNPLANNED) or any(node.unplanned for node in (graph.nodes if graph is not None else ()))
    for arena in plan.arenas if parts else ():
        if arena.status not in (INCOMPLETE, INVALID):
            yield error(
                "certificate",
                f'{arena.name} has the status "{arena.status}", but a part of the graph is not planned.',
                arena=arena.name,
            )


def _witness(facts: PlanFacts, number: int, arena: ArenaSummary) -> Iterator[Finding]:
    """Check that the storages of the witness are live and give the bound."""
    plan = facts.plan
    storages = [int(plan.storage[plan.row_of[name]]) for name in arena.witness if name in plan.row_of]
    if len(set(storages)) < len(arena.witness) or any(facts.arena[s] != number for s in storages):
        yield error(
            "certificate", f"the witness of {arena.name} does not name one storage of the arena each.", arena=arena.name
        )
        return
    step = arena.witness_step
    # Storages that must not alias conflict at any step, so one live storage suffices.
    here = np.flatnonzero((plan.birth <= step) & (step < plan.death))
    live = not {plan.storage[plan.row_of[name]] for name in arena.witness}.isdisjoint(plan.storage[here].tolist())
    live = live or any(plan.tensor_ids[row].rpartition(PART)[0] in arena.witness for row in here.tolist())
    if step != -1 and not live:
        yield error(
            "certificate", f"no storage of the witness of {arena.name} is live at step {step}.", arena=arena.name
        )
    sizes = [int(facts.size[s]) for s in storages]
    grids = [int(facts.alignment[s]) for s in storages]
    # A single storage at a fixed offset is bounded by its end.
    ends = {int(facts.stop[storages[0]])} if len(storages) == 1 else set()
    bounds = {arena.lower_bound_bytes or 0, (arena.proven_bytes or 0) if arena.status == CLAIMED else -1}
    if bounds.isdisjoint({sum(sizes), side_by_side(sizes, grids)} | ends):
        yield error(
            "certificate",
            f"the lower bound of {arena.name} is {arena.lower_bound_bytes or 0:,} bytes; its witness gives "
            f"{side_by_side(sizes, grids):,}.",
            arena=arena.name,
        )


def side_by_side(sizes: list[int], grids: list[int]) -> int:
    """Return a lower bound in bytes of blocks side by side, each at a multiple of its alignment.

    All blocks but the last take whole multiples; the last one is that with the most padding. Blocks of a coarse
    alignment may give a larger bound without the others, so each alignment is tried.
    """
    most = 0
    for step in sorted(set(grids)):
        here = [size for size, grid in zip(sizes, grids, strict=True) if grid >= step]
        waste = [-size % step for size in here]
        most = max(most, sum(here) + sum(waste) - max(waste))
    return most
