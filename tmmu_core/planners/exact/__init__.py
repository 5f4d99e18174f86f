"""``exact``: branch and bound for dynamic storage allocation (strip packing of lifetimes), with a proof of optimality.

The core (:mod:`.branch_and_bound`, after MiniMalloc, ASPLOS '23) decides whether all storages fit in a capacity. Many
short attempts run at the lower bound and at capacities below the best packing, with restarts and branching orders that
learn from conflicts. Each packing lowers the extent; a complete search without a packing raises the bound above the
capacity searched. :mod:`.driver` alternates between branch and bound and large neighbourhood search (:mod:`.lns`).

The budget is a number of nodes, so that the same input gives the same packing on every machine. A node costs O(entries)
(:mod:`.search_model`) in the worst case, about ten microseconds on the MiniMalloc instances.

In-place reuse (hand-off): each reuse is taken (both storages are one unit) or not (the two conflict). The first choice
takes reuses greedily, in normative order. Up to :data:`.driver.MAX_ENUMERATED_HANDOFFS` reuses, every choice is
searched. With more, only the first choice is searched, and the bound is that of a model without conflicts of reuses.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tmmu_core.base.components import DisjointSets
from tmmu_core.base.errors import ArenaTooSmall
from tmmu_core.planners.bounds import Bound, bound_of, possible_extent
from tmmu_core.planners.columns import Columns, columns, extent_of, offset_column
from tmmu_core.planners.exact.branch_and_bound import OPENING_WEIGHTS, Searcher, weighted_ranks
from tmmu_core.planners.exact.driver import Component, ProgressLog, SearchRequest
from tmmu_core.planners.exact.search_model import search_model
from tmmu_core.planners.portfolio import RUNS, Best, best_greedy
from tmmu_core.planners.problem import I64, UNLIMITED, Meter, Packing, Problem, Progress, count_option, flag_option

DEFAULT_BUDGET = 600_000
"""Default number of nodes. Large components get fewer (:data:`.driver.FULL_BUDGET_ENTRIES`)."""
PROGRESS_NOTE = "course"  # key of the note that contains the rows of :class:`.driver.ProgressLog`
MIN_STORAGES = 256
"""Minimum number of storages for a search that starts at the peak. With fewer, a search of all storages is as fast."""
MIN_PEAK_FRACTION, MAX_PEAK_FRACTION = 0.1875, 0.5
"""Fraction of the storages in the peak (:data:`ATTEMPTS`). Below the minimum, the attempt with all storages is skipped;
above the maximum, the attempt with the peak alone is skipped."""
WHOLE = 0  # level of an attempt with all storages
ATTEMPTS = ((12, 3), (WHOLE, 3), (12, 0), *((level, opening) for level in (14, 13, 15, 11) for opening in (3, 0)))
"""Level and branching order (an index into :data:`OPENING_WEIGHTS`) of each attempt. The *peak*:
all storages that are live at some step whose live bytes are at least level / 16 of the target."""
MAX_WHOLE_STEPS = 16  # an attempt with all storages needs a mean live range of at most this many compressed steps
MIN_NODES, NODES_PER_STORAGE = 64, (16, 5)
"""Nodes of an attempt: ``MIN_NODES``, plus 16 per 4 storages (peak only) or 5 per 4 storages (all storages)."""
InArena = Callable[[int], int]  # extent or bound of a part of an arena → the arena's


def exact(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the best packing within the budget, with the proven bound.

    Options: ``budget`` (nodes); ``minimise``: continue below the capacity (default: only if there is no capacity);
    ``max_nodes`` (:class:`.Meter`). ``progress`` stops the search by returning ``False`` or by raising. Raises
    ``ArenaTooSmall`` (``proven`` in its diagnostics) if it proves that no packing fits the capacity; without a proof,
    the packing may exceed the capacity. Raises ``AllocationOverflow`` for an extent past 2^64 − 1.
    """
    cols = columns(problem)
    return exact_from(cols, bound_of(cols), None, options, Meter.of(progress, options))


def exact_from(
    cols: Columns, bound: Bound, start: Best | None, options: Mapping[str, Any], meter: Meter, in_arena: InArena = int
) -> Packing:
    """Return the result of :func:`exact`, given the columns, their bound and the best greedy run if known.

    Further options: ``use_lns``, ``accept_near`` (end early if the extent is less than one alignment above the
    bound). ``cols`` may be a part of the arena: ``in_arena`` converts its extents and bounds to the arena's.
    """
    problem = cols.problem
    budget = count_option(options, "budget", DEFAULT_BUDGET)
    minimise = flag_option(options, "minimise", problem.capacity == UNLIMITED)
    goal = 0 if minimise else problem.capacity
    bound = replace(bound, bytes=possible_extent(cols, bound.bytes))
    _reject_if_proven(problem, bound.bytes, bound.max_live)
    start = start or best_greedy(cols, bound, goal=goal)
    if start.extent > max(bound.bytes, goal) and not goal and len(always := always_live(cols)):
        return _pack_around_always_live(cols, bound, start, always, options, meter, in_arena)
    offset, lower, stopped = list(start.offset), bound.bytes, False
    notes: dict[str, Any] = {"start": f"{start.order}/{start.fit}", "nodes": 0, "attempts": 0}
    log = ProgressLog(start.extent, lower, lambda *row: meter.improved(problem.arena, *map(in_arena, row)))
    if start.extent > max(lower, goal):
        if not cols.is_small:
            notes["why"] = "sizes beyond 2^62: greedy only"
        elif not budget:
            stopped = True
        else:
            use_lns = flag_option(options, "use_lns", True)
            near = lower + min(cols.align) if flag_option(options, "accept_near", False) else 0
            found = pack_peak_first(cols, bound, goal, meter, notes)
            if found is None:
                if start.runs < len(RUNS):
                    start = min(start, best_greedy(cols, bound, goal=goal), key=lambda run: run.extent)
                    offset = list(start.offset)
                request = SearchRequest(goal, budget + notes["nodes"], meter, notes, log, use_lns, near)
                lower, stopped = pack_components(cols, bound, offset, request)
            else:
                offset = found
                log.record(notes["nodes"], extent_of(cols, offset), lower)
            notes[PROGRESS_NOTE] = [[nodes, *map(in_arena, row)] for nodes, *row in log.rows]
    _reject_if_proven(problem, lower, bound.max_live)
    is_optimal = extent_of(cols, offset) == lower
    return Packing(offset_column(cols, offset), lower_bound=lower, optimal=is_optimal, stopped=stopped, notes=notes)


def always_live(cols: Columns) -> I64:
    """Return the storages that are live at every step.

    Empty if all are always live, or if the problem is not plain, not small, or has several alignments.
    """
    is_suitable = cols.is_plain and cols.is_small and len(set(cols.align)) == 1
    always = np.flatnonzero((cols.part_lo == 0) & (cols.part_hi == len(cols.births)))
    return always if is_suitable and len(always) < len(cols) else always[:0]


def _pack_around_always_live(
    cols: Columns, bound: Bound, start: Best, always: I64, options: Mapping[str, Any], meter: Meter, in_arena: InArena
) -> Packing:
    """Pack the always live storages below the others; move one of them to the top if that lowers the extent.

    In every packing, the always live storages divide memory into bands that are the same at each step. Every other
    storage lies in one band. The bands can be stacked without raising the extent, so an optimal packing of the other
    storages gives an optimal result. The always live storage with the most padding goes to the top, because padding
    above the topmost storage does not count. ``start`` is returned if its extent is lower.
    """
    grid = cols.align[0]
    padded = -(-cols.sizes // grid) * grid
    rest = np.setdiff1d(np.arange(len(cols)), always)
    stacked = always[np.argsort(padded[always] - cols.sizes[always], kind="stable")]
    base, top_padding = int(padded[stacked].sum()), int(padded[stacked[-1]] - cols.sizes[stacked[-1]])
    inner = columns(replace(cols.problem.subproblem(rest), capacity=UNLIMITED))

    def total_of(rest_bytes: int) -> int:
        """Return the extent (or bound) of all storages for an extent (or bound) of the other storages."""
        return max(bound.bytes, min(base + rest_bytes, -(-rest_bytes // grid) * grid + base - top_padding))

    def rest_in_arena(rest_bytes: int) -> int:
        return in_arena(min(start.extent, total_of(rest_bytes)))

    packing = exact_from(inner, bound_of(inner), None, {**options, "minimise": True}, meter, rest_in_arena)
    extent = extent_of(inner, packing.offset)
    lower, total = total_of(packing.lower_bound or 0), total_of(extent)
    offset = np.zeros(len(cols), np.uint64)
    offset[stacked] = np.cumsum(padded[stacked]) - padded[stacked]
    offset[rest] = packing.offset + np.uint64(base)
    if total < base + extent:
        last = stacked[-1]
        offset[rest] -= np.uint64(padded[last])
        offset[last] = total - cols.size[last]
    if start.extent < total:
        offset, total = offset_column(cols, start.offset), start.extent
    _reject_if_proven(cols.problem, lower, bound.max_live)
    return replace(packing, offset=offset, lower_bound=lower, optimal=total == lower)


def _reject_if_proven(problem: Problem, bound: int, max_live: int) -> None:
    """Raise ``ArenaTooSmall`` if ``bound`` is above the capacity, ``AllocationOverflow`` without a capacity."""
    if bound <= problem.capacity:
        return
    if problem.capacity == UNLIMITED:
        raise problem.overflow("the least packing", 0, bound)
    message = f"the storages of arena {problem.arena!r} do not fit in its capacity of {problem.capacity:,} B."
    hint = f"No plan fits: at least {bound:,} B are needed {problem.assumptions} (proven). "
    hint += "Raise the capacity, shorten live ranges or make buffers smaller."
    proof: dict[str, Any] = {"required": bound, "lower_bound": bound, "peak_live_bytes": max_live, "proven": True}
    raise ArenaTooSmall(message, hint=hint, arena=problem.arena, capacity=problem.capacity, **proof)


def pack_peak_first(cols: Columns, bound: Bound, goal: int, meter: Meter, notes: dict[str, Any]) -> list[int] | None:
    """Return offsets with an extent of at most the larger of bound and goal; ``None`` if no attempt finds them.

    A short search packs the storages near the peak. Greedy runs then place the other storages around this packing.
    """
    target = max(bound.bytes, goal)
    if not cols.is_plain or len(cols) < MIN_STORAGES:
        return None
    live = np.asarray(cols.live_bytes(), np.int64)
    tries_all = int((cols.part_hi - cols.part_lo).sum()) <= MAX_WHOLE_STEPS * len(cols)
    searchers: dict[int, tuple[I64, Searcher]] = {}
    for level, opening in ATTEMPTS:
        if level not in searchers:
            steps = np.flatnonzero(live >= target // 16 * level)
            peak = np.flatnonzero(np.searchsorted(steps, cols.part_hi) > np.searchsorted(steps, cols.part_lo))
            tries_all &= len(peak) >= len(cols) * MIN_PEAK_FRACTION
            if not (tries_all if level == WHOLE else 0 < len(peak) <= len(cols) * MAX_PEAK_FRACTION):
                continue
            searchers[level] = peak, Searcher(search_model(columns(cols.problem.subproblem(peak))))
        peak, searcher = searchers[level]
        limit = meter.left(MIN_NODES + NODES_PER_STORAGE[level == WHOLE] * len(peak) // 4)
        rank = weighted_ranks(searcher.model.log_traits, OPENING_WEIGHTS[opening])
        _, nodes, found = searcher.solve(target, rank, limit)
        meter.used += nodes
        notes["nodes"] += nodes
        if meter.ended():
            return None
        if found is not None:
            fixed = np.full(len(cols), -1, np.int64)
            fixed[peak] = found
            with_peak = replace(cols, problem=replace(cols.problem, fixed=fixed), fixed=tuple(fixed.tolist()))
            best = best_greedy(with_peak, replace(bound, bytes=target), runs=RUNS[:3])
            if best.extent <= target:
                return best.offset
    return None


def pack_components(cols: Columns, whole: Bound, offset: list[int], request: SearchRequest) -> tuple[int, bool]:
    """Improve ``offset`` component by component; return the proven bound and whether the search is incomplete.

    First, each component gets an equal part of the remaining nodes, in the order of descending bounds. A component is
    skipped if its extent is at most the bound, the goal or the extent of an earlier component. After that, the
    component with the largest extent gets the remaining nodes, repeatedly, as long as it can improve.
    """
    goal, notes, log = request.goal, request.notes, request.log
    parts = _split(cols, whole, offset)
    proven = floor = whole.bytes
    if len(parts) > 1:
        notes["parts"] = len(parts)
    for k, part in enumerate(parts):
        log.other_extent = max((other.extent for other in parts if other is not part), default=0)
        if part.extent > max(floor, goal) and len(parts) > 1:
            greedy = best_greedy(part.cols, part.first_bound)
            if greedy.extent < part.extent:
                part.extent, part.offset = greedy.extent, list(greedy.offset)
        if part.extent > max(floor, goal) and not notes.get("interrupted"):
            share = (request.budget - notes["nodes"]) // (len(parts) - k)
            proven = part.improve(request, share, floor, proven)
        floor = max(floor, part.extent)
    while len(parts) > 1 and notes["nodes"] < request.budget and not notes.get("interrupted"):
        top = max(part.extent for part in parts)
        floor = max([proven, *(part.extent for part in parts if part.extent < top)])
        # A component cannot improve after a complete search with this floor or a lower one.
        can_improve = (part for part in parts if part.is_open or part.floor > floor)
        highest = next((part for part in can_improve if part.extent == top), None)
        if highest is None or top <= max(floor, goal) or top < request.near:
            break
        log.other_extent = max(part.extent for part in parts if part is not highest)
        proven = highest.improve(request, request.budget - notes["nodes"], floor, proven)
    for part in parts:
        for i, at in zip(part.indices, part.offset, strict=True):
            offset[i] = at
    is_open = any(part.is_open for part in parts)
    return proven, max(part.extent for part in parts) > max(proven, goal) and is_open


def _split(cols: Columns, whole: Bound, offset: list[int]) -> list[Component]:
    """Return the components of the conflict graph, by descending bounds.

    Storages before and after a birth are in different components if no live range or conflict crosses this birth.
    """
    n, k = len(cols), len(cols.births)
    crossing = np.zeros(k + 1, dtype=np.int64)
    np.add.at(crossing, cols.part_lo + 1, 1)
    np.subtract.at(crossing, cols.part_hi, 1)
    period = np.cumsum(np.cumsum(crossing)[:k] == 0)  # births so far that no live range crosses
    names = period[cols.part_lo]
    if not cols.has_intervals:
        sets = DisjointSets(n + k + 1)
        for i, name in zip(cols.storage_of_part.tolist(), names.tolist(), strict=True):
            sets.join(i, n + name)
        for i in range(n) if cols.extra_conflicts else ():
            for j, _ in cols.extra_conflicts[i]:
                sets.join(i, j)
        names = sets.names()[:n]
    members: dict[int, list[int]] = {}
    for i, name in enumerate(names.tolist()):
        members.setdefault(name, []).append(i)
    parts = []
    for indices in members.values():
        own = columns(cols.problem.subproblem(np.asarray(indices, np.int64))) if len(members) > 1 else cols
        bound = bound_of(own) if len(members) > 1 else whole
        bound = replace(bound, bytes=possible_extent(own, bound.bytes))
        at = [offset[i] for i in indices]
        parts.append(Component(indices, own, bound, extent_of(own, at), at))
    return sorted(parts, key=lambda part: (-part.first_bound.bytes, part.indices[0]))
