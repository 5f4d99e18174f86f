"""A store that changes while it is open."""

from pathlib import Path

import pytest

from tests.store.plans import label, plan_of
from tmmu_core.base.errors import StoreFault
from tmmu_core.store.store import Store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store ?#%20.db"


def opened(file: Path, *, create: bool = False) -> Store:
    return Store.at(f"sqlite:///{str(file).replace('%', '%25').replace('?', '%3F')}", create=create)


def delete_store(file: Path) -> None:
    for one in list(file.parent.iterdir()):
        one.unlink()


def test_deleted_store_accepts_nothing(file: Path) -> None:
    store = opened(file, create=True)
    store.record(plan_of({"a": 1}), label("first"))
    delete_store(file)
    for use in (lambda: store.record(plan_of({"b": 1}), label("lost")), lambda: store.runs("net"), store.series):
        with pytest.raises(StoreFault, match="cannot be used"):
            use()
    store.close()


def test_replaced_store_is_read_afterwards(file: Path) -> None:
    store = opened(file, create=True)
    store.record(plan_of({"a": 1}), label("old"))
    delete_store(file)
    other = opened(file, create=True)
    other.record(plan_of({"a": 2}), label("new"))
    assert [run.commit for run in store.runs("net")] == ["new"]
    assert store.record(plan_of({"b": 1}), label("newer", 1)).new_run
    assert [run.commit for run in other.runs("net")] == ["new", "newer"]
    store.close()
    other.close()
    assert [run.commit for run in opened(file).runs("net")] == ["new", "newer"]
