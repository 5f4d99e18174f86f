"""exact: agrees with trying everything, proves what it says, keeps to its budget."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planners.brute_force import differs, differs_in_arenas, made, made_graph
from tests.planners.packings import extent, faults, offsets, problem, problem_with, problems, smallest_extent
from tests.support.paths import SAMPLES
from tests.support.searches import crowd
from tmmu_core.base.errors import ArenaTooSmall
from tmmu_core.formats.csv.instance_csv import read_csv
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact import exact
from tmmu_core.planners.exact.branch_and_bound import BUDGET_SPENT, FOUND, INFEASIBLE
from tmmu_core.planners.exact.branching import BranchingOrder, static_rank, traits
from tmmu_core.planners.exact.driver import MAX_ENUMERATED_HANDOFFS, search_models
from tmmu_core.planners.exact.propagation import ALL_RULES
from tmmu_core.planners.exact.search_model import Model, greedy_handoffs, search_model, units_of, weighted_ranks
from tmmu_core.planners.exact.search_run import Searcher
from tmmu_core.planners.greedy import greedy
from tmmu_core.planners.portfolio import portfolio
from tmmu_core.planners.problem import UNLIMITED, Problem
from tmmu_core.plans.making.engine import plan_graph

DATA = SAMPLES / "instances"
SMALL = {"budget": 200_000}

# The textbook case in which max live (12) can be had, and largest-first cannot find it.
FIVE = problem((0, 3, 4), (3, 9, 4), (0, 9, 4), (9, 21, 4), (0, 21, 4))


def instance(name: str) -> Problem:
    return read_csv((DATA / f"{name}.csv").read_bytes()).problem


def ring() -> Problem:
    """Five storages of 8 bytes, each alive beside the next and the last, in its second life, beside the first.

    Never more than two at a time, 16 bytes; but a ring of five needs three places, 24 bytes.
    """
    return problem((0, 5, 8), (0, 2, 8), (1, 3, 8), (2, 4, 8), (3, 5, 8), gaps=(((1, 4),), (), (), (), ()))


def test_the_small_example_of_the_literature_is_packed_at_its_bound() -> None:
    packing = exact(FIVE, {})
    assert (extent(FIVE, packing.offset), packing.optimal, packing.lower_bound) == (12, True, 12)


@settings(deadline=None)
@given(problems(most=6))
def test_it_agrees_with_trying_everything(p: Problem) -> None:
    packing = exact(p, SMALL)
    assert faults(p, offsets(packing)) == []
    assert (extent(p, packing.offset), packing.optimal) == (smallest_extent(p), True)


@settings(deadline=None)
@given(problems(most=6, steps=6, largest=6, odd=False))
def test_it_agrees_where_lives_are_crowded(p: Problem) -> None:
    packing = exact(p, SMALL)
    assert (extent(p, packing.offset), packing.optimal) == (smallest_extent(p), True)


@settings(deadline=None)
@given(problems(most=6), st.data())
def test_it_agrees_with_fixed_offsets_too(p: Problem, data: st.DataObject) -> None:
    lay = offsets(greedy(p, {"order": "birth"}))
    keep = data.draw(st.lists(st.booleans(), min_size=len(p), max_size=len(p)))
    q = problem_with(p, fixed=np.array([at if k else -1 for at, k in zip(lay, keep, strict=True)], dtype=np.int64))
    packing = exact(q, SMALL)
    assert faults(q, offsets(packing)) == []
    assert (extent(q, packing.offset), packing.optimal) == (smallest_extent(q), True)


@settings(deadline=None)
@given(problems(most=6))
def test_the_search_itself_finds_the_least_capacity_and_refuses_one_less(p: Problem) -> None:
    if len(p) == 0:
        return
    least = smallest_extent(problem_with(p, handoff_from=None))
    cols = columns(problem_with(p, handoff_from=None))
    model = search_model(cols, units_of(cols, ()) or ())
    rank = weighted_ranks(model)((1, 1, 1, 1), None)
    assert Searcher(model).solve(least, rank, 10**6)[0] == FOUND
    assert Searcher(model).solve(least - 1, rank, 10**6)[0] == INFEASIBLE


def test_it_agrees_with_trying_everything_on_problems_by_seed() -> None:
    # ``python -m tests.planners.brute_force 20000`` tries more of them.
    assert [found for found in map(differs, range(250)) if found] == []


@pytest.mark.slow
def test_it_agrees_with_trying_everything_in_each_of_several_arenas() -> None:
    assert [found for found in map(differs_in_arenas, range(120)) if found] == []


def test_graphs_of_several_arenas_hand_on_within_an_arena_and_never_across() -> None:
    plans = [plan_graph(graph, planner="exact", arenas=arenas).plan for graph, arenas in map(made_graph, range(120))]
    arena_of = [dict(zip(plan.tensor_ids, plan.arena.tolist(), strict=True)) for plan in plans]
    handed = [(arenas[x], arenas[y]) for plan, arenas in zip(plans, arena_of, strict=True) for _, x, y in plan.handoffs]
    assert len(handed) > 20
    assert all(one == two for one, two in handed)
    assert sum(len(plan.arenas) > 1 for plan in plans) > 80


def test_a_chain_does_not_take_over_a_given_offset_that_is_off_the_grid_of_its_last() -> None:
    # a at 1 hands on to b, b to c, and c wants even offsets: c cannot lie at 1.
    p = problem_with(
        problem((0, 1, 2), (1, 2, 2), (2, 3, 2), alignment=[1, 1, 2]),
        handoff_from=np.array([-1, 0, 1]),
        fixed=np.array([1, -1, -1]),
    )
    packing = exact(p, {})
    assert faults(p, offsets(packing)) == []
    assert (extent(p, packing.offset), packing.optimal) == (smallest_extent(p), True)


def test_every_combination_of_prunings_finds_the_least_capacity_and_refuses_one_less() -> None:
    family = [made(seed, most=5) for seed in range(1000, 1012)]
    for p in (problem_with(p, handoff_from=None) for p in family):
        cols = columns(p)
        least, model = smallest_extent(p), search_model(cols, units_of(cols, ()) or ())
        rank = weighted_ranks(model)((1, 1, 1, 1), None)
        for switches in range(ALL_RULES + 1):
            searcher = Searcher(model, switches)
            found = searcher.solve(least, rank, 10**5)
            refused = searcher.solve(least - 1, rank, 10**5)
            assert (found[0], refused[0]) == (FOUND, INFEASIBLE), f"switches {switches:06b}"
            assert faults(p, found[2] or ()) == []


def test_with_a_capacity_it_ends_when_everything_fits_and_minimises_when_told() -> None:
    p = problem_with(instance("A.1048576"), capacity=1_200_000)
    fits, least = exact(p, {}), exact(p, {"minimise": True})
    assert 1_048_576 < extent(p, fits.offset) <= 1_200_000
    assert (fits.optimal, fits.stopped, faults(p, offsets(fits))) == (False, False, [])
    assert (extent(p, least.offset), least.optimal) == (1_048_576, True)


def test_with_a_capacity_that_greedy_meets_nothing_is_searched() -> None:
    packing = exact(problem_with(instance("D.1048576"), capacity=2_000_000), {})
    assert (packing.notes["nodes"], packing.stopped) == (0, False)


@settings(deadline=None, max_examples=40)
@given(problems(most=5), st.integers(0, 3))
def test_with_a_capacity_it_fits_or_proves_that_nothing_does(p: Problem, room: int) -> None:
    capacity = max(smallest_extent(p) + room - 1, 0)
    q = problem_with(p, capacity=capacity)
    if room == 0 and len(p):
        with pytest.raises(ArenaTooSmall, match="proven"):
            exact(q, SMALL)
    else:
        packing = exact(q, SMALL)
        assert (extent(q, packing.offset) <= capacity, faults(q, offsets(packing))) == (True, [])


def test_a_callback_that_raises_stops_the_search_under_way() -> None:
    class Enough(Exception):
        pass

    def watch(_nodes: int) -> bool:
        raise Enough

    searcher = Searcher(model_of(instance("D.1048576")))
    with pytest.raises(Enough):
        searcher.solve(986112, static_rank(traits(searcher.model), "TWA"), 10**9, watch=watch)
    assert searcher.stop[0] == 1


def test_a_callback_that_says_no_ends_the_search_under_way() -> None:
    searcher = Searcher(model_of(instance("D.1048576")))
    rank = static_rank(traits(searcher.model), "TWA")
    verdict, nodes, offset = searcher.solve(986112, rank, 10**9, watch=lambda nodes: False)
    assert (verdict, nodes < 10**9, offset, searcher.stop[0]) == (BUDGET_SPENT, True, None, 1)


def test_a_search_whose_tables_are_too_small_is_asked_again_with_larger_ones() -> None:
    # Of a thousand storages of which a hundred meet, each is raised many times over.
    p = instance("somas_resnet50")
    searcher = Searcher(model_of(p))
    rank = BranchingOrder(searcher.model).next_attempt(1515472556).rank
    before = searcher.room
    verdict, nodes, offset = searcher.solve(1515472556, rank, 6_000)
    assert (verdict, faults(p, offset or ()), searcher.room > before) == (FOUND, [], True)
    assert searcher.solve(1515472556, rank, 6_000) == (verdict, nodes, offset)


def test_a_search_is_stopped_from_outside() -> None:
    p = instance("D.1048576")
    searcher = Searcher(model_of(p))
    searcher.stop[0] = 1
    assert searcher.solve(986112, static_rank(traits(searcher.model), "TWA"), 10**6) == (BUDGET_SPENT, 0, None)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(problems(most=25, steps=15))
def test_it_is_never_worse_than_the_portfolio_nor_below_its_own_bound(p: Problem) -> None:
    packing = exact(p, {})
    assert faults(p, offsets(packing)) == []
    assert (packing.lower_bound or 0) <= extent(p, packing.offset) <= extent(p, portfolio(p, {}).offset)


def test_a_capacity_under_the_bound_is_proven_too_small() -> None:
    with pytest.raises(ArenaTooSmall, match="proven") as caught:
        exact(problem_with(FIVE, capacity=11), {})
    assert (caught.value.diagnostics["proven"], caught.value.diagnostics["required"]) == (True, 12)


def test_a_gap_in_which_nothing_can_end_is_closed_at_once() -> None:
    p = problem_with(ring(), alignment=np.full(5, 64, np.uint64))  # what ends above 64 + 8 ends at 128 + 8
    packing = exact(p, {})
    assert (packing.optimal, packing.lower_bound, packing.notes["attempts"]) == (True, 136, 1)


def test_a_capacity_between_the_bound_and_the_least_extent_is_proven_too_small() -> None:
    assert max(columns(ring()).live_bytes()) == 16
    with pytest.raises(ArenaTooSmall, match="proven") as caught:
        exact(problem_with(ring(), capacity=23), {})
    assert caught.value.diagnostics["required"] == 24


def test_the_bound_is_raised_where_max_live_cannot_be_had() -> None:
    packing = exact(ring(), {})
    assert (extent(ring(), packing.offset), packing.lower_bound, packing.optimal) == (24, 24, True)


def test_a_storage_whose_whole_life_is_a_gap_has_a_place_among_all_others() -> None:
    p = problem_with(ring(), gaps=(((0, 5),), (), (), (), ()))
    packing = exact(p, {})
    assert (extent(p, packing.offset), packing.optimal, faults(p, offsets(packing))) == (16, True, [])


def test_a_hand_off_that_costs_is_not_taken() -> None:
    # Taking t0's place would pin t1 at the bottom under the tall t2; beside it there is room.
    p = problem((0, 2, 4), (2, 4, 2), (0, 2, 1), (2, 4, 4), handoff_from=np.array([-1, -1, -1, 0]))
    packing = exact(p, {})
    assert faults(p, offsets(packing)) == []
    assert (extent(p, packing.offset), packing.optimal) == (smallest_extent(p), True)


@pytest.mark.slow
def test_the_same_budget_gives_the_same_bytes() -> None:
    p = instance("E.1048576")
    one, two = exact(p, {"budget": 9_000}), exact(p, {"budget": 9_000})
    assert offsets(one) == offsets(two)
    assert one.notes == two.notes


def test_a_larger_budget_is_never_worse() -> None:
    p = instance("E.1048576")
    assert extent(p, exact(p, {"budget": 40_000}).offset) <= extent(p, exact(p, {"budget": 4_000}).offset)


def test_no_budget_is_greedy_with_a_bound() -> None:
    p = instance("E.1048576")
    packing = exact(p, {"budget": 0})
    assert (offsets(packing), packing.optimal) == (offsets(portfolio(p, {})), False)


def test_it_stops_when_told_and_keeps_the_best() -> None:
    p = instance("D.1048576")
    calls: list[tuple[str, int, int]] = []

    def progress(what: str, done: int, of: int) -> bool:
        calls.append((what, done, of))
        return len(calls) < 3

    packing = exact(p, {"budget": 100_000}, progress)
    assert (packing.stopped, len(calls), faults(p, offsets(packing))) == (True, 3, [])
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


@pytest.mark.parametrize(
    ("name", "least"), [("A", 1048576), ("B", 1048576), ("C", 1039360), ("E", 1048576), ("F", 1048576)]
)
def test_the_accelerator_instances_are_packed_at_their_bound_and_said_to_be(name: str, least: int) -> None:
    p = instance(f"{name}.1048576")
    packing = exact(p, {})
    assert faults(p, offsets(packing)) == []
    assert (extent(p, packing.offset), packing.optimal) == (least, True)


def test_the_open_instance_fits_its_accelerator() -> None:
    p = problem_with(instance("D.1048576"), capacity=1048576)
    packing = exact(p, {})
    assert faults(p, offsets(packing)) == []
    assert extent(p, packing.offset) <= 1048576


def test_a_second_process_takes_the_compiled_search_from_the_cache_and_agrees() -> None:
    program = (
        "import sys, json; from tmmu_core.formats.csv.instance_csv import read_csv;"
        "from tmmu_core.planners.exact import exact;"
        "p = read_csv(open(sys.argv[1], 'rb').read()).problem; print(json.dumps(exact(p, {}).offset.tolist()))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program, str(DATA / "B.1048576.csv")], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert json.loads(runs[0]) == json.loads(runs[1]) == offsets(exact(instance("B.1048576"), {}))


def beside(p: Problem, q: Problem) -> Problem:
    """Both, the second after the first: nothing of one meets anything of the other."""
    later = int(p.death.max()) if len(p) else 0
    rows = [*zip(p.birth, p.death, p.size, p.alignment, strict=True)]
    rows += [
        (b + later, d + later, size, grid)
        for b, d, size, grid in zip(q.birth, q.death, q.size, q.alignment, strict=True)
    ]
    return problem(*[(int(b), int(d), int(s)) for b, d, s, _ in rows], alignment=[int(row[3]) for row in rows])


@settings(deadline=None, max_examples=40)
@given(problems(most=5, odd=False), problems(most=5, odd=False))
def test_two_that_never_meet_take_what_the_greater_one_takes(p: Problem, q: Problem) -> None:
    both = beside(p, q)
    packing = exact(both, SMALL)
    assert faults(both, offsets(packing)) == []
    assert (extent(both, packing.offset), packing.optimal) == (max(smallest_extent(p), smallest_extent(q)), True)


def test_a_part_that_cannot_be_proven_leaves_its_bound_and_not_the_other_parts() -> None:
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


def test_a_part_of_a_coarser_grain_is_lowered_to_the_other_part_and_claims_no_more() -> None:
    # The first part (6 and 2 bytes, one on a grid of 4) can take 8, the second 9: extents of the first are even.
    p = problem((0, 1, 6), (1, 2, 5), (1, 2, 1), (1, 2, 1), (0, 1, 2), alignment=[1, 2, 2, 2, 4])
    packing = exact(p, {})
    assert (extent(p, packing.offset), packing.lower_bound, packing.optimal) == (9, 9, True)


def test_an_extent_between_the_multiples_of_a_given_offset_is_proven_and_not_refused() -> None:
    """Given 6 and 12 bytes, the other 12 lie at 20, on their grid of 4: 32 is a multiple of neither 6 nor 12."""
    p = problem_with(problem((0, 2, 12), (1, 3, 12), alignment=[2, 4]), fixed=np.array([6, -1]))
    assert smallest_extent(p) == 32
    for capacity in (UNLIMITED, 32):
        packing = exact(problem_with(p, capacity=capacity), {"minimise": True})
        assert (offsets(packing), packing.lower_bound, packing.optimal) == ([6, 20], 32, True)
    with pytest.raises(ArenaTooSmall) as refused:
        exact(problem_with(p, capacity=31), {})
    assert refused.value.diagnostics["required"] == 32


def test_no_chain_has_to_lie_where_another_storage_is_given() -> None:
    """The first may hand on to the last, which is given a place where the second lies while the first is there too."""
    p = problem((0, 2, 8), (1, 2, 8), (2, 4, 8), handoff_from=np.array([-1, -1, 0]))
    for at, together in ((0, False), (4, False), (8, True)):
        cols = columns(problem_with(p, fixed=np.array([-1, 0, at])))
        assert (units_of(cols, [(0, 2)]) is not None) == together
        assert greedy_handoffs(cols) == (((0, 2),) if together else ())
    cols = columns(problem_with(p, fixed=np.array([-1, 0, 0]), gaps=(((1, 2),), (), ())))
    assert units_of(cols, [(0, 2)]) == ((0, 2), (1,))  # they share no moment


@pytest.mark.slow
def test_what_one_part_takes_is_no_bound_of_the_other() -> None:
    d = instance("D.1048576")
    packing = exact(beside(d, d), {"budget": 6_000})
    assert (packing.lower_bound, packing.optimal, packing.stopped) == (986112, False, True)


def test_what_one_part_leaves_over_of_the_budget_the_highest_part_has() -> None:
    # Both need 1,048,576. With an equal share of it E, which comes first and is harder, would be left above that.
    e, a = instance("E.1048576"), instance("A.1048576")
    both = beside(e, a)
    # A last attempt that is cut short teaches something else: hence the nodes beyond what the two need alone.
    budget = 8_000 + sum(exact(p, {}).notes["nodes"] for p in (e, a))
    packing = exact(both, {"budget": budget})
    assert faults(both, offsets(packing)) == []
    assert (extent(both, packing.offset), packing.optimal) == (1048576, True)


def test_parts_are_searched_no_further_once_told_to_stop() -> None:
    p = beside(instance("D.1048576"), instance("E.1048576"))
    calls = 0

    def progress(_what: str, done: int, of: int) -> bool:
        nonlocal calls
        calls += 1
        return done < of and calls < 4

    packing = exact(p, {"budget": 40_000}, progress)
    assert (calls, packing.stopped, faults(p, offsets(packing))) == (4, True, [])


def model_of(p: Problem) -> Model:
    cols = columns(p)
    return search_model(cols, units_of(cols, ()) or ())


@pytest.mark.parametrize(("handoffs", "whole"), [(MAX_ENUMERATED_HANDOFFS, True), (MAX_ENUMERATED_HANDOFFS + 1, False)])
def test_up_to_five_hand_offs_every_choice_is_searched(handoffs: int, whole: bool) -> None:
    """Each of two storages, the second taking the first's place: 2^n choices, or the fullest and a relaxation."""
    lives = [(2 * k, 2 * k + 2, 8) for k in range(2 * handoffs)]
    giver = np.array([k - 1 if k % 2 else -1 for k in range(2 * handoffs)])
    models, relaxation = search_models(columns(problem(*lives, handoff_from=giver)))
    assert (len(models), relaxation is None) == ((2**handoffs, True) if whole else (1, False))


def test_with_a_capacity_that_is_the_bound_itself_it_goes_on_until_that_is_met() -> None:
    """Greedy needs more than the least, which is the bound and all that there is."""
    p = crowd(2, 10)
    least = lower_bound(p).max_live
    assert extent(p, portfolio(p, {}).offset) > least
    assert extent(p, exact(problem_with(p, capacity=least), {}).offset) == least


def test_a_chain_between_two_given_offsets_is_none() -> None:
    """The first and the last of three lie fixed at different bytes: no two hand-offs can join them."""
    p = problem((0, 2, 8), (2, 4, 8), (4, 6, 8), handoff_from=np.array([-1, 0, 1]), fixed=np.array([0, -1, 8]))
    cols = columns(p)
    assert units_of(cols, [(0, 1)]) == ((0, 1), (2,))
    assert units_of(cols, [(1, 2)]) == ((0,), (1, 2))
    assert units_of(cols, [(0, 1), (1, 2)]) is None
    assert units_of(cols, [(0, 1), (0, 1)]) is None
