"""exact: equals exhaustive search on small problems, proves its bounds, keeps to its budget."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.pack import families
from benchmarks.variants import problem_of
from tests.planners.brute_force import differs, differs_in_arenas
from tests.planners.packings import extent, faults, offsets, problem, problem_with, problems, smallest_extent
from tests.support.paths import SAMPLES
from tmmu_core.base.errors import ArenaTooSmall
from tmmu_core.formats.csv.instance_csv import read_csv
from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact import exact
from tmmu_core.planners.exact.branch_and_bound import (
    FOUND,
    INFEASIBLE,
    OPENING_WEIGHTS,
    BranchingOrder,
    Searcher,
    weighted_ranks,
)
from tmmu_core.planners.exact.driver import MAX_ENUMERATED_HANDOFFS, search_models
from tmmu_core.planners.exact.search_model import Model, search_model, units_of
from tmmu_core.planners.problem import UNLIMITED, Problem

DATA = SAMPLES / "instances"
SMALL = {"budget": 200_000}


def instance(name: str) -> Problem:
    return read_csv((DATA / f"{name}.csv").read_bytes()).problem


def model_of(p: Problem) -> Model:
    cols = columns(p)
    return search_model(cols, units_of(cols, ()) or ())


def ring() -> Problem:
    """Return five storages of 8 bytes, each live with the next: two are live at a time, but 24 bytes are needed."""
    return problem((0, 5, 8), (0, 2, 8), (1, 3, 8), (2, 4, 8), (3, 5, 8), gaps=(((1, 4),), (), (), (), ()))


@settings(deadline=None)
@given(problems(most=6))
def test_search_finds_the_least_capacity_and_refutes_one_less(p: Problem) -> None:
    if len(p) == 0:
        return
    p = problem_with(p, handoff_from=None)
    least, model = smallest_extent(p), model_of(p)
    rank = weighted_ranks(model.log_traits, OPENING_WEIGHTS[0])
    found, refused = (Searcher(model).solve(capacity, rank, 10**6) for capacity in (least, least - 1))
    assert (found[0], refused[0]) == (FOUND, INFEASIBLE)
    assert faults(p, found[2] or ()) == []


def test_problems_by_seed_are_packed_optimally() -> None:
    # ``python -m tests.planners.brute_force 20000`` tries more of them.
    assert [found for found in map(differs, range(120)) if found] == []


@pytest.mark.parametrize(
    "rows",
    [
        ((0, 4, 11), (3, 4, 9), (1, 4, 4), (0, 4, 7), (0, 3, 11), (3, 4, 8), (3, 4, 6)),
        ((0, 6, 4), (4, 5, 1), (2, 3, 12), (4, 6, 9), (2, 5, 11), (1, 4, 8), (0, 2, 12), (3, 5, 3)),
        # Without the first row, the second is live at every step.
        ((0, 7, 9), (1, 7, 5), (2, 5, 2), (2, 5, 3), (3, 4, 9), (4, 7, 1), (4, 7, 8), (5, 6, 7), (6, 7, 11)),
    ],
)
def test_rows_live_at_every_step_are_packed_beside_the_others(rows: tuple[tuple[int, int, int], ...]) -> None:
    p = problem(*rows, alignment=4)
    found, least = exact(p, {}), smallest_extent(p)
    assert faults(p, offsets(found)) == []
    assert (extent(p, offsets(found)), found.optimal) == (least, True)
    assert found.notes.get("course", [[0, least, least]])[-1][1:] == [least, least]


@pytest.mark.slow
def test_each_of_several_arenas_is_packed_optimally() -> None:
    assert [found for found in map(differs_in_arenas, range(120)) if found] == []


@pytest.mark.parametrize("seed", range(3))
def test_narrow_peak_is_packed_at_the_bound_in_few_nodes(seed: int) -> None:
    lower, upper = families(500, seed)["few long, many short"]
    rows = zip(lower.tolist(), upper.tolist(), np.random.default_rng(seed).integers(1, 1 << 16, 500), strict=True)
    p = problem_of([(a, b, int(size)) for a, b, size in rows])
    packing = exact(p, {})
    assert faults(p, offsets(packing)) == []
    assert packing.optimal
    assert packing.notes["nodes"] < 2_000


def test_handoff_chain_ignores_a_fixed_offset_off_its_grid() -> None:
    # a at 1 hands on to b, b to c, and c wants even offsets: c cannot lie at 1.
    p = problem_with(
        problem((0, 1, 2), (1, 2, 2), (2, 3, 2), alignment=[1, 1, 2]),
        handoff_from=np.array([-1, 0, 1]),
        fixed=np.array([1, -1, -1]),
    )
    packing = exact(p, {})
    assert faults(p, offsets(packing)) == []
    assert (extent(p, packing.offset), packing.optimal) == (smallest_extent(p), True)


def test_search_ends_at_the_capacity_without_minimise() -> None:
    p = problem_with(instance("A.1048576"), capacity=1_200_000)
    fits, least = exact(p, {}), exact(p, {"minimise": True})
    assert 1_048_576 < extent(p, fits.offset) <= 1_200_000
    assert (fits.optimal, fits.stopped, faults(p, offsets(fits))) == (False, False, [])
    assert (extent(p, least.offset), least.optimal) == (1_048_576, True)


@given(problems(most=5), st.integers(0, 3))
def test_plan_fits_the_capacity_or_is_refuted(p: Problem, room: int) -> None:
    capacity = max(smallest_extent(p) + room - 1, 0)
    q = problem_with(p, capacity=capacity)
    if room == 0 and len(p):
        with pytest.raises(ArenaTooSmall, match="proven"):
            exact(q, SMALL)
    else:
        packing = exact(q, SMALL)
        assert (extent(q, packing.offset) <= capacity, faults(q, offsets(packing))) == (True, [])


def test_repeated_search_of_a_thousand_storages_gives_the_same_packing() -> None:
    # About a hundred storages are live at a time: the native tables of raised offsets grow during the search.
    p = instance("somas_resnet50")
    searcher = Searcher(model_of(p))
    rank = BranchingOrder(searcher.model).next_attempt().rank
    verdict, nodes, offset = searcher.solve(1515472556, rank, 6_000)
    assert (verdict, faults(p, offset or ())) == (FOUND, [])
    assert searcher.solve(1515472556, rank, 6_000) == (verdict, nodes, offset)


def test_capacity_between_bound_and_optimum_is_proven_too_small() -> None:
    with pytest.raises(ArenaTooSmall, match="proven") as caught:
        exact(problem_with(ring(), capacity=23), {})
    assert caught.value.diagnostics["required"] == 24


def test_costly_handoff_is_not_taken() -> None:
    # Taking t0's place would pin t1 at the bottom under the tall t2; beside it there is room.
    p = problem((0, 2, 4), (2, 4, 2), (0, 2, 1), (2, 4, 4), handoff_from=np.array([-1, -1, -1, 0]))
    packing = exact(p, {})
    assert faults(p, offsets(packing)) == []
    assert (extent(p, packing.offset), packing.optimal) == (smallest_extent(p), True)


def test_sizes_off_the_alignment_fit_as_easily_as_rounded_ones() -> None:
    p = instance("D.1048576")
    trimmed = p.size - np.arange(len(p), dtype=np.uint64) * np.uint64(37) % np.uint64(512)
    q = problem_with(p, size=trimmed, alignment=np.full(len(p), 512, np.uint64), capacity=1 << 20)
    assert extent(q, exact(q, {"budget": 60_000, "use_lns": False}).offset) <= 1 << 20


def test_search_without_nodes_returns_the_best_greedy_packing() -> None:
    always = ((0, 5, 32), (0, 5, 22))
    p = problem(
        *always,
        *((2, 3, 10), (3, 5, 5), (0, 1, 30), (0, 3, 18), (2, 4, 29), (2, 3, 5), (1, 2, 37), (1, 3, 26), (1, 3, 28)),
        *((2, 4, 2), (3, 4, 20)),
    )
    packing = exact(p, {"budget": 0})
    assert (extent(p, packing.offset), packing.stopped, faults(p, offsets(packing))) == (173, True, [])


def test_stopped_search_keeps_its_best_packing() -> None:
    p = instance("D.1048576")
    calls: list[tuple[str, int, int]] = []

    def progress(what: str, done: int, of: int) -> bool:
        calls.append((what, done, of))
        return len(calls) < 3

    packing = exact(p, {"budget": 100_000}, progress)
    assert (packing.stopped, len(calls), faults(p, offsets(packing))) == (True, 3, [])
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


def beside(p: Problem, q: Problem) -> Problem:
    """Return both problems as one, the second after the first in time."""
    later = int(p.death.max()) if len(p) else 0
    rows = [*zip(p.birth, p.death, p.size, p.alignment, strict=True)]
    rows += [
        (b + later, d + later, size, grid)
        for b, d, size, grid in zip(q.birth, q.death, q.size, q.alignment, strict=True)
    ]
    return problem(*[(int(b), int(d), int(s)) for b, d, s, _ in rows], alignment=[int(row[3]) for row in rows])


@given(problems(most=5, odd=False), problems(most=5, odd=False))
def test_independent_parts_take_the_extent_of_the_larger(p: Problem, q: Problem) -> None:
    both = beside(p, q)
    packing = exact(both, SMALL)
    assert faults(both, offsets(packing)) == []
    assert (extent(both, packing.offset), packing.optimal) == (max(smallest_extent(p), smallest_extent(q)), True)


def test_part_above_its_peak_raises_the_bound_of_the_whole() -> None:
    # The ring needs 24 though never more than 16 live; alone and beside a storage of 20 it is the same.
    ringed = ring()
    p = problem(
        *[(int(b), int(d), int(s)) for b, d, s in zip(ringed.birth, ringed.death, ringed.size, strict=True)],
        (5, 6, 20),
        gaps=(*(ringed.gaps or ()), ()),
    )
    packing = exact(p, {})
    assert (extent(p, packing.offset), packing.lower_bound, packing.optimal) == (24, 24, True)
    assert packing.notes["parts"] == 2


def test_extent_off_the_multiples_of_a_fixed_offset_is_proven() -> None:
    p = problem_with(problem((0, 2, 12), (1, 3, 12), alignment=[2, 4]), fixed=np.array([6, -1]))
    assert smallest_extent(p) == 32
    for capacity in (UNLIMITED, 32):
        packing = exact(problem_with(p, capacity=capacity), {"minimise": True})
        assert (offsets(packing), packing.lower_bound, packing.optimal) == ([6, 20], 32, True)
    with pytest.raises(ArenaTooSmall) as refused:
        exact(problem_with(p, capacity=31), {})
    assert refused.value.diagnostics["required"] == 32


@pytest.mark.slow
def test_extent_of_one_part_is_no_bound_of_the_other() -> None:
    d = instance("D.1048576")
    packing = exact(beside(d, d), {"budget": 6_000})
    assert (packing.lower_bound, packing.optimal, packing.stopped) == (986112, False, True)


def test_budget_left_by_one_part_goes_to_the_highest() -> None:
    # Both need 1,048,576. With an equal share of it E, which comes first and is harder, would be left above that.
    e, a = instance("E.1048576"), instance("A.1048576")
    both = beside(e, a)
    # A last attempt that the budget cuts short changes the learned orders, so the budget exceeds the sum.
    budget = 8_000 + sum(exact(p, {}).notes["nodes"] for p in (e, a))
    packing = exact(both, {"budget": budget})
    assert faults(both, offsets(packing)) == []
    assert (extent(both, packing.offset), packing.optimal) == (1048576, True)


def test_stopped_search_skips_further_parts() -> None:
    p = beside(instance("D.1048576"), instance("E.1048576"))
    calls = 0

    def progress(_what: str, done: int, of: int) -> bool:
        nonlocal calls
        calls += 1
        return done < of and calls < 4

    packing = exact(p, {"budget": 40_000}, progress)
    assert (calls, packing.stopped, faults(p, offsets(packing))) == (4, True, [])


@pytest.mark.parametrize(("handoffs", "whole"), [(MAX_ENUMERATED_HANDOFFS, True), (MAX_ENUMERATED_HANDOFFS + 1, False)])
def test_every_choice_of_few_handoffs_is_searched(handoffs: int, whole: bool) -> None:
    lives = [(2 * k, 2 * k + 2, 8) for k in range(2 * handoffs)]
    giver = np.array([k - 1 if k % 2 else -1 for k in range(2 * handoffs)])
    models, relaxation = search_models(columns(problem(*lives, handoff_from=giver)))
    assert (len(models), relaxation is None) == ((2**handoffs, True) if whole else (1, False))
