"""``search``: local search on the placement order of ``greedy``, for problems too large for exact search.

An order and a fit (lowest or tightest gap) determine a packing. A move only changes the order. It gives an earlier
position to a storage that ends at the extent, or to one directly below it. One move in eight gives any position to any
storage. Each order costs one greedy run. Late acceptance (Burke and Bykov 2017): an order is accepted if its extent is
at most that of the current order, or of the order that was current :data:`MEMORY` iterations ago. The first half of the
iterations uses the fit of the starting packing, the second half the other fit.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from tmmu_core.planners.bounds import bound_of
from tmmu_core.planners.columns import Columns, columns, count_option, extent_of, offset_column
from tmmu_core.planners.greedy import place
from tmmu_core.planners.meter import metered
from tmmu_core.planners.portfolio import Best, best_greedy
from tmmu_core.planners.problem import Packing, Problem, Progress

DEFAULT_ITERATIONS = 400
FULL_BUDGET_STORAGES = 2_000  # with more storages, the iterations are reduced in proportion, to at least 4
MEMORY = 12  # number of extents that late acceptance remembers


def search(
    problem: Problem, options: Mapping[str, Any], progress: Progress | None = None, start: Best | None = None
) -> Packing:
    """Return the best packing of a local search that starts at the lower of ``start`` and the best greedy run.

    Options: ``iterations`` (see :data:`FULL_BUDGET_STORAGES`), ``seed`` and ``max_nodes`` (:mod:`.meter`).
    """
    meter = metered(progress, options)
    iterations = count_option(options, "iterations", DEFAULT_ITERATIONS)
    seed = count_option(options, "seed", 0)
    cols = columns(problem)
    bound = bound_of(cols)
    best = min(filter(None, (start, best_greedy(cols, bound))), key=lambda run: run.extent)
    share = iterations * FULL_BUDGET_STORAGES // max(len(cols), FULL_BUDGET_STORAGES)
    iterations = min(iterations, max(share, 4)) if cols.is_small else 0
    draws = np.random.Philox(key=seed)
    fit, order = best.fit, list(best.sequence)
    least = current = best.extent, best.offset  # (extent, offsets) of the best and of the current packing
    memory = [best.extent] * MEMORY
    stopped, done = False, 0

    def placed(changed: list[int]) -> tuple[int, list[int]]:
        offsets = place(cols, changed, fit)
        return extent_of(cols, offsets), offsets

    while done < iterations and least[0] > bound.bytes and not stopped:
        if done == iterations // 2:
            fit, order = "lowest" if best.fit == "tightest" else "tightest", list(best.sequence)
            current = placed(order)
            least = min(least, current, key=itemgetter(0))  # the first of equal packings
            memory = [current[0]] * MEMORY
        changed = _neighbour(cols, order, *current, [int(x) for x in draws.random_raw(4)])
        found = placed(changed)
        least = min(least, found, key=itemgetter(0))
        if found[0] <= max(current[0], memory[done % MEMORY]):
            order, current = changed, found
        memory[done % MEMORY] = current[0]
        done += 1
        report = (problem.arena, least[0], bound.bytes)
        stopped = meter.count_run("search", done, iterations, report) and done < iterations
    offset, is_optimal = offset_column(cols, least[1]), least[0] == bound.bytes
    notes = {"start": f"{best.order}/{best.fit}", "seed": seed, "iterations": done}
    return Packing(offset, lower_bound=bound.bytes, optimal=is_optimal, stopped=stopped, notes=notes)


def _neighbour(cols: Columns, order: list[int], extent: int, offsets: list[int], raw: list[int]) -> list[int]:
    """Return ``order`` with one storage moved by random words; ``extent`` and ``offsets`` are those of its packing."""
    order = list(order)
    if raw[0] % 8 == 7:
        moved = order.pop(raw[1] % len(order))
        order.insert(raw[2] % (len(order) + 1), moved)
        return order
    ends = [at + size for at, size in zip(offsets, cols.size, strict=True)]
    top = [i for i, end in enumerate(ends) if end == extent]
    moved = top[raw[1] % len(top)]
    if raw[0] % 8 >= 4:
        adjacent = [i for i, end in enumerate(ends) if end == offsets[moved]]
        below = [i for i in adjacent if cols.overlap_in_time(i, moved)]
        moved = below[raw[3] % len(below)] if below else moved
    position = order.index(moved)
    del order[position]
    order.insert(raw[2] % max(position, 1), moved)
    return order
