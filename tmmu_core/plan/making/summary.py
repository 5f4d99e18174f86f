"""One arena's figures and certificate, and the limits that a plan is held to: capacities and the quota."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tmmu_core.errors import U64_MAX, AllocationFailure, AllocationOverflow, ArenaTooSmall
from tmmu_core.graph.model import Arena
from tmmu_core.liveness.model import I64, U64
from tmmu_core.plan.figures import metrics
from tmmu_core.plan.figures.live import peak_and_count
from tmmu_core.plan.making.certificate import certify
from tmmu_core.plan.model import ArenaSummary
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.problem import Packing, Problem

TRIED = "portfolio"
TRIED_UP_TO = 20_000
"""Storages up to which a planner is tried before an arena is said to be too small."""


class Found(NamedTuple):
    """What a planner's packing of one arena comes to."""

    packing: Packing
    slots: int
    extent: int
    """Bytes."""
    held: I64
    """Until when each storage's bytes are in use as planned: a hand-off that is not taken holds its giver through the
    step that reads it, which the peak must show; the lower bound is the problem's, where all are open."""
    parts: tuple[I64, I64, U64] | None = None
    """Birth, end of use and bytes of every live part, where storages have gaps: each is a row, and a storage of the
    plan. ``None``: the storages are their own."""


def summarise(problem: Problem, found: Found, config: Mapping[str, Arena], steps: int) -> ArenaSummary:
    """The arena's figures and its certificate. A plan as low as what is proven is optimal, whoever made it."""
    steps = max(steps, 1)
    arena = config.get(problem.arena, Arena())
    certificate = certify(problem, found.packing, found.extent, steps)
    birth, until, size = found.parts or (problem.birth, found.held, problem.size)
    peak_live, max_live = peak_and_count(birth, until, size, steps)
    return ArenaSummary(
        name=problem.arena,
        capacity_bytes=arena.capacity_bytes,
        alignment_bytes=arena.alignment_bytes,
        page_size=arena.page_size,
        extent_bytes=found.extent,
        committed_bytes=metrics.committed_bytes(found.extent, arena.page_size, arena=problem.arena),
        peak_live_bytes=peak_live,
        slots=found.slots,
        max_live=max_live,
        storages=len(birth),
        lower_bound_bytes=certificate.lower_bound,
        status=certificate.status,
        proven_bytes=certificate.proven if certificate.proven > certificate.lower_bound else None,
        witness=certificate.witness,
        witness_step=certificate.step,
    )


OF_GRAPHS = "Enlarge the arena, or let tmmu fit change what is alive: order, recomputing, offloading, sizes."
OF_INSTANCES = "Enlarge the arena, shorten lives or make buffers smaller."


def check_capacity(problem: Problem, summary: ArenaSummary, *, of_graph: bool = True) -> None:
    """Raise ``ArenaTooSmall`` when the extent is over the capacity, saying whether another planner would fit.

    What is alive can be changed of a graph alone, so that an instance's way out is another.

    ``diagnostics["another_planner_would_fit"]`` is the name of one that was seen to fit, ``"no"`` where the lower bound
    is over the capacity too, else ``"unknown"``.
    """
    if summary.extent_bytes <= summary.capacity_bytes:
        return
    bound = max(summary.bound_bytes, summary.proven_bytes or 0)
    other = _who_fits(problem, bound, summary.capacity_bytes)
    if other == "no":
        way = f"No planner can fit: {bound:,} B is proven to be the least. "
        way += OF_GRAPHS if of_graph else OF_INSTANCES
    elif other == "unknown":
        way = f"The least that is proven to be needed is {bound:,} B: a search may fit, try --planner exact."
    else:
        way = f"It fits with --planner {other}."
    raise ArenaTooSmall(
        f"arena {summary.name!r} holds {summary.capacity_bytes:,} B, the plan needs {summary.extent_bytes:,} B.",
        arena=summary.name,
        capacity=summary.capacity_bytes,
        required=summary.extent_bytes,
        peak_live_bytes=summary.peak_live_bytes,
        another_planner_would_fit=other,
        hint=way,
    )


def _who_fits(problem: Problem, bound: int, capacity: int) -> str:
    if bound > capacity:
        return "no"
    if len(problem) <= TRIED_UP_TO:
        packing = ARENA_PLANNERS[TRIED].pack(problem, {}, None)
        extent = int((packing.offset + problem.size).max())
        if extent <= capacity:
            return TRIED
    return "unknown"


def check_budget(summaries: Sequence[ArenaSummary], budget: int | None) -> None:
    """Raise ``AllocationFailure`` when Σ extents is over the quota (contract §4)."""
    needed = sum(summary.extent_bytes for summary in summaries)
    if budget is not None and needed > budget:
        largest = max(summaries, key=lambda summary: (summary.extent_bytes, summary.name))
        raise AllocationFailure(
            f"the plan needs {needed:,} B over all arenas, the budget is {budget:,} B; nothing was committed.",
            arena=largest.name,
            peak_required_bytes=needed,
            memory_bytes_budget=budget,
            allocation_failures=1,
            hint=f"The largest arena is {largest.name!r} with {largest.extent_bytes:,} B. "
            f"tmmu fit FILE --capacity {budget} looks for a graph that fits.",
        )


def check_together(summaries: Sequence[ArenaSummary]) -> None:
    """Raise ``AllocationOverflow`` where arenas that fit 64 bits one by one do not so together (contract §4, §6).

    What all of them take in whole pages is the largest figure that is summed up over arenas.
    """
    needed = sum(summary.committed_bytes for summary in summaries)
    if needed > U64_MAX:
        largest = max(summaries, key=lambda summary: (summary.committed_bytes, summary.name))
        raise AllocationOverflow(
            f"the plan needs {needed:,} B over all arenas, past 2^64 − 1.",
            arena=largest.name,
            offset=needed - largest.committed_bytes,
            size=largest.committed_bytes,
            hint=f"The largest arena is {largest.name!r} with {largest.committed_bytes:,} B: look at its tensors.",
        )
