"""The exact search's loops one by one, as Python, beside the plainest that says the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from packings import problem, problem_with

from tests.small_problems import plain, twins
from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact import kernel, propagate
from tmmu_core.planners.exact.model import Model, build, chains
from tmmu_core.planners.exact.propagate import FAR
from tmmu_core.planners.exact.tables import (
    HOLE,
    LOW,
    NEIGHBOURS,
    OTHER,
    OVER,
    OWNER,
    PLACED,
    UNDER,
    Shape,
    State,
    fresh,
    settle,
    shape_of,
)


def loop(function: Any) -> Any:
    """As it is written, whether something else stands in its place or a compiler has been at it."""
    return getattr(function, "stands_for", getattr(function, "py_func", function))


def tables(seed: int) -> tuple[Model, Shape, State]:
    """Of a small problem, with some placed and some raised at random."""
    cols = columns(plain(seed, 10) if seed % 2 else twins(seed))
    model = build(cols, chains(cols, ()) or ())
    shape = shape_of(model)
    state = fresh(model, shape, (40, 9))
    rng = random.Random(seed)
    for u in range(len(model)):
        state.unit[u, LOW] = rng.randrange(0, 40, 4)
        state.unit[u, PLACED] = rng.random() < 0.3
        if not state.unit[u, PLACED] and rng.random() < 0.2:
            state.unit[u, HOLE] = int(state.unit[u, LOW]) - rng.randrange(5)
    return model, shape, state


@pytest.mark.parametrize("seed", range(40))
def test_the_lowest_waits_without_a_hole_and_equals_go_by_rank(seed: int) -> None:
    model, shape, state = tables(seed)
    rank = np.array(random.Random(seed).sample(range(len(model)), len(model)), np.int64)
    waiting = [u for u in range(len(model)) if not state.unit[u, PLACED] and state.unit[u, HOLE] < 0]
    wanted = min(waiting, key=lambda u: (state.unit[u, LOW], rank[u]), default=-1)
    assert loop(kernel._lowest)(shape, state, rank) == wanted
    assert kernel._lowest_plainly(shape, state, rank) == wanted


@pytest.mark.parametrize("seed", range(40))
def test_the_two_lowest_of_a_section_are_rows_of_its_own(seed: int) -> None:
    model, shape, state = tables(seed)
    for s in range(model.sections):
        begin, end = int(shape.first[s]), int(shape.first[s + 1])
        for left in range(end - begin + 1):
            rows = range(begin, begin + left)
            by = sorted(rows, key=lambda row: (state.unit[shape.entry[state.order[row, 0], OWNER], LOW], row))
            wanted = (*by, -1, -1)[:2]
            assert loop(propagate._two_lowest)(shape, state, begin, left) == wanted
            assert propagate._two_lowest_plainly(shape, state, begin, left) == wanted


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("dominance", [False, True])
def test_who_comes_below_is_who_can_start_and_end_below_or_meet_the_hole(seed: int, dominance: bool) -> None:
    model, shape, state = tables(seed)
    unit = state.unit
    rank = np.array(random.Random(seed).sample(range(len(model)), len(model)), np.int64)

    def rows(u: int) -> list[tuple[int, int, int]]:
        found = shape.neighbour[shape.unit[u, NEIGHBOURS] : shape.unit[u + 1, NEIGHBOURS]].tolist()
        return [(row[OTHER], row[OVER], row[UNDER]) for row in found if not unit[row[OTHER], PLACED]]

    def below(u: int) -> int:
        hole, low = int(unit[u, HOLE]), int(unit[u, LOW])
        if hole >= 0:
            able = [
                (max(int(unit[w, LOW]) + under, hole + 1), int(rank[w]), w)
                for w, over, under in rows(u)
                if not (dominance and unit[w, LOW] >= hole + over)
            ]
        else:
            able = [(int(unit[w, LOW]), int(rank[w]), w) for w, _, under in rows(u) if unit[w, LOW] + under <= low]
        if not able:
            return -1 if hole >= 0 else u
        return below(min(able)[2])

    unit[:, HOLE] = -1
    for u in np.flatnonzero(unit[:, PLACED] == 0).tolist():
        low = int(unit[u, LOW])
        assert loop(kernel._under)(shape, state, rank, u, dominance) == below(u)
        unit[u, HOLE], unit[u, LOW] = max(low - 2, 0), 99  # it has been raised since the hole was left
        assert loop(kernel._under)(shape, state, rank, u, dominance) == below(u)
        unit[u, HOLE], unit[u, LOW] = -1, low


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("dominance", [False, True])
def test_the_reach_of_a_hole_is_the_least_end_of_who_can_still_meet_it(seed: int, dominance: bool) -> None:
    model, shape, state = tables(seed)
    unit = state.unit
    for u in range(len(model)):
        hole = int(unit[u, HOLE])
        if hole < 0:
            continue
        ends = [
            max(int(unit[row[OTHER], LOW] + row[UNDER]), hole + 1)
            for row in shape.neighbour[shape.unit[u, NEIGHBOURS] : shape.unit[u + 1, NEIGHBOURS]]
            if not unit[row[OTHER], PLACED] and not (dominance and unit[row[OTHER], LOW] >= hole + row[OVER])
        ]
        assert loop(propagate._reach)(shape, state, u, dominance) == min(ends, default=FAR)


@pytest.mark.parametrize("grid", [1, 4])
def test_a_unit_settles_on_its_grid_and_off_what_is_fixed_in_its_way(grid: int) -> None:
    p = problem((0, 2, 5), (0, 1, 8), (0, 1, 3), (1, 2, 6), alignment=[grid, 1, 1, 1])
    at = {"t1": 8, "t2": 20, "t3": 25}
    cols = columns(problem_with(p, fixed=np.array([at.get(name, -1) for name in p.ids])))
    model = build(cols, chains(cols, ()) or ())
    shape = shape_of(model)
    u = p.ids.index("t0")
    taken = [range(8, 16), range(20, 23), range(25, 31)]
    for begin in range(40):
        on_grid = [low for low in range(begin, 60) if low % grid == 0]
        free = [low for low in on_grid if not any(low < each.stop and each.start < low + 5 for each in taken)]
        assert loop(settle)(shape.unit, shape.wall, u, begin) == free[0]
