"""``search``: local search on the order in which ``greedy`` places, for problems beyond exact search.

An order and a fit determine a packing, so the search changes the order: a storage that ends at the extent, or one
directly below it, moves to an earlier position; one time in eight, any storage moves to any position. Each order costs
one greedy run. Late acceptance (Burke and Bykov 2017): an order is accepted if its extent is at most that of the
current order, or of the order that was current :data:`MEMORY` iterations ago. The first half of the iterations uses
the fit of the best greedy run, the second half the other fit.

Random numbers are raw Philox words with the option ``seed`` as key. The budget is a number of iterations.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tmmu_core.planners.bounds import bound_of
from tmmu_core.planners.columns import Columns, columns, count_option, extent_of, finished
from tmmu_core.planners.greedy import place
from tmmu_core.planners.meter import metered
from tmmu_core.planners.portfolio import Best, best_greedy
from tmmu_core.planners.problem import Packing, Problem, Progress

DEFAULT_ITERATIONS = 400
FULL_BUDGET_STORAGES = 2_000
"""Storages up to which all iterations are made; larger problems get proportionally fewer, but 4 if requested."""
MEMORY = 12
"""Number of extents that late acceptance remembers."""


def search(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the best packing of a local search that starts at the best greedy run.

    Options: ``iterations`` (see :data:`FULL_BUDGET_STORAGES`), ``seed`` and ``max_nodes`` (:mod:`.meter`).
    """
    meter = metered(progress, options)
    iterations = count_option(options, "iterations", DEFAULT_ITERATIONS)
    seed = count_option(options, "seed", 0)
    cols = columns(problem)
    bound = bound_of(cols)
    best = best_greedy(cols, bound)
    if len(cols) > FULL_BUDGET_STORAGES:
        iterations = min(iterations, max(iterations * FULL_BUDGET_STORAGES // len(cols), 4))
    if not cols.is_small:
        iterations = 0
    state = _LocalSearch(cols, best)
    draws = np.random.Philox(key=seed)
    stopped, done = False, 0
    while done < iterations and state.extent > bound.bytes and not stopped:
        if done == iterations // 2:
            state.restart(list(best.sequence), "lowest" if best.fit == "tightest" else "tightest")
        state.step([int(x) for x in draws.random_raw(4)])
        done += 1
        meter.improved(problem.arena, state.extent, bound.bytes)
        meter.spend(1)
        if not meter("search", done, iterations):
            meter.halt()
        stopped = meter.ended() and done < iterations
    return Packing(
        finished(cols, state.offset),
        lower_bound=bound.bytes,
        optimal=state.extent == bound.bytes,
        stopped=stopped,
        notes={"start": f"{best.order}/{best.fit}", "seed": seed, "iterations": done},
    )


class _LocalSearch:
    """State of the local search: ``extent`` and ``offset`` are those of the best packing."""

    def __init__(self, cols: Columns, start: Best) -> None:
        self.cols, self.fit, self.steps = cols, start.fit, 0
        self.extent, self.offset = start.extent, start.offset
        self._accept(list(start.sequence), start.extent, start.offset)
        self.memory = [start.extent] * MEMORY

    def restart(self, order: list[int], fit: str) -> None:
        """Make ``order`` the current order and change the fit; the best packing stays."""
        self.fit = fit
        self._accept(order, *self._placed(order))
        self.memory = [self.current_extent] * MEMORY

    def step(self, raw: list[int]) -> None:
        """Place the storages in a changed order, drawn by four random words, and accept or reject it."""
        order = self._neighbour(raw)
        extent, offsets = self._placed(order)
        position = self.steps % MEMORY
        if extent <= max(self.current_extent, self.memory[position]):
            self._accept(order, extent, offsets)
        self.memory[position] = self.current_extent
        self.steps += 1

    def _accept(self, order: list[int], extent: int, offsets: list[int]) -> None:
        self.order, self.current_extent, self.current_offsets = order, extent, offsets

    def _placed(self, order: list[int]) -> tuple[int, list[int]]:
        """Return extent and offsets of a greedy run, and store them if they are the best."""
        offsets = place(self.cols, order, self.fit)
        extent = extent_of(self.cols, offsets)
        if extent < self.extent:
            self.extent, self.offset = extent, offsets
        return extent, offsets

    def _neighbour(self, raw: list[int]) -> list[int]:
        """Return the current order with one storage moved."""
        cols, offsets, order = self.cols, self.current_offsets, list(self.order)
        if raw[0] % 8 == 7:
            moved = order.pop(raw[1] % len(order))
            order.insert(raw[2] % (len(order) + 1), moved)
            return order
        ends = [at + size for at, size in zip(offsets, cols.size, strict=True)]
        top = [i for i, end in enumerate(ends) if end == self.current_extent]
        moved = top[raw[1] % len(top)]
        if raw[0] % 8 >= 4:
            touching = [i for i, end in enumerate(ends) if end == offsets[moved]]
            under = [i for i in touching if cols.overlap_in_time(i, moved)]
            moved = under[raw[3] % len(under)] if under else moved
        position = order.index(moved)
        del order[position]
        order.insert(raw[2] % max(position, 1), moved)
        return order
