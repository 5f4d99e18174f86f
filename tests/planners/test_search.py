"""search and auto: never worse than greedy, the same everywhere, told why."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.planners.packings import extent, faults, offsets, problem, problem_with, problems
from tests.support.paths import SAMPLES
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.csv.instance_csv import read_csv
from tmmu_core.planners import search as search_room
from tmmu_core.planners.auto import auto
from tmmu_core.planners.bounds import Bound
from tmmu_core.planners.portfolio import portfolio
from tmmu_core.planners.problem import Problem
from tmmu_core.planners.search import search

DATA = SAMPLES / "instances"


def instance(name: str) -> Problem:
    return read_csv((DATA / f"{name}.csv").read_bytes()).problem


@settings(deadline=None)
@given(problems(most=20, steps=12))
def test_it_packs_rightly_and_never_worse_than_the_portfolio(p: Problem) -> None:
    packing = search(p, {"iterations": 30})
    assert faults(p, offsets(packing)) == []
    assert (packing.lower_bound or 0) <= extent(p, packing.offset) <= extent(p, portfolio(p, {}).offset)


def test_it_improves_on_greedy_where_greedy_is_above_the_bound() -> None:
    p = instance("D.1048576")
    assert extent(p, search(p, {"iterations": 60}).offset) < extent(p, portfolio(p, {}).offset)


def test_a_seed_gives_the_same_bytes_twice() -> None:
    p = instance("A.1048576")
    options = {"iterations": 20, "seed": 7}
    assert offsets(search(p, options)) == offsets(search(p, options))


def test_another_seed_walks_elsewhere() -> None:
    p = instance("D.1048576")
    assert offsets(search(p, {"iterations": 60, "seed": 1})) != offsets(search(p, {"iterations": 60, "seed": 2}))


def test_a_seed_that_is_no_count_is_refused_by_name() -> None:
    with pytest.raises(InvalidIrShapes, match="seed=-1"):
        search(problem((0, 1, 1)), {"seed": -1})


def test_it_stops_when_told_and_keeps_the_best() -> None:
    p = instance("A.1048576")
    packing = search(p, {"iterations": 50}, lambda what, done, of: done < 5)
    assert (packing.stopped, packing.notes["iterations"], faults(p, offsets(packing))) == (True, 5, [])


@settings(deadline=None, max_examples=50)
@given(problems())
def test_auto_packs_rightly(p: Problem) -> None:
    assert faults(p, offsets(auto(p, {}))) == []


def test_auto_stays_with_greedy_where_greedy_meets_the_bound() -> None:
    packing = auto(problem((0, 2, 8), (1, 3, 8), (2, 4, 8)), {})
    assert (packing.notes["picked"], packing.optimal) == ("portfolio", True)
    assert packing.notes["why"] == "a greedy run meets the lower bound"


def test_auto_searches_exactly_where_greedy_does_not_and_says_how_far_off_greedy_was() -> None:
    packing = auto(instance("C.1048576"), {})
    assert (packing.notes["picked"], packing.optimal) == ("exact", True)
    assert "377856 bytes above the bound" in str(packing.notes["why"])


def test_auto_ends_at_the_first_packing_that_fits_a_capacity_and_minimises_when_told() -> None:
    p = problem_with(instance("A.1048576"), capacity=2_000_000)
    fits, least = auto(p, {}), auto(p, {"minimise": True})
    assert (fits.notes["picked"], fits.notes["runs"], fits.optimal, fits.stopped) == ("portfolio", 1, False, False)
    assert str(fits.notes["why"]).startswith("a greedy run fits the capacity of 2000000 bytes")
    assert 1_048_576 < extent(p, fits.offset) <= 2_000_000
    assert (least.notes["picked"], extent(p, least.offset), least.optimal) == ("exact", 1_048_576, True)


def test_auto_asks_the_same_of_a_graphs_arena() -> None:
    p = instance("A.1048576")
    p = problem_with(p, capacity=2_000_000, roles=("activation",) * len(p))
    assert auto(p, {}).notes["runs"] == 1
    assert auto(p, {"minimise": True}).optimal


def test_auto_searches_until_a_capacity_is_met_and_no_longer() -> None:
    p = problem_with(instance("A.1048576"), capacity=1_200_000)
    packing = auto(p, {})
    assert (packing.notes["picked"], faults(p, offsets(packing))) == ("exact", [])
    assert 1_048_576 < extent(p, packing.offset) <= 1_200_000


def test_auto_packs_what_passes_int64() -> None:
    p = problem((0, 2, 2**63), (1, 4, 2**62), (3, 5, 2**63), (0, 1, 2**61), (4, 6, 2**62))
    p = problem_with(p)
    assert faults(p, offsets(auto(p, {}))) == []


def test_auto_proves_a_trace_of_a_thousand_optimal() -> None:
    p = instance("somas_resnet50")
    packing = auto(p, {})
    assert (packing.notes["picked"], packing.optimal, extent(p, packing.offset)) == ("exact", True, 1515472556)


@pytest.mark.parametrize(("iterations", "size", "made"), [(400, 2, 400), (400, 3, 266), (5, 6, 4), (0, 6, 0)])
def test_larger_problems_get_fewer_rounds_and_four_at_least(
    iterations: int, size: int, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(search_room, "FULL_SPEED", 2)
    monkeypatch.setattr(search_room, "bound_of", lambda cols: Bound(0, (), -1, "live", 0))  # which nothing reaches
    p = problem(*((k, k + 3, 3 + 2 * (k % 2)) for k in range(size)))
    packing = search(p, {"iterations": iterations}, lambda what, done, of: asked.append((done, of)) is None)
    assert asked == [(k + 1, made) for k in range(made)]
    assert (packing.notes["iterations"], packing.stopped, packing.optimal) == (made, False, False)
