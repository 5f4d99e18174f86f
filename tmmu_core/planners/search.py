"""``search``: local search on the order in which ``greedy`` places, for problems beyond exact search.

An order and a fit determine a packing, so neighbours are orders: a storage that ends at the top, or one directly
below it, moves to an earlier position; sometimes any storage moves anywhere. Each order costs one greedy run. Late
acceptance (Burke and Bykov 2017): an order is accepted if it is not worse than the current order or the order
:data:`MEMORY` iterations ago. Half of the iterations use the fit of the best greedy run, half the other fit.

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
FULL_SPEED = 2_000
"""Storages up to which all iterations are made; larger problems get proportionally fewer, at least 4."""
MEMORY = 12


def search(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the best packing of a search that starts at the best greedy run.

    Options: ``iterations`` (for up to :data:`FULL_SPEED` storages), ``seed`` and ``max_nodes`` (:mod:`.meter`).
    """
    meter = metered(progress, options)
    rounds = count_option(options, "iterations", DEFAULT_ITERATIONS)
    seed = count_option(options, "seed", 0)
    cols = columns(problem)
    bound = bound_of(cols)
    best = best_greedy(cols, bound)
    if len(cols) > FULL_SPEED and rounds:
        rounds = max(rounds * FULL_SPEED // len(cols), 4)
    if not cols.is_small:
        rounds = 0
    found = _LocalSearch(cols, best)
    draws = np.random.Philox(key=seed)
    stopped, done = False, 0
    while done < rounds and found.extent > bound.bytes and not stopped:
        if done == rounds // 2:
            found.restart(list(best.sequence), "lowest" if best.fit == "tightest" else "tightest")
        found.step([int(x) for x in draws.random_raw(4)])
        done += 1
        meter.improved(problem.arena, found.extent, bound.bytes)
        meter.spend(1)
        if not meter("search", done, rounds):
            meter.halt()
        stopped = meter.ended() and done < rounds
    return Packing(
        finished(cols, found.offset),
        lower_bound=bound.bytes,
        optimal=found.extent == bound.bytes,
        stopped=stopped,
        notes={"start": f"{best.order}/{best.fit}", "seed": seed, "iterations": done},
    )


class _LocalSearch:
    """State of the local search: the best packing, and the current order."""

    def __init__(self, cols: Columns, start: Best) -> None:
        self.cols = cols
        self.extent, self.offset = start.extent, start.offset
        self.order, self.fit, self.steps = list(start.sequence), start.fit, 0
        self.current_extent, self.current_offsets = start.extent, start.offset
        self.memory = [start.extent] * MEMORY

    def restart(self, order: list[int], fit: str) -> None:
        """Restart from ``order`` with another fit."""
        self.fit = fit
        self._accept(order, *self._placed(order))
        self.memory = [self.current_extent] * MEMORY

    def step(self, raw: list[int]) -> None:
        """Try one neighbour and accept it if it is not worse than the current or the remembered extent."""
        order = self._neighbour(raw)
        extent, offsets = self._placed(order)
        slot = self.steps % MEMORY
        if extent <= self.current_extent or extent <= self.memory[slot]:
            self._accept(order, extent, offsets)
        self.memory[slot] = self.current_extent
        self.steps += 1

    def _accept(self, order: list[int], extent: int, offsets: list[int]) -> None:
        self.order, self.current_extent, self.current_offsets = order, extent, offsets

    def _placed(self, order: list[int]) -> tuple[int, list[int]]:
        """Return extent and offsets of a greedy run, and keep the best ones."""
        offsets = place(self.cols, order, self.fit)
        extent = extent_of(self.cols, offsets)
        if extent < self.extent:
            self.extent, self.offset = extent, offsets
        return extent, offsets

    def _overlap_in_time(self, i: int, j: int) -> bool:
        """Return whether two storages have overlapping live ranges."""
        cols = self.cols
        rows = (slice(cols.part_of[k], cols.part_of[k + 1]) for k in (i, j))
        one, other = ((cols.part_lo[row], cols.part_hi[row]) for row in rows)
        return bool(((one[0][:, None] < other[1]) & (other[0] < one[1][:, None])).any())

    def _neighbour(self, raw: list[int]) -> list[int]:
        """Return a neighbour of the order, drawn by four random words."""
        cols, offsets, order = self.cols, self.current_offsets, list(self.order)
        ends = [at + size for at, size in zip(offsets, cols.size, strict=True)]
        if raw[0] % 8 == 7:
            moved = order.pop(raw[1] % len(order))
            order.insert(raw[2] % (len(order) + 1), moved)
            return order
        top = [i for i, end in enumerate(ends) if end == self.current_extent]
        moved = top[raw[1] % len(top)]
        if raw[0] % 8 >= 4:
            touching = [i for i, end in enumerate(ends) if end == offsets[moved]]
            under = [i for i in touching if self._overlap_in_time(i, moved)]
            moved = under[raw[3] % len(under)] if under else moved
        where = order.index(moved)
        del order[where]
        order.insert(raw[2] % max(where, 1), moved)
        return order
