"""``exact``: branch and bound that minimises, any time, with a proof where it gets that far.

The compiled search (:mod:`.kernel`, after MiniMalloc, ASPLOS '23) answers one question: does everything fit below a
capacity? It is asked often and shortly, under orders that learn from their failures (:mod:`.steering`), in turn at the
lower bound itself and at capacities closely and well below the best so far. Found: the extent falls. Exhausted: the
bound rises above that capacity. Where they meet the packing is optimal.

Budgeted by nodes, never by the clock; draws are raw Philox numbers: the same budget gives the same packing anywhere.
A node costs O(entries) in the worst case, some ten microseconds on the six MiniMalloc instances.

What never meets is packed apart (:mod:`.apart`), so that one part's luck is not the other's, each on a way down of its
own (:mod:`.hunt`); where few cross a moment, its two sides are also tried one after the other (:mod:`.across`). What is
near its bound when the nodes are spent is torn down and put up again (:mod:`.rebuild`).

Hand-offs: each may be taken (both storages are one unit) or not (the two conflict). All that can be are taken first;
up to :data:`.hunt.ALL_CHOICES` of them every choice is searched; beyond, a relaxation in which those pairs are free to
overlap raises the bound, and it alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tmmu_core.errors import ArenaTooSmall
from tmmu_core.planners.bounds import Bound, bound_of, reachable
from tmmu_core.planners.columns import Columns, columns, count_option, extent_of, finished, flag_option
from tmmu_core.planners.exact.apart import apart, part
from tmmu_core.planners.exact.hunt import Asked, Course, Hunt, hunt_for, search
from tmmu_core.planners.portfolio import Best, best_greedy
from tmmu_core.planners.problem import I64, UNLIMITED, Packing, Problem, Progress

DEFAULT_BUDGET = 600_000
"""Nodes, for models of up to :data:`.hunt.FULL_SPEED` entries; of twice the entries a quarter of them."""
COURSE = "course"
"""The note that tells ``[nodes, extent, bound]`` whenever the extent fell or the bound rose."""


def exact(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """The least packing that the budget finds, the bound it proves, and whether the two meet.

    Options: ``budget`` (nodes); ``minimise``: with a capacity the search ends as soon as everything fits, unless this
    is true; without one it is. ``progress`` may stop the search at any moment, by ``False`` or by raising. Raises
    ArenaTooSmall, with ``proven`` in its diagnostics, when nothing fits the problem's capacity whatever the budget;
    AllocationOverflow past 2^64 − 1.
    """
    cols = columns(problem)
    return searched(cols, bound_of(cols), None, options, progress)


def searched(
    cols: Columns, bound: Bound, start: Best | None, options: Mapping[str, Any], progress: Progress | None
) -> Packing:
    """The same, of a problem squeezed, with its bound and perhaps the best of all greedy runs, where they are known.

    One option more, of planners alone: ``rebuilds`` (:class:`.hunt.Asked`).
    """
    problem = cols.problem
    budget = count_option(options, "budget", DEFAULT_BUDGET)
    minimise = flag_option(options, "minimise", problem.capacity == UNLIMITED)
    goal = 0 if minimise else problem.capacity
    bound = replace(bound, bytes=reachable(cols, bound.bytes))
    _refuse_if_proven(problem, bound.bytes, bound.max_live)
    start = start or best_greedy(cols, bound, goal=goal)
    offset, lower, stopped = list(start.offset), bound.bytes, False
    notes: dict[str, Any] = {"start": f"{start.order}/{start.fit}", "nodes": 0, "attempts": 0}
    course = Course(start.extent, lower)
    if start.extent > max(lower, goal):
        if not cols.small:
            notes["why"] = "sizes beyond 2^62: greedy only"
        elif budget:
            rebuilds = flag_option(options, "rebuilds", True)
            lower, stopped = _in_parts(cols, bound, offset, Asked(goal, budget, progress, notes, course, rebuilds))
            notes[COURSE] = course.moments
    _refuse_if_proven(problem, lower, bound.max_live)
    return Packing(
        finished(cols, offset),
        lower_bound=lower,
        optimal=extent_of(cols, offset) == lower,
        stopped=stopped,
        notes=notes,
    )


def _in_parts(cols: Columns, whole: Bound, offset: list[int], asked: Asked) -> tuple[int, bool]:
    """Lower what can be lowered of ``offset``, part by part; the bound proven, and whether something was left open.

    The part that needs most comes first. A part is left alone as soon as it is no higher than what another one needs.
    Each may spend its share; what is left over in the end is for the highest of them, where it was left open.
    """
    goal, notes, course = asked.goal, asked.notes, asked.course
    parts = _parts(cols, whole)
    lower = floor = whole.bytes
    if len(parts) > 1:
        notes["parts"] = len(parts)
    extents = [extent_of(own, [offset[i] for i in indices.tolist()]) for indices, own, _ in parts]
    hunts: dict[int, Hunt] = {}
    for k, (indices, own, bound) in enumerate(parts):
        extent, mine = extents[k], [offset[i] for i in indices.tolist()]
        course.elsewhere = max(extents[:k] + extents[k + 1 :], default=0)
        if extent > max(floor, goal) and len(parts) > 1:
            alone = best_greedy(own, bound)
            if alone.extent < extent:
                extent, mine = alone.extent, list(alone.offset)
        if extent > max(floor, goal) and not notes.get("told_to_stop"):
            hunt = hunt_for(own, bound.bytes, floor, (extent, mine))
            hunts[k] = hunt
            course.proven = lower
            search(hunt, replace(asked, budget=(asked.budget - int(notes["nodes"])) // (len(parts) - k)))
            lower = max(lower, hunt.proven())
            extent, mine = hunt.extent, hunt.offset
        extents[k] = extent
        for i, at in zip(indices.tolist(), mine, strict=True):
            offset[i] = at
        floor = max(floor, extent)
    while len(parts) > 1 and int(notes["nodes"]) < asked.budget and not notes.get("told_to_stop"):
        top = max(extents)
        floor = max([lower, *(extent for extent in extents if extent < top)])
        # A part that was low enough is taken up again when the others have come lower.
        highest = [k for k, extent in enumerate(extents) if extent == top]
        again = [k for k in highest if k not in hunts or hunts[k].is_open or hunts[k].floor > floor]
        if not again or top <= max(floor, goal):
            break
        k = again[0]
        indices, own, bound = parts[k]
        if k not in hunts or not hunts[k].is_open:
            hunts[k] = hunt_for(own, bound.bytes, floor, (top, [offset[i] for i in indices.tolist()]))
        course.elsewhere, course.proven = max(extents[:k] + extents[k + 1 :]), lower
        search(hunts[k], replace(asked, budget=asked.budget - int(notes["nodes"])))
        lower, extents[k] = max(lower, hunts[k].proven()), hunts[k].extent
        for i, at in zip(indices.tolist(), hunts[k].offset, strict=True):
            offset[i] = at
    return lower, max(extents) > max(lower, goal) and any(hunt.is_open for hunt in hunts.values())


def _parts(cols: Columns, whole: Bound) -> list[tuple[I64, Columns, Bound]]:
    """Storages that conflict with no others, with their own columns and bound; what needs most bytes comes first."""
    found = apart(cols)
    if len(found) == 1:
        return [(found[0], cols, whole)]
    parts = []
    for indices in found:
        own = columns(part(cols.problem, indices))
        bound = bound_of(own)
        parts.append((indices, own, replace(bound, bytes=reachable(own, bound.bytes))))
    return sorted(parts, key=lambda one: (-one[2].bytes, int(one[0][0])))


def _refuse_if_proven(problem: Problem, bound: int, max_live: int) -> None:
    if bound <= problem.capacity:
        return
    raise ArenaTooSmall(
        f"nothing fits arena {problem.arena!r}: every packing takes at least {bound:,} bytes, "
        f"its capacity is {problem.capacity:,}. This is proven.",
        hint="Raise the capacity, shorten lives or make storages smaller.",
        arena=problem.arena,
        capacity=problem.capacity,
        required=bound,
        lower_bound=bound,
        peak_live_bytes=max_live,
        proven=True,
    )
