"""greedy and portfolio: one loop, a table of orders and fits, native and plain Python."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planners.packings import extent, faults, offsets, problem, problem_with, problems
from tmmu_core.base.errors import AlignmentViolation, AllocationOverflow, InvalidIrShapes
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.columns import columns
from tmmu_core.planners.greedy import FITS, ORDERS, by_birth, greedy, place, place_native
from tmmu_core.planners.greedy_sparse import NATIVE_NEAR_UP_TO, NEAR_UP_TO, near_of, neighbours
from tmmu_core.planners.meter import Meter
from tmmu_core.planners.native.load import library
from tmmu_core.planners.portfolio import RUNS, Best, best_greedy, portfolio
from tmmu_core.planners.problem import Problem


def test_lives_that_only_touch_share_bytes() -> None:
    assert offsets(greedy(problem((0, 2, 8), (2, 4, 8)), {})) == [0, 0]


def test_lives_that_meet_do_not() -> None:
    assert offsets(greedy(problem((0, 3, 8), (2, 4, 8)), {})) == [0, 8]


def test_lowest_takes_the_first_hole_and_tightest_the_smallest() -> None:
    # At step 1 the holes are [0, 6) and [10, 14), under a lid that reaches past both.
    p = problem((0, 1, 6), (0, 9, 4), (0, 1, 4), (0, 9, 5), (1, 2, 4))
    given_order = [p.ids.index(name) for name in ("t0", "t1", "t2", "t3", "t4")]
    last = p.ids.index("t4")
    cols = columns(p)
    assert place(cols, given_order, "lowest")[last] == 0
    assert place(cols, given_order, "tightest")[last] == 10


def test_a_storage_without_bytes_has_an_address_of_its_own() -> None:
    assert sorted(offsets(greedy(problem((0, 2, 0), (0, 2, 0), (0, 2, 4)), {}))) == [0, 4, 5]


def test_a_gap_lends_its_bytes() -> None:
    p = problem((0, 9, 8), (3, 5, 8), gaps=(((3, 5),), ()))
    assert offsets(greedy(p, {})) == [0, 0]


def test_a_smaller_output_takes_its_inputs_very_place() -> None:
    p = problem((0, 2, 8), (2, 4, 6), handoff_from=np.array([-1, 0]))
    assert offsets(greedy(p, {})) == [0, 0]


def test_a_larger_output_takes_its_inputs_place_where_the_bytes_after_it_are_free() -> None:
    p = problem((0, 2, 6), (2, 4, 8), handoff_from=np.array([-1, 0]))
    assert offsets(greedy(p, {})) == [0, 0]


def test_a_larger_output_keeps_off_its_input_where_they_are_not() -> None:
    p = problem((0, 2, 6), (0, 4, 2), (2, 4, 8), handoff_from=np.array([-1, -1, 0]), fixed=np.array([0, 6, -1]))
    assert offsets(greedy(p, {})) == [0, 6, 8]


def test_must_not_alias_holds_across_time() -> None:
    p = problem((0, 1, 8), (5, 6, 8), must_not_alias=np.array([[0, 1]]))
    assert sorted(offsets(greedy(p, {}))) == [0, 8]


def test_fixed_offsets_stay_and_others_go_round_them() -> None:
    p = problem((0, 2, 8), (0, 2, 8), fixed=np.array([-1, 4]))
    assert offsets(greedy(p, {})) == [12, 4]


def test_fixed_offsets_that_collide_are_refused_by_name() -> None:
    with pytest.raises(InvalidIrShapes, match="'t0' and 't1'") as caught:
        greedy(problem((0, 2, 8), (0, 2, 8), fixed=np.array([0, 4])), {})
    assert caught.value.diagnostics["reason"] == "fixed_offsets_collide"


def test_a_fixed_offset_off_its_grid_is_refused() -> None:
    with pytest.raises(AlignmentViolation, match="multiple of its alignment 8"):
        greedy(problem((0, 2, 8), alignment=8, fixed=np.array([4])), {})


def test_sizes_near_the_end_of_uint64_are_packed_exactly() -> None:
    p = problem((0, 2, 2**64 - 9), (1, 3, 8))
    assert offsets(greedy(p, {})) == [0, 2**64 - 9]


def test_an_end_past_uint64_is_an_overflow() -> None:
    with pytest.raises(AllocationOverflow, match="past 2"):
        greedy(problem((0, 2, 2**64 - 9), (1, 3, 16)), {})


def test_two_lives_of_one_and_none_of_another_are_not_one_each() -> None:
    # t0 lives twice, t4 never: as many lives as storages, and yet the free list must not take one for the other.
    p = problem(*((0, 3, 4), *[(0, 1, 4)] * 4), gaps=(((1, 2),), (), (), (), ((0, 1),)))
    assert not columns(p).plain
    assert faults(p, offsets(greedy(p, {"fit": "free_list"}))) == []


def test_the_one_that_gains_most_by_ending_off_the_grid_is_put_on_top() -> None:
    # By size 8, 6, 3 on a grid of 4 end at 19; with the 6 on top they end at 18, and no packing ends lower.
    p = problem((0, 1, 8), (0, 1, 6), (0, 1, 3), alignment=4)
    assert extent(p, greedy(p, {}).offset) == 19
    packing = portfolio(p, {})
    assert (extent(p, packing.offset), packing.optimal, packing.notes["last"]) == (18, True, "t1")
    assert faults(p, offsets(packing)) == []


def test_a_bound_on_the_grid_has_no_crown() -> None:
    packing = portfolio(problem((0, 2, 8), (1, 3, 4), (2, 4, 8), alignment=4), {})
    assert packing.notes == {"order": "size", "fit": "lowest", "runs": 1}


def test_an_unknown_order_names_the_known_ones() -> None:
    with pytest.raises(InvalidIrShapes, match="breadth"):
        greedy(problem((0, 1, 1)), {"order": "luck"})


def test_nothing_to_pack_is_a_packing() -> None:
    assert offsets(greedy(problem(), {})) == []


@given(problems(), st.sampled_from(list(ORDERS)), st.sampled_from(FITS))
def test_every_order_and_fit_packs_rightly(p: Problem, order: str, fit: str) -> None:
    assert faults(p, offsets(greedy(p, {"order": order, "fit": fit}))) == []


@given(problems(), st.data())
def test_what_is_fixed_where_it_lay_stays_there(p: Problem, data: st.DataObject) -> None:
    lay = offsets(greedy(p, {}))
    keep = data.draw(st.lists(st.booleans(), min_size=len(p), max_size=len(p)))
    q = problem_with(p, fixed=np.array([at if k else -1 for at, k in zip(lay, keep, strict=True)], dtype=np.int64))
    assert faults(q, offsets(greedy(q, {"order": "length"}))) == []


@settings(deadline=None)
@given(problems(most=30, steps=40), st.sampled_from(list(ORDERS)), st.sampled_from(["lowest", "tightest"]))
def test_native_loop_returns_the_offsets_of_plain_python(p: Problem, order: str, fit: str) -> None:
    cols = columns(p)
    sequence = ORDERS[order](cols)
    by_python = place(cols, sequence, fit, plain=True)
    assert place(cols, sequence, fit) == by_python
    loops = library()
    if loops is not None:
        assert place_native(loops, cols, sequence, tightest=fit == "tightest") == by_python


def test_who_meets_too_many_is_placed_by_the_tree() -> None:
    crowd = problem(*((0, 2, 1 + k) for k in range(NEAR_UP_TO + 2)))
    cols = columns(crowd)
    assert near_of(cols) is None
    assert neighbours(cols, NATIVE_NEAR_UP_TO) is not None
    assert neighbours(cols, NEAR_UP_TO) is None


@given(problems(most=30, steps=40, odd=False))
def test_a_free_list_is_lowest_fit_in_birth_order(p: Problem) -> None:
    cols = columns(p)
    assert place(cols, [], "free_list") == place(cols, by_birth(cols), "lowest")


@given(problems())
def test_the_portfolio_is_never_worse_than_any_of_its_runs(p: Problem) -> None:
    best = extent(p, portfolio(p, {}).offset)
    assert all(best <= extent(p, greedy(p, {"order": order, "fit": fit}).offset) for order, fit in RUNS)


def test_the_portfolio_stops_at_the_bound() -> None:
    packing = portfolio(problem((0, 2, 8), (2, 4, 8)), {})
    assert (packing.optimal, packing.lower_bound, packing.notes["runs"]) == (True, 8, 1)


def test_the_portfolio_stops_when_told_and_keeps_what_it_has() -> None:
    p = problem((0, 2, 3), (1, 5, 4), (2, 6, 3), (4, 7, 4), (0, 3, 2), (5, 8, 6), alignment=4, fixed=None)
    p = problem_with(p, fixed=np.array([8, -1, -1, -1, -1, -1]))
    packing = portfolio(p, {}, lambda what, done, of: False)
    assert (packing.stopped, packing.notes["runs"], faults(p, offsets(packing))) == (True, 1, [])


def test_of_attempts_that_end_alike_the_first_is_kept() -> None:
    """Any order packs one storage; a bound that nothing reaches lets every attempt be made."""
    cols = columns(problem((0, 2, 8)))
    best = best_greedy(cols, replace(lower_bound(cols.problem), bytes=0))
    assert (best.order, best.fit, best.runs) == (*RUNS[0], len(RUNS))


def test_attempts_end_where_the_bound_is_reached() -> None:
    cols = columns(problem((0, 2, 8)))
    assert best_greedy(cols, lower_bound(cols.problem)).runs == 1


def test_who_is_told_to_stop_stops_and_says_so() -> None:
    cols = columns(problem((0, 2, 8)))
    bound = replace(lower_bound(cols.problem), bytes=0)
    best = best_greedy(cols, bound, Meter(progress=lambda what, made, of: made < 2))
    assert (best.runs, best.stopped) == (2, True)
    assert not best_greedy(cols, bound, Meter(progress=lambda what, made, of: made < of)).stopped


def test_the_storage_placed_last_is_named_whichever_it_is() -> None:
    cols = columns(problem((0, 1, 4), (0, 1, 3)))
    said = [Best([0, 4], 7, "size", "lowest", 3, False, [0, 1], crown).notes(cols).get("last") for crown in (-1, 0, 1)]
    assert said == [None, "t0", "t1"]


def test_neighbours_are_those_alive_at_one_moment_and_nobody_who_only_touches() -> None:
    """t0 meets t1 and t2, which meet nobody else; t3 begins where t2 ends."""
    cols = columns(problem((0, 3, 8), (1, 2, 8), (2, 4, 8), (4, 6, 8)))
    found = neighbours(cols, 1)
    assert found is not None, "four rows are one a storage, which may be"
    first, others = (column.tolist() for column in found)
    assert [sorted(others[a:b]) for a, b in pairwise(first)] == [[1, 2], [0], [0], []]
    assert neighbours(columns(problem((0, 3, 8), (1, 2, 8), (2, 4, 8), (4, 6, 8))), 0) is None


@pytest.mark.parametrize(("extra", "small"), [(0, False), (-1, True)])
def test_a_sum_that_reaches_2_62_is_not_left_to_int64(extra: int, small: bool) -> None:
    """Two storages on a grid of 1: the sizes and a grain each, less the −1 that stands for no offset given."""
    cols = columns(problem((0, 2, 1 << 61), (0, 2, (1 << 61) - 1 + extra)))
    assert cols.small is small
