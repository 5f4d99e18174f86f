"""exact in time pieces: two networks that share few storages are packed one after the other."""

import numpy as np

from benchmarks.variants import joined, problem_of, read
from tests.planners.brute_force import plain
from tests.planners.packings import faults, offsets, problem, problem_with, smallest_extent
from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact import exact
from tmmu_core.planners.exact.branch_and_bound import BUDGET_SPENT, FOUND, INFEASIBLE
from tmmu_core.planners.exact.time_cut import TimeCutSearch, cut_columns
from tmmu_core.planners.problem import Problem


def two_networks() -> Problem:
    """Return two networks of twenty steps each; one storage is live in both."""
    rows = [(t, t + 2, 4) for t in range(40) if t != 19]
    return problem((18, 22, 8), *rows)


def test_column_that_few_storages_cross_is_a_cut() -> None:
    p = two_networks()
    cols = columns(p)
    (at,) = cut_columns(cols)
    crossing = [i for i in range(len(p)) if cols.part_lo[i] < at < cols.part_hi[i]]
    assert len(crossing) <= 2
    assert min(int((cols.part_hi <= at).sum()), int((cols.part_lo >= at).sum())) >= 16
    assert cut_columns(columns(problem(*[(0, 9, 4)] * 20, *[(t, t + 1, 4) for t in range(9)]))) == []


def test_must_not_alias_pair_across_time_prevents_a_cut() -> None:
    assert cut_columns(columns(problem_with(two_networks(), must_not_alias=np.array([[0, 39]])))) == []


def test_pieces_find_the_optimum_and_nothing_below() -> None:
    # ``python -m tests.planners.brute_force 20000`` asks of more of them, at every moment.
    verdicts = []
    for seed in range(60):
        p = plain(seed)
        least = smallest_extent(p)
        gaps = tuple([((birth, birth + 2),) for birth in p.birth.tolist()])
        cols = columns(problem_with(p, death=p.death + 2, gaps=gaps) if seed % 2 else p)  # the same, two steps later
        for at in range(1, len(cols.births)):
            search = TimeCutSearch(cols, [at])
            verdict, _, lies = search.solve(least, 10**5, None)
            verdicts.append(verdict)
            assert verdict in (FOUND, BUDGET_SPENT)
            assert verdict == BUDGET_SPENT or faults(p, lies or ()) == []
            assert search.solve(least - 1, 10**5, None)[0] in (INFEASIBLE, BUDGET_SPENT)
    assert verdicts.count(FOUND) > len(verdicts) // 2


def test_first_piece_is_refuted_and_later_ones_are_not() -> None:
    cols = columns(problem((0, 2, 4), (0, 2, 4), (1, 4, 4), (3, 5, 2)))
    last = len(cols.births) - 1
    assert TimeCutSearch(cols, [last]).solve(11, 1000, None)[0] == INFEASIBLE
    # The other way through time the three of the full moment come second, upon pins.
    backwards = TimeCutSearch(cols, [last], tries=1)
    assert backwards.solve(11, 1000, None)[0] == BUDGET_SPENT


def test_stopped_piece_keeps_the_best_packing() -> None:
    p = problem_of(joined(read("A.1048576"), read("B.1048576")))
    packing = exact(p, {}, lambda what, done, of: done < 5_000)
    assert faults(p, offsets(packing)) == []
    assert packing.notes["interrupted"]
    assert packing.stopped
