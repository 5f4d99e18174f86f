"""exact: agrees with trying everything, proves what it says, keeps to its budget."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from brute_force import differs, differs_in_arenas, made, made_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import extent, faults, live_moments, offsets, problem, problem_with, problems, smallest_extent

from tests.searches import crowd
from tests.small_problems import mixed
from tmmu_core.errors import ArenaTooSmall
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.columns import NEVER, columns
from tmmu_core.planners.exact import COURSE, exact
from tmmu_core.planners.exact.apart import apart, part
from tmmu_core.planners.exact.hunt import ALL_CHOICES, models_of
from tmmu_core.planners.exact.kernel import FOUND, INFEASIBLE, SPENT
from tmmu_core.planners.exact.model import (
    Model,
    _ascending,
    build,
    chains,
    handoffs,
    logarithm,
    ranker,
    take_all,
)
from tmmu_core.planners.exact.propagate import ALL
from tmmu_core.planners.exact.run import Searcher
from tmmu_core.planners.exact.steering import ORDERS, PURE, WAYS, Steering, luby, static_rank, traits
from tmmu_core.planners.greedy import greedy
from tmmu_core.planners.instances import read_csv
from tmmu_core.planners.portfolio import portfolio
from tmmu_core.planners.problem import UNLIMITED, Problem, without_empty

DATA = Path(__file__).parents[2] / "sample_graphs" / "instances"
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
    model = build(cols, chains(cols, ()) or ())
    rank = ranker(model)((1, 1, 1, 1), None)
    assert Searcher(model).ask(least, rank, 10**6)[0] == FOUND
    assert Searcher(model).ask(least - 1, rank, 10**6)[0] == INFEASIBLE


def test_it_agrees_with_trying_everything_on_problems_by_seed() -> None:
    # ``python -m tests.planners.brute_force 20000`` tries more of them.
    assert [found for found in map(differs, range(250)) if found] == []


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
        least, model = smallest_extent(p), build(cols, chains(cols, ()) or ())
        rank = ranker(model)((1, 1, 1, 1), None)
        for switches in range(ALL + 1):
            searcher = Searcher(model, switches)
            found = searcher.ask(least, rank, 10**5)
            refused = searcher.ask(least - 1, rank, 10**5)
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
        searcher.ask(986112, static_rank(traits(searcher.model), "TWA"), 10**9, watch=watch)
    assert searcher.stop[0] == 1


def test_a_callback_that_says_no_ends_the_search_under_way() -> None:
    searcher = Searcher(model_of(instance("D.1048576")))
    rank = static_rank(traits(searcher.model), "TWA")
    verdict, nodes, offset = searcher.ask(986112, rank, 10**9, watch=lambda nodes: False)
    assert (verdict, nodes < 10**9, offset, searcher.stop[0]) == (SPENT, True, None, 1)


def test_a_search_whose_tables_are_too_small_is_asked_again_with_larger_ones() -> None:
    # Of a thousand storages of which a hundred meet, each is raised many times over.
    p = instance("somas_resnet50")
    searcher = Searcher(model_of(p))
    rank = Steering(searcher.model).attempt(1515472556).rank
    before = searcher.room
    verdict, nodes, offset = searcher.ask(1515472556, rank, 6_000)
    assert (verdict, faults(p, offset or ()), searcher.room > before) == (FOUND, [], True)
    assert searcher.ask(1515472556, rank, 6_000) == (verdict, nodes, offset)


def test_a_search_is_stopped_from_outside() -> None:
    p = instance("D.1048576")
    searcher = Searcher(model_of(p))
    searcher.stop[0] = 1
    assert searcher.ask(986112, static_rank(traits(searcher.model), "TWA"), 10**6) == (SPENT, 0, None)


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
        "import sys, json; from tmmu_core.planners.instances import read_csv;"
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


def test_whose_lives_are_all_gaps_are_apart_but_for_what_must_not_alias() -> None:
    p = problem((0, 1, 4), (1, 2, 8), (2, 3, 8), gaps=(((0, 1),), ((1, 2),), ((2, 3),)))
    assert [indices.tolist() for indices in apart(columns(p))] == [[0], [1], [2]]
    pair = problem_with(p, must_not_alias=np.array([[1, 2]], dtype=np.int64))
    assert [indices.tolist() for indices in apart(columns(pair))] == [[0], [1, 2]]
    assert extent(pair, exact(pair, {}).offset) == 16


def test_what_follows_in_time_is_apart_and_what_must_not_alias_is_not() -> None:
    p = problem((0, 2, 4), (1, 3, 4), (3, 5, 4), (4, 6, 4))
    assert [indices.tolist() for indices in apart(columns(p))] == [[0, 1], [2, 3]]
    joined = problem_with(p, must_not_alias=np.array([[0, 3]]))
    assert [indices.tolist() for indices in apart(columns(joined))] == [[0, 1, 2, 3]]


def test_a_gap_keeps_the_two_sides_of_a_life_together() -> None:
    p = problem((0, 9, 4), (3, 5, 4), gaps=(((2, 7),), ()))
    assert [indices.tolist() for indices in apart(columns(p))] == [[0], [1]]


def test_a_part_keeps_its_own_hand_offs_and_pairs() -> None:
    p = problem(
        *((0, 2, 4), (2, 3, 4), (5, 7, 4), (7, 9, 4), (5, 9, 2)),
        handoff_from=np.array([-1, 0, -1, -1, 2]),
        must_not_alias=np.array([[3, 4]]),
    )
    first, second = (part(p, indices) for indices in apart(columns(p)))
    assert (first.handoff_from is not None and first.handoff_from.tolist(), first.ids) == ([-1, 0], ("t0", "t1"))
    assert second.handoff_from is not None
    assert second.handoff_from.tolist() == [-1, -1, 0]
    assert second.must_not_alias is not None
    assert second.must_not_alias.tolist() == [[1, 2]]


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
        assert (chains(cols, [(0, 2)]) is not None) == together
        assert take_all(cols) == (((0, 2),) if together else ())
    cols = columns(problem_with(p, fixed=np.array([-1, 0, 0]), gaps=(((1, 2),), (), ())))
    assert chains(cols, [(0, 2)]) == ((0, 2), (1,))  # they share no moment


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
    return build(cols, chains(cols, ()) or ())


def test_static_orders_put_the_greatest_first() -> None:
    p = problem((0, 2, 4), (0, 6, 2), (3, 5, 9))  # lives 2, 6, 2; fullest 6, 11, 11; areas 8, 12, 18
    model = model_of(p)
    assert [[p.ids[u] for u in np.argsort(static_rank(traits(model), order))] for order in ORDERS] == [
        ["t1", "t2", "t0"],
        ["t2", "t1", "t0"],
        ["t2", "t1", "t0"],
        ["t1", "t2", "t0"],
    ]


def test_among_equals_the_first_born_goes_first_or_the_last_born() -> None:
    p = problem((0, 2, 4), (1, 3, 4), (2, 4, 4))
    model = model_of(p)
    both = [[p.ids[u] for u in np.argsort(static_rank(traits(model), "A", way))] for way in WAYS]
    assert both == [["t0", "t1", "t2"], ["t2", "t1", "t0"]]


def test_an_order_is_tried_both_ways_before_it_is_given_more_nodes() -> None:
    steering = Steering(model_of(problem((0, 2, 4), (1, 3, 4), (2, 4, 4))), openings=False)
    nothing = np.zeros(steering.model.sections, dtype=np.int64)
    first = [steering.attempt(8)]
    for _ in range(len(ORDERS)):
        steering.learn(first[-1], nothing, False)
        first.append(steering.attempt(8))
    assert [tried.order for tried in first] == [0, 1, 2, 3, 0]
    assert first[0].nodes == first[-1].nodes
    assert first[0].rank.tolist() == first[-1].rank.tolist()[::-1]


def test_who_was_in_a_section_that_failed_goes_first_in_the_next_attempt_of_that_order() -> None:
    p = problem((0, 2, 4), (0, 6, 2), (3, 5, 9), (6, 8, 1))
    steering = Steering(model_of(p), openings=False)
    tried = steering.attempt(11)
    assert p.ids[int(np.argmin(tried.rank))] == "t1"
    fails = np.zeros(steering.model.sections, dtype=np.int64)
    fails[-1] = 3  # the last section is the one in which t3 is alone
    steering.learn(tried, fails, False)
    for _ in ORDERS[1:]:
        steering.learn(steering.attempt(11), np.zeros_like(fails), False)
    again = steering.attempt(11)
    assert again.order == tried.order
    assert p.ids[int(np.argmin(again.rank))] == "t3"


def test_what_was_counted_fades() -> None:
    p = problem((0, 2, 4), (3, 5, 9))
    steering = Steering(model_of(p), openings=False)
    tried = steering.attempt(9)
    steering.learn(tried, np.array([100, 0]), False)
    first = steering._taught(0, 0)
    for _ in range(3):
        steering.learn(tried, np.zeros(2, dtype=np.int64), False)
    assert (p.ids[int(np.argmin(first))], p.ids[int(np.argmin(steering._taught(0, 0)))]) == ("t0", "t1")


def test_what_succeeded_is_tried_again_at_once() -> None:
    steering = Steering(model_of(instance("A.1048576")))
    tried = steering.attempt(1 << 21)
    steering.learn(tried, np.zeros(steering.model.sections, dtype=np.int64), True)
    assert steering.attempt(1 << 20) is tried
    assert steering.attempt(1 << 20) is not tried


def test_a_packing_guides_one_order_more_the_low_ones_first() -> None:
    p = problem((0, 2, 4), (0, 6, 2), (3, 5, 9))  # in normative order t0, t1, t2
    steering = Steering(model_of(p), openings=False)
    steering.guide([5, 9, 0])
    nothing = np.zeros(steering.model.sections, dtype=np.int64)
    for _ in ORDERS:
        steering.learn(steering.attempt(11), nothing, False)
    guided = steering.attempt(11)
    assert [p.ids[u] for u in np.argsort(guided.rank)] == ["t2", "t0", "t1"]


def test_where_nothing_was_learnt_it_looks_elsewhere() -> None:
    steering = Steering(model_of(instance("B.1048576")), openings=False)
    nothing = np.zeros(steering.model.sections, dtype=np.int64)
    static = {static_rank(traits(steering.model), order, way).tobytes() for order in ORDERS for way in WAYS}
    seen = set()
    rounds = 4 * len(ORDERS)  # two of either way, of equally many nodes: the second says nothing new
    for _ in range(rounds + rounds // (PURE - 1)):
        tried = steering.attempt(1 << 20)
        steering.learn(tried, nothing, False)
        seen.add(tried.rank.tobytes())
    assert len(seen - static) == 2 * len(ORDERS)


def test_the_restart_sequence_is_lubys() -> None:
    assert [luby(k) for k in range(1, 16)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]


@given(st.integers(1, 2**200))
def test_the_logarithm_is_right_to_its_last_bit(x: int) -> None:
    # 2^(k/4096) <= x < 2^((k+1)/4096), as whole powers: no float decides.
    k = logarithm(x)
    assert 0 <= k - 4096 * (x.bit_length() - 1) < 4096
    assert x.bit_length() - 1 == k >> 12


@pytest.mark.parametrize(("handoffs", "whole"), [(ALL_CHOICES, True), (ALL_CHOICES + 1, False)])
def test_up_to_five_hand_offs_every_choice_is_searched(handoffs: int, whole: bool) -> None:
    """Each of two storages, the second taking the first's place: 2^n choices, or the fullest and a relaxation."""
    lives = [(2 * k, 2 * k + 2, 8) for k in range(2 * handoffs)]
    giver = np.array([k - 1 if k % 2 else -1 for k in range(2 * handoffs)])
    models, relaxation = models_of(columns(problem(*lives, handoff_from=giver)))
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
    assert chains(cols, [(0, 1)]) == ((0, 1), (2,))
    assert chains(cols, [(1, 2)]) == ((0,), (1, 2))
    assert chains(cols, [(0, 1), (1, 2)]) is None
    assert chains(cols, [(0, 1), (0, 1)]) is None


@pytest.mark.parametrize(("one", "other", "count"), [(3, 4, 14), (1, 2, 14), (6, 7, 30)])
def test_the_course_and_what_is_told_on_the_way_run_one_way(one: int, other: int, count: int) -> None:
    """Of two parts, both searched: nodes only grow, extents only fall, bounds only rise, up to what is answered."""
    p, budget = beside(crowd(one, count), crowd(other, count)), 2_000
    reports: list[tuple[int, int]] = []

    def progress(what: str, done: int, of: int) -> bool:
        assert what == "exact"
        reports.append((done, of))
        return True

    packing = exact(p, {"budget": budget}, progress)
    nodes, extents, bounds = (list(column) for column in zip(*packing.notes[COURSE], strict=True))
    assert len(nodes) > 1
    assert nodes == sorted(set(nodes))
    assert extents == sorted(extents, reverse=True)
    assert bounds == sorted(bounds)
    assert (extents[-1], bounds[-1]) == (extent(p, packing.offset), packing.lower_bound)
    assert nodes[-1] <= packing.notes["nodes"]
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    assert all(0 <= done <= of <= budget for done, of in reports)
    assert offsets(packing) == offsets(exact(p, {"budget": budget})), "who looks on changes nothing"


@pytest.mark.parametrize(
    ("fixed", "grids", "can"),
    [
        ((-1, -1), (1, 1), True),
        ((8, -1), (1, 8), True),
        ((-1, 8), (8, 1), True),
        ((8, -1), (1, 16), False),
        ((-1, 8), (16, 1), False),
        ((0, -1), (1, 16), True),
        ((8, 8), (1, 1), True),
        ((0, 8), (1, 1), False),
    ],
)
def test_a_place_can_be_handed_on_where_both_may_lie_there(
    fixed: tuple[int, int], grids: tuple[int, int], can: bool
) -> None:
    p = problem((0, 2, 4), (2, 3, 4), alignment=grids, handoff_from=np.array([-1, 0]), fixed=np.array(fixed))
    cols = columns(p)
    assert handoffs(cols) == (((0, 1),) if can else ())
    assert take_all(cols) == handoffs(cols)


def test_all_of_a_chain_lie_where_one_of_it_must_and_no_two_of_it_meet() -> None:
    rows = ((0, 2, 4), (2, 3, 4), (3, 4, 4), (2, 4, 4))
    p = problem(*rows, handoff_from=np.array([-1, 0, 0, 1]))  # in the normative order: t0, t1, t3, t2
    cols = columns(p)
    assert chains(cols, [(0, 1), (1, 3)]) == ((0, 1, 3), (2,))
    assert chains(cols, [(0, 1), (0, 2)]) is None, "the two takers meet"
    assert chains(cols, [(0, 1), (0, 1)]) is None, "twice the same"
    for fixed, found in (
        ((8, -1, -1, 0), None),
        ((8, -1, -1, 8), ((0, 1, 3), (2,))),
        ((-1, 8, 0, -1), ((0, 1, 3), (2,))),
    ):
        assert chains(columns(problem_with(p, fixed=np.array(fixed))), [(0, 1), (1, 3)]) == found


def test_pairs_ascend_where_none_is_alike_or_less() -> None:
    for one, two, ascend in (
        ((), (), True),
        ((3,), (3,), True),
        ((0, 0, 1, 1), (0, 1, 0, 5), True),
        ((0, 1, 2), (5, 3, 1), True),
        ((0, 0), (1, 1), False),
        ((0, 0), (1, 0), False),
        ((1, 0), (0, 1), False),
        ((0, 2, 1), (0, 0, 0), False),
        ((0, 0, 0), (0, 2, 1), False),
    ):
        assert _ascending(np.array(one, np.int64), np.array(two, np.int64)) is ascend, (one, two)


@pytest.mark.parametrize("seed", range(12))
def test_a_section_is_who_meets_at_a_moment_or_a_pair_that_time_does_not_tell(seed: int) -> None:
    """Sections of each choice of hand-offs, as sets of storages, beside a look at every moment and every pair."""
    p = without_empty(mixed(seed))[0]
    cols = columns(p)
    lives = live_moments(p)
    moments = {frozenset(i for i in range(len(p)) if t in lives[i]) for life in lives for t in life}
    fullest = {who for who in moments if who and not any(who < other for other in moments)}
    ghosts = {frozenset((i,)) for i in range(len(p)) if not lives[i]}
    for taken, pairs in (((), True), ((), False), (take_all(cols), True)):
        units = chains(cols, taken)
        assert units is not None
        unit_of = {i: u for u, members in enumerate(units) for i in members}
        model = build(cols, units, pairs=pairs)
        apart_ = {
            frozenset((i, j))
            for i, row in enumerate(cols.odd or ())
            for j, kind in row
            if unit_of[i] != unit_of[j] and (pairs or kind == NEVER)
        }
        sections = [frozenset(model.owner[model.section == s].tolist()) for s in range(model.sections)]
        assert {frozenset(unit_of[i] for i in who) for who in fullest | ghosts | apart_} <= set(sections)
        assert len(sections) >= len(apart_) + len(ghosts)
        alone = sorted((model.owner[k], model.section[k]) for k in range(len(model.section)))
        assert len(set(alone)) == len(alone), "a unit stands once in a section"
        assert alone == [*zip(model.owner, model.section, strict=True)]
        tall = [max(cols.size[i] for i in members) for members in units]
        assert model.greatest(model.height).tolist() == tall
        bytes_in = [int(model.height[model.section == s].sum()) for s in range(model.sections)]
        assert model.fullest().tolist() == [
            max(bytes_in[s] for s in model.section[model.owner == u]) for u in range(len(units))
        ]


def test_two_that_must_not_alias_are_no_chain() -> None:
    p = problem((0, 2, 4), (2, 3, 4), (3, 4, 4), handoff_from=np.array([-1, 0, 1]), must_not_alias=np.array([[0, 2]]))
    cols = columns(p)
    assert chains(cols, [(0, 1), (1, 2)]) is None
    assert chains(cols, [(0, 1)]) == ((0, 1), (2,))
