"""A store of many runs compared with a plain list of them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.store.plans import label, plan_of
from tmmu_core.base.errors import StoreFault
from tmmu_core.store.runs import (
    FIGURES,
    Label,
    Run,
    comparable_runs,
    grown_arenas,
    instant,
    runs_between,
    split_reference,
    value_of,
)
from tmmu_core.store.store import Store

COMMITS = ("aaaa11", "aaaa22", "aaab33", "b1b1b1", "main", "c_c%c", "dev2")
SERIES = ("model", "branch", "planner", "mode", "preset")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, list[Run]]]:
    """Yield a store of 40 runs at random hours, and the runs in the order of recording."""
    random = Random("history")
    store = Store.at(f"sqlite:///{tmp_path_factory.mktemp('store') / 'store.db'}", create=True)
    plans = [plan_of({"a": n, "b": 1}, planner=planner) for n in (1, 2, 5) for planner in ("slots", "naive")]
    labelled = [(random.choice(plans), _label(random)) for _ in range(40)]
    found = [each.run for each in [store.record(plan, label) for plan, label in labelled] if each.new_run]
    assert len(found) > 30
    yield store, found
    store.close()


def _label(random: Random) -> Label:
    model, branch = random.choice(("net", "net", "other")), random.choice(("main", "main", "topic"))
    return label(random.choice(COMMITS), random.randrange(12), model=model, branch=branch)


def in_time(runs: list[Run], **where: str) -> list[Run]:
    """Return the chosen runs, oldest first; runs of one time in the order of recording."""
    chosen = [run for run in runs if all(getattr(run, name) == value for name, value in where.items())]
    return sorted(chosen, key=lambda run: run.at)


def test_runs_are_filtered_by_any_column_and_number(kept: tuple[Store, list[Run]]) -> None:
    store, runs = kept
    for where in ({}, {"branch": "main"}, {"planner": "naive", "commit": "aaaa11"}, {"branch": "none"}):
        expected = in_time(runs, model="net", **where)
        assert list(store.runs("net", **where)) == expected
        for last in (1, 3, 100):
            assert list(store.runs("net", last=last, **where)) == expected[-last:]
    assert list(store.recorded_runs("net")) == in_time(runs, model="net")
    with pytest.raises(StoreFault, match="no run of the model 'unknown'"):
        store.recorded_runs("unknown")


def test_series_has_the_figures_of_its_runs(kept: tuple[Store, list[Run]]) -> None:
    store, runs = kept
    expected = []
    for key in sorted({run.series for run in runs}):
        series = in_time(runs, **dict(zip(SERIES, key, strict=True)))
        changes = [(a, b) for a, b in pairwise(series) if a.extent_bytes != b.extent_bytes]
        before, changed = changes[-1] if changes else (None, series[0])
        expected.append((*key, len(series), _figures(series[-1]), (changed.at, changed.commit), before))
    found = store.series()
    assert [(*(getattr(line, name) for name in SERIES), line.runs) for line in found] == [row[:6] for row in expected]
    for line, row in zip(found, expected, strict=True):
        assert (line.at, line.commit, line.extent_bytes, line.peak_live_bytes, line.lower_bound_bytes) == row[6]
        assert (line.changed_at, line.changed_commit) == row[7]
        assert line.before_bytes == (None if row[8] is None else row[8].extent_bytes)
        assert line.change_bytes == (0 if row[8] is None else line.extent_bytes - row[8].extent_bytes)


def _figures(run: Run) -> tuple[Any, ...]:
    return run.at, run.commit, run.extent_bytes, run.peak_live_bytes, run.lower_bound_bytes


def test_reference_resolves_to_commit_branch_or_prefix_in_this_order(kept: tuple[Store, list[Run]]) -> None:
    store, runs = kept
    for point in (*COMMITS, "topic", "aaab", "aaab3", "b1b", "b1b1", "aaaa", "c_c%", "cXc%", "dev"):
        mine = in_time(runs, model="net")
        exact = [run for run in mine if run.commit == point] or [run for run in mine if run.branch == point]
        begin = [run for run in mine if run.commit.startswith(point) and len(point) >= 4]
        if exact or len({run.commit for run in begin}) == 1:
            assert store.resolve(f"net@{point}") == (exact or begin)[-1], point
        else:
            with pytest.raises(StoreFault, match="is ambiguous" if begin else "no run of a commit"):
                store.resolve(f"net@{point}")


def test_reference_prefers_the_series_of_the_compared_plan(kept: tuple[Store, list[Run]]) -> None:
    store, runs = kept
    naive = plan_of({"a": 1, "b": 1}, planner="naive")
    mine = in_time(runs, model="net", branch="topic")
    assert store.resolve("net@topic", naive) == [run for run in mine if run.planner == "naive"][-1]
    assert store.resolve("net@topic", plan_of({"a": 1}, planner="greedy")) == mine[-1], "no run has this planner"


def test_plan_is_stored_under_the_hash_of_its_bytes(kept: tuple[Store, list[Run]]) -> None:
    store, runs = kept
    plan = plan_of({"a": 2, "b": 1})
    content = store.content_of(plan)
    assert content in {run.content for run in runs}
    assert store.plan(content).tmmu_plan_hash == plan.tmmu_plan_hash
    assert store.content_of(plan_of({"a": 77})) == b""
    with pytest.raises(StoreFault, match="no plan 0000"):
        store.document(bytes(32))


# --- growth ------------------------------------------------------------------------------------------------------


def test_latest_run_of_each_commit_counts(kept: tuple[Store, list[Run]]) -> None:
    runs = in_time(kept[1], model="net")
    for end in range(len(runs) + 1):
        some, expected = runs[:end], []
        for k, run in enumerate(some):
            alike = [other for other in some if other.commit == run.commit and other.series == some[-1].series]
            last = max(j for j, other in enumerate(some) if other.commit == run.commit)
            if run in alike or (not alike and k == last):
                expected.append(run)
        assert list(comparable_runs(some)) == expected
    for figure in FIGURES:
        for a, b in pairwise(runs):
            more = value_of(b, figure, "activations") - value_of(a, figure, "activations")
            assert grown_arenas(a, b, figure) == (("activations",) if more > 0 else ())
    assert runs_between(runs, None, None) == tuple(runs)


# --- names -------------------------------------------------------------------------------------------------------


def test_label_needs_a_time_zone_and_a_commit_without_at() -> None:
    day = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert instant(day) == "2026-01-31T12:00:00.000000Z"
    for commit, at in (("a@b", day), ("ab", day.replace(tzinfo=None))):
        with pytest.raises(StoreFault):
            Label("net", commit, at)
    assert [split_reference(text) for text in ("store:a@b@c", "main", "x@y")] == [
        ("a@b", "c"),
        (None, "main"),
        ("x", "y"),
    ]
    for wrong in ("", "@", "@a", "a@", "store:"):
        with pytest.raises(StoreFault, match=repr(wrong)):
            split_reference(wrong)


def test_reading_creates_no_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'none.db'}"
    with pytest.raises(StoreFault, match="the store does not exist"):
        Store.at(url)
    assert not (tmp_path / "none.db").exists()
