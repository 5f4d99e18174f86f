"""Which way is taken: loops by size and by what is there, planners by size and by what they find, rounds by size."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from packings import faults, offsets, problem, problem_with

from tmmu_core.errors import U64_MAX, AlignmentViolation, AllocationOverflow, InvalidIrShapes
from tmmu_core.planners import PLANNERS, auto, bounds, exact, greedy, kernels, near, near_kernel, portfolio, search
from tmmu_core.planners.bounds import bound_of
from tmmu_core.planners.columns import align_up, columns, count_option, extent_of, finished, flag_option, option
from tmmu_core.planners.exact import across, hunt, run
from tmmu_core.planners.near import COMPILED_NEAR_UP_TO, NEAR_UP_TO, neighbours
from tmmu_core.planners.portfolio import RUNS, best_greedy
from tmmu_core.planners.problem import Packing, Problem

# No greedy run ends below 11 bytes; the bound, and the least, are 9.
SIX = problem((5, 8, 1), (0, 4, 3), (3, 7, 2), (3, 6, 2), (1, 3, 5), (5, 7, 4))


def row(n: int) -> Problem:
    """One after the other: nobody meets anybody."""
    return problem(*((k, k + 1, 1) for k in range(n)))


def crowd(n: int) -> Problem:
    """All together: each meets n − 1."""
    return problem(*((0, 1, 1 + k) for k in range(n)))


ODD = problem_with(row(2), must_not_alias=np.array([[0, 1]]))


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The loops that are asked, by name."""
    asked: list[str] = []
    loops = {"tree": (greedy, "_place"), "near": (greedy, "place_near")}
    loops |= {"compiled tree": (kernels, "place"), "compiled near": (near_kernel, "place")}
    for name, (module, function) in loops.items():
        monkeypatch.setattr(
            module, function, lambda cols, *_, name=name, **__: (asked.append(name), [0] * len(cols))[1]
        )
    return asked


@pytest.mark.parametrize(
    ("p", "runs", "there", "expected"),
    [
        (row(10), 1, "", "near"),
        (crowd(NEAR_UP_TO + 2), 1, "", "tree"),
        (ODD, 1, "", "tree"),
        (row(10), 1, "library", "compiled near"),
        (crowd(COMPILED_NEAR_UP_TO + 1), 1, "library", "compiled near"),
        (crowd(COMPILED_NEAR_UP_TO + 2), 1, "library", "compiled tree"),
        (ODD, 1, "library", "compiled tree"),
        (problem((0, 1, 2**62)), 1, "library", "near"),
        # To load numba pays from 10,000 storages placed; where it is loaded, from 64.
        (row(10), 999, "numba", "near"),
        (row(10), 1000, "numba", "compiled near"),
        (row(10), 1000, "", "near"),
        (row(63), 1, "numba, loaded", "near"),
        (row(64), 1, "numba, loaded", "compiled near"),
        (row(64), 1, "numba", "near"),
    ],
)
def test_a_run_is_compiled_where_that_is_there_and_pays(
    monkeypatch: pytest.MonkeyPatch, way: list[str], p: Problem, runs: int, there: str, expected: str
) -> None:
    monkeypatch.setattr(greedy, "library", lambda: object() if there == "library" else None)
    monkeypatch.setattr("tmmu_core.compiled.is_there", lambda: there.startswith("numba"))
    loaded = {"numba": object()} if "loaded" in there else {}
    monkeypatch.setattr(sys, "modules", {name: m for name, m in sys.modules.items() if name != "numba"} | loaded)
    cols = columns(p)
    greedy.place(cols, range(len(p)), "lowest", runs=runs)
    greedy.place(cols, range(len(p)), "lowest", compiled=False)
    assert way == [expected, expected.removeprefix("compiled ") if len(p) <= NEAR_UP_TO + 1 else "tree"]


def test_what_is_fixed_goes_first_and_the_others_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem_with(problem(*[(0, 1, 1)] * 4), fixed=np.array([-1, 5, -1, 0]))
    sequences: list[Any] = []
    monkeypatch.setattr(greedy, "_place", lambda cols, sequence, tightest: sequences.append((sequence, tightest)))
    for fit in ("lowest", "tightest", "free_list"):
        greedy.place(columns(p), [3, 2, 1, 0], fit, compiled=False)
    assert sequences == [([3, 1, 2, 0], False), ([3, 1, 2, 0], True), ([3, 1, 2, 0], False)]


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
    monkeypatch.setattr(auto, "searched", lambda *_: exact)
    monkeypatch.setattr(auto, "search", lambda *_: walked)
    found = auto.auto(SIX, {})
    assert (found.notes["picked"], extent_of(columns(SIX), offsets(found))) == expected
    if expected[0] == "search":
        assert found.lower_bound == 9


def test_auto_makes_the_three_quickest_runs_of_what_is_too_large_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "SEARCH_UP_TO", 5)
    monkeypatch.setattr(auto, "EXACT_UP_TO", 5)
    runs = []
    for border in (6, 5):
        monkeypatch.setattr(auto, "ALL_RUNS_UP_TO", border)
        runs.append(auto.auto(SIX, {}).notes["runs"])
    assert runs == [len(RUNS), len(auto.QUICK_RUNS)]


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
    heard: list[tuple[str, int, int]] = []
    stopped = best_greedy(cols, bound, lambda *said: (heard.append(said), len(heard) < 3)[1])
    assert (stopped.runs, stopped.stopped) == (3, True)
    assert heard == [("portfolio", k, len(RUNS)) for k in (1, 2, 3)]


@pytest.mark.parametrize(
    ("full", "asked", "rounds"), [(6, 40, 40), (5, 40, 33), (1, 40, 6), (1, 10, 4), (1, 0, 0), (6, 3, 3), (6, 0, 0)]
)
def test_a_large_problem_gets_fewer_rounds_and_never_fewer_than_four(
    monkeypatch: pytest.MonkeyPatch, full: int, asked: int, rounds: int
) -> None:
    monkeypatch.setattr(search, "FULL_SPEED", full)
    monkeypatch.setattr(search._Climb, "step", lambda self, raw: None)
    heard: list[tuple[str, int, int]] = []
    found = search.search(SIX, {"iterations": asked}, lambda *said: (heard.append(said), True)[1])
    assert (found.notes["iterations"], found.stopped) == (rounds, False)
    assert heard == [("search", k + 1, rounds) for k in range(rounds)]


def test_a_walk_turns_to_the_other_fit_halfway(monkeypatch: pytest.MonkeyPatch) -> None:
    turned: list[tuple[int, str]] = []
    steps: list[list[int]] = []
    monkeypatch.setattr(search._Climb, "step", lambda self, raw: steps.append(raw))
    monkeypatch.setattr(search._Climb, "turn", lambda self, order, fit: turned.append((len(steps), fit)))
    search.search(SIX, {"iterations": 7, "seed": 5})
    assert turned == [(3, "tightest")]
    draws = np.random.Philox(key=5)
    assert steps == [draws.random_raw(4).tolist() for _ in range(7)]


def test_a_walk_that_is_told_to_stop_at_its_last_round_was_not_stopped() -> None:
    for patience, stopped in ((3, True), (4, False)):
        found = search.search(SIX, {"iterations": 4, "seed": 1}, lambda what, done, of, p=patience: done < p)  # type: ignore[misc]
        if not found.optimal:
            assert (found.stopped, found.notes["iterations"]) == (stopped, patience)
        assert faults(SIX, offsets(found)) == []


def test_the_crown_is_the_one_that_gains_most_and_the_first_of_equals() -> None:
    def crown(*sizes: int, fixed: tuple[int, ...] = ()) -> tuple[int, int]:
        p = problem(*((0, 1, size) for size in sizes), alignment=8)
        p = problem_with(p, fixed=np.array(fixed)) if fixed else p
        return portfolio._crown(columns(p), bound_of(columns(p)))

    assert crown(16, 13, 9) == (2, 8)
    assert crown(9, 9) == (0, 8)
    assert crown(16, 8) == (-1, 0)
    assert crown(16, 13, 9, fixed=(-1, -1, 0)) == (1, 8)
    assert crown(9, fixed=(0,)) == (-1, 0)


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


def test_one_at_offset_0_is_fixed_and_nobody_is_plain_beside_it() -> None:
    p = problem((0, 1, 8), (1, 2, 8))
    assert columns(p).plain
    assert columns(problem_with(p, fixed=np.array([-1, -1]))).plain
    assert not columns(problem_with(p, fixed=np.array([-1, 0]))).plain


@pytest.mark.parametrize("fixed", [-1, 0, 3000])
def test_int64_is_left_where_sizes_a_grid_each_and_what_is_fixed_reach_2_62(fixed: int) -> None:
    """Two on a grid of 8: 16 bytes beside their sizes."""
    for extra, small in ((-1, True), (0, False)):
        size = 2**62 - 16 - fixed + extra - 1000
        p = problem((0, 1, size), (2, 3, 1000), alignment=[4, 8], fixed=np.array([-1, max(fixed, -1) // 8 * 8]))
        p = p if fixed >= 0 else problem((0, 1, size), (2, 3, 1000), alignment=[4, 8])
        assert columns(p).small is small, (fixed, extra)


def test_a_row_before_the_first_is_none() -> None:
    odd = columns(ODD).odd
    assert odd is not None
    assert ([*odd], odd[0:], len(odd)) == ([((1, 0),), ((0, 0),)], [((1, 0),), ((0, 0),)], 2)
    for wrong in (-1, 2):
        with pytest.raises(IndexError):
            odd[wrong]


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


def test_lists_of_neighbours_are_not_made_beyond_a_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three that meet each other are six rows."""
    for most, made in ((6, True), (5, False)):
        monkeypatch.setattr("tmmu_core.planners.near.PAIRS_UP_TO", most)
        assert (neighbours(columns(crowd(3)), 9) is not None) is made
    monkeypatch.setattr("tmmu_core.planners.near.PAIRS_UP_TO", 99)
    assert neighbours(columns(crowd(3)), 2) is not None
    assert neighbours(columns(crowd(3)), 1) is None


def test_the_borders_that_only_large_problems_reach() -> None:
    """Each is where one way was measured to be the better one: a change is one of speed, and is to be measured."""
    assert (*(3_000, 400, 20_000, 200_000),) == (
        auto.EXACT_UP_TO,
        auto.EXACT_ALONE_UP_TO,
        auto.SEARCH_UP_TO,
        auto.ALL_RUNS_UP_TO,
    )
    assert auto.QUICK_RUNS == (("size", "lowest"), ("size_length", "lowest"), ("length", "lowest"))
    assert (near.NEAR_UP_TO, near.COMPILED_NEAR_UP_TO, near.PAIRS_UP_TO) == (64, 128, 2_000_000)
    assert (bounds.WHERE_TRIED, bounds.CONFLICTS_KEPT) == (64, 2**26)
    assert (search.FULL_SPEED, search.DEFAULT_ITERATIONS, search.MEMORY) == (2_000, 400, 12)
    assert (hunt.FULL_SPEED, hunt.LARGEST, hunt.ALL_CHOICES, exact.DEFAULT_BUDGET) == (20_000, 20_000_000, 5, 600_000)
    assert (across.FEW, across.LEAST, across.SHARE, run.MOST_EVENTS) == (8, 16, 12_000, 2**23)
    assert {name: dict(PLANNERS[name].options) for name in ("greedy", "search", "exact", "auto", "slots")} == {
        "greedy": {"order": "size", "fit": "lowest"},
        "search": {"iterations": 400, "seed": 0},
        "exact": {"budget": 600_000, "minimise": None},
        "auto": {"minimise": None},
        "slots": {},
    }


def test_a_problem_with_too_much_to_keep_is_left_to_greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = hunt.models_of(columns(SIX))[0][0]
    assert model.work == 6 * (6 + model.sections)
    for most, why in ((model.work, None), (model.work - 1, "too many storages to search: greedy only")):
        monkeypatch.setattr(hunt, "LARGEST", most)
        found = exact.exact(SIX, {})
        assert (found.notes.get("why"), found.optimal, found.stopped) == (why, why is None, False)


def test_a_moment_that_is_looked_at_is_one_of_the_fullest(monkeypatch: pytest.MonkeyPatch) -> None:
    """At step 0 are 11 bytes, at step 2 are 10, which take 13 on their grid."""
    p = problem((0, 1, 11), (2, 3, 5), (2, 3, 5), alignment=[2, 8, 8])
    extents = []
    for tried in (1, 2):
        monkeypatch.setattr(bounds, "WHERE_TRIED", tried)
        extents.append(bound_of(columns(p)).bytes)
    assert extents == [11, 13]


def test_padding_of_large_grids_does_not_wrap() -> None:
    """Two of a grid and a byte: the lower one takes two grids."""
    grid = 2**16
    p = problem((0, 1, 2**31 + 1), (0, 1, 2**31 + 1), alignment=grid)
    assert bound_of(columns(p)).bytes == 2**31 + grid + 2**31 + 1


def test_what_passes_int64_is_left_to_greedy_and_said_so_where_that_is_not_enough() -> None:
    """The six above, of 2^60 times the bytes: 11 against 9."""
    p = problem_with(SIX, size=SIX.size * np.uint64(2**60))
    found = exact.exact(p, {})
    assert faults(p, offsets(found)) == []
    assert (found.notes["why"], found.optimal, found.lower_bound) == ("sizes beyond 2^62: greedy only", False, 9 << 60)
    assert "why" not in exact.exact(problem_with(p, capacity=11 << 60), {}).notes
    assert "why" in exact.exact(problem_with(p, capacity=(11 << 60) - 1), {}).notes


def test_an_option_that_a_planner_does_not_have_is_refused_with_those_it_has() -> None:
    for name, has in (("naive", "none"), ("exact", "budget, minimise"), ("search", "iterations, seed")):
        with pytest.raises(InvalidIrShapes, match=f"planner '{name}' has no option 'a'") as caught:
            PLANNERS[name].checked_options({"z": 1, "a": 2})
        assert caught.value.hint == f"Its options: {has}."
    assert PLANNERS["search"].checked_options({"seed": 3}) == {"iterations": 400, "seed": 3}
