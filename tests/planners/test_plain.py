"""What runs in the place of compiled loops gives what they give."""

from __future__ import annotations

import numpy as np
from brute_force import made
from hypothesis import given
from hypothesis import strategies as st
from packings import problem_with

from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact import plain
from tmmu_core.planners.exact.model import build, chains
from tmmu_core.planners.exact.tables import _neighbours, _neighbours_plainly, shape_of


@given(st.lists(st.integers(0, 4), max_size=9))
def test_the_two_lowest_are_the_first_of_equals(values: list[int]) -> None:
    places = sorted(range(len(values)), key=lambda k: (values[k], k))
    assert plain.two_lowest(np.array(values, np.int64)) == tuple([*places, -1, -1][:2])


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=9), st.randoms(use_true_random=False))
def test_the_lowest_that_waits_goes_first_and_equals_go_by_rank(rows: list[tuple[int, bool]], rng: object) -> None:
    rank = rng.sample(range(len(rows)), len(rows))  # type: ignore[attr-defined]
    waiting = sorted((low, rank[k], k) for k, (low, waits) in enumerate(rows) if waits)
    low, waits = (np.array([row[k] for row in rows], np.int64) for k in (0, 1))
    assert plain.lowest(low, waits, np.array(rank, np.int64)) == (waiting[0][2] if waiting else -1)


def test_neighbours_are_the_same_in_the_same_order() -> None:
    for seed in range(200):
        p = made(seed, 9)
        cols = columns(problem_with(p, handoff_from=None))
        model = build(cols, chains(cols, ()) or ())
        by_section = np.argsort(model.section, kind="stable").astype(np.int64)
        shape = shape_of(model)
        asked = (model.entry_of, shape.entry, shape.first, by_section)
        for one, two in zip(_neighbours(*asked), _neighbours_plainly(*asked), strict=True):
            assert one.tolist() == two.tolist()
