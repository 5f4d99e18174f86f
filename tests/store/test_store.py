"""A store returns what it was given, on SQLite and PostgreSQL."""

import os
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import IntegrityError

from tests.store.plans import NEW_YEAR, label, plan_of, swept
from tests.support.same_plan import same_plan
from tmmu_core.base.errors import StoreFault
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.store import stored_sweeps
from tmmu_core.store.open_store import FILES, PLANS, RUNS, SWEEPS
from tmmu_core.store.store import Store
from tmmu_core.sweep.sweep_run import PointResult


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store.at(url, create=True)
    yield opened
    opened.close()


def count(store: Store, table: object) -> int:
    with store.engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())  # type: ignore[call-overload]


def test_plan_round_trips(store: Store) -> None:
    plan = plan_of({"a": 1, "b": 2})
    kept = store.record(plan, label("c1"))
    back = store.plan(kept.run)
    assert same_plan(back, plan) == ()
    assert verify_plan(back).ok


def test_run_has_the_figures_of_its_plan(store: Store) -> None:
    plan = plan_of({"a": 1, "b": 2})
    store.record(plan, label("c1", branch="topic"))
    (run,) = store.runs("net")
    assert (run.extent_bytes, run.peak_live_bytes, run.lower_bound_bytes) == (4 * 128, 4 * 128, 4 * 128)
    assert run.peak_step == totals(plan).peak_step
    assert (run.commit, run.branch, run.planner, run.at) == ("c1", "topic", "slots", "2026-01-01T00:00:00.000000Z")
    assert run.layout_hash == plan.layout_hash
    assert [(arena.name, arena.extent_bytes) for arena in run.arenas] == [("activations", 512)]


def test_plan_of_several_runs_is_stored_once(store: Store) -> None:
    plan = plan_of({"a": 1})
    first, second = (store.record(plan, label(commit)) for commit in ("c1", "c2"))
    assert (first.new_plan, second.new_plan) == (True, False)
    assert (count(store, PLANS), count(store, RUNS)) == (1, 2)


def test_same_run_is_recorded_once(store: Store) -> None:
    plan = plan_of({"a": 1})
    assert [store.record(plan, label("c1", hour)).new_run for hour in (0, 0, 1)] == [True, False, True]
    assert count(store, RUNS) == 2


def test_figures_of_64_bits_survive(store: Store) -> None:
    plan = plan_of({"a": 1})
    huge = tuple(replace(arena, extent_bytes=2**64 - 1, lower_bound_bytes=2**63) for arena in plan.arenas)
    figures = {"peak_live_bytes": 2**63 - 1, "peak_step": 0, "extent_bytes": 2**64 - 1, "lower_bound_bytes": 2**63}
    store.record(replace(plan, arenas=huge, metrics={"totals": figures}), label("c1"))
    (run,) = store.runs("net")
    assert (run.extent_bytes, run.lower_bound_bytes, run.peak_live_bytes) == (2**64 - 1, 2**63, 2**63 - 1)
    assert run.arenas[0].extent_bytes == 2**64 - 1


def test_special_characters_in_names_are_escaped(store: Store) -> None:
    plan = replace(plan_of({"a": 1}), ir_name="nul\x00 and \u202e", planner="it's; DROP TABLE runs")
    store.record(plan, label("c1"))
    (run,) = store.runs("net")
    assert (run.graph, run.planner) == ("nul\\x00 and \\u202e", "it's; DROP TABLE runs")


@pytest.mark.parametrize("name", ["", " net", "a\x00b", "x" * 201, "right\u202eleft"])
def test_unreadable_name_is_rejected(name: str) -> None:
    with pytest.raises(StoreFault, match="model"):
        label("c1", model=name)


# --- references --------------------------------------------------------------------------------------------------


def test_reference_names_a_commit_its_prefix_or_a_branch(store: Store) -> None:
    plan = plan_of({"a": 1})
    store.record(plan, label("abcdef01", 1))
    store.record(plan, label("abcdef99", 2, branch="topic"))
    store.record(plan, label("ABCDEF99", 0))
    store.record(plan, label("abcdef77", 3, branch="fix@2"))
    names = ("store:net@abcdef01", "net@abcdef9", "net@main", "store:net@topic", "net@fix@2")
    expected = ["abcdef01", "abcdef99", "abcdef01", "abcdef99", "abcdef77"]
    with store.writing() as connection:  # only the returned run is decoded
        connection.execute(update(RUNS).where(RUNS.c.commit == "ABCDEF99").values(arenas="{"))
    assert [store.resolve(name).commit for name in names] == expected


def test_reference_without_model_uses_the_model_of_the_graph(store: Store) -> None:
    store.record(plan_of({"a": 1}, name="g"), label("c1", model="team/net"))
    store.record(plan_of({"b": 1}, name="other"), label("c2", model="another"))
    assert store.resolve("main", plan_of({"a": 2}, name="g")).model == "team/net"
    store.record(plan_of({"b": 1}, name="g"), label("c3", model="g"))
    for name, why in (("g", "Several models have it: g, team/net"), ("unknown", "No run has a graph of that name")):
        with pytest.raises(StoreFault, match=why):
            store.resolve("main", plan_of({"a": 1}, name=name))


@pytest.mark.parametrize(
    ("reference", "why"),
    [("net@gone", "no run of a commit"), ("nix@c1", "run of the model"), ("net@abcd", "ambiguous"), ("@a@b", "'@a'")],
)
def test_unknown_reference_is_rejected_with_the_known_ones(store: Store, reference: str, why: str) -> None:
    plan = plan_of({"a": 1})
    for hour, commit in enumerate(("abcd1", "abcd2")):
        store.record(plan, label(commit, hour))
    with pytest.raises(StoreFault, match=why):
        store.resolve(reference)


# --- the list of models ------------------------------------------------------------------------------------------


def test_branches_and_planners_are_separate_series(store: Store) -> None:
    store.record(plan_of({"a": 1}), label("c1", 1))
    store.record(plan_of({"a": 9}), label("c2", 2, branch="topic"))
    store.record(plan_of({"a": 9}, planner="naive"), label("c3", 3))
    store.record(plan_of({"a": 1}), label("c4", 4, model="another"))
    found = [f"{line.model} {line.branch} {line.planner}" for line in store.series()]
    assert found == ["another main slots", "net main naive", "net main slots", "net topic slots"]


# --- what can be wrong with a store ------------------------------------------------------------------------------


def test_damaged_plan_is_rejected(store: Store) -> None:
    kept = store.record(plan_of({"a": 1}), label("c1"))
    with store.engine.begin() as connection:
        connection.execute(update(PLANS).values(packed=b"x\x9c nothing"))
    with pytest.raises(StoreFault, match="damaged"):
        store.plan(kept.run)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        (update(RUNS).values(arenas="{"), lambda store: store.runs("net")),
        (update(RUNS).values(arenas="[1]"), lambda store: store.runs("net")),
        (update(SWEEPS).values(request="{"), stored_sweeps.sweeps),
        (update(SWEEPS).values(request="[1]"), stored_sweeps.sweeps),
        (update(FILES).values(packed=zlib.compress(b"net")[:-1]), lambda store: store.file("net")),
        (update(FILES).values(packed=b"x"), lambda store: store.change_file("net", "net", bytes.upper, NEW_YEAR)),
    ],
)
def test_damaged_row_is_rejected(store: Store, change: Any, read: Callable[[Store], object]) -> None:
    store.keep_file("net", ("net", b"net"), datetime(2026, 1, 1, tzinfo=UTC))
    store.record(plan_of({"a": 1}), label("c1"))
    stored_sweeps.begin(store, "s", datetime(2026, 1, 1, tzinfo=UTC), {}, 1)
    with store.engine.begin() as connection:
        connection.execute(change)
    with pytest.raises(StoreFault, match="damaged"):
        read(store)


@pytest.mark.parametrize(
    ("column", "value"), [("model", "x'6e6574'"), ("extent_bytes", "'many'"), ("branch", "CAST(x'ff' AS TEXT)")]
)
def test_value_of_another_type_is_rejected(column: str, value: str, tmp_path: Path) -> None:
    store = Store.at(f"sqlite:///{tmp_path / 'store.db'}", create=True)
    store.record(plan_of({"a": 1}), label("c1"))
    with store.engine.begin() as connection:
        connection.execute(text(f"UPDATE runs SET {column} = {value}"))
    with pytest.raises(StoreFault, match="damaged"):
        store.series()


def test_store_of_a_later_version_is_unchanged(url: str) -> None:
    store = Store.at(url, create=True)
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    with pytest.raises(StoreFault, match="has version"):
        Store.at(url)


def test_store_that_cannot_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'a store#.db'}"
    with closing(Store.at(url, create=True)) as store:
        store.record(plan_of({"a": 1}), label("c1"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with closing(Store.at(url)) as store:
        assert [run.commit for run in store.recorded_runs("net")] == ["c1"]
        with pytest.raises(StoreFault, match="readonly"):
            store.record(plan_of({"b": 2}), label("c2"))
    assert [path.name for path in tmp_path.iterdir()] == ["a store#.db"]


@pytest.mark.parametrize(
    "bad",
    [
        "nonsense",
        "mysql://host/db",
        "sqlite://",
        "postgresql://user:secret@127.0.0.1:1/none",
        "postgresql://user:secret@127.0.0.1:port/none",
        "postgresql://user@127.0.0.1:1/none?no_such_option=1",
        "sqlite:///no/such/x.db",
        "sqlite:///x.db?mode=ro",
    ],
)
def test_unreachable_url_is_reported_without_its_password(bad: str) -> None:
    with pytest.raises(StoreFault) as caught:
        Store.at(bad, create=True)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


def test_fault_of_a_sqlite_file_is_about_the_folder_and_the_disk() -> None:
    with pytest.raises(StoreFault) as caught:
        Store.at("sqlite:///no/such/x.db", create=True)
    assert "folder" in caught.value.hint


def test_file_that_is_no_store_is_rejected(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("no") / "store.db"
    path.write_text("this is not a database at all, but long enough to be looked at\n" * 40)
    with pytest.raises(StoreFault, match="not a database"):
        Store.at(f"sqlite:///{path}")


def test_concurrent_changes_of_a_file_are_all_kept(store: Store) -> None:
    def add(part: bytes) -> bytes:
        return store.change_file("notes", "notes", lambda data: data + part, datetime(2026, 1, 1, tzinfo=UTC))

    parts = [b"%c" % letter for letter in b"abcdefghijklmnop"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, parts))
    found = store.file("notes")
    assert found is not None
    assert sorted(found[1]) == sorted(b"".join(parts))


def test_deleting_a_file_keeps_the_others(store: Store) -> None:
    for key in ("a", "b"):
        store.keep_file(key, (key, b"bytes of " + key.encode()), datetime(2026, 1, 1, tzinfo=UTC))
    store.drop_file("a")
    assert store.file("a") is None
    assert store.file("b") == ("b", b"bytes of b")


def test_sweeps_are_listed_latest_first(store: Store) -> None:
    for day, (name, points) in enumerate({"early": 3, "late": 2, "empty": 5}.items(), 1):
        stored_sweeps.begin(store, name, datetime(2026, 1, day, tzinfo=UTC), {"of": name}, points)
    stored_sweeps.add(
        store, "early", [PointResult(k, (swept(str(k)),), failed) for k, failed in enumerate((False, True, True))]
    )
    stored_sweeps.add(store, "late", [PointResult(7, (swept("7"),))])
    listed = [(one.name, one.points, one.done, one.failed, one.request["of"]) for one in stored_sweeps.sweeps(store)]
    assert listed == [("empty", 5, 0, 0, "empty"), ("late", 2, 1, 0, "late"), ("early", 3, 3, 2, "early")]
    assert [kept.number for kept in stored_sweeps.results_of(store, "early", last=2)] == [1, 2]
    assert [kept.rows for kept in stored_sweeps.results_of(store, "late")] == [(swept("7"),)]


def test_failed_point_may_be_replaced(store: Store) -> None:
    stored_sweeps.begin(store, "s", datetime(2026, 1, 1, tzinfo=UTC), {}, 3)
    stored_sweeps.add(store, "s", [PointResult(k, (swept("1"),), failed=k == 0) for k in range(3)])
    stored_sweeps.add(store, "s", [PointResult(k, (swept("2"),)) for k in range(3)])
    assert [kept.rows[0]["error"]["message"] for kept in stored_sweeps.results_of(store, "s")] == ["2", "1", "1"]


def test_plan_of_a_run_cannot_be_deleted(store: Store) -> None:
    store.record(plan_of({"a": 1}), label("c1"))
    with pytest.raises(IntegrityError), store.engine.begin() as connection:
        connection.execute(PLANS.delete())
    assert count(store, PLANS) == 1


@pytest.mark.parametrize(
    ("url", "named"), [("sqlite+nobody:///x.db", "nobody"), ("postgresql+pg8000://u:secret@127.0.0.1:1/d", "pg8000")]
)
def test_missing_driver_is_named(url: str, named: str) -> None:
    with pytest.raises(StoreFault, match=f"driver is not installed: .*{named}") as caught:
        Store.at(url, create=True)
    assert "secret" not in str(caught.value)
