"""search and auto: never worse than greedy, deterministic, with a reason for the choice."""

from random import Random

import numpy as np
from hypothesis import given, settings

from benchmarks.dsa import is_valid
from tests.planners.packings import extent, faults, offsets, problem, problem_with, problems
from tests.support.paths import SAMPLES
from tmmu_core.formats.csv.instance_csv import read_csv
from tmmu_core.planners.auto import auto
from tmmu_core.planners.exact import exact
from tmmu_core.planners.portfolio import portfolio, search
from tmmu_core.planners.problem import Problem


def instance(name: str) -> Problem:
    return read_csv((SAMPLES / "instances" / f"{name}.csv").read_bytes()).problem


@settings(deadline=None)
@given(problems(most=20, steps=12))
def test_search_is_valid_and_never_worse_than_the_portfolio(p: Problem) -> None:
    packing = search(p, {"iterations": 30})
    assert faults(p, offsets(packing)) == []
    assert (packing.lower_bound or 0) <= extent(p, packing.offset) <= extent(p, portfolio(p, {}).offset)


def test_stopped_search_keeps_its_best_packing() -> None:
    p = instance("A.1048576")
    packing = search(p, {"iterations": 50}, lambda what, done, of: done < 5)
    assert (packing.stopped, packing.notes["iterations"], faults(p, offsets(packing))) == (True, 5, [])


def test_auto_runs_exact_above_the_bound_and_notes_the_distance() -> None:
    packing = auto(instance("C.1048576"), {})
    assert (packing.notes["picked"], packing.optimal) == ("exact", True)
    assert "377856 bytes above the bound" in str(packing.notes["why"])


def test_auto_stops_at_the_capacity_without_minimise() -> None:
    p = problem_with(instance("A.1048576"), capacity=2_000_000)
    fits, least = auto(p, {}), auto(p, {"minimise": True})
    assert (fits.notes["picked"], fits.notes["runs"], fits.optimal, fits.stopped) == ("portfolio", 1, False, False)
    assert str(fits.notes["why"]).startswith("a greedy run fits the capacity of 2000000 bytes")
    assert 1_048_576 < extent(p, fits.offset) <= 2_000_000
    assert (least.notes["picked"], extent(p, least.offset), least.optimal) == ("exact", 1_048_576, True)


def test_auto_fits_the_capacity_of_its_least_extent() -> None:
    rng = Random(61)
    rows = [(k, k + rng.randint(1, 9), rng.randint(1, 3000)) for k in (rng.randrange(20) for _ in range(60))]
    p = problem(*rows, alignment=[1 << rng.randint(0, 9) for _ in rows])
    least = extent(p, auto(p, {}).offset)
    assert extent(p, auto(problem_with(p, capacity=least), {}).offset) == least


def test_auto_proves_large_traces_optimal() -> None:
    rng, rows = Random(35), list[tuple[int, int, int]]()
    for most in (900, *[9] * 8) * 289:  # one live range in nine is long; no skyline run reaches the bound directly
        birth = rng.randrange(2_600)
        rows.append((birth, birth + rng.randint(1, most), 512 * rng.randint(1, 1 << rng.randint(4, 12))))
    for p, picked in ((instance("somas_resnet50"), "exact"), (problem(*rows), "skyline")):
        packing = auto(p, {})
        assert is_valid(p, packing)
        assert (packing.notes["picked"], packing.optimal) == (picked, True)


# No greedy run ends below 11 bytes; the bound, and the optimum, are 9.
SIX = problem((5, 8, 1), (0, 4, 3), (3, 7, 2), (3, 6, 2), (1, 3, 5), (5, 7, 4))


def test_large_problem_gets_no_more_iterations_than_requested() -> None:
    rows = zip(SIX.birth.tolist(), SIX.death.tolist(), SIX.size.tolist(), strict=True)
    p = problem(*[(birth + 9 * k, death + 9 * k, size) for birth, death, size in rows for k in range(420)])
    packing = search(p, {"iterations": 1})
    assert packing.notes["iterations"] == 1
    assert is_valid(p, packing)
    assert extent(p, packing.offset) <= extent(p, portfolio(p, {}).offset)


def test_sizes_beyond_int64_are_packed_by_greedy_with_a_note() -> None:
    p = problem_with(SIX, size=SIX.size * np.uint64(2**60))
    found = exact(p, {})
    assert faults(p, offsets(found)) == []
    assert (found.notes["why"], found.optimal, found.lower_bound) == ("sizes beyond 2^62: greedy only", False, 9 << 60)
    assert "why" not in exact(problem_with(p, capacity=11 << 60), {}).notes
    assert "why" in exact(problem_with(p, capacity=(11 << 60) - 1), {}).notes
