"""Searches over runs of ``greedy``: ``portfolio`` runs every order and fit, and ``search`` changes the best order.

``portfolio`` runs every order with both fits until a packing reaches the lower bound, and keeps the best. No single
order is best on real traces. The list of runs is fixed and the first of equal packings is kept, so the result is
deterministic. If a run ends less than one alignment above the bound, padding can be the cause. The run is repeated with
one storage, the *crown*, placed last, because the topmost storage needs no padding. Of the storages that prove the
bound (its witness), the crown is the one with the most padding.

``search`` is a local search for problems too large for exact search. An order and a fit (lowest or tightest gap)
determine a packing. A move only changes the order. It gives an earlier position to a storage that ends at the extent,
or to one directly below it. One move in eight gives any position to any storage. Each order costs one greedy run. Late
acceptance (Burke and Bykov 2017): an order is accepted if its extent is at most that of the current order, or of the
order that was current :data:`MEMORY` iterations ago. The first half of the iterations uses the fit of the starting
packing, the second half the other fit. For a large plain problem, each iteration instead turns the current packing over
(:func:`turned_over`), with up to :data:`MOST_MOVED` storages at random positions of the order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np

from tmmu_core.planners.bounds import Bound, bound_of
from tmmu_core.planners.columns import Columns, columns, extent_of, offset_column
from tmmu_core.planners.greedy import ORDERS, place, sorted_storages
from tmmu_core.planners.problem import Meter, Packing, Problem, Progress, count_option

RUNS = tuple((order, fit) for fit in ("lowest", "tightest") for order in ORDERS)
"""Order and fit of each run. The fit ``free_list`` is left out, because it equals ``lowest`` in birth order."""
DEFAULT_ITERATIONS = 400
FULL_BUDGET_STORAGES = 2_000  # with more storages, the iterations are reduced in proportion, to at least 4
MEMORY = 12  # number of extents that late acceptance remembers
TURNED_FROM = 2_500  # minimum storages to turn packings over
MOST_MOVED = 10  # maximum storages that an iteration moves in the order of a packing that is turned over


@dataclass(frozen=True)
class Best:
    """The best of several greedy runs."""

    offset: list[int]
    extent: int
    order: str
    fit: str
    runs: int  # number of greedy runs made; a run and its repetition with a crown count as one
    stopped: bool  # whether the meter ended the runs early
    sequence: list[int]  # storages in placement order
    crown: int = -1  # the storage placed last; −1: none

    def packing(self, cols: Columns, bound: Bound) -> Packing:
        """Return the run as a packing; its notes are the order, the fit, the number of runs and the crown."""
        last = {} if self.crown < 0 else {"last": cols.problem.ids[self.crown]}
        notes = {"order": self.order, "fit": self.fit, "runs": self.runs, **last}
        offset, lower, is_optimal = offset_column(cols, self.offset), bound.bytes, self.extent == bound.bytes
        return Packing(offset, lower_bound=lower, optimal=is_optimal, stopped=self.stopped, notes=notes)


def portfolio(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Return the best packing of all greedy runs. Option: ``max_nodes`` (:class:`.Meter`)."""
    cols = columns(problem)
    bound = bound_of(cols)
    return best_greedy(cols, bound, Meter.of(progress, options)).packing(cols, bound)


def best_greedy(
    cols: Columns, bound: Bound, meter: Meter | None = None, runs: Sequence[tuple[str, str]] = RUNS, *, goal: int = 0
) -> Best:
    """Return the first run of lowest extent. Stop at an extent ≤ max(bound, ``goal``), or at the limit of ``meter``."""
    target = max(bound.bytes, goal)
    sequences: dict[str, list[int]] = {}
    alignment, crown = crown_of(cols, bound)
    best: Best | None = None
    for number, (order, fit) in enumerate(runs, 1):
        if order not in sequences:
            sequences[order] = sorted_storages(cols, order)
        sequence, last = sequences[order], -1
        while True:
            offset = place(cols, sequence, fit)
            extent = extent_of(cols, offset)
            if best is None or extent < best.extent:
                best = Best(offset, extent, order, fit, number, False, sequence, last)
            if last >= 0 or crown < 0 or not target < extent < bound.bytes + alignment:
                break
            sequence, last = [*(i for i in sequence if i != crown), crown], crown
        best = replace(best, runs=number)
        if best.extent <= target:
            break
        report = (cols.problem.arena, best.extent, bound.bytes)
        if meter is not None and meter.count_run("portfolio", number, len(runs), report):
            return replace(best, stopped=number < len(runs))
    assert best is not None
    return best


def turned_over(cols: Columns, run: Best) -> Best:
    """Place the storages again with the fit ``lowest``, in descending order of their ends, to fill holes."""
    sequence = _by_descending_end(cols, run.offset)
    offset = place(cols, sequence, "lowest")
    return replace(run, offset=offset, extent=extent_of(cols, offset), sequence=sequence, fit="lowest", crown=-1)


def _by_descending_end(cols: Columns, offset: list[int]) -> list[int]:
    return np.argsort(-(np.array(offset) + cols.sizes), kind="stable").tolist()


def crown_of(cols: Columns, bound: Bound) -> tuple[int, int]:
    """Return the least alignment in the bound's witness, and its most padded storage that is not fixed (−1: none)."""
    alignment = min((cols.align[i] for i in bound.witness), default=1)
    padded = (i for i in bound.witness if cols.fixed[i] < 0 and cols.size[i] % alignment)
    return alignment, max(padded, key=lambda i: -cols.size[i] % alignment, default=-1)


def search(
    problem: Problem, options: Mapping[str, Any], progress: Progress | None = None, start: Best | None = None
) -> Packing:
    """Return the best packing of a local search that starts at the lower of ``start`` and the best greedy run.

    For a large plain problem with ``start``, no greedy runs are made. Options: ``iterations`` (see
    :data:`FULL_BUDGET_STORAGES`; none if not ``is_small``), ``seed`` and ``max_nodes`` (:class:`.Meter`).
    """
    meter = Meter.of(progress, options)
    iterations = count_option(options, "iterations", DEFAULT_ITERATIONS)
    seed = count_option(options, "seed", 0)
    cols = columns(problem)
    bound = bound_of(cols)
    is_large = len(cols) >= TURNED_FROM and cols.is_plain
    runs = [start] if start and is_large else [start, best_greedy(cols, bound)]
    best = min(filter(None, runs), key=lambda run: run.extent)
    share = iterations * FULL_BUDGET_STORAGES // max(len(cols), FULL_BUDGET_STORAGES)
    iterations = min(iterations, max(share, 4)) if cols.is_small else 0
    draws = np.random.Philox(key=seed)
    fit, order = "lowest" if is_large else best.fit, list(best.sequence)
    least = current = best.extent, best.offset  # (extent, offsets) of the best and of the current packing
    memory = [best.extent] * MEMORY
    stopped, done = False, 0

    def placed(changed: list[int]) -> tuple[int, list[int]]:
        offsets = place(cols, changed, fit)
        return extent_of(cols, offsets), offsets

    while done < iterations and least[0] > bound.bytes and not stopped:
        if done == iterations // 2 and not is_large:
            fit, order = "lowest" if best.fit == "tightest" else "tightest", list(best.sequence)
            current = placed(order)
            least = min(least, current, key=itemgetter(0))  # the first of equal packings
            memory = [current[0]] * MEMORY
        if is_large:
            changed = _by_descending_end(cols, current[1])
            for _ in range(1 + int(draws.random_raw()) % MOST_MOVED):
                moved = changed.pop(int(draws.random_raw()) % len(changed))
                changed.insert(int(draws.random_raw()) % (len(changed) + 1), moved)
        else:
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
