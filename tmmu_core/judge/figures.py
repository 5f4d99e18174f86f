"""What a plan says of its arenas and of all of them together, held against its rows and against itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tmmu_core.errors import U64_MAX
from tmmu_core.judge.facts import PlanFacts
from tmmu_core.judge.finding import Finding, error
from tmmu_core.judge.slotting import PART, ends_end_to_end
from tmmu_core.plan.model import ArenaSummary, Plan

STATUSES = ("optimal", "unproven", "feasible", "invalid")


def check_arenas(facts: PlanFacts) -> Iterator[Finding]:
    """Rules ``bounds``, ``extent``, ``capacity``, ``figures``."""
    plan = facts.plan
    ends = facts.start + np.maximum(facts.size, np.uint64(plan.places != "bytes"))
    extents = np.array([min(max(arena.extent_bytes, 0), U64_MAX) for arena in plan.arenas], np.uint64)
    sparse = plan.places == "sparse"
    for i in np.flatnonzero(plan.offset + plan.size > extents[plan.arena]).tolist() if not sparse else ():
        arena = plan.arenas[plan.arena[i]]
        yield error(
            "bounds",
            f'"{plan.tensor_ids[i]}" ends at {plan.offset[i] + plan.size[i]}, its arena at {arena.extent_bytes}.',
            tensor=plan.tensor_ids[i],
            arena=arena.name,
        )
    for number, arena in enumerate(plan.arenas):
        here = facts.arena == number
        # Hashed addresses end nowhere: the extent is that of the same slots end to end.
        possible = ends_end_to_end(facts, number) if sparse else {int(ends[here].max(initial=0))}
        highest = max(possible)
        if arena.extent_bytes not in possible:
            yield error(
                "extent",
                f"{arena.name} says an extent of {arena.extent_bytes:,} bytes, "
                f"its highest storage ends at {highest:,}.",
                arena=arena.name,
            )
        for what, said, counted in (
            ("slots", arena.slots, int((facts.slots.arena == number).sum())),
            ("max_live", arena.max_live, facts.most_together(number, facts.held_until)),
            ("storages", arena.storages, int(here.sum())),
            ("peak_live_bytes", arena.peak_live_bytes, facts.peak_live_bytes(number)),
        ):
            if said != counted:
                yield error("figures", f"{arena.name} says {what} {said}, the rows make {counted}.", arena=arena.name)
    yield from _totals(facts)
    yield from _activations(plan)
    yield from impossible(plan)


def impossible(plan: Plan) -> Iterator[Finding]:
    """What the arenas' figures alone prove wrong: rules ``extent``, ``capacity`` and ``figures``, without any row."""
    for arena in plan.arenas:
        pages = -(-arena.extent_bytes // arena.page_size) * arena.page_size if arena.page_size else arena.extent_bytes
        if arena.committed_bytes != pages:
            yield error(
                "extent",
                f"{arena.name} commits {arena.committed_bytes:,} bytes; {arena.extent_bytes:,} in whole pages of "
                f"{arena.page_size:,} are {pages:,}.",
                arena=arena.name,
            )
        if arena.extent_bytes > arena.capacity_bytes:
            yield error(
                "capacity",
                f"{arena.name} needs {arena.extent_bytes:,} bytes and has {arena.capacity_bytes:,}.",
                arena=arena.name,
            )
        for bound, why in (
            (max(arena.lower_bound_bytes or 0, arena.proven_bytes or 0), "no packing is below"),
            (arena.peak_live_bytes, "are alive together"),
        ):
            if bound > arena.extent_bytes:
                yield error(
                    "figures",
                    f"{arena.name} has an extent of {arena.extent_bytes:,} bytes, where {bound:,} {why}: it cannot be.",
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
            yield error("figures", f"the totals say {what} {said.get(what)}, the rows and arenas make {number}.")


def _activations(plan: Plan) -> Iterator[Finding]:
    """Rule ``figures``, for the bytes of all activations; an instance, which runs nothing, has none that are kept."""
    said = plan.metrics.get("activation_bytes")
    own = [role == "activation" and base is None for role, base in zip(plan.roles, plan.base_tensor_uids, strict=True)]
    runs = bool(plan.execution_order) or plan.has_inputs_step
    counted = sum(plan.size[np.array(own, np.bool_)].tolist()) if runs else 0
    if said not in (None, counted):
        yield error("figures", f"the metrics say activation_bytes {said}, the rows make {counted}.")


def check_metrics(plan: Plan) -> Iterator[Finding]:
    """Rule ``figures``, for the metrics: sums over the arenas, and each ratio of the counts that it is made of."""
    said = plan.metrics
    arenas = plan.arenas
    slots, storages = sum(arena.slots for arena in arenas), sum(arena.storages for arena in arenas)
    extent, peaks = sum(arena.extent_bytes for arena in arenas), sum(arena.peak_live_bytes for arena in arenas)
    totals = said.get("totals")
    kept, activations = said.get("activation_bytes_retained", 0), said.get("activation_bytes", 0)
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
        if what in said and said[what] != number:
            yield error("figures", f"the metrics say {what} {said[what]}, the arenas make {number}.")
    # One division, at the end; who subtracts behind it may end a last bit beside it.
    for what, part, whole in (
        ("memory_reuse_ratio", storages - slots, storages),
        ("internal_fragmentation_ratio", extent - peaks, extent),
        ("activation_retention_ratio", kept, activations),
    ):
        ratios = (part / whole, 1 - (whole - part) / whole) if whole else (0.0,)
        if what in said and said[what] not in ratios:
            yield error("figures", f"the metrics say {what} {said[what]}, the counts make {ratios[0]}.")
    if kept > activations:
        yield error("figures", f"{kept:,} bytes of activations are said to be kept, of {activations:,}.")


def check_certificates(facts: PlanFacts) -> Iterator[Finding]:
    """Rule ``certificate``."""
    plan = facts.plan
    for number, arena in enumerate(plan.arenas):
        least = max(arena.bound_bytes, arena.proven_bytes or 0)
        if arena.status not in STATUSES:
            yield error("certificate", f'{arena.name} has the status "{arena.status}".', arena=arena.name)
        if arena.status == "optimal" and arena.extent_bytes > least:
            yield error(
                "certificate",
                f"{arena.name} is called optimal with {arena.extent_bytes:,} bytes, "
                f"and no more than {least:,} are proven.",
                arena=arena.name,
            )
        if arena.witness:
            yield from _witness(facts, number, arena)


def _witness(facts: PlanFacts, number: int, arena: ArenaSummary) -> Iterator[Finding]:
    """Whether the storages that are said to make the bound are there, and make it."""
    plan = facts.plan
    storages = [int(plan.storage[plan.row_of[name]]) for name in arena.witness if name in plan.row_of]
    if len(set(storages)) < len(arena.witness) or any(facts.arena[s] != number for s in storages):
        yield error(
            "certificate", f"what makes the bound of {arena.name} is not a storage of it each.", arena=arena.name
        )
        return
    step = arena.witness_step
    # Not all need be there: what must not share bytes is in each other's way at any time.
    if step != -1 and not _there(plan, set(arena.witness), step):
        yield error(
            "certificate",
            f"what makes the bound of {arena.name} is not there at step {step}.",
            arena=arena.name,
        )
    sizes = [int(facts.size[s]) for s in storages]
    grids = [int(facts.alignment[s]) for s in storages]
    # Who lies alone at a given offset is bound by its end; the others by what they take side by side.
    ends = {int(facts.stop[storages[0]])} if len(storages) == 1 else set()
    if (arena.lower_bound_bytes or 0) not in {sum(sizes), side_by_side(sizes, grids)} | ends:
        yield error(
            "certificate",
            f"the bound of {arena.name} is said to be {arena.lower_bound_bytes or 0:,} bytes; what makes it takes "
            f"{side_by_side(sizes, grids):,}.",
            arena=arena.name,
        )


def _there(plan: Plan, names: set[str], step: int) -> bool:
    """Whether a storage of these, or a later live part of one, is there at ``step``."""
    here = np.flatnonzero((plan.birth <= step) & (step < plan.death))
    storages = set(plan.storage[here].tolist())
    own = any(int(plan.storage[plan.row_of[name]]) in storages for name in names)
    return own or any(plan.tensor_ids[row].rpartition(PART)[0] in names for row in here.tolist())


def side_by_side(sizes: list[int], grids: list[int]) -> int:
    """The least bytes that blocks take beside one another, each beginning on its grid.

    On a grid all but the last take whole steps of it; who lies last is the one that would waste most. Blocks of coarse
    grids may ask for more without the others.
    """
    most = 0
    for step in sorted(set(grids)):
        here = [size for size, grid in zip(sizes, grids, strict=True) if grid >= step]
        waste = [-size % step for size in here]
        most = max(most, sum(here) + sum(waste) - max(waste))
    return most
