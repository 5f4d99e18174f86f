"""exact's last share: a packing torn down and put up again, below a capacity, by whole numbers alone."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
import pytest
from brute_force import made
from packings import extent, faults, offsets, problem, problem_with, smallest_extent

from benchmarks.variants import mirrored, perfect, problem_of, read
from tmmu_core.loops.library import library
from tmmu_core.planners.auto import auto
from tmmu_core.planners.bounds import Bound, bound_of, lower_bound
from tmmu_core.planners.columns import Columns, columns
from tmmu_core.planners.exact import COURSE, exact, hunt, searched
from tmmu_core.planners.exact import rebuild as rebuilding_of
from tmmu_core.planners.exact.model import Model, build, chains
from tmmu_core.planners.exact.rebuild import (
    ALMOST,
    AT_THE_END,
    CLOSE,
    FAILURES,
    HOPE,
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
    turns_for,
)
from tmmu_core.planners.exact.rebuilding import (
    AT,
    BORN,
    COST,
    COUNTED,
    DIES,
    DRAWN,
    END,
    FAR,
    FEWEST,
    FIRM,
    LEFT,
    LOOSE,
    MANY,
    NEXT_END,
    NEXT_ROW,
    OFFSET,
    ORDER,
    OUT,
    ROW,
    ROWS,
    SIZE,
    TAKEN,
    TOUCH,
    TRIES,
    WAS,
    WEIGHT,
    WHO,
    Site,
    _chosen,
    _draw,
    _in_an_order,
    _lay,
    _least_in_the_way,
    _more_touching,
    _put_up,
    _torn_down,
    rebuild,
)
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
    return bool(rebuild(again.site, capacity - again.base, turns, RUIN, np.zeros(1, np.int64)))


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
    at, size = site.work[OFFSET].tolist(), site.unit[:, SIZE].tolist()
    assert size == p.size[again.units].tolist()
    assert [(at[u], u) for u in lying] == sorted((at[u], u) for u in lying)
    for k, u in enumerate(lying):
        assert at[u] + size[u] <= 1 << 19
        for v in lying[:k]:
            assert not site.meets[u, v] or at[v] + size[v] <= at[u] or at[u] + size[u] <= at[v]


def test_given_offsets_stay() -> None:
    p = problem_with(problem((0, 4, 8), (0, 4, 8), (2, 6, 16)), fixed=np.array([8, -1, -1]))
    model = model_of(p)
    assert rebuild_of(model, shape_of(model), 1).run(32, 500) == [8, 0, 16]


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
    which, begin, end = either_way(model, shape_of(model), list(range(5)))
    rows = [(int(p.birth[u]), int(p.death[u]), int(p.size[u])) for u in which.tolist()]
    # Three sections: the first three units, the third and the fourth, the last two.
    assert rows == [(0, 4, 8), (0, 4, 24), (2, 6, 16), (4, 9, 8), (7, 9, 8)]
    assert list(zip(begin.tolist(), end.tolist(), strict=True)) == [(0, 1), (0, 1), (0, 2), (1, 3), (2, 3)]
    q = problem((0, 2, 8), (0, 5, 8), (3, 7, 16), (5, 9, 24), (5, 9, 8))  # the same backwards
    other = model_of(q)
    which, begin, end = either_way(other, shape_of(other), list(range(5)))
    assert [int(q.size[u]) for u in which.tolist()] == [8, 24, 16, 8, 8]
    assert list(zip(begin.tolist(), end.tolist(), strict=True)) == [(0, 1), (0, 1), (0, 2), (1, 3), (2, 3)]
    # Grids tell apart what lives and bytes do not, also which way round it is taken.
    grids = np.array([8, 16, 16, 8], dtype=np.uint64)
    r = problem_with(problem((0, 2, 8), (0, 2, 16), (2, 4, 8), (2, 4, 16)), alignment=grids)
    other = model_of(r)
    which, begin, _ = either_way(other, shape_of(other), list(range(4)))
    assert [(int(r.birth[u]), int(r.size[u]), int(r.alignment[u])) for u in which.tolist()] == [
        *((2, 8, 8), (2, 16, 16)),
        *((0, 8, 16), (0, 16, 8)),
    ]
    assert begin.tolist() == [0, 0, 1, 1]
    which, begin, _ = either_way(model, shape_of(model), [1, 3])
    assert (sorted(which.tolist()), len(begin)) == ([1, 3], 2)
    assert [column.tolist() for column in either_way(model, shape_of(model), [])] == [[], [], []]


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
    assert again.site.now[COST] >= 5 * 1024
    assert again.run(24, 1_000) is None
    assert again.fewest == again.site.now[OUT] == 1
    assert again.site.now[COST] > 1024


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
    return again.site, capacity


def test_where_a_unit_is_put_first_it_is_right_above_or_below_another_and_the_least_lies() -> None:
    site, capacity = packed(40, 3, 200)
    size, weight, at = site.unit[:, SIZE], site.work[WEIGHT], site.work[OFFSET]
    lying, out = site.work[ROW, : site.now[ROWS]].tolist(), site.work[LEFT, : site.now[OUT]].tolist()
    state, seen = 5, 0
    for i in out * 20:
        before = state
        state, best = _least_in_the_way(site, capacity, i, state)
        met = [j for j in lying if site.meets[i, j]]
        edges = {0, capacity - size[i], *(at[j] + size[j] for j in met), *(at[j] - size[i] for j in met)}
        assert best == -1 or (best in edges and 0 <= best <= capacity - size[i])
        costs = []
        for _ in range(TRIES):
            before, r = _draw(before)
            k = (r >> 1) % (len(met) + 1)
            above, below = (*(at[j] + size[j] for j in met), 0), (*(at[j] for j in met), capacity)
            there = above[k] if r & 1 else below[k] - size[i]
            if 0 <= there <= capacity - size[i]:
                over = [j for j in met if at[j] < there + size[i] and at[j] + size[j] > there]
                costs.append((sum(weight[j] for j in over), there))
        least = min(costs, key=lambda one: one[0], default=(0, -1))
        seen += len(costs) > 2
        assert best == least[1]
    assert seen > 20


def test_who_lies_in_the_way_and_who_is_nearest_is_taken_away() -> None:
    site, capacity = packed(60, 5, 300)
    scale, driven = (capacity + 1023) // 1024, 0
    for seed in range(1, 60):
        before, rows, out = site.work[OFFSET].tolist(), site.now[ROWS], site.now[OUT]
        state = _torn_down(site, scale, _chosen(site, capacity, RUIN, seed))
        loose = site.work[TAKEN, : site.spot[LOOSE]].tolist()
        taken, far = loose[out:], site.near[FAR].tolist()
        who, at, top = site.spot[WHO], site.spot[AT], site.spot[AT] + site.unit[site.spot[WHO], SIZE]
        lying = [j for j in range(60) if before[j] >= 0]
        blocking = {j for j in lying if at >= 0 and site.meets[who, j]}
        blocking = {j for j in blocking if before[j] < top and before[j] + site.unit[j, SIZE] > at}
        driven += at >= 0
        assert set(taken[: len(blocking)]) == blocking
        nearest = sorted((far[j], j) for j in lying if j not in blocking)[: site.spot[MANY]]
        assert [(far[j], j) for j in taken[len(blocking) :]] == nearest
        assert site.work[NEXT_ROW, : site.spot[FIRM]].tolist() == [
            j for j in site.work[ROW, :rows].tolist() if j not in taken
        ]
        assert [j for j in range(60) if site.work[OFFSET, j] < 0] == sorted(loose)
        assert site.work[WAS, : len(loose)].tolist() == [before[j] for j in loose]
        assert state >= 0
        for j in taken:
            _lay(site, scale, j, before[j])
    assert 10 < driven < 50


def touching(site: Site, capacity: int) -> int:
    """For how long all that lies touches each other, the bottom and the top, pair by pair."""
    at, size, born, dies = site.work[OFFSET].tolist(), *(site.unit[:, row].tolist() for row in (SIZE, BORN, DIES))
    lying = [j for j in range(len(size)) if at[j] >= 0]
    walls = sum((dies[j] - born[j]) * ((at[j] == 0) + (at[j] + size[j] == capacity)) for j in lying)
    edges = [(i, j) for i in lying for j in lying if at[i] + size[i] == at[j] and site.meets[i, j]]
    return walls + sum(min(dies[i], dies[j]) - max(born[i], born[j]) for i, j in edges)


def test_how_much_more_touches_is_what_touches_after_a_turn_without_what_did_before() -> None:
    site, capacity = packed(60, 5, 300)
    seen = set()
    for seed in range(1, 60):
        before = touching(site, capacity)
        state = _torn_down(site, (capacity + 1023) // 1024, _chosen(site, capacity, RUIN, seed))
        state, still, _ = _put_up(site, capacity, 2**60, _in_an_order(site, state))
        more = _more_touching(site, capacity)
        assert more == touching(site, capacity) - before
        assert not site.work[COUNTED].any()
        seen.add(int(np.sign(more)))
        site.work[ROW : END + 1] = site.work[NEXT_ROW : NEXT_END + 1]
        site.work[LEFT, :still] = site.work[ORDER, :still]
        site.now[ROWS], site.now[OUT] = site.spot[FIRM], still
    assert seen == {-1, 0, 1}


def test_the_last_one_left_out_is_put_in_however_little_touches_then() -> None:
    """It fits at the bottom alone, from which two that live longer have to go, and the top is off their grid."""
    p = problem((0, 9, 8200), (0, 9, 8200), (0, 4, 1), (4, 5, 8), (5, 9, 1), alignment=(8, 8, 1, 1 << 15, 1))
    model = model_of(p)
    again = rebuild_of(model, shape_of(model), 1)
    site = again.site._replace(heat=np.zeros(1025, np.int64))
    at = [again.units.index(u) for u in range(5)]
    site.work[OFFSET, at], site.work[WEIGHT, at] = (0, 8200, 16_400, -1, 16_400), (1000, 1000, 1000, 1, 1000)
    lying = sorted(at[:3] + at[4:], key=lambda u: (site.work[OFFSET, u], u))
    site.work[ROW, :4], site.work[LEFT, 0], site.now[[ROWS, OUT, COST]] = lying, at[3], (4, 1, 1)
    before = touching(site, 16_412)
    assert rebuild(site, 16_412, 100_000, RUIN, again.stop)
    assert site.work[WEIGHT, at[3]] == 1  # before it grew dearer
    lies = site.work[OFFSET, at].tolist()
    assert lies[3] == 0
    assert faults(p, lies) == []
    assert before - touching(site, 16_412) > 2 * 1024 // TOUCH


def test_a_turn_that_leaves_out_too_much_ends_at_once() -> None:
    site, capacity = packed(60, 5, 300)
    _torn_down(site, (capacity + 1023) // 1024, _chosen(site, capacity, RUIN, 9))
    _in_an_order(site, 9)
    _, still, cost = _put_up(site, capacity, 1, 9)
    assert (still, cost) == (1, site.work[WEIGHT, site.work[ORDER, 0]])


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


def test_long_runs_have_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def seen(model: Model, shape: Shape, number: int) -> Rebuild:
        asked.append(number)
        site = rebuild_of(model, shape, number)
        monkeypatch.setattr(site, "run", lambda *_: site.site.now.__setitem__(FEWEST, CLOSE))
        return site

    monkeypatch.setattr(rebuilding_of, "rebuild_of", seen)
    exact(problem_of(mirrored(read("D.1048576"))), {"budget": 20_000})
    short = len(asked) - LONG_RUNS
    assert asked == [LONG_RUNS + 1 + k for k in range(short)] + [1 + k for k in range(LONG_RUNS)]


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
    assert aims.next(1010, ALMOST + 1)[1] == 0


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
    assert turns_for(wide, 10) == 5 * rebuilding_of.TURNS


def test_exact_asks_for_it_when_the_nodes_are_spent_near_the_bound() -> None:
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
    assert asked == [1_000_000 // 1024 * 1024] * (2 + AT_THE_END)


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


def test_a_packing_of_d_meets_its_bound() -> None:
    """The instance D of MiniMalloc in 986,112 bytes, of which no packing can take fewer: they are alive at once."""
    given = read_csv((ROOT / "sample_graphs" / "instances" / "D.1048576.csv").read_bytes()).problem
    found = read_csv((ROOT / "benchmarks" / "found" / "D.986112.csv").read_bytes())
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
    assert extent(given, lies) == lower_bound(given).max_live == 986_112
