"""What happens to a store while it is made or open: by threads of one process, and by who moves its file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.runtime.environment import EnvironmentContext
from sqlalchemy import inspect

from tests.store.plans import label, plan_of
from tmmu_core.errors import StoreFault
from tmmu_core.store import opening, sqlite_file
from tmmu_core.store.schema import METADATA
from tmmu_core.store.store import Store


def test_threads_that_make_stores_make_each_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a revision says goes to the one connection that Alembic knows for its whole process."""
    migrate, inside, most = EnvironmentContext.run_migrations, threading.Semaphore(0), []

    def slowly(self: EnvironmentContext) -> None:
        inside.release()
        time.sleep(0.05)  # whoever else may come in comes in
        most.append(inside._value)  # type: ignore[attr-defined]
        migrate(self)
        inside.acquire()

    monkeypatch.setattr(EnvironmentContext, "run_migrations", slowly)
    begin = threading.Barrier(8)

    def make(me: int) -> list[str]:
        begin.wait()
        store = Store.at(f"sqlite:///{tmp_path / str(me)}.db", create=True)
        store.record(plan_of({"a": me + 1}), label(f"c{me}"))
        assert [run.commit for run in store.runs("net")] == [f"c{me}"]
        tables = inspect(store.engine).get_table_names()
        store.close()
        return tables

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(8)))
    assert made == [sorted(["alembic_version", *METADATA.tables])] * 8
    assert most == [1] * 8


def test_a_process_forked_while_a_store_is_made_makes_its_own(tmp_path: Path) -> None:
    with opening._migrating.lock:  # as another thread of this process would hold it
        child = os.fork()
        if not child:
            import signal

            signal.alarm(60)
            Store.at(f"sqlite:///{tmp_path / 'child.db'}", create=True).close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    Store.at(f"sqlite:///{tmp_path / 'child.db'}").close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store ?#%20.db"


def opened(file: Path, *, create: bool = False) -> Store:
    return Store.at(f"sqlite:///{str(file).replace('%', '%25').replace('?', '%3F')}", create=create)


def away(file: Path) -> None:
    for one in list(file.parent.iterdir()):
        one.unlink()


def test_a_store_that_is_deleted_while_it_is_open_takes_nothing_any_more(file: Path) -> None:
    store = opened(file, create=True)
    store.record(plan_of({"a": 1}), label("first"))
    away(file)
    for ask in (lambda: store.record(plan_of({"b": 1}), label("lost")), lambda: store.runs("net"), store.lines):
        with pytest.raises(StoreFault, match="unable to open database file"):
            ask()
    assert list(file.parent.iterdir()) == []
    store.close()


def test_a_store_that_is_replaced_while_it_is_open_is_the_new_one_from_then_on(file: Path) -> None:
    store = opened(file, create=True)
    store.record(plan_of({"a": 1}), label("old"))
    away(file)
    other = opened(file, create=True)
    other.record(plan_of({"a": 2}), label("new"))
    assert [run.commit for run in store.runs("net")] == ["new"]
    assert store.record(plan_of({"b": 1}), label("newer", 1)).new_run
    assert [run.commit for run in other.runs("net")] == ["new", "newer"]
    store.close()
    other.close()
    assert [run.commit for run in opened(file).runs("net")] == ["new", "newer"]


@pytest.mark.parametrize("how", [away, lambda file: file.rename(file.with_name("elsewhere.db"))])
def test_what_is_written_while_the_store_goes_is_not_said_to_be_kept(file: Path, how: Callable[[Path], None]) -> None:
    store = opened(file, create=True)
    with (
        pytest.raises(StoreFault, match=r"moved, deleted or replaced while it was open.*write it again"),
        opening.faults_of(store.name),
        opening.writing(store.engine),
    ):
        how(file)
    store.close()


def test_a_store_that_goes_when_it_was_looked_for_is_not_made(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.touch()
    there = os.path.isfile

    def and_gone(path: str) -> bool:
        found = there(path)
        file.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(os.path, "isfile", and_gone)
    with pytest.raises(StoreFault, match="unable to open database file"):
        opened(file)
    assert list(file.parent.iterdir()) == []


def test_no_file_is_none(tmp_path: Path) -> None:
    assert sqlite_file._file_at(tmp_path / "none") is None
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    assert sqlite_file._file_at(tmp_path / "a") not in (None, sqlite_file._file_at(tmp_path / "b"))
