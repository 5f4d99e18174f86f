"""Which way is taken: loops by size and by what is there, planners by size and by what they find, rounds by size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.planners.packings import faults, offsets, problem, problem_with
from tmmu_core.base.errors import U64_MAX, AlignmentViolation, AllocationOverflow, InvalidIrShapes
from tmmu_core.planners import PLANNERS, auto, exact
from tmmu_core.planners.bounds import bound_of
from tmmu_core.planners.columns import align_up, columns, count_option, extent_of, finished, flag_option, option
from tmmu_core.planners.meter import Meter
from tmmu_core.planners.portfolio import RUNS, best_greedy
from tmmu_core.planners.problem import Packing, Problem

# No greedy run ends below 11 bytes; the bound, and the least, are 9.
SIX = problem((5, 8, 1), (0, 4, 3), (3, 7, 2), (3, 6, 2), (1, 3, 5), (5, 7, 4))


def row(n: int) -> Problem:
    """One after the other: nobody meets anybody."""
    return problem(*((k, k + 1, 1) for k in range(n)))


# --- auto --------------------------------------------------------------------------------------------------------


def packed(extent: int, *, optimal: bool = False, **notes: Any) -> Packing:
    """An answer for :data:`SIX` of so many bytes."""
    offset = np.array([extent - int(SIX.size[0]), 0, 0, 0, 0, 0], np.uint64)
    return Packing(offset, lower_bound=9, optimal=optimal, notes=notes)


@pytest.mark.parametrize(
    ("borders", "exact", "walked", "expected"),
    [
        # EXACT_UP_TO, EXACT_ALONE_UP_TO, SEARCH_UP_TO; six storages.
        ((6, 6, 6), packed(10), None, ("exact", 10)),
        ((6, 5, 6), packed(11), packed(10), ("search", 10)),
        ((6, 5, 6), packed(10), packed(10), ("exact", 10)),
        ((6, 5, 6), packed(10), packed(11), ("exact", 10)),
        ((6, 5, 6), packed(10, optimal=True), None, ("exact", 10)),
        ((6, 5, 6), packed(10, told_to_stop=True), None, ("exact", 10)),
        ((5, 5, 6), None, packed(10), ("search", 10)),
        ((5, 5, 5), None, None, ("portfolio", 11)),
    ],
)
def test_auto_asks_whom_the_size_suits_and_keeps_the_better(
    monkeypatch: pytest.MonkeyPatch,
    borders: tuple[int, int, int],
    exact: Packing | None,
    walked: Packing | None,
    expected: tuple[str, int],
) -> None:
    for name, border in zip(("EXACT_UP_TO", "EXACT_ALONE_UP_TO", "SEARCH_UP_TO"), borders, strict=True):
        monkeypatch.setattr(auto, name, border)
    monkeypatch.setattr(auto, "exact_from", lambda *_: exact)
    monkeypatch.setattr(auto, "search", lambda *_: walked)
    found = auto.auto(SIX, {})
    assert (found.notes["picked"], extent_of(columns(SIX), offsets(found))) == expected
    if expected[0] == "search":
        assert found.lower_bound == 9


def test_auto_says_why() -> None:
    halted = auto.auto(SIX, {}, lambda *_: False)
    assert (halted.stopped, halted.notes["why"], halted.notes["runs"]) == (True, "told to stop", 1)
    enough = auto.auto(problem_with(SIX, capacity=11), {})
    assert enough.notes["why"] == "a greedy run fits the capacity of 11 bytes; the least was not asked for"
    assert (enough.optimal, enough.lower_bound) == (False, 9)
    least = auto.auto(problem_with(SIX, capacity=11), {"minimise": True})
    assert least.notes["why"] == "the greedy runs are 2 bytes above the bound, and 6 storages can be searched exactly"
    assert (least.optimal, least.lower_bound) == (True, 9)
    alone = auto.auto(row(3), {})
    assert (alone.notes["picked"], alone.notes["why"]) == ("portfolio", "a greedy run meets the lower bound")
    assert (alone.optimal, alone.stopped) == (True, False)


# --- runs and rounds ---------------------------------------------------------------------------------------------


def test_a_run_that_is_low_enough_is_the_last() -> None:
    """The second run is the first to end at 11, and none ends lower; the bound is 9."""
    cols = columns(SIX)
    bound = bound_of(cols)
    best = best_greedy(cols, bound)
    assert (best.extent, best.runs, best.stopped) == (11, len(RUNS), False)
    assert best_greedy(cols, bound, goal=10).runs == len(RUNS)
    assert best_greedy(cols, bound, goal=11).runs == 2
    calls: list[tuple[str, int, int]] = []
    stopped = best_greedy(cols, bound, Meter(lambda *call: (calls.append(call), len(calls) < 3)[1]))
    assert (stopped.runs, stopped.stopped) == (3, True)
    assert calls == [("portfolio", k, len(RUNS)) for k in (1, 2, 3)]


# --- options and offsets -----------------------------------------------------------------------------------------


def test_options_are_values_or_texts_and_nothing_else() -> None:
    assert [count_option({"n": given}, "n", 7) for given in (0, 3, "0", "12", np.int64(5))] == [0, 3, 0, 12, 5]
    assert count_option({}, "n", 7) == 7
    for wrong in (-1, "-1", "x", "", "²", 1.0, True, None):
        with pytest.raises(InvalidIrShapes, match=r"planner option n=.* is not possible") as caught:
            count_option({"n": wrong}, "n", 7)
        assert caught.value.diagnostics["reason"] == "planner_option"
    said = [flag_option({"f": given}, "f", False) for given in (True, False, "true", "False", None)]
    assert said == [True, False, True, False, False]
    assert flag_option({}, "f", True)
    for wrong in ("yes", 1, ""):
        with pytest.raises(InvalidIrShapes, match="f="):
            flag_option({"f": wrong}, "f", True)
    assert (option({}, "o", "a", ("a", "b")), option({"o": "b"}, "o", "a", ("a", "b"))) == ("a", "b")
    with pytest.raises(InvalidIrShapes, match="o='c'"):
        option({"o": "c"}, "o", "a", ("a", "b"))


def test_an_offset_off_its_grid_is_refused_by_name_and_step() -> None:
    p = problem_with(problem((3, 5, 8), (4, 6, 8), alignment=[8, 16]), fixed=np.array([8, 24]))
    with pytest.raises(AlignmentViolation, match="'t1' of arena 'arena' is fixed at offset 24") as caught:
        columns(p)
    said = caught.value.diagnostics
    assert (caught.value.t, said["tensor_id"], said["logical_slot"]) == (4, "t1", -1)


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
def test_two_offsets_that_are_given_do_not_collide(
    rows: tuple[tuple[int, int, int], ...], fixed: tuple[int, ...], more: dict[str, Any], refused: bool
) -> None:
    p = problem_with(problem(*rows), fixed=np.array(fixed), **more)
    if not refused:
        assert columns(p).fixed == fixed
        return
    with pytest.raises(InvalidIrShapes, match=r"'t0' and 't[12]'") as caught:
        columns(p)
    said = caught.value.diagnostics
    other = len(rows) - 1
    assert (caught.value.t, said["tensor_id"], said["other_tensor_id"]) == (rows[other][0], "t0", f"t{other}")


def test_the_first_that_ends_past_64_bits_is_named() -> None:
    cols = columns(problem((0, 1, 8), (0, 1, 4)))
    assert finished(cols, [U64_MAX - 8, 0]).tolist() == [U64_MAX - 8, 0]
    with pytest.raises(AllocationOverflow, match="'t1'") as caught:
        finished(cols, [0, U64_MAX - 3])
    assert caught.value.diagnostics["offset"] == str(U64_MAX - 3)
    assert (extent_of(cols, [0, 9]), extent_of(cols, [9, 0]), extent_of(columns(row(0)), [])) == (13, 17, 0)
    assert [align_up(at, 8) for at in (0, 1, 7, 8, 9)] == [0, 8, 8, 8, 16]


def test_who_has_no_bytes_lies_at_0_or_where_it_is_given() -> None:
    p = problem_with(problem((0, 2, 8), (0, 2, 0), (0, 2, 0)), fixed=np.array([-1, 24, -1]))
    for name in ("greedy", "exact", "ffd"):
        packing = PLANNERS[name].pack(p, {}, None)  # type: ignore[union-attr]
        assert offsets(packing) == [0, 24, 0], name


def test_the_crown_is_placed_last_where_that_may_come_lower_and_nobody_has_enough() -> None:
    """Of 9, 8 and 4 bytes on a grid of 4 the 9 first end at 24; last, at 21, which is the bound."""
    cols = columns(problem((0, 1, 9), (0, 1, 8), (0, 1, 4), alignment=4))
    best = best_greedy(cols, bound_of(cols))
    assert (best.extent, best.crown, best.notes(cols)["last"], best.runs) == (21, 0, "t0", 1)
    low = best_greedy(cols, bound_of(cols), goal=24)
    assert (low.extent, low.crown, low.runs) == (24, -1, 1)


def test_what_passes_int64_is_left_to_greedy_and_said_so_where_that_is_not_enough() -> None:
    """The six above, of 2^60 times the bytes: 11 against 9."""
    p = problem_with(SIX, size=SIX.size * np.uint64(2**60))
    found = exact.exact(p, {})
    assert faults(p, offsets(found)) == []
    assert (found.notes["why"], found.optimal, found.lower_bound) == ("sizes beyond 2^62: greedy only", False, 9 << 60)
    assert "why" not in exact.exact(problem_with(p, capacity=11 << 60), {}).notes
    assert "why" in exact.exact(problem_with(p, capacity=(11 << 60) - 1), {}).notes


@pytest.mark.parametrize("planner", ["naive", "exact", "search"])
def test_unknown_planner_option_is_rejected(planner: str) -> None:
    with pytest.raises(InvalidIrShapes, match=f"planner '{planner}' has no option 'a'"):
        PLANNERS[planner].checked_options({"z": 1, "a": 2})


def test_missing_planner_options_take_their_defaults() -> None:
    assert PLANNERS["search"].checked_options({"seed": 3}).items() >= {"iterations": 400, "seed": 3}.items()
