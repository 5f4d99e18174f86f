"""The commit and the tensors that increased an arena, in bytes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.plans import label, plan_of
from tmmu_core.base.errors import StoreFault
from tmmu_core.plans.model import Plan
from tmmu_core.store.runs import Run, comparable_runs, first_growth, growth_causes, run_of, runs_between

TINY = plan_of({"a": 1})


def run(commit: str, extent: int, hour: int = 0, planner: str = "slots") -> Run:
    return replace(run_of(TINY, label(commit, hour), bytes(32)), extent_bytes=extent, planner=planner)


@pytest.mark.parametrize(
    ("extents", "expected"),
    [
        ((5, 5, 9, 9), 2),
        ((5, 9, 5, 7, 8), 3),  # the growth to 9 was reverted
        ((5, 4, 6), 2),
        ((5, 9, 5), None),
        ((5,), None),
        ((), None),
    ],
)
def test_first_growth_is_the_run_after_the_last_good_one(extents: tuple[int, ...], expected: int | None) -> None:
    assert first_growth(extents) == expected


def test_good_and_bad_commits_are_named_by_prefixes() -> None:
    history = [run("aaaa", 1), run("bbbb", 2), run("cccc", 3)]
    assert [r.commit for r in runs_between(history, "bb", None)] == ["bbbb", "cccc"]
    for good, bad in (("zz", None), ("cc", "aa"), ("", None)):
        with pytest.raises(StoreFault, match="--good"):
            runs_between(history, good, bad)


def test_commits_are_compared_with_the_planner_of_the_latest_run() -> None:
    history = [run("c1", 5), run("c1", 7, planner="naive"), run("c2", 5, planner="greedy"), run("c3", 6)]
    assert [(r.commit, r.planner) for r in comparable_runs(history)] == [
        ("c1", "slots"),
        ("c2", "greedy"),
        ("c3", "slots"),
    ]


# --- causes ------------------------------------------------------------------------------------------------------


def test_grown_and_new_tensors_are_named_with_their_bytes() -> None:
    found = growth_causes(plan_of({"a": 1, "b": 2}), plan_of({"a": 1, "b": 5, "new": 1}), "activations")
    assert [(s.tensor_id, s.grown_bytes) for s in found.storages] == [("b", 3 * 128), ("new", 128)]
    assert (found.grown_bytes, found.slack_bytes) == (4 * 128, 0)


def test_worse_packing_is_no_growth_of_tensors() -> None:
    lines = {"a": 1, "b": 2}
    before, after = plan_of(lines), plan_of(lines)
    after = replace(after, arenas=tuple(replace(x, extent_bytes=x.extent_bytes + 256) for x in after.arenas))
    found = growth_causes(before, after, "activations")
    assert (found.storages, found.slack_bytes) == ((), 256)


LINES = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 6), min_size=1, max_size=5)


@given(LINES, LINES)
def test_storages_sum_up_to_the_growth_of_the_peak(one: dict[str, int], two: dict[str, int]) -> None:
    before, after = plan_of(one), plan_of(two)
    found = growth_causes(before, after, "activations")
    peaks = [_peak(plan) for plan in (before, after)]
    assert sum(storage.grown_bytes for storage in found.storages) == peaks[1] - peaks[0]
    assert found.slack_bytes + peaks[1] - peaks[0] == found.grown_bytes


def _peak(plan: Plan) -> int:
    return plan.arena_of["activations"].peak_live_bytes
