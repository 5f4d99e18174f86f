"""``exact``: branch and bound for dynamic storage allocation (strip packing of lifetimes), with a proof of optimality.

The core (:mod:`.branch_and_bound`, after MiniMalloc, ASPLOS '23) decides whether everything fits below a capacity. Many
short attempts run at the lower bound and at capacities below the best packing, with restarts and branching orders that
learn from conflicts (:mod:`.branching`). A packing lowers the extent; an exhausted search raises the bound above its
capacity. Where the two meet, the packing is optimal.

=========================  ==========================================================================
:mod:`.components`         the storages near the peak first; then independent components, which share the budget
:mod:`.driver`             search of one component: target capacities, restarts, stop rule
:mod:`.time_cut`           pack both sides of a moment that few storages cross, one after the other
:mod:`.search_model`       units, sections and choices of in-place reuse
:mod:`.branch_and_bound`   depth-first search with backjumping
:mod:`.propagation`        lower bounds of offsets, dominance and symmetry rules; conflict analysis: nogoods
:mod:`.branching`          branching orders, weighted by failures; Luby and geometric restarts
:mod:`.lns`                large neighbourhood search (destroy and repair) on the remaining gap
=========================  ==========================================================================

The budget is a number of nodes and random numbers are raw Philox words: the same input gives the same packing on every
machine. A node costs O(entries) in the worst case, about ten microseconds on the MiniMalloc instances.

In-place reuse (hand-off): each may be taken (both storages are one unit) or not (the two conflict). As many as possible
are taken first; up to :data:`.driver.MAX_ENUMERATED_HANDOFFS` every choice is searched; with more, a relaxation in
which these pairs may overlap raises the bound.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tmmu_core.base.errors import ArenaTooSmall
from tmmu_core.planners.bounds import Bound, bound_of, reachable
from tmmu_core.planners.columns import Columns, columns, count_option, extent_of, finished, flag_option
from tmmu_core.planners.exact.components import pack_components, pack_peak_first
from tmmu_core.planners.exact.driver import ProgressLog, SearchRequest
from tmmu_core.planners.meter import metered
from tmmu_core.planners.portfolio import Best, best_greedy
from tmmu_core.planners.problem import UNLIMITED, Packing, Problem, Progress

DEFAULT_BUDGET = 600_000
"""Nodes, for components of up to :data:`.driver.FULL_BUDGET_ENTRIES` entries."""
PROGRESS_NOTE = "course"
"""Note with the rows of :class:`.driver.ProgressLog`."""


def exact(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the best packing within the budget, with the proven bound.

    Options: ``budget`` (nodes); ``minimise``: continue below the capacity (default: only if there is no capacity);
    ``max_nodes`` (:mod:`..meter`). ``progress`` stops the search by returning ``False`` or by raising. Raises
    ``ArenaTooSmall`` (``proven`` in its diagnostics) where no packing fits the capacity, ``AllocationOverflow`` past
    2^64 − 1.
    """
    cols = columns(problem)
    return exact_from(cols, bound_of(cols), None, options, progress)


def exact_from(
    cols: Columns, bound: Bound, start: Best | None, options: Mapping[str, Any], progress: Progress | None
) -> Packing:
    """Return the result of :func:`exact`, given the columns, their bound and the best greedy run if known.

    One more option: ``use_lns`` (:class:`.driver.SearchRequest`).
    """
    problem = cols.problem
    budget = count_option(options, "budget", DEFAULT_BUDGET)
    minimise = flag_option(options, "minimise", problem.capacity == UNLIMITED)
    goal = 0 if minimise else problem.capacity
    bound = replace(bound, bytes=reachable(cols, bound.bytes))
    _reject_if_proven(problem, bound.bytes, bound.max_live)
    start = start or best_greedy(cols, bound, goal=goal)
    offset, lower, stopped = list(start.offset), bound.bytes, False
    notes: dict[str, Any] = {"start": f"{start.order}/{start.fit}", "nodes": 0, "attempts": 0}
    meter = metered(progress, options)
    log = ProgressLog(start.extent, lower, lambda extent, least: meter.improved(problem.arena, extent, least))
    if start.extent > max(lower, goal):
        if not cols.small:
            notes["why"] = "sizes beyond 2^62: greedy only"
        elif budget:
            use_lns = flag_option(options, "use_lns", True)
            request = SearchRequest(goal, budget, meter, notes, log, use_lns)
            found = pack_peak_first(cols, bound, request)
            if found is None:
                request = replace(request, budget=budget + notes["nodes"])
                lower, stopped = pack_components(cols, bound, offset, request)
            else:
                offset = found
                log.record(notes["nodes"], extent_of(cols, offset), lower)
            notes[PROGRESS_NOTE] = log.rows
    _reject_if_proven(problem, lower, bound.max_live)
    return Packing(
        finished(cols, offset),
        lower_bound=lower,
        optimal=extent_of(cols, offset) == lower,
        stopped=stopped,
        notes=notes,
    )


def _reject_if_proven(problem: Problem, bound: int, max_live: int) -> None:
    if bound <= problem.capacity:
        return
    raise ArenaTooSmall(
        f"the capacity of arena {problem.arena!r} is {problem.capacity:,} B, at least {bound:,} B are needed.",
        hint=f"No planner can fit: at least {bound:,} B are needed {problem.assumptions} (proven). "
        "Raise the capacity, shorten live ranges or make buffers smaller.",
        arena=problem.arena,
        capacity=problem.capacity,
        required=bound,
        lower_bound=bound,
        peak_live_bytes=max_live,
        proven=True,
    )
