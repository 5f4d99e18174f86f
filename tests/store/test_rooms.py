"""The rooms of the store that ask no database: rows by type, names, URLs, faults in words, each by eye."""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidRequestError

from tests.store.plans import NEW_YEAR, plan_of, swept
from tmmu_core import limits
from tmmu_core.errors import StoreFault, UnreadableInput
from tmmu_core.store import files, opening, rows, sqlite_file, store
from tmmu_core.store.run import LONGEST, ArenaFigures, Label, check_name, instant, run_of, split_reference
from tmmu_core.store.schema import HEAD, METADATA, U64
from tmmu_core.store.store import Store


def refusal(ask: Callable[[], object]) -> StoreFault:
    with pytest.raises(StoreFault) as caught:
        ask()
    return caught.value


# --- rows --------------------------------------------------------------------------------------------------------

SERIES = ("net", "main", "slots", "inference", "default")
AT = "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("kind", "row", "wrong"),
    [
        (rows.SeriesRow, (*SERIES, 1, -5), {0: ("x" * 201, 7, None), 1: ("x" * 201,), 5: ("1", 1.5), 6: (None,)}),
        (rows.FactsRow, (1, AT, "c", 0, 0, 0), {1: ("2026", AT + "Z", "x" + AT), 2: ("x" * 201,), 3: (-1,), 5: (-1,)}),
        (rows.PlanRow, (0, b""), {0: (-1, "0"), 1: ("", None)}),
        (rows.FileRow, ("n" * 4096, 0, b""), {0: ("n" * 4097,), 1: (-1,)}),
        (rows.PointRow, (-1, "[]", 0), {0: ("1",), 1: (b"[]",), 2: (None,)}),
        (rows.SweepRow, ("s", AT, "{}", 0, 0, 0), {1: ("",), 3: (-1,), 4: (-1,), 5: (-1,)}),
    ],
)
def test_a_row_is_of_its_types_or_refused(kind: Any, row: tuple[Any, ...], wrong: dict[int, tuple[Any, ...]]) -> None:
    assert rows.typed(kind, iter(row), "here") == kind(*row)
    for k, values in wrong.items():
        for value in values:
            said = refusal(lambda: rows.typed(kind, (*row[:k], value, *row[k + 1 :]), "here"))  # noqa: B023
            assert "a row of the store is damaged" in str(said)
            assert (said.hint, said.store) == ("Bring back a copy, or record again.", "here")
    for other in (row[:-1], (*row, 1)):
        refusal(lambda: rows.typed(kind, other, "here"))  # noqa: B023


def test_digests_are_32_bytes_and_names_at_most_as_long_as_they_may_be() -> None:
    run = ("net", "c", "main", AT, "slots", "m", "p", "g", 0, 0, 0, -1, 0, bytes(32), bytes(32), bytes(32), "[]")
    assert rows.typed(rows.RunRow, run, "").peak_step == -1
    for k in (13, 14, 15):
        for size in (31, 33):
            refusal(lambda: rows.typed(rows.RunRow, (*run[:k], bytes(size), *run[k + 1 :]), ""))  # noqa: B023
    assert rows.names(iter(("x" * 200, "")), "") == ["x" * 200, ""]
    for bad in ("x" * 201, None, b"x"):
        refusal(lambda: rows.names([bad], ""))  # noqa: B023


def test_a_figure_of_an_arena_is_of_64_bits() -> None:
    names = ArenaFigures.__dataclass_fields__.keys() - {"name"}
    for name in names:
        for value, fine in ((0, True), (2**64 - 1, True), (2**64, False), (-1, False)):
            said = {"name": "a", **dict.fromkeys(names, 1), name: value}
            text_ = msgspec.json.encode([said]).decode()
            if fine:
                assert rows.arenas(text_, "") == (ArenaFigures(**said),)
            else:
                assert "outside of 64 bits" in str(refusal(lambda: rows.arenas(text_, "")))  # noqa: B023
    for bad in ("", "{}", "[1]", "[" * 5000):
        refusal(lambda: rows.arenas(bad, ""))  # noqa: B023


def test_what_a_sweep_was_asked_and_its_rows_are_kept_whole_and_read_by_type() -> None:
    assert rows.asked('{"sources": ["a"], "more": 1}', "") == {"sources": ["a"], "more": 1}
    fine = swept()
    planned = {**fine, "error": None, "name": "n", "lower_bound_bytes": 0, "extent_bytes": 1, "places": "own"}
    planned |= {"slots": 0, "layout_hash": "h", "arenas": {"a": 1}}
    unsaid = {key: value for key, value in planned.items() if key != "slots"}
    for row in ([fine], [planned], [fine, planned], []):
        assert rows.of_sweep(msgspec.json.encode(row).decode(), "") == tuple(row)
    for bad in ([unsaid], [fine, unsaid], [{**planned, "extent_bytes": -1}], [{**fine, "planner": 1}], {}, [1]):
        refusal(lambda: rows.of_sweep(msgspec.json.encode(bad).decode(), ""))  # noqa: B023
    for other in ("[]", '{"sources": 1}', "{", "[" * 5000):
        refusal(lambda: rows.asked(other, ""))  # noqa: B023


def test_what_is_packed_is_as_long_as_it_says_and_hardly_more_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    made = zlib.decompressobj

    class Watched:
        def decompress(self, data: bytes, most: int) -> bytes:
            asked.append(most)
            return made().decompress(data, most)

    monkeypatch.setattr(rows.zlib, "decompressobj", Watched)
    for data in (b"", b"a", b"abc" * 99):
        packed = store.packed(data)
        sizes = (len(data) - 1, len(data), len(data) + 1)
        assert [rows.unpacked(packed, size) for size in sizes if size >= 0] == [None, data, None][
            -len(sizes) + (not data) :
        ]
        digest = hashlib.sha256(data).digest()
        assert rows.document(packed, len(data), digest, "") == data
        said = f"what is kept as {bytes(32).hex()[:12]} is something else"
        assert said in str(refusal(lambda: rows.document(packed, len(data), bytes(32), "")))  # noqa: B023
        assert said in str(refusal(lambda: rows.document(packed, len(data) + 1, bytes(32), "")))  # noqa: B023
    assert rows.unpacked(b"no", 3) is None
    assert asked[:3] == [1, 2, 1]
    assert store.packed(b"x" * 1000) == zlib.compress(b"x" * 1000, 6)


def test_a_number_of_64_bits_is_negative_in_the_database_where_it_is_past_63() -> None:
    column = U64()
    for value, kept in ((None, None), (0, 0), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 - 1, -1)):
        assert column.process_bind_param(value, None) == kept
        assert column.process_result_value(kept, None) == value
    odd: Any = "text"
    assert column.process_result_value(odd, None) == "text"


def test_no_column_may_be_empty_and_numbers_of_points_are_given() -> None:
    columns = [column for table in METADATA.tables.values() for column in table.columns]
    assert [column.name for column in columns if column.nullable] == []
    keys = {(c.table.name, c.name): c.autoincrement for c in columns if c.primary_key}
    assert {key for key, counts in keys.items() if counts is True} == {("runs", "number")}
    assert {key for key, counts in keys.items() if counts is False} == {("sweep_points", "number")}
    assert [(c.table.name, c.name) for c in columns if c.unique] == [("runs", "key")]


def test_so_many_numbers_are_asked_for_at_a_time() -> None:
    numbers = [*range(12_001)]
    assert [len(part) for part in store._parts(numbers)] == [5000, 5000, 2001]
    assert [n for part in store._parts(numbers) for n in part] == numbers
    assert (store._parts([]), store._parts(numbers[:5000])) == ([], [numbers[:5000]])


# --- names -------------------------------------------------------------------------------------------------------


def test_a_name_is_visible_without_blanks_around_it_and_not_too_long() -> None:
    assert LONGEST == 200
    for name in ("x", "x" * 200, "a b", "é"):
        check_name("branch", name)
    for name, why in (
        ("", "is empty, or has blanks"),
        (" ", "is empty, or has blanks"),
        (" x", "is empty, or has blanks"),
        ("x\n", "is empty, or has blanks"),
        ("x" * 201, "the branch has 201 characters"),
        ("a\x00b", r"the branch a\\x00b holds characters"),
    ):
        with pytest.raises(StoreFault, match=why):
            check_name("branch", name)


def test_a_label_has_three_names_and_a_time_with_its_zone() -> None:
    Label("a@b", "c", NEW_YEAR, "m@n")
    for model, commit, at, branch, why in (
        ("", "c", NEW_YEAR, "main", "the model"),
        ("m", "", NEW_YEAR, "main", "the commit"),
        ("m", "c", NEW_YEAR, "", "the branch"),
        ("m", "c@d", NEW_YEAR, "main", "holds an @"),
        ("m", "c", datetime(2026, 1, 1), "main", "without its zone"),
    ):
        with pytest.raises(StoreFault, match=why):
            Label(model, commit, at, branch)
    east = datetime(2026, 1, 1, 2, 0, 0, 7, timezone(timedelta(hours=2)))
    assert instant(east) == "2026-01-01T00:00:00.000007Z"


def test_a_reference_is_split_at_its_last_at_and_needs_both_sides() -> None:
    for said, parts in (
        ("store:m@c", ("m", "c")),
        ("c", (None, "c")),
        ("store:c", (None, "c")),
        ("a@b@c", ("a@b", "c")),
    ):
        assert split_reference(said) == parts
    for said in ("", "store:", "m@", "@c", "store:@c", "@"):
        assert f"{said} refers to no run" in str(refusal(lambda: split_reference(said)))  # noqa: B023


def test_a_run_is_told_as_json_says_it() -> None:
    plan = plan_of({"a": 1})
    run = run_of(plan, Label("net", "c", NEW_YEAR), bytes(range(32)))
    said = run.record()
    assert [*said] == [*run.__dataclass_fields__]
    assert (said["content"], said["layout_hash"]) == (bytes(range(32)).hex(), plan.layout_hash.hex())
    assert said["tmmu_plan_hash"] == plan.tmmu_plan_hash.hex()
    (arena,) = plan.arenas
    figures = (arena.extent_bytes, arena.peak_live_bytes, arena.bound_bytes, arena.slots, arena.max_live)
    assert [tuple(each.values()) for each in said["arenas"]] == [("activations", *figures)]
    assert run.series == ("net", "main", "slots", run.mode, run.preset)
    others = [
        replace(run, **{name: value}) for name, value in (("model", "x"), ("commit", "x"), ("branch", "x"), ("at", "x"))
    ]
    others.append(replace(run, content=bytes(32)))
    assert len({one.key for one in (run, *others, replace(run, steps=99))}) == 6


# --- URLs and faults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "driver", "name"),
    [
        ("sqlite:///x.db", "sqlite+pysqlite", "sqlite:///x.db"),
        ("sqlite+pysqlite:///x.db", "sqlite+pysqlite", "sqlite+pysqlite:///x.db"),
        ("postgres://u:pw@h/d", "postgresql+psycopg", "postgres://u:***@h/d"),
        ("postgresql://h", "postgresql+psycopg", "postgresql://h"),
    ],
)
def test_a_url_names_its_driver_and_is_told_without_its_password(url: str, driver: str, name: str) -> None:
    parsed, named = opening._parsed(url)
    assert (parsed.drivername, named) == (driver, name)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mysql://h/d", "no store is kept in mysql"),
        ("sqlite://", "a store in memory"),
        ("sqlite:///:memory:", "a store in memory"),
        ("nonsense", "'nonsense' is no URL of a store"),
        ("x" * 300, f"'{'x' * 200}' is no URL"),
        ("post gres://u:secret@h:port/d", r"'post gres://u:\*\*\*@h:port/d' is no URL"),
        ("nobody://h/d", "no store is kept in nobody"),
        ("sqlite+nobody:///x.db", "the URL's driver is not there"),
    ],
)
def test_a_url_of_no_store_is_refused_with_the_forms_there_are(url: str, why: str) -> None:
    with pytest.raises(StoreFault, match=why) as caught:
        opening._parsed(url)
    assert caught.value.hint == opening._FORMS


def wrapped(error: Exception | None) -> Any:
    return DBAPIError("SELECT 1", (), error)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "reason", "way"),
    [
        (wrapped(sqlite3.OperationalError("database is locked")), "database is locked", "for 120 s; try again"),
        (wrapped(sqlite3.OperationalError("disk I/O error.")), "disk I/O error", "Check the URL"),
        (wrapped(sqlite3.IntegrityError("locked\nsecond")), "locked", "Check the URL"),
        (wrapped(sqlite3.DataError("string or blob too big")), "string or blob too big", "--max-unpacked-bytes N, or"),
        (wrapped(sqlite3.DataError("odd")), "odd", "Check the URL"),
        (wrapped(sqlite3.NotSupportedError("too big")), "too big", "Check the URL"),
        (wrapped(sqlite3.OperationalError("")), "OperationalError", "Check the URL"),
        (wrapped(sqlite3.OperationalError("\n first\nsecond")), "first", "Check the URL"),
        (InvalidRequestError("locked: too big"), "locked: too big", "Check the URL"),
    ],
)
def test_what_a_database_raises_is_said_by_its_first_line_and_a_way_out(error: Any, reason: str, way: str) -> None:
    assert opening._reason(error) == f"the store cannot be used: {reason}."
    assert way in opening._way_out(error)
    with pytest.raises(StoreFault, match=reason) as caught, opening.faults_of("here"):
        raise error
    assert (way in caught.value.hint, caught.value.store) == (True, "here")
    assert "None" in opening._reason(wrapped(None))


def test_half_a_surrogate_pair_is_no_name() -> None:
    with pytest.raises(StoreFault, match="half a surrogate pair") as caught, opening.faults_of("here"):
        "\ud800".encode()
    assert caught.value.hint == opening._NAMES
    with pytest.raises(ArgumentError, match="x"):
        raise ArgumentError("x")


def test_a_store_is_there_made_or_refused_and_made_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    for make in (lambda: Store.at(f"sqlite:///{path}"), lambda: Store.at(f"sqlite:///{tmp_path}")):
        assert "there is no store." in str(refusal(make))
    assert not path.exists()
    sqlite3.connect(path).execute("CREATE TABLE mine (a)").connection.close()
    assert "the database holds no store." in str(refusal(lambda: Store.at(f"sqlite:///{path}")))
    assert "options are not those of its driver" in str(
        refusal(lambda: Store.at(f"sqlite:///{path}?timeout=x", create=True))
    )
    for create in (True, False, True):
        Store.at(f"sqlite:///{path}", create=create).close()
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        assert opening._revision(connection) == HEAD
        connection.execute(text("UPDATE alembic_version SET version_num = 'é" + "x" * 99 + "'"))
        assert opening._revision(connection) == "é" + "x" * 79
        connection.execute(text("DELETE FROM alembic_version"))
        assert opening._revision(connection) is None
    engine.dispose()


# --- SQLite's file -----------------------------------------------------------------------------------------------


class Answering:
    """A cursor that answers each statement from a list."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.said = list(answers), list[str]()

    def execute(self, statement: str) -> Answering:
        self.said.append(statement)
        return self

    def fetchall(self) -> Any:
        return self.answers.pop(0)

    fetchone = fetchall


def test_every_database_of_a_connection_is_looked_at_for_its_journal(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in "abc"]
    Path(f"{names[1]}-journal").mkdir()
    journal = Path(f"{names[2]}-journal")
    listed = [(0, "temp", ""), *((k, "main", name) for k, name in enumerate(names))]
    magic = sqlite_file._JOURNAL_MAGIC
    for data, refused in ((b"", False), (b"x", False), (magic, True), (b"x" * 99 + magic, True), (magic + b"x", False)):
        journal.write_bytes(data)
        for order in (listed, listed[::-1]):
            if refused:
                said = refusal(lambda: sqlite_file._refuse_a_journal_of_several(Answering(order), "here"))  # noqa: B023
                assert "c-journal names another file" in str(said)
            else:
                sqlite_file._refuse_a_journal_of_several(Answering(order), "here")


def test_the_first_thing_that_computes_is_named() -> None:
    tables = len(sqlite_file._TABLES)
    sqlite_file._refuse_what_is_no_table(Answering(None, *[None] * tables), "here")
    for answers, named in (
        ([("v" * 99, "view")], f"{'v' * 80} is a view."),
        ([None, *[None] * (tables - 1), ("c",)], f"{sqlite_file._TABLES[-1]}.c is a computed column."),
        ([None, ("c",), ("d",), *[None] * (tables - 2)], f"{sqlite_file._TABLES[0]}.c is a computed column."),
    ):
        asked = Answering(*answers)
        assert named in str(refusal(lambda: sqlite_file._refuse_what_is_no_table(asked, "here")))  # noqa: B023
        assert asked.answers == []


# --- files -------------------------------------------------------------------------------------------------------


def test_a_file_is_kept_up_to_the_limit_and_read_up_to_it(tmp_path: Path) -> None:
    kept = Store.at(f"sqlite:///{tmp_path / 's.db'}", create=True)
    with limits.raised({"unpacked-bytes": 1 << 20}):
        files.keep(kept, "k", ("a\x00b", b"x" * (1 << 20)), datetime(2026, 1, 1, tzinfo=UTC))
        assert files.file(kept, "k") == ("a\\x00b", b"x" * (1 << 20))
        with pytest.raises(UnreadableInput, match="more than 1048576 bytes"):
            files.keep(kept, "l", ("a", b"x" * ((1 << 20) + 1)), datetime(2026, 1, 1, tzinfo=UTC))
    with limits.raised({"unpacked-bytes": (1 << 20) - 1}), pytest.raises(UnreadableInput):
        files.file(kept, "k")
    files.keep(kept, "k", ("other", b"y"), datetime(2026, 1, 1, tzinfo=UTC))
    assert files.file(kept, "k") == ("a\\x00b", b"x" * (1 << 20))
    assert files.file(kept, "none") is None
    files.drop(kept, "k")
    assert files.file(kept, "k") is None
    kept.close()


def test_a_plan_is_read_up_to_the_limit(tmp_path: Path) -> None:
    kept = Store.at(f"sqlite:///{tmp_path / 's.db'}", create=True)
    run = kept.record(plan_of({"a": 1}), Label("net", "c", NEW_YEAR)).run
    size = len(kept.document(run.content))
    with limits.raised({"unpacked-bytes": size}):
        assert len(kept.document(run.content)) == size
    with (
        limits.raised({"unpacked-bytes": size - 1}),
        pytest.raises(UnreadableInput, match=f"plan {run.content.hex()[:12]}"),
    ):
        kept.document(run.content)
    assert f"there is no plan {bytes(32).hex()[:12]}." in str(refusal(lambda: kept.document(bytes(32))))
    kept.close()
