"""A store is a file that may be anybody's: whatever stands in it, a question is answered or refused in words."""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.store.plans import NEW_YEAR, label, plan_of, swept
from tmmu_core.base import limits
from tmmu_core.base.errors import StoreFault, UnreadableInput
from tmmu_core.store import opened_files, stored_sweeps
from tmmu_core.store.run_label import Run
from tmmu_core.store.store import Store

ODD = ("NULL", "7", "-1", "1.5", "9e999", "'text'", "x'ff'", "CAST(x'ff' AS TEXT)", "'[]'", "'{\"sources\": 1}'")
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
COLUMNS = {
    "runs": (
        *('"key"', "model", '"commit"', "branch", "at", "planner", "mode", "preset", "graph", "steps", "extent_bytes"),
        *("peak_live_bytes", "peak_step", "lower_bound_bytes", "layout_hash", "tmmu_plan_hash", "content", "arenas"),
    ),
    "plans": ("content", "bytes", "packed"),
    "sweeps": ("at", "asked", "points"),
    "sweep_points": ("number", "failed", '"row"'),
    "files": ("name", "bytes", "packed"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of two runs, a sweep and a file."""
    path = tmp_path / "store.db"
    store = _open(path)
    store.record_all([(plan_of({"a": n}), label(f"c{n}", n)) for n in (1, 2)])
    stored_sweeps.begin(store, "s", NEW_YEAR, {"sources": ["net"]}, 1)
    stored_sweeps.add(store, "s", [stored_sweeps.Kept(0, (swept(),))])
    opened_files.keep(store, "k", ("net.json", b"{}"), NEW_YEAR)
    store.close()
    return path


def _open(path: Path) -> Store:
    return Store.at(f"sqlite:///{path}", create=True)


def _write(path: Path, *statements: str, values: tuple[object, ...] = ()) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement, values)
    connection.close()


def _answers(store: Store) -> Iterator[Callable[[], object]]:
    """All that commands and pages ask of a store."""

    def plans() -> list[object]:
        return [store.plan(run) for run in store.runs("net")]

    def records() -> list[tuple[object, ...]]:
        return [(run.record(), run.at[:19], f"{run.extent_bytes:,}", run.commit.encode()) for run in store.known("net")]

    def resolved() -> Run:
        return store.resolve("store:net@c1")

    def nobody() -> Run:
        return store.resolve("store:nobody@c1")

    def without_a_model() -> Run:
        return store.resolve("store:main", plan_of({"z": 1}, name="other"))

    def lines() -> list[str]:
        return [f"{line.model} {line.at[:10]} {line.change_bytes:,}" for line in store.lines()]

    def swept_points() -> list[str]:
        rows = [row for kept in stored_sweeps.points(store, "s") for row in kept.rows]
        return [f"{row['planner']} {row['alignment'] or 0:,} {row['error']['message']}" for row in rows]

    def swept() -> list[str]:
        listed = [(one.asked.get("sources", ()), one.points, one.done) for one in stored_sweeps.sweeps(store)]
        return [f"{', '.join(sources)} {points:,} {done:,}" for sources, points, done in listed]

    yield from (records, plans, resolved, nobody, without_a_model, lines, swept_points, swept)
    yield lambda: opened_files.file(store, "k")


def _refusal(answer: Callable[[], object]) -> str:
    try:
        answer()
    except (StoreFault, UnreadableInput) as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_whatever_stands_in_a_column_is_typed_or_refused(path: Path, tmp_path: Path) -> None:
    original, refused = path.read_bytes(), 0
    for table, column, value in ((t, c, v) for t, columns in COLUMNS.items() for c, v in product(columns, ODD)):
        other = tmp_path / "other.db"
        for leftover in tmp_path.glob("other.db*"):
            leftover.unlink()
        other.write_bytes(original)
        try:
            _write(other, f"UPDATE OR REPLACE {table} SET {column} = {value}")
        except sqlite3.IntegrityError:
            continue
        store = _open(other)
        for answer in _answers(store):
            why = _refusal(answer)
            refused += why != ""
            assert len(why) < 500
        store.close()
    assert refused > 300


def test_what_is_packed_unpacks_to_what_is_written_beside_and_to_no_more_than_the_limit(path: Path) -> None:
    bomb = zlib.compress(bytes(1 << 22), 9)
    for size in (-1, 0, 1 << 10, 1 << 22, 1 << 40, 2**63 - 1):
        for table in ("plans", "files"):
            _write(path, f"UPDATE {table} SET packed = ?, bytes = {size}", values=(bomb,))
        store = _open(path)
        for ask in (lambda: store.plan(store.runs("net")[0]), lambda: opened_files.file(store, "k")):  # noqa: B023
            with limits.raised({"unpacked-bytes": 1 << 20}), pytest.raises((StoreFault, UnreadableInput)) as told_by:
                ask()
            assert "damaged" in str(told_by.value) or "--max-unpacked-bytes" in told_by.value.hint
        store.close()


@pytest.mark.parametrize("table", ["runs", "alembic_version"])
def test_a_text_that_is_longer_than_the_limit_is_not_read(path: Path, table: str) -> None:
    column = "graph" if table == "runs" else "version_num"
    _write(path, f"UPDATE {table} SET {column} = CAST(zeroblob(3000000) AS TEXT)")
    with limits.raised({"unpacked-bytes": 1 << 20}), pytest.raises(StoreFault, match="--max-unpacked-bytes"):
        _open(path).runs("net")


@pytest.mark.parametrize(
    "statements",
    [
        (
            "DROP TABLE sweep_points",
            f"CREATE VIEW Sweep_Points AS {ENDLESS} SELECT 's' AS sweep, x AS number, 0 AS failed, '[]' AS row FROM c",
        ),
        ("CREATE TRIGGER gone AFTER INSERT ON runs BEGIN DELETE FROM runs; END",),
        ("DROP TABLE files", "CREATE VIRTUAL TABLE files USING fts4(digest, name, at, bytes, packed)"),
        (
            "DROP TABLE files",
            "CREATE TABLE files (digest, name, at, packed, bytes AS (length(hex(zeroblob(1 << 28)))))",
        ),
        ("DROP TABLE alembic_version", "CREATE VIEW alembic_version AS SELECT '0001' AS version_num"),
    ],
    ids=["view", "trigger", "virtual table", "computed column", "version"],
)
def test_a_store_whose_tables_compute_is_refused_before_anything_is_asked(
    path: Path, statements: tuple[str, ...]
) -> None:
    _write(path, *statements)
    with pytest.raises(StoreFault, match="which a store never has"):
        _open(path)


def test_what_else_somebody_keeps_beside_is_theirs(path: Path) -> None:
    _write(path, "CREATE VIEW grown AS SELECT model, extent_bytes FROM runs", "CREATE INDEX mine ON runs (graph)")
    assert len(_open(path).runs("net")) == 2


def _journal(page: bytes, pages: int, victim: bytes) -> bytes:
    """A rollback journal of one page that names ``victim`` as the journal of several files that it belongs to."""
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + struct.pack(">IIIII", 1, 0, pages, 512, len(page))
    check = sum(page[k] for k in range(len(page) - 200, 0, -200))
    record = struct.pack(">I", 1) + page + struct.pack(">I", check)
    common = struct.pack(">I", (1 << 30) // len(page) + 1) + victim + struct.pack(">II", len(victim), sum(victim))
    return head.ljust(512, b"\0") + record + common + magic


@pytest.mark.parametrize("through_a_link", [False, True])
def test_no_journal_beside_a_store_deletes_a_file(path: Path, tmp_path: Path, through_a_link: bool) -> None:
    victim, data = tmp_path / "victim", path.read_bytes()
    victim.write_text("precious")
    size = int.from_bytes(data[16:18], "big")
    journal = _journal(data[:size], len(data) // size, bytes(victim))
    path.with_name(f"{path.name}-journal").write_bytes(journal)
    asked = path
    if through_a_link:
        asked = tmp_path / "link.db"
        asked.symlink_to(path)
    with pytest.raises(StoreFault, match="names another file"):
        _open(asked)
    assert victim.read_text() == "precious"
    sqlite3.connect(path).execute("SELECT count(*) FROM runs").close()
    assert not victim.exists(), "SQLite no longer does so: then this can go"


def test_a_store_that_was_left_in_the_middle_of_turning_its_log_on_is_opened(path: Path) -> None:
    """A journal of this file alone is what a killed process leaves."""
    data = path.read_bytes()
    size = int.from_bytes(data[16:18], "big")
    journal = _journal(data[:size], len(data) // size, b"x")
    path.with_name(f"{path.name}-journal").write_bytes(journal[: 512 + 8 + size])
    assert len(_open(path).runs("net")) == 2
