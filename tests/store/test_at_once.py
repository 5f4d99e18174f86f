"""What happens to a store while it is made or open: by threads of one process, and by who moves its file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.plans import label, plan_of
from tmmu_core.base.errors import StoreFault
from tmmu_core.store import open_store
from tmmu_core.store.store import Store


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
        pytest.raises(StoreFault, match=r"moved, deleted or replaced while it was open.*write again"),
        open_store.faults_of(store.name),
        open_store.writing(store.engine),
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
