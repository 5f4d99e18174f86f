"""greedy and portfolio: one loop, a table of orders and fits, native and plain Python."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planners.packings import extent, faults, offsets, problem, problem_with, problems
from tmmu_core.base.errors import AlignmentViolation, AllocationOverflow, InvalidIrShapes
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.columns import columns
from tmmu_core.planners.greedy import FITS, ORDERS, greedy, place, place_in_python, place_native, sorted_storages
from tmmu_core.planners.native import library
from tmmu_core.planners.portfolio import RUNS, portfolio
from tmmu_core.planners.problem import Problem


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        pytest.param(problem((0, 2, 8), (2, 4, 8)), [0, 0], id="adjacent lives share bytes"),
        pytest.param(problem((0, 3, 8), (2, 4, 8)), [0, 8], id="overlapping lives do not"),
        pytest.param(problem((0, 9, 8), (3, 5, 8), gaps=(((3, 5),), ())), [0, 0], id="a gap is reused"),
        pytest.param(
            problem((0, 2, 8), (2, 4, 6), handoff_from=np.array([-1, 0])), [0, 0], id="handoff to a smaller output"
        ),
        pytest.param(
            problem((0, 2, 6), (2, 4, 8), handoff_from=np.array([-1, 0])), [0, 0], id="handoff to a larger output"
        ),
        pytest.param(
            problem((0, 2, 6), (0, 4, 2), (2, 4, 8), handoff_from=np.array([-1, -1, 0]), fixed=np.array([0, 6, -1])),
            [0, 6, 8],
            id="no handoff where the bytes after the input are taken",
        ),
        pytest.param(
            problem((0, 1, 8), (5, 6, 8), must_not_alias=np.array([[0, 1]])), [0, 8], id="must-not-alias across time"
        ),
        pytest.param(problem((0, 2, 8), (0, 2, 8), fixed=np.array([-1, 4])), [12, 4], id="fixed offsets are kept"),
        pytest.param(problem((0, 2, 2**64 - 9), (1, 3, 8)), [0, 2**64 - 9], id="sizes near 2^64"),
        pytest.param(problem(), [], id="no storages"),
    ],
)
def test_greedy_offsets(p: Problem, expected: list[int]) -> None:
    assert offsets(greedy(p, {})) == expected


def test_lowest_fit_takes_the_first_gap_and_tightest_the_smallest() -> None:
    # At step 1 the holes are [0, 6) and [10, 14), under a lid that reaches past both.
    p = problem((0, 1, 6), (0, 9, 4), (0, 1, 4), (0, 9, 5), (1, 2, 4))
    given_order = [p.ids.index(name) for name in ("t0", "t1", "t2", "t3", "t4")]
    last = p.ids.index("t4")
    cols = columns(p)
    assert place(cols, given_order, "lowest")[last] == 0
    assert place(cols, given_order, "tightest")[last] == 10


def test_end_past_64_bits_overflows() -> None:
    with pytest.raises(AllocationOverflow, match="past 2"):
        greedy(problem((0, 2, 2**64 - 9), (1, 3, 16)), {})


def test_storage_that_gains_most_off_the_grid_is_placed_on_top() -> None:
    # By size 8, 6, 3 on a grid of 4 end at 19; with the 6 on top they end at 18, and no packing ends lower.
    p = problem((0, 1, 8), (0, 1, 6), (0, 1, 3), alignment=4)
    assert extent(p, greedy(p, {}).offset) == 19
    packing = portfolio(p, {})
    assert (extent(p, packing.offset), packing.optimal, packing.notes["last"]) == (18, True, "t1")
    assert faults(p, offsets(packing)) == []


def test_unknown_order_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(InvalidIrShapes, match="breadth"):
        greedy(problem((0, 1, 1)), {"order": "luck"})


@given(problems(), st.sampled_from(list(ORDERS)), st.sampled_from(FITS))
def test_every_order_and_fit_packs_validly(p: Problem, order: str, fit: str) -> None:
    assert faults(p, offsets(greedy(p, {"order": order, "fit": fit}))) == []


@given(problems(), st.data())
def test_packing_with_fixed_offsets_is_valid(p: Problem, data: st.DataObject) -> None:
    lay = offsets(greedy(p, {}))
    keep = data.draw(st.lists(st.booleans(), min_size=len(p), max_size=len(p)))
    q = problem_with(p, fixed=np.array([at if k else -1 for at, k in zip(lay, keep, strict=True)], dtype=np.int64))
    assert faults(q, offsets(greedy(q, {"order": "length"}))) == []


@settings(deadline=None)
@given(problems(most=30, steps=40), st.sampled_from(list(ORDERS)), st.sampled_from(["lowest", "tightest"]))
def test_native_loop_returns_the_offsets_of_plain_python(p: Problem, order: str, fit: str) -> None:
    cols = columns(p)
    sequence = sorted_storages(cols, order)
    by_python = place_in_python(cols, sequence, fit == "tightest")
    assert place(cols, sequence, fit) == by_python
    loops = library()
    if loops is not None:
        assert place_native(loops, cols, sequence, tightest=fit == "tightest") == by_python


@given(problems())
def test_portfolio_is_never_worse_than_its_runs(p: Problem) -> None:
    best = extent(p, portfolio(p, {}).offset)
    assert all(best <= extent(p, greedy(p, {"order": order, "fit": fit}).offset) for order, fit in RUNS)


def test_stopped_portfolio_keeps_its_best_packing() -> None:
    p = problem((0, 2, 3), (1, 5, 4), (2, 6, 3), (4, 7, 4), (0, 3, 2), (5, 8, 6), alignment=4, fixed=None)
    p = problem_with(p, fixed=np.array([8, -1, -1, -1, -1, -1]))
    packing = portfolio(p, {}, lambda what, done, of: False)
    assert (packing.stopped, packing.notes["runs"], faults(p, offsets(packing))) == (True, 1, [])


def test_fixed_offset_off_its_grid_is_rejected_by_name_and_step() -> None:
    p = problem_with(problem((3, 5, 8), (4, 6, 8), alignment=[8, 16]), fixed=np.array([8, 24]))
    with pytest.raises(AlignmentViolation, match="'t1' of arena 'arena' is fixed at offset 24") as caught:
        ARENA_PLANNERS["greedy"].pack(p, {})
    shown_text = caught.value.diagnostics
    assert (caught.value.t, shown_text["tensor_id"], shown_text["logical_slot"]) == (4, "t1", -1)


@pytest.mark.parametrize(
    ("rows", "fixed", "more", "refused"),
    [
        (((0, 2, 4), (1, 3, 4)), (0, 3), {}, True),
        (((0, 2, 4), (1, 3, 4)), (0, 4), {}, False),
        (((0, 2, 4), (1, 3, 4)), (4, 0), {}, False),
        (((0, 2, 4), (1, 3, 4)), (3, 0), {}, True),
        (((0, 2, 4), (2, 3, 4)), (0, 3), {}, False),
        (((0, 9, 4), (1, 2, 1), (3, 4, 4)), (0, 4, 2), {}, True),
        # A place that is handed on may be the very same one, and no other.
        (((0, 2, 4), (2, 3, 4)), (0, 0), {"handoff_from": np.array([-1, 0])}, False),
        (((0, 2, 4), (2, 3, 4)), (0, 3), {"handoff_from": np.array([-1, 0])}, True),
        (((0, 2, 4), (2, 3, 4)), (0, 4), {"handoff_from": np.array([-1, 0])}, False),
        (((0, 2, 4), (2, 3, 4)), (0, 0), {"must_not_alias": np.array([[0, 1]])}, True),
        (((0, 2, 4), (2, 3, 4)), (0, -1), {"must_not_alias": np.array([[0, 1]])}, False),
    ],
)
def test_colliding_fixed_offsets_are_rejected(
    rows: tuple[tuple[int, int, int], ...], fixed: tuple[int, ...], more: dict[str, Any], refused: bool
) -> None:
    p = problem_with(problem(*rows), fixed=np.array(fixed), **more)
    if not refused:
        assert columns(p).fixed == fixed
        return
    with pytest.raises(InvalidIrShapes, match=r"'t0' and 't[12]'") as caught:
        columns(p)
    shown_text = caught.value.diagnostics
    other = len(rows) - 1
    assert (caught.value.t, shown_text["tensor_id"], shown_text["other_tensor_id"]) == (
        rows[other][0],
        "t0",
        f"t{other}",
    )
