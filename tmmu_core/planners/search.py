"""``search``: local search on the order in which ``greedy`` places, for problems beyond exact search.

An order and a fit determine a packing, so neighbours are orders: a storage that ends at the top, or one directly
below it, moves to an earlier position; sometimes any storage moves anywhere. Each order costs one greedy run. Late
acceptance (Burke and Bykov 2017): an order is accepted if it is no worse than the current one or the one
:data:`MEMORY` iterations ago. Half of the iterations use the fit of the best greedy run, half the other fit.

Random numbers are raw Philox words with the option ``seed`` as key. The budget is a number of iterations.
"""

from __future__ import annotations

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
    """Return the best packing found from the best greedy run.

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
    found = _Climb(cols, best, bound.bytes)
    notes: dict[str, Any] = {"start": f"{best.order}/{best.fit}", "seed": seed}
    stopped = False
    draws = np.random.Philox(key=seed)
    done = 0
    if cols.small:
        while done < rounds and found.extent > bound.bytes:
            if done == rounds // 2:
                other = "lowest" if best.fit == "tightest" else "tightest"
                found.turn(list(best.sequence), other)
            found.step([int(x) for x in draws.random_raw(4)])
            done += 1
            meter.improved(problem.arena, found.extent, bound.bytes)
            meter.spend(1)
            if not meter("search", done, rounds):
                meter.halt()
            if meter.ended():
                stopped = done < rounds
                break
    notes["iterations"] = done
    return Packing(
        finished(cols, found.offset),
        lower_bound=bound.bytes,
        optimal=found.extent == bound.bytes,
        stopped=stopped,
        notes=notes,
    )


class _Climb:
    """State of the local search: the best packing, and the current order."""

    def __init__(self, cols: Columns, start: Best, bound: int) -> None:
        self.cols, self.bound = cols, bound
        self.extent, self.offset = start.extent, start.offset
        self.order, self.fit = list(start.sequence), start.fit
        self.here, self.lies = start.extent, start.offset
        self.memory = [start.extent] * MEMORY
        self.steps = 0

    def turn(self, order: list[int], fit: str) -> None:
        """Restart from ``order`` with another fit."""
        self.order, self.fit = order, fit
        self.lies = place(self.cols, order, fit)
        self.here = extent_of(self.cols, self.lies)
        self.memory = [self.here] * MEMORY
        self._keep(self.here, self.lies)

    def step(self, raw: list[int]) -> None:
        """Try one neighbour and accept it if it is no worse than the current or the remembered extent."""
        order = self._neighbour(raw)
        lies = place(self.cols, order, self.fit)
        extent = extent_of(self.cols, lies)
        slot = self.steps % MEMORY
        if extent <= self.here or extent <= self.memory[slot]:
            self.order, self.here, self.lies = order, extent, lies
        self.memory[slot] = self.here
        self.steps += 1
        self._keep(extent, lies)

    def _keep(self, extent: int, offset: list[int]) -> None:
        if extent < self.extent:
            self.extent, self.offset = extent, offset

    def _neighbour(self, raw: list[int]) -> list[int]:
        size, lies = self.cols.size, self.lies
        order = list(self.order)
        if raw[0] % 8 == 7:
            at = raw[1] % len(order)
            moved = order.pop(at)
            order.insert(raw[2] % (len(order) + 1), moved)
            return order
        top = [i for i in range(len(order)) if lies[i] + size[i] == self.here]
        moved = top[raw[1] % len(top)]
        if raw[0] % 8 >= 4:
            under = [i for i in range(len(order)) if lies[i] + size[i] == lies[moved] and _meet(self.cols, i, moved)]
            moved = under[raw[3] % len(under)] if under else moved
        where = order.index(moved)
        del order[where]
        order.insert(raw[2] % max(where, 1), moved)
        return order


def _meet(cols: Columns, i: int, j: int) -> bool:
    return any(
        cols.part_lo[a] < cols.part_hi[b] and cols.part_lo[b] < cols.part_hi[a]
        for a in range(cols.part_of[i], cols.part_of[i + 1])
        for b in range(cols.part_of[j], cols.part_of[j + 1])
    )
