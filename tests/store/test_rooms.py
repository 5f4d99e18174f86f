"""The rooms of the store that ask no database: rows by type, names, URLs, faults in words, each by eye."""

from __future__ import annotations

import errno
import hashlib
import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidRequestError

from tests.store.plans import NEW_YEAR, plan_of, swept
from tmmu_core import limits
from tmmu_core.errors import StoreFault, UnreadableInput
from tmmu_core.store import files, growth, opening, rows, sqlite_file, store, sweeps
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


def test_every_database_of_a_connection_is_looked_at_for_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-journal").write_bytes(sqlite_file._JOURNAL_MAGIC)  # beside no database
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


@pytest.mark.parametrize("when", ["looked for", "opened"])
def test_a_journal_that_is_gone_when_it_is_read_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Eight processes make a store at once: the one that does takes its journal away while seven look at it."""
    path = tmp_path / "store.db"
    journal = path.with_name(f"{path.name}-journal")
    journal.write_bytes(sqlite_file._JOURNAL_MAGIC)
    is_file = Path.is_file

    def and_gone(self: Path) -> bool:
        there = is_file(self)
        if self == journal:
            journal.unlink(missing_ok=True)
        return there

    if when == "opened":
        monkeypatch.setattr(Path, "is_file", and_gone)
    else:
        journal.unlink()
    sqlite_file._refuse_a_journal_of_several(Answering([(0, "main", str(path))]), "here")
    assert not journal.exists()


def test_a_journal_that_cannot_be_read_is_a_fault_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    path.with_name(f"{path.name}-journal").write_bytes(b"x")

    def denied(self: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", denied)
    listed = Answering([(0, "main", str(path))])
    said = refusal(lambda: sqlite_file._refuse_a_journal_of_several(listed, "here"))
    assert isinstance(said, StoreFault)
    assert f"{path.name}-journal cannot be read: Permission denied." in str(said)


def test_the_first_thing_that_computes_is_named() -> None:
    tables = len(sqlite_file._TABLES)
    sqlite_file._refuse_what_is_no_table(Answering(None, *[None] * tables), "here")
    for answers, named in (
        ([("v" * 99, "view")], f"keeps: {'v' * 80} is a view."),
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


class Connecting(Answering):
    """A connection that is its own cursor, and whose every question is answered so that nothing is refused."""

    isolation_level = "DEFERRED"

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options, self.limits, self.closed = options, list[tuple[int, int]](), 0

    def setlimit(self, which: int, most: int) -> None:
        self.limits.append((which, most))

    def cursor(self) -> Connecting:
        return self

    def close(self) -> None:
        self.closed += 1

    def fetchall(self) -> Any:
        return []

    def fetchone(self) -> Any:
        return ("wal",) if self.said[-1] == "PRAGMA journal_mode" else None

    def get_execution_options(self) -> dict[str, Any]:
        return self.options

    exec_driver_sql = Answering.execute


def test_every_connection_is_settled_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: dict[str, Any] = {}
    monkeypatch.setattr(sqlite_file.event, "listen", lambda engine, name, what: heard.update({name: what}))
    engine = SimpleNamespace(url=SimpleNamespace(database="nowhere.db"))
    sqlite_file.set_up(engine, "here", create=True)  # type: ignore[arg-type]
    for said, most in ((None, 1 << 29), (5, 5), (2**31 - 1, 2**31 - 1), (2**31, 2**31 - 1), (1 << 40, 2**31 - 1)):
        connection = Connecting()
        with limits.raised({} if said is None else {"unpacked-bytes": said}):
            heard["connect"](connection, SimpleNamespace(info={sqlite_file._FILE: None}))
        assert connection.limits == [(sqlite3.SQLITE_LIMIT_LENGTH, most)]
        settings = [statement for statement in connection.said if " = " in statement and "SELECT" not in statement]
        pragmas = ("busy_timeout = 120000", "trusted_schema = OFF", "foreign_keys = ON", "synchronous = FULL")
        assert settings == [f"PRAGMA {each}" for each in pragmas]
        assert (connection.said[0], connection.said[-1]) == ("PRAGMA database_list", "PRAGMA journal_mode")
        assert (connection.isolation_level, connection.closed) == (None, 1)
    for options, begun in (({}, "BEGIN"), ({"tmmu_writes": True}, "BEGIN IMMEDIATE")):
        connection = Connecting(**options)
        heard["begin"](connection)
        assert connection.said == [begun]


def test_who_turns_the_log_on_waits_a_moment_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Locked(Answering):
        def execute(self, statement: str) -> Answering:
            if "=" in statement and self.answers.pop(0):
                raise sqlite3.OperationalError("database is locked")
            return super().execute(statement)

        def fetchone(self) -> Any:
            return ("delete",)

    slept: list[float] = []
    monkeypatch.setattr(sqlite_file.time, "sleep", slept.append)
    monkeypatch.setattr(sqlite_file.time, "monotonic", lambda: 7.0)
    monkeypatch.setattr(sqlite_file, "PATIENCE", 0.0)
    sqlite_file._log_ahead(Locked(True, True, False))
    assert slept == [0.02, 0.02]


@pytest.mark.parametrize(("url", "asked_first"), [("sqlite:///x.db", False), ("postgresql://h/d", True)])
def test_a_server_is_asked_whether_it_is_there(url: str, asked_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is, and needs to be there before only where it is not to be made."""
    seen: list[bool] = []

    def made(parsed: Any, *, pool_pre_ping: bool) -> Any:
        seen.append(pool_pre_ping)
        raise TypeError("no such option")

    monkeypatch.setattr(opening, "create_engine", made)
    with pytest.raises(StoreFault, match="not those of its driver: no such option"):
        opening.open_engine(url, create=not asked_first)
    assert seen == [asked_first]


def test_what_a_driver_says_of_its_options_when_it_connects_is_said_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unwilling:
        dialect = create_engine("sqlite://").dialect

        def connect(self) -> None:
            raise ValueError("an odd option")

    monkeypatch.setattr(opening, "create_engine", lambda *given, **named: Unwilling())
    monkeypatch.setattr(sqlite_file, "set_up", lambda engine, name, create: None)
    with pytest.raises(StoreFault, match="not those of its driver: an odd option"):
        opening.open_engine(f"sqlite:///{tmp_path / 's.db'}", create=True)


def test_who_writes_says_so_when_it_begins(tmp_path: Path) -> None:
    kept = Store.at(f"sqlite:///{tmp_path / 's.db'}", create=True)
    with opening.writing(kept.engine) as connection:
        assert connection.get_execution_options()["tmmu_writes"] is True
    kept.close()


# --- what is asked of a small store ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of graph ``net`` 21 models of a run each; of ``one`` one; of ``twin`` a model of that name and another."""
    kept = Store.at(f"sqlite:///{tmp_path_factory.mktemp('many') / 's.db'}", create=True)
    net, one, twin = (plan_of({"a": 1}, name=name) for name in ("net", "one", "twin"))
    runs = [(net, Label(f"m{k:02}", "c", NEW_YEAR)) for k in range(21)]
    runs += [(one, Label("single", f"abcd{k}", NEW_YEAR + timedelta(hours=k))) for k in range(6)]
    runs += [(twin, Label(model, "c", NEW_YEAR)) for model in ("twin", "another")]
    kept.record_all(runs)
    yield kept
    kept.close()


def test_the_model_of_a_reference_without_one_is_that_of_its_graph(many: Store) -> None:
    def model(name: str) -> str:
        return many._model_of("main", plan_of({"a": 1}, name=name))

    assert [model("one"), model("twin"), model("another")] == ["single", "twin", "another"]
    said = refusal(lambda: model("net"))
    listed = [f"m{k:02}" for k in range(21)]
    assert said.hint.startswith("Several models plan it: m0")
    assert sum(name in said.hint for name in listed) == 20
    assert "main names no model, and the graph is 'net'." in str(said)
    assert refusal(lambda: model("gone")).hint == "No run plans that graph. Write store:MODEL@COMMIT."
    assert "main names no model." in str(refusal(lambda: many._model_of("main", None)))


def test_what_is_not_there_is_said_with_the_latest_of_what_is(many: Store, tmp_path: Path) -> None:
    hint = refusal(lambda: many.resolve("single@gone")).hint
    assert hint == "The latest are abcd5 on main, abcd4 on main, abcd3 on main."
    assert refusal(lambda: many.resolve("single@abcd")).hint == "Write more: abcd0, abcd1, abcd2, abcd3, abcd4."
    for point in ("abc", "ab__", "abcd%", "____"):
        assert "no run of a commit or branch" in str(refusal(lambda: many.resolve(f"single@{point}")))  # noqa: B023
    hint = refusal(lambda: many.resolve("nobody@c")).hint
    assert hint.count(", ") == 19
    empty = Store.at(f"sqlite:///{tmp_path / 's.db'}", create=True)
    assert refusal(lambda: empty.resolve("nobody@c")).hint == "It holds no run yet; tmmu record adds one."
    empty.close()


def test_points_of_a_sweep_are_kept_once_unless_they_died(many: Store) -> None:
    for k, name in enumerate(("s", "t", "never")):
        sweeps.begin(many, name, NEW_YEAR + timedelta(days=k), {"sources": [name]}, 4)
    sweeps.begin(many, "s", NEW_YEAR, {"sources": ["other"]}, 9)
    sweeps.add(many, "s", ())
    states = (sweeps.FINE, sweeps.REFUSED, sweeps.DIED)
    first = [sweeps.Kept(k, (swept(f"first {k}"),), failed) for k, failed in enumerate(states)]
    sweeps.add(many, "s", first)
    sweeps.add(many, "t", [sweeps.Kept(2, (swept("t"),), sweeps.DIED)])
    sweeps.add(many, "s", [sweeps.Kept(k, (swept(f"second {k}"),)) for k in range(4)])
    second = [sweeps.Kept(k, (swept(f"second {k}"),)) for k in range(4)]
    assert sweeps.points(many, "s") == (*first[:2], *second[2:])
    for last in (1, 2, 9):
        assert sweeps.points(many, "s", last=last) == (*first[:2], *second[2:])[-last:]
    assert sweeps.points(many, "never") == ()
    listed = [(one.name, one.asked, one.points, one.done, one.failed) for one in sweeps.sweeps(many)]
    rows_of = {"never": (4, 0, 0), "t": (4, 1, 1), "s": (4, 4, 1)}
    assert listed == [(name, {"sources": [name]}, *counts) for name, counts in rows_of.items()]


def test_what_is_packed_is_asked_for_up_to_the_limit(tmp_path: Path) -> None:
    """A plan whose packed bytes are as many as the limit is read, and found to be something else."""
    kept = Store.at(f"sqlite:///{tmp_path / 's.db'}", create=True)
    content = kept.record(plan_of({"a": 1}), Label("net", "c", NEW_YEAR)).run.content
    data = kept.document(content)
    stored = zlib.compress(data, 0)
    with kept.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE plans SET packed = ?", (stored,))
    assert len(stored) > len(data)
    with limits.raised({"unpacked-bytes": len(stored)}):
        assert kept.document(content) == data
    with limits.raised({"unpacked-bytes": len(stored) - 1}):
        assert "is something else" in str(refusal(lambda: kept.document(content)))
    kept.close()


# --- growth ------------------------------------------------------------------------------------------------------


def figures(commit: str, **extents: int) -> Any:
    made = run_of(plan_of({"a": 1}), Label("net", commit, NEW_YEAR), bytes(32))
    return replace(made, arenas=tuple(ArenaFigures(name, n, n + 1, n + 2, 1, 1) for name, n in extents.items()))


def test_a_commit_named_whole_is_not_the_beginning_of_another() -> None:
    runs = [figures("ab"), figures("abc"), figures("b")]
    assert [run.commit for run in growth.between(runs, "ab", "abc")] == ["ab", "abc"]
    for commit, why in (("x", "x is not among the runs"), ("a", "a begins several commits of the runs")):
        assert why in str(refusal(lambda: growth.between(runs, commit, None)))  # noqa: B023


def test_arenas_that_grew_by_a_byte_did_and_the_most_grown_come_first() -> None:
    before, after = figures("a", a=5, b=5, c=5, d=5), figures("b", a=6, b=5, c=8, e=1, f=8)
    assert growth.grown_arenas(before, after, "extent") == ("f", "c", "a", "e")
    assert growth.grown_arenas(before, after, "bound") == ("f", "c", "e", "a")
    assert growth.grown_arenas(before, after, "peak") == ("f", "c", "e", "a")
