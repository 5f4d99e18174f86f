"""exact's last share: a packing torn down and put up again, below a capacity, by whole numbers alone."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
import pytest
from brute_force import made
from packings import extent, faults, offsets, problem, problem_with, smallest_extent

from benchmarks.variants import mirrored, perfect, problem_of, read, trimmed
from tmmu_core.loops.library import library
from tmmu_core.planners.auto import auto
from tmmu_core.planners.bounds import Bound, bound_of, lower_bound
from tmmu_core.planners.columns import Columns, columns
from tmmu_core.planners.exact import COURSE, exact, hunt, searched
from tmmu_core.planners.exact import rebuild as rebuilding_of
from tmmu_core.planners.exact.model import Model, build, chains, step_of
from tmmu_core.planners.exact.rebuild import (
    ALMOST,
    AT_THE_END,
    CLOSE,
    FAILURES,
    HOPE,
    LAST,
    LONG,
    LONG_RUNS,
    RUIN,
    Aims,
    Rebuild,
    blurs,
    cooling,
    either_way,
    is_for,
    losses,
    rebuild_of,
    runs_of,
    turns_for,
)
from tmmu_core.planners.exact.rebuilding import (
    ABOVE,
    AS_HIGH,
    AS_IT_IS,
    AS_LOW,
    BELOW,
    BETWEEN,
    CEILING,
    COST,
    DRAWN,
    FAR,
    FEWEST,
    FIRM,
    FIXED,
    FLOOR,
    GRID,
    HIGH,
    HIGHEST,
    LEFT,
    LOOSE,
    LOWEST,
    MANY,
    NARROWLY,
    NEXT_HIGH,
    NEXT_ROW,
    NEXT_TOP,
    OFFSET,
    ORDER,
    OUT,
    RANK,
    ROW,
    ROWS,
    SIZE,
    STEPS,
    TAKEN,
    TIGHTEST,
    TOP,
    WEIGHT,
    WIDEST,
    Site,
    _begin,
    _chosen,
    _cost_of,
    _draw,
    _gap,
    _how_far,
    _in_an_order,
    _left_out,
    _let_loose,
    _put,
    _put_up,
    _ranks,
    _sorted,
    _torn_down,
    _widest,
    rebuild,
)
from tmmu_core.planners.exact.run import Watch
from tmmu_core.planners.exact.tables import Shape, shape_of
from tmmu_core.planners.instances import read_csv
from tmmu_core.planners.portfolio import Best, best_greedy
from tmmu_core.planners.problem import Packing, Problem

ROOT = Path(__file__).resolve().parents[2]


def model_of(p: Problem) -> Model:
    cols = columns(p)
    return build(cols, chains(cols, ()) or ())


def plainly(again: Rebuild, capacity: int, turns: int) -> bool:
    """The loop in Python, compiled or not."""
    return bool(rebuild(again.site, (capacity - again.base) // again.step, turns, RUIN, np.zeros(1, np.int64)))


def test_nobody_left_out_is_a_packing_below_the_capacity() -> None:
    found = 0
    for seed in range(80):
        p = problem_with(made(seed, 6), handoff_from=None)
        least = smallest_extent(p)
        model = model_of(p)
        lies = rebuild_of(model, shape_of(model), 1).run(least, 3_000)
        if lies is not None:
            found += 1
            assert faults(p, lies) == []
            assert max(at + int(size) for at, size in zip(lies, p.size, strict=True)) <= least
        assert rebuild_of(model, shape_of(model), 1).run(least - 1, 300) is None
    assert found > 70


def test_who_is_left_out_is_told_and_who_lies_never_overlaps() -> None:
    p = problem_of(perfect(60, 5))
    model = model_of(p)
    again = rebuild_of(model, shape_of(model), 1)
    assert again.run(1 << 19, 400) is None  # half of what there is to be packed
    site = again.site
    lying, out = site.work[ROW, : site.now[ROWS]].tolist(), site.work[LEFT, : site.now[OUT]].tolist()
    assert sorted(lying + out) == list(range(60))
    assert [u for u in range(60) if site.work[OFFSET, u] < 0] == sorted(out)
    assert 0 < again.fewest <= len(out)
    at, size = (site.work[OFFSET] * again.step).tolist(), (site.unit[:, SIZE] * again.step).tolist()
    assert size == p.size[again.units].tolist()
    for k, u in enumerate(lying):
        assert at[u] + size[u] <= 1 << 19
        for v in lying[:k]:
            assert not site.meets[u, v] or at[v] + size[v] <= at[u]


def test_given_offsets_stay() -> None:
    p = problem_with(problem((0, 4, 8), (0, 4, 8), (2, 6, 16)), fixed=np.array([8, -1, -1]))
    model = model_of(p)
    assert rebuild_of(model, shape_of(model), 1).run(32, 500) == [8, 0, 16]


def test_what_hands_on_to_a_given_place_is_put_upon_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding_of, "FEW", 1)
    monkeypatch.setattr(rebuilding_of, "NEAR", 1)
    turns = 0
    for seed in range(1150, 1400):
        p = made(seed, 14)
        if p.fixed is not None and p.handoff_from is not None:
            packing = exact(p, {"budget": 1})
            turns += packing.notes.get("turns", 0)
            assert faults(p, offsets(packing)) == [], seed
    assert turns


@pytest.mark.skipif(library() is None, reason="no library for this machine")
def test_the_library_takes_the_same_turns() -> None:
    for seed in range(40):
        p = problem_with(made(seed, 14), handoff_from=None) if seed % 4 else problem_of(perfect(40, seed))
        model = model_of(p)
        capacity = lower_bound(p).bytes if seed % 4 else 1 << 20
        one, two = (rebuild_of(model, shape_of(model), seed) for _ in range(2))
        if capacity <= one.base or (one.given > capacity).any():
            continue
        assert (one.run(capacity, 60) is not None) == plainly(two, capacity, 60)
        assert one.site.now.tolist() == two.site.now.tolist()
        rows, out = one.site.now[[ROWS, OUT]].tolist()
        units = len(one.site.unit)
        for row, count in ((OFFSET, units), (WEIGHT, units), (ROW, rows), (LEFT, out)):
            assert one.site.work[row, :count].tolist() == two.site.work[row, :count].tolist()


def test_who_meets_everybody_lies_at_the_bottom() -> None:
    p = problem((0, 9, 8), (0, 4, 16), (0, 9, 24), (4, 9, 8), (2, 6, 8))
    model = model_of(p)
    again = rebuild_of(model, shape_of(model), 1)
    met = [u for u in range(5) if all(p.birth[u] < p.death[v] and p.birth[v] < p.death[u] for v in range(5))]
    assert (len(met), again.base) == (3, sum(int(p.size[u]) for u in met))
    assert list(again.bottom) == met
    assert list(again.bottom.values()) == [sum(int(p.size[u]) for u in met[:k]) for k in range(3)]
    lies = again.run(56, 500)
    assert lies is not None
    assert faults(p, lies) == []
    assert again.run(again.base, 500) is None


def test_backwards_in_time_the_same_is_torn_down() -> None:
    for seed in range(30):
        rows = perfect(20 + seed % 3 * 10, seed)
        again, back = (
            rebuild_of(model, shape_of(model), 1) for model in (model_of(problem_of(r)) for r in (rows, mirrored(rows)))
        )
        for one, two in zip(again.site, back.site, strict=True):
            assert one.tolist() == two.tolist()
        assert (one_lies := again.run(1 << 20, 300)) is None or faults(problem_of(rows), one_lies) == []
        two_lie = back.run(1 << 20, 300)
        assert (one_lies is None) == (two_lie is None)
        assert two_lie is None or faults(problem_of(mirrored(rows)), two_lie) == []


def test_units_are_in_an_order_of_their_lives_and_bytes_alone() -> None:
    p = problem((0, 4, 8), (0, 4, 24), (2, 6, 16), (4, 9, 8), (7, 9, 8))
    model = model_of(p)
    which, begin, end, _ = either_way(model, shape_of(model), list(range(5)))
    rows = [(int(p.birth[u]), int(p.death[u]), int(p.size[u])) for u in which.tolist()]
    # Three sections: the first three units, the third and the fourth, the last two.
    assert rows == [(0, 4, 8), (0, 4, 24), (2, 6, 16), (4, 9, 8), (7, 9, 8)]
    assert list(zip(begin.tolist(), end.tolist(), strict=True)) == [(0, 1), (0, 1), (0, 2), (1, 3), (2, 3)]
    q = problem((0, 2, 8), (0, 5, 8), (3, 7, 16), (5, 9, 24), (5, 9, 8))  # the same backwards
    other = model_of(q)
    which, begin, end, _ = either_way(other, shape_of(other), list(range(5)))
    assert [int(q.size[u]) for u in which.tolist()] == [8, 24, 16, 8, 8]
    assert list(zip(begin.tolist(), end.tolist(), strict=True)) == [(0, 1), (0, 1), (0, 2), (1, 3), (2, 3)]
    # Grids tell apart what lives and bytes do not, also which way round it is taken.
    grids = np.array([8, 16, 16, 8], dtype=np.uint64)
    r = problem_with(problem((0, 2, 8), (0, 2, 16), (2, 4, 8), (2, 4, 16)), alignment=grids)
    other = model_of(r)
    which, begin, _, _ = either_way(other, shape_of(other), list(range(4)))
    assert [(int(r.birth[u]), int(r.size[u]), int(r.alignment[u])) for u in which.tolist()] == [
        *((2, 8, 8), (2, 16, 16)),
        *((0, 8, 16), (0, 16, 8)),
    ]
    assert begin.tolist() == [0, 0, 1, 1]
    which, begin, _, _ = either_way(model, shape_of(model), [1, 3])
    assert (sorted(which.tolist()), len(begin)) == ([1, 3], 2)
    assert [column.tolist() for column in either_way(model, shape_of(model), [])[:3]] == [[], [], []]


def test_nobody_lies_at_the_bottom_where_an_offset_is_given_or_who_would_move_others_off_their_grid() -> None:
    p = problem_with(problem((0, 9, 8), (0, 4, 16), (4, 9, 8)), fixed=np.array([-1, -1, 0]))
    model = model_of(p)
    assert rebuild_of(model, shape_of(model), 1).bottom == {}
    p = problem_with(
        problem((0, 9, 8), (0, 9, 16), (0, 4, 16), (4, 9, 8)), alignment=np.array([8, 8, 16, 8], dtype=np.uint64)
    )
    model = model_of(p)
    again = rebuild_of(model, shape_of(model), 1)
    assert [int(p.size[u]) for u in again.bottom] == [16]


def test_all_may_lie_at_the_bottom() -> None:
    model = model_of(problem((0, 9, 8), (0, 9, 16)))
    again = rebuild_of(model, shape_of(model), 1)
    assert again.run(24, 5) == [again.bottom[0], again.bottom[1]]
    assert again.run(23, 5) is None


def test_a_run_is_the_same_again_and_another_number_is_another_run() -> None:
    model = model_of(problem_of(perfect(60, 5)))
    runs = [rebuild_of(model, shape_of(model), number) for number in (1, 1, 2)]
    for run in runs:
        run.run(1 << 19, 50)
    assert runs[0].site.work.tolist() == runs[1].site.work.tolist()
    assert runs[0].site.now[DRAWN] != runs[2].site.now[DRAWN]


def test_who_was_left_out_for_long_weighs_more() -> None:
    p = problem(*[(0, 8, 8)] * 2, *[(1, 9, 8)] * 2, (0, 1, 8), (8, 9, 8))
    model = model_of(p)
    again = rebuild_of(model, shape_of(model), 1)
    before = again.site.work[WEIGHT].tolist()
    assert again.run(24, 1_000) is None
    assert again.fewest == again.site.now[OUT] == 1
    assert sum(again.site.work[WEIGHT].tolist()) > 2 * sum(before)


def test_a_run_ends_when_it_is_told_to() -> None:
    model = model_of(problem_of(perfect(60, 5)))
    again = rebuild_of(model, shape_of(model), 1)
    asked: list[int] = []
    assert again.run(1 << 19, 10**9, lambda turns: bool(asked.append(turns))) is None
    assert len(asked) == 1
    assert again.stop[0] == 1
    assert again.turns < 10**9
    assert threading.active_count() >= 1

    def broken(turns: int) -> bool:
        raise KeyboardInterrupt

    again = rebuild_of(model, shape_of(model), 1)
    with pytest.raises(KeyboardInterrupt):
        again.run(1 << 19, 10**9, broken)
    assert again.stop[0] == 1


def test_heat_falls_by_equal_factors_and_losses_are_logarithms() -> None:
    heat = cooling(300, 20)
    assert (heat[0], heat[512], heat[1024]) == (300 << 10, int(1024 * math.sqrt(6000)), 20 << 10)
    for k in range(1025):
        assert abs(int(heat[k]) - 1024 * 300 * (20 / 300) ** (k / 1024)) <= 2
    for k, loss in enumerate(losses().tolist()):
        assert abs(-math.log((k + 0.5) / 1024) * 1024 - loss) < 1.5


def test_blurs_are_in_their_ranges() -> None:
    one, two = blurs(5_000)
    assert sorted(set(one.tolist())) == list(range(11, 21))
    assert (two.min(), two.max()) == (0, 1023)
    assert len(set(two.tolist())) > 1_000


def test_draws_are_those_of_the_published_generator() -> None:
    # PCG-RXS-M-XS-32 (O'Neill 2014), by its definition.
    state, mine = 42, 42
    for _ in range(100):
        word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737 % 2**32
        state = (state * 747796405 + 2891336453) % 2**32
        mine, drawn = _draw(mine)
        assert (mine, drawn) == (state, word >> 22 ^ word)


def packed(count: int, seed: int, turns: int) -> tuple[Site, int]:
    """A perfect packing begun, below three quarters of the bytes it takes; and these."""
    model = model_of(problem_of(perfect(count, seed)))
    again, capacity = rebuild_of(model, shape_of(model), seed), 3 << 18
    assert again.run(capacity, turns) is None
    return again.site, (capacity - again.base) // again.step


def heads(site: Site, order: list[int], capacity: int) -> tuple[dict[int, int], dict[int, int]]:
    """Of units in an order, where each begins at its lowest and at its highest, pair by pair."""
    size, low, high = site.unit[:, SIZE].tolist(), {}, {}
    for k, i in enumerate(order):
        low[i] = max((low[j] + size[j] for j in order[:k] if site.meets[i, j]), default=0)
    for k, i in reversed(list(enumerate(order))):
        high[i] = min((high[j] for j in order[k + 1 :] if site.meets[i, j]), default=capacity) - size[i]
    return low, high


def test_how_low_and_how_high_each_can_lie_is_said_by_who_lies_between_it_and_the_ends() -> None:
    site, capacity = packed(60, 5, 300)
    size, rows = site.unit[:, SIZE], int(site.now[ROWS])
    for by in (AS_LOW, AS_HIGH, BETWEEN, AS_IT_IS):
        before = site.work[ROW, :rows].tolist()
        _sorted(site, capacity, by)
        order = site.work[ROW, :rows].tolist()
        assert sorted(order) == sorted(before)
        _let_loose(site, capacity, ROW, rows)
        low, high = heads(site, order, capacity)
        assert [site.work[TOP, i] - size[i] for i in order] == [low[i] for i in order]
        assert [site.work[HIGH, i] for i in order] == [high[i] for i in order]
        assert all(low[i] <= high[i] for i in order)
        key = {AS_LOW: low, AS_HIGH: high, BETWEEN: {i: low[i] + high[i] for i in order}}.get(by)
        if key is None:
            assert order == before
            key = {i: low[i] + high[i] for i in order}
        else:
            assert [key[i] for i in order] == sorted(key.values())
        once = 1 if by in (AS_LOW, AS_HIGH) else 2
        for i in order:
            assert abs(site.near[BELOW, i] - 1024 * key[i] / (once * capacity)) <= 1
            assert site.near[ABOVE, i] - site.near[BELOW, i] == size[i] * 1024 // capacity
        assert (site.near[BELOW, site.work[LEFT, : site.now[OUT]]] == -1).all()


def test_a_unit_fits_wherever_those_below_and_above_leave_room_and_they_make_it() -> None:
    site, capacity = packed(60, 5, 300)
    size, work, put = site.unit[:, SIZE].tolist(), site.work, 0
    for seed in range(1, 80):
        state = _torn_down(site, _chosen(site, capacity, RUIN, seed))
        _let_loose(site, capacity, NEXT_ROW, site.spot[FIRM])
        for i in work[TAKEN, : site.spot[LOOSE]].tolist():
            order = work[NEXT_ROW, : site.spot[FIRM]].tolist()
            fits = []  # before which of those it meets, or after them all
            met = [k for k, j in enumerate(order) if site.meets[i, j]]
            for k in (*met, len(order)):
                low, high = heads(site, [*order[:k], i, *order[k:]], capacity)
                fits.append(all(low[j] <= high[j] for j in low))
            room = _widest(site, capacity, i, NEXT_ROW)
            assert (room >= size[i]) == any(fits)
            count = _ranks(site, capacity, i, NEXT_ROW)
            gaps = [int(work[CEILING, k] - work[FLOOR, k]) for k in range(count + 1)]
            assert (max(gaps), [gap >= size[i] for gap in gaps]) == (room, fits)
            rule = (LOWEST, TIGHTEST, HIGHEST, WIDEST)[seed % 4]
            at = _gap(site, capacity, i, rule, state)[1]
            if at < 0:
                assert sum(fits) < 3  # a few are passed over
                continue
            assert fits[at]
            open_ = [k for k in range(count + 1) if fits[k]]
            best = {LOWEST: open_[0], HIGHEST: open_[-1]}.get(rule)
            widths = [gaps[k] for k in open_]
            wanted = {TIGHTEST: min(widths), WIDEST: max(widths)}.get(rule)
            put += at == best or gaps[at] == wanted
            rank = int(work[RANK, at])
            assert rank == (*met, len(order))[at]
            _put(site, capacity, i, at)
            order.insert(rank, i)
            assert work[NEXT_ROW, : site.spot[FIRM]].tolist() == order
            low, high = heads(site, order, capacity)
            assert [work[NEXT_TOP, j] - size[j] for j in order] == [low[j] for j in order]
            assert [work[NEXT_HIGH, j] for j in order] == [high[j] for j in order]
    assert put > 150


def test_who_is_nearest_is_taken_away() -> None:
    site, capacity = packed(60, 5, 300)
    for seed in range(1, 60):
        _torn_down(site, _chosen(site, capacity, RUIN, seed))
        rows, out = site.work[ROW, : site.now[ROWS]].tolist(), site.now[OUT]
        far = site.near[FAR].tolist()
        loose = site.work[TAKEN, : site.spot[LOOSE]].tolist()
        assert loose[:out] == site.work[LEFT, :out].tolist()
        taken = loose[out:]
        assert len(taken) == min(site.spot[MANY], len(rows))
        assert [j for j in range(60) if far[j] == -1] == sorted(taken)
        state = _chosen(site, capacity, RUIN, seed)
        _how_far(site, state)
        far = site.near[FAR].tolist()
        assert [(far[j], j) for j in taken] == sorted((far[j], j) for j in rows)[: len(taken)]
        assert site.work[NEXT_ROW, : site.spot[FIRM]].tolist() == [
            j for j in site.work[ROW, : len(rows)].tolist() if j not in taken
        ]


def test_who_lacks_little_costs_less() -> None:
    site, capacity = packed(40, 3, 200)
    left = site.work[LEFT, : site.now[OUT]].tolist()
    for i in left:
        weight, size = int(site.work[WEIGHT, i]), int(site.unit[i, SIZE])
        assert _left_out(site, i, size) == _left_out(site, i, 2 * size) == weight
        assert _left_out(site, i, 0) == _left_out(site, i, -5) == weight - weight * NARROWLY // 1024 > 0
        half = _left_out(site, i, size // 2)
        assert abs(half - weight * (1 - NARROWLY / 2048)) <= 2 + weight / size
    costs = [_left_out(site, i, int(site.unit[i, SIZE]) - _widest(site, capacity, i, ROW)) for i in left]
    assert _cost_of(site, capacity, len(left), ROW) == sum(costs)
    _begin(site, capacity)
    assert site.now[COST] == sum(costs)


def test_a_turn_that_leaves_out_too_much_ends_at_once() -> None:
    site, capacity = packed(60, 5, 300)
    _torn_down(site, _chosen(site, capacity, RUIN, 9))
    _in_an_order(site, 9)
    _, still, cost = _put_up(site, capacity, 1, 9)
    assert (still, cost) == (1, _left_out(site, site.work[ORDER, 0], 0))


def test_offsets_are_counted_by_what_all_of_them_are_multiples_of() -> None:
    assert step_of((1536, 1024), (-1, -1), (1, 512)) == 512
    assert step_of((1536, 768), (-1, -1), (1, 256)) == 768  # all offsets are on a grid of 256
    assert step_of((1536, 768), (-1, -1), (1, 512)) == 256
    assert step_of((1536, 768), (-1, 4), (1, 4096)) == 4
    assert step_of((12, 24), (6, -1), (2, 4)) == 2  # a grid of 4 and an offset of 6 share no more
    assert step_of((5, 7), (-1, -1), (1, 8)) == 1
    assert step_of((), (), ()) == 1


def test_offsets_off_the_sizes_grid_are_kept() -> None:
    p = problem_with(problem((0, 4, 12), (0, 4, 12), (2, 6, 24), alignment=(2, 4, 4)), fixed=np.array([6, -1, -1]))
    model = model_of(p)
    again = rebuild_of(model, shape_of(model), 1)
    assert again.step == 2
    lies = again.run(56, 500)
    assert lies is not None
    assert faults(p, lies) == []
    assert again.site.unit[:, GRID].max() == 2
    assert again.site.unit[:, FIXED].max() == 3


def test_a_life_is_in_runs_of_sections_whichever_way_time_runs() -> None:
    model = model_of(problem((0, 9, 8), (0, 4, 8), (2, 6, 8), (5, 9, 8)))
    begin, run = runs_of(model, np.arange(4), False)
    assert (begin.tolist(), run.tolist()) == ([0, 1, 2, 3, 4], [[0, 2], [0, 1], [0, 2], [1, 2]])
    begin, run = runs_of(model, np.array([1, 3]), True)
    assert (begin.tolist(), run.tolist()) == ([0, 1, 2], [[1, 2], [0, 1]])
    odd = problem_with(problem((0, 3, 8), (3, 6, 8), (6, 9, 8)), must_not_alias=np.array([[0, 2]]))
    model = model_of(odd)
    begin, run = runs_of(model, np.arange(3), False)
    for u in range(3):
        held = [section for k in range(begin[u], begin[u + 1]) for section in range(*run[k].tolist())]
        assert held == sorted(model.section[model.entry_of[u] : model.entry_of[u + 1]].tolist())
    assert [column.tolist() for column in runs_of(model, np.array([], dtype=np.int64), False)] == [[0], []]


def test_what_is_asked_for_after_what() -> None:
    aims = Aims(low=1000, grain=10, turns=800)
    assert aims.next(1800, -1) == (1400, 800)  # half of what is between
    assert aims.next(1400, 0) == (1200, 800)  # found: lower
    assert aims.next(1200, 0) == (1100, 800)


def test_a_near_miss_is_asked_for_again_and_then_given_up() -> None:
    aims = Aims(low=1000, grain=10, turns=800)
    assert aims.next(1400, -1) == (1200, 800)
    assert aims.next(1400, CLOSE) == (1200, 1600)  # nearly: twice as long
    assert aims.next(1400, CLOSE) == (1300, 800)  # given up: above it
    assert aims.next(1300, 0) == (1250, 800)  # found: between what was given up and what was found
    assert aims.next(1250, CLOSE + 1) == (1000, 800 * LONG)  # the second that is given up: the low end, for long
    assert aims.next(1250, ALMOST + 1) == (1120, 800 * LONG)  # given up: half the way
    assert aims.next(1120, 0) == (1060, 800 * LONG)  # found: half of what is left
    assert aims.next(1120, CLOSE) == (1090, 800 * LONG)  # given up: above it


def test_the_low_end_is_asked_for_again_while_it_is_almost_met() -> None:
    aims = Aims(low=1000, grain=10, turns=800, failures=FAILURES - 1)
    asked = [aims.next(1400, CLOSE + 1), *(aims.next(1400, ALMOST) for _ in range(LONG_RUNS))]
    assert [at for at, turns in asked if turns] == [1000] * AT_THE_END + [1200] * (LONG_RUNS - AT_THE_END)
    aims = Aims(low=1000, grain=10, turns=800, failures=FAILURES - 1)
    lefts = (CLOSE + 1, CLOSE, ALMOST + 1, CLOSE)
    assert [aims.next(1400, left)[0] for left in lefts] == [1000, 1000, 1200, 1300]


def test_how_far_it_has_come_is_told_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many nodes again as the budget has, whatever runs there will be."""
    asked: list[tuple[int, int, int]] = []
    after = [0, 7, 100]  # turns of each run
    most: list[int] = []

    def watched(_: object, share: tuple[int, int, int]) -> None:
        asked.append(share)

    def run(site: Rebuild, capacity: int, turns: int, watch: None) -> None:
        most.append(turns)
        site.site.now[FEWEST] = CLOSE

    monkeypatch.setattr(hunt, "_watch_turns", watched)
    monkeypatch.setattr(Rebuild, "run", run)
    monkeypatch.setattr(Rebuild, "turns", property(lambda _: after[min(len(most), 2)] * most[0]))
    exact(problem_of(mirrored(read("D.1048576"))), {"budget": 20_000}, lambda *_: True)
    whole = (LONG_RUNS * LONG + 4) * most[0]
    assert {share[1:] for share in asked} == {(20_000, whole)}
    begun = [share[0] - asked[0][0] for share in asked]
    assert begun[:3] == [0, 20_000 * 7 // 52, 20_000]
    assert begun[-1] == 20_000  # no more than there are


def test_where_the_low_end_is_met_nothing_is_asked_for() -> None:
    assert Aims(low=1000, grain=10, turns=800, failures=0).next(1000, -1)[1] == 0


def test_what_was_close_at_the_low_end_is_asked_for_once_more_and_for_very_long() -> None:
    """After all other long runs, whatever became of them; by the number after theirs, so once for a model."""
    at_last = 800 * LONG * LAST[0] // LAST[1]
    for above, then in ((ALMOST, 1400), (0, 1100)):
        aims = Aims(low=1000, grain=10, turns=800, failures=FAILURES - 1)
        asked = [aims.next(1400, left) for left in (CLOSE + 1, ALMOST, CLOSE, ALMOST)]
        assert asked == [(1000, 800 * LONG)] * AT_THE_END + [(1200, 800 * LONG)]
        assert (aims.next(then, above), aims.long) == ((1000, at_last), LONG_RUNS + 1)
        assert aims.next(then, CLOSE)[1] == 0
    aims = Aims(low=1000, grain=10, turns=800, failures=FAILURES - 1)
    assert [aims.next(1400, left)[0] for left in (HOPE, CLOSE)] == [1000, 1000]
    assert aims.next(1400, HOPE + 1) == (1000, at_last), "close once, and far the next time"
    assert aims.next(1000, 0)[1] == 0
    assert 600_000 * LONG * LAST[0] // LAST[1] == 40_000_000


def test_long_runs_have_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def seen(model: Model, shape: Shape, number: int) -> Rebuild:
        asked.append(number)
        site = rebuild_of(model, shape, number)
        monkeypatch.setattr(site, "run", lambda *_: site.site.now.__setitem__(FEWEST, CLOSE))
        return site

    monkeypatch.setattr(rebuilding_of, "rebuild_of", seen)
    exact(problem_of(mirrored(read("D.1048576"))), {"budget": 20_000})
    short = len(asked) - LONG_RUNS - 1  # the last one is none of them, and the first is of that number too
    assert asked == [LONG_RUNS + 1 + k for k in range(short)] + [1 + k for k in range(LONG_RUNS + 1)]


def test_nothing_is_asked_for_at_length_after_a_run_that_left_out_many() -> None:
    aims = Aims(low=1000, grain=10, turns=800, failures=FAILURES - 1)
    assert aims.next(1400, HOPE + 1)[1] == 0
    aims = Aims(low=1000, grain=10, turns=800, failures=FAILURES - 1)
    assert aims.next(1400, HOPE) == (1000, 800 * LONG)
    assert aims.next(1400, HOPE + 1)[1] == 0
    aims = Aims(low=1000, grain=10, turns=800, failures=FAILURES - 1)
    assert aims.next(1400, HOPE) == (1000, 800 * LONG)
    assert aims.next(1000, 0)[1] == 0  # the low end is met


def test_long_runs_are_few() -> None:
    aims = Aims(low=1000, grain=1, turns=800, failures=FAILURES - 1)
    asked = [aims.next(1400, ALMOST + 1) for _ in range(LONG_RUNS + 1)]
    assert [at for at, turns in asked if turns] == [1000, 1200, 1300, 1350]  # given up: between it and the extent
    assert [turns for _, turns in asked] == [800 * LONG] * LONG_RUNS + [0]
    assert aims.most == 800 * (4 * 12 + 4)  # the long ones, and as many short ones


def test_where_nothing_is_between_the_low_end_is_asked_for() -> None:
    aims = Aims(low=1000, grain=10, turns=800)
    assert aims.next(1030, -1) == (1010, 800)
    assert aims.next(1010, 0) == (1000, 800)
    assert aims.next(1010, CLOSE + 1) == (1000, 800 * LONG)  # nothing is between 1,000 and 1,010
    assert aims.next(1010, CLOSE) == (1000, 800 * LONG)
    assert aims.next(1010, ALMOST + 1) == (1000, 800 * LONG * LAST[0] // LAST[1])  # close it was
    assert aims.next(1010, CLOSE)[1] == 0


def test_it_is_for_what_is_near_and_neither_small_nor_huge() -> None:
    model = model_of(problem_of(perfect(60, 5)))
    assert is_for(model, 1016, 1000)
    assert not is_for(model, 1000, 1000)
    assert is_for(model, 1125, 1000)
    assert not is_for(model, 1126, 1000)
    assert not is_for(model_of(problem(*[(0, 2, 8)] * 31)), 1016, 1000)
    assert is_for(model_of(problem(*[(0, 2, 8)] * 32)), 1016, 1000)
    assert turns_for(model, 10) == 10 * rebuilding_of.TURNS
    wide = model_of(problem(*[(k, k + 1, 8) for k in range(512)]))
    assert turns_for(wide, 40) == 10 * rebuilding_of.TURNS


def test_it_is_for_what_columns_of_32_bits_hold() -> None:
    model = model_of(problem(*[(0, 2, 3), (1, 4, 3), (3, 5, 6)] * 12))
    assert model.grain == 3
    assert is_for(model, 3 * (STEPS - 1), 3 * (STEPS - 2))
    assert not is_for(model, 3 * STEPS, 3 * (STEPS - 2))
    again = rebuild_of(model, shape_of(model), 1)
    assert again.run(3 * STEPS + again.base, 100) is None
    assert again.turns == 0
    assert again.run(3 * STEPS + again.base - 1, 100) is not None


def test_exact_asks_for_it_when_the_nodes_are_spent_near_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fraction of the turns, which would end at the bound itself after most of a minute."""
    all_of_them = Rebuild.run

    def fewer(site: Rebuild, capacity: int, turns: int, watch: Watch | None) -> list[int] | None:
        return all_of_them(site, capacity, min(turns, 40_000), watch)

    monkeypatch.setattr(Rebuild, "run", fewer)
    p = problem_of(mirrored(read("D.1048576")))
    packing = exact(p, {"budget": 20_000})
    assert packing.notes["turns"] > 0
    assert faults(p, offsets(packing)) == []
    searched, rebuilt = (row[1] for row in packing.notes[COURSE][-2:])
    assert extent(p, offsets(packing)) == rebuilt < searched


def test_who_asks_for_no_more_than_the_nodes_gets_no_more() -> None:
    p = problem_of(mirrored(read("D.1048576")))
    cols = columns(p)
    bound = bound_of(cols)
    asked = {"budget": 3_000, "rebuilds": False}
    packing = searched(cols, bound, best_greedy(cols, bound), asked, None)
    assert packing.notes["nodes"] >= 3_000
    assert "turns" not in packing.notes


def test_auto_asks_for_no_more_than_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def seen(cols: Columns, bound: Bound, start: Best, options: dict[str, object], progress: None) -> Packing:
        asked.append(options)
        return searched(cols, bound, start, {**options, "budget": 10}, progress)

    monkeypatch.setattr("tmmu_core.planners.auto.searched", seen)
    assert "turns" not in auto(problem_of(mirrored(read("D.1048576"))), {}).notes
    assert [options["rebuilds"] for options in asked] == [False]


def test_a_capacity_is_asked_for_itself_and_nothing_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem_with(problem_of(mirrored(read("D.1048576"))), capacity=1_000_000)
    asked: list[int] = []

    def seen(site: Rebuild, capacity: int, turns: int, watch: None) -> None:
        asked.append(capacity)
        site.site.now[FEWEST] = CLOSE

    monkeypatch.setattr(Rebuild, "run", seen)
    exact(p, {"budget": 20_000})
    assert asked == [1_000_000 // 1024 * 1024] * (3 + AT_THE_END)


def test_exact_stops_in_the_middle_of_it() -> None:
    p = problem_of(mirrored(read("D.1048576")))
    heard: list[tuple[int, int]] = []

    def progress(stage: str, done: int, of: int) -> bool:
        heard.append((done, of))
        return done <= 20_000

    packing = exact(p, {"budget": 20_000}, progress)
    assert packing.stopped
    assert heard[-1][0] > 20_000
    assert all(done <= of for done, of in heard)
    assert faults(p, offsets(packing)) == []


@pytest.mark.parametrize(("name", "least"), [("D.986112", 986_112), ("D-trimmed-101.956416", 956_416)])
def test_a_packing_of_d_meets_its_bound(name: str, least: int) -> None:
    """The instance D of MiniMalloc, and a variant of it, in bytes that are alive at once: no packing takes fewer."""
    given = read_csv((ROOT / "sample_graphs" / "instances" / "D.1048576.csv").read_bytes()).problem
    if least != 986_112:
        given = problem_of(trimmed(read("D.1048576"), 101))
    found = read_csv((ROOT / "benchmarks" / "found" / f"{name}.csv").read_bytes())
    p = found.problem
    assert (p.ids, p.birth.tolist(), p.death.tolist(), p.size.tolist()) == (
        given.ids,
        given.birth.tolist(),
        given.death.tolist(),
        given.size.tolist(),
    )
    assert found.offset is not None
    lies = found.offset.tolist()
    assert faults(given, lies) == []
    assert extent(given, lies) == lower_bound(given).max_live == least
