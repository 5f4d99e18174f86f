"""exact in pieces: two networks of which few storages live in both are packed one after the other."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from brute_force import plain
from packings import extent, faults, offsets, problem, problem_with, smallest_extent

from benchmarks.variants import joined, problem_of, read
from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact import across as pieces
from tmmu_core.planners.exact import exact
from tmmu_core.planners.exact.across import Across, cuts
from tmmu_core.planners.exact.kernel import FOUND, INFEASIBLE, SPENT
from tmmu_core.planners.problem import Problem


def two_networks() -> Problem:
    """Twenty steps, then twenty more; one storage lives in both."""
    rows = [(t, t + 2, 4) for t in range(40) if t != 19]
    return problem((18, 22, 8), *rows)


def test_a_moment_that_few_cross_is_a_cut_and_one_is_made_nowhere_else() -> None:
    p = two_networks()
    cols = columns(p)
    (at,) = cuts(cols)
    crossing = [i for i in range(len(p)) if cols.part_lo[i] < at < cols.part_hi[i]]
    assert len(crossing) <= 2
    assert min(int((cols.part_hi <= at).sum()), int((cols.part_lo >= at).sum())) >= 16
    assert cuts(columns(problem(*[(0, 9, 4)] * 20, *[(t, t + 1, 4) for t in range(9)]))) == []


def test_where_time_alone_does_not_tell_who_conflicts_there_is_no_cut() -> None:
    assert cuts(columns(problem_with(two_networks(), must_not_alias=np.array([[0, 39]])))) == []


def test_pieces_find_the_least_of_small_problems_and_never_less() -> None:
    # ``python -m tests.planners.brute_force 20000`` asks of more of them, at every moment.
    verdicts = []
    for seed in range(60):
        p = plain(seed)
        cols, least = columns(p), smallest_extent(p)
        for at in range(1, len(cols.births)):
            across = Across(cols, [at])
            verdict, _, lies = across.ask(least, 10**5, None)
            verdicts.append(verdict)
            assert verdict in (FOUND, SPENT)
            assert verdict == SPENT or faults(p, lies or ()) == []
            assert across.ask(least - 1, 10**5, None)[0] in (INFEASIBLE, SPENT)
    assert verdicts.count(FOUND) > len(verdicts) // 2


def test_what_the_first_piece_cannot_is_proven_and_what_the_second_cannot_is_not() -> None:
    cols = columns(problem((0, 2, 4), (0, 2, 4), (1, 4, 4), (3, 5, 2)))
    last = len(cols.births) - 1
    assert Across(cols, [last]).ask(11, 1000, None)[0] == INFEASIBLE
    # The other way through time the three of the full moment come second, upon pins.
    backwards = Across(cols, [last], tries=1)
    assert backwards.ask(11, 1000, None)[0] == SPENT


def test_two_networks_joined_by_five_storages_meet_their_bound() -> None:
    # Searched over both at once, 600,000 nodes ended 2,048 bytes above it.
    p = problem_of(joined(read("A.1048576"), read("B.1048576")))
    packing = exact(p, {"budget": 200_000})
    assert faults(p, offsets(packing)) == []
    assert (extent(p, packing.offset), packing.lower_bound, packing.optimal) == (1_086_464, 1_086_464, True)


def test_told_to_stop_in_a_piece_it_keeps_the_best() -> None:
    p = problem_of(joined(read("A.1048576"), read("B.1048576")))
    packing = exact(p, {}, lambda what, done, of: done < 5_000)
    assert faults(p, offsets(packing)) == []
    assert packing.notes["told_to_stop"]
    assert packing.stopped


def cut_plainly(lives: list[tuple[int, int]], begin: int, end: int, few: int, least: int) -> set[int]:
    """Of the columns of a window the one that the fewest cross, then those of either side."""
    here = [(lo, hi) for lo, hi in lives if lo < end and hi > begin]
    found = []
    for at in range(begin + 1, end):
        left = sum(hi <= at for _, hi in here)
        right = sum(lo >= at for lo, _ in here)
        crossing, less = len(here) - left - right, min(left, right)
        if less >= least and few * crossing <= less:
            found.append((crossing, -less, at))
    if not found:
        return set()
    at = min(found)[2]
    return {at} | cut_plainly(lives, begin, at, few, least) | cut_plainly(lives, at, end, few, least)


@pytest.mark.parametrize(("few", "least"), [(1, 1), (2, 2), (3, 2), (2, 4), (1, 3)])
def test_cuts_are_where_the_plainest_look_finds_them(monkeypatch: pytest.MonkeyPatch, few: int, least: int) -> None:
    monkeypatch.setattr(pieces, "FEW", few)
    monkeypatch.setattr(pieces, "LEAST", least)
    several = 0
    for seed in range(40):
        cols = columns(plain(seed))
        lives = [*zip(cols.part_lo.tolist(), cols.part_hi.tolist(), strict=True)]
        found = cuts(cols)
        assert found == sorted(cut_plainly(lives, 0, len(cols.births), few, least))
        several += len(found) > 1
    wide = columns(problem(*((k % 30, k % 30 + 1 + k % 4, 4) for k in range(120))))
    lives = [*zip(wide.part_lo.tolist(), wide.part_hi.tolist(), strict=True)]
    assert cuts(wide) == sorted(cut_plainly(lives, 0, len(wide.births), few, least))


def test_pieces_get_what_is_left_the_way_through_time_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pieces; a try each way, then with twice the nodes when Luby's sequence says so."""
    monkeypatch.setattr(pieces, "SHARE", 10)
    across = Across(columns(problem(*((k, k + 1, 4) for k in range(9)))), [3, 6])
    asked: list[tuple[object, ...]] = []
    script: list[tuple[int, int]] = []

    def piece(self: Across, name: object, window: object, wanted: tuple[int, int], known: object) -> tuple[int, int]:
        asked.append((name, window, *wanted))
        return script.pop(0)

    monkeypatch.setattr(Across, "_piece", piece)
    script[:] = [(FOUND, 4), (FOUND, 9), (FOUND, 1)]
    assert across.ask(8, 20, None) == (FOUND, 14, [-1] * 9)
    assert asked == [((0, 1), (0, 3), 8, 10), ((1, 1), (3, 6), 8, 10), ((2, 1), (6, 9), 8, 7)]
    asked.clear()
    script[:] = [(FOUND, 4), (INFEASIBLE, 3)]
    assert across.ask(8, 20, None) == (INFEASIBLE, 7, None)
    assert asked == [((2, -1), (6, 9), 8, 10), ((1, -1), (3, 6), 8, 10)]
    shares = []
    for _ in range(12):
        asked.clear()
        script[:] = [(SPENT, 1)]
        assert across.ask(8, 99, None) == (SPENT, 1, None)
        shares.append(asked[0][3])
    assert shares == [10, 10, 20, 20, 10, 10, 10, 10, 20, 20, 40, 40]


@pytest.mark.parametrize(
    ("answers", "given", "wanted", "learnt"),
    [
        ([(FOUND, 3, [4, 0])], False, (FOUND, 3), [True]),
        ([(FOUND, 3, [4, 0])], True, (FOUND, 3), [True]),
        ([(SPENT, 6, None), (FOUND, 3, [4, 0])], False, (FOUND, 9), [False, True]),
        ([(SPENT, 0, None), (SPENT, 9, None)], False, (SPENT, 10), [False, False]),
        ([(INFEASIBLE, 5, None)], False, (INFEASIBLE, 5), [False]),
        ([(INFEASIBLE, 5, None)], True, (SPENT, 5), [False]),
        ([(-7, 5, None)], False, (SPENT, 5), []),
    ],
)
def test_a_piece_is_asked_for_until_it_is_found_or_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[tuple[int, int, list[int] | None]],
    given: bool,
    wanted: tuple[int, int],
    learnt: list[bool],
) -> None:
    """Two of three storages are alive in the window; one of them may have its place, at 0, from the piece before."""
    cols = columns(problem((0, 2, 4), (1, 3, 4), (4, 5, 4)))
    script, heard, shares = iter(answers), [], []

    class Played:
        fails, stop = None, [0]

        def __init__(self, model: object) -> None:
            self.fixed = model.fixed.tolist()  # type: ignore[attr-defined]

        def ask(self, target: int, rank: object, share: int, watch: object) -> tuple[int, int, list[int] | None]:
            assert self.fixed == ([-1, 0] if given else [-1, -1])
            verdict, nodes, found = next(script)
            self.stop[0] = int(verdict == -7)
            shares.append(share)
            return (SPENT if verdict == -7 else verdict), nodes, found

    class Taught:
        def attempt(self, target: int) -> object:
            return SimpleNamespace(rank=None, nodes=6)

        def learn(self, tried: object, fails: object, found: bool) -> None:
            heard.append(found)

    monkeypatch.setattr(pieces, "Searcher", Played)
    across = Across(cols, [1])
    across.steering[1, 1] = Taught()  # type: ignore[assignment]
    offset = np.array([-1, 0 if given else -1, -1], np.int64)
    assert across._piece((1, 1), (1, 2), (8, 10), (offset, None)) == wanted
    assert offset.tolist() == ([4, 0, -1] if wanted[0] == FOUND else [-1, 0 if given else -1, -1])
    assert (heard, across.stopped) == (learnt, not learnt)
    assert shares == [6, 4, 4][: len(shares)] if answers[0][1] else [6, 6]
