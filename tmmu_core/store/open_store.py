"""Open the store: its tables, and an engine of SQLAlchemy for SQLite or PostgreSQL.

Tables and columns::

    plans    content ─────────┐      compressed CBOR plan file; one row for all runs with this plan
    runs     …, content ──────┘      figures of a commit's plan, so that lists decompress no plan
    sweeps   ── sweep_points         the request, and the rows of each finished point
    files                            files opened in the explorer, so that links survive a restart

SQLite has one file with a write-ahead log: readers never wait, and a writer waits for the lock when it begins.
The tables are created in one transaction under a lock, so that two processes do not create them twice.
"""

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sql
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from tmmu_core.base.errors import StoreFault, first_line
from tmmu_core.base.escaping import visible

VERSION = "0001"  # version of the tables; a change of the tables needs a new version, and code that upgrades old stores


class U64(sql.TypeDecorator[int]):
    """Integers 0 … 2^64 − 1 in a signed 64-bit column: a number n above 2^63 − 1 is stored as n − 2^64."""

    impl = sql.BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Any) -> int | None:
        """Return the stored value."""
        return value if value is None or value < 2**63 else value - 2**64

    def process_result_value(self, value: int | None, dialect: Any) -> int | None:
        """Return the integer of a stored number."""
        return value + 2**64 if isinstance(value, int) and value < 0 else value


def _columns(kind: Any, names: str) -> list[sql.Column[Any]]:
    """Return columns of one type without nulls; ``names`` are separated by blanks."""
    return [sql.Column(name, kind, nullable=False) for name in names.split()]


METADATA = sql.MetaData()

VERSIONS = sql.Table("alembic_version", METADATA, sql.Column("version_num", sql.String(32), primary_key=True))
"""A table with one row, the version. Old stores were created with Alembic, so the table has Alembic's name."""

_key = partial(sql.Column, primary_key=True)
_names, _texts, _numbers, _bytes = (
    partial(_columns, kind) for kind in (sql.String, sql.Text, sql.BigInteger, sql.LargeBinary)
)

PLANS = sql.Table("plans", METADATA, _key("content", sql.LargeBinary), *_numbers("bytes"), *_bytes("packed"))

RUNS = sql.Table(
    "runs",
    METADATA,
    _key("number", sql.BigInteger().with_variant(sql.Integer, "sqlite"), autoincrement=True),  # SQLite needs INTEGER
    sql.Column("key", sql.LargeBinary, nullable=False, unique=True),
    *_names("model commit branch at planner mode preset graph"),
    *_columns(U64, "steps extent_bytes peak_live_bytes"),
    *_numbers("peak_step"),
    *_columns(U64, "lower_bound_bytes"),
    *_bytes("layout_hash tmmu_plan_hash"),
    sql.Column("content", sql.LargeBinary, sql.ForeignKey("plans.content"), nullable=False),
    *_texts("arenas"),
    sql.Index("ix_runs_series", "model", "branch", "planner", "mode", "preset", "at", "number", "extent_bytes"),
    sql.Index("ix_runs_model_at", "model", "at", "number"),
    sql.Index("ix_runs_model_commit", "model", "commit"),
    sql.Index("ix_runs_graph_model", "graph", "model"),
)

_REQUEST = sql.Column("asked", sql.Text, key="request", nullable=False)  # old stores have the column ``asked``
SWEEPS = sql.Table("sweeps", METADATA, _key("sweep", sql.String), *_names("at"), _REQUEST, *_numbers("points"))

_sweep = _key("sweep", sql.String, sql.ForeignKey("sweeps.sweep"))
_point = (_sweep, _key("number", sql.BigInteger, autoincrement=False))
SWEEP_POINTS = sql.Table("sweep_points", METADATA, *_point, *_columns(sql.Integer, "failed"), *_texts("row"))

FILES = sql.Table(
    "files", METADATA, _key("digest", sql.String), *_names("name at"), *_numbers("bytes"), *_bytes("packed")
)

LOCK = 0x746D6D75  # key of the advisory lock for creating tables in PostgreSQL: "tmmu"
LOCK_TIMEOUT = 120.0  # seconds that a SQLite writer waits for the lock

DRIVERS = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg", "sqlite": "sqlite+pysqlite"}
"""Scheme of a URL → dialect and driver of SQLAlchemy."""

_CREATE_HINT = "Check the URL, or create a store with tmmu record."
_PASSWORD = re.compile(r":[^:@/]*@")
_URL_HINT = "Write sqlite:///plans.db, or postgresql://user@host/database."


def open_engine(url: str, *, create: bool) -> tuple[sql.Engine, str]:
    """Open the store at ``url``, or ``create`` it; return ``(engine, URL without password)``. Raises ``StoreFault``."""
    parsed, name = parsed_url(url)
    is_sqlite, path = parsed.get_backend_name() == "sqlite", str(parsed.database)
    if is_sqlite and not create and not os.path.isfile(path):
        raise StoreFault("the store does not exist.", store=name, hint=_CREATE_HINT)
    with faults_of(name):
        try:
            # Without a pool, a replaced SQLite file is opened again. The ping finds connections that a server closed.
            pool: dict[str, Any] = {"poolclass": sql.NullPool} if is_sqlite else {"pool_pre_ping": True}
            is_writable = all(os.access(p, os.W_OK) for p in (path, os.path.dirname(path) or "."))
            if is_sqlite and not create and not is_writable:
                pool["creator"] = partial(_connect_read_only, path)
            engine = sql.create_engine(parsed, **pool)
            if is_sqlite:
                if "creator" not in pool:
                    sql.event.listen(engine, "connect", _set_up_sqlite)
                sql.event.listen(engine, "begin", _begin_sqlite)
            engine.connect().close()
        except (TypeError, ValueError) as error:
            what = f"the driver does not accept the URL's options: {error}."
            raise StoreFault(what, store=name, hint=_URL_HINT) from error
        with engine.connect() as connection:
            version = _version(connection)
        if version is None and not create:
            raise StoreFault("the database contains no store.", store=name, hint=_CREATE_HINT)
        if version is None:
            with engine.execution_options(tmmu_writes=True).begin() as connection:
                if engine.dialect.name == "postgresql":
                    connection.execute(sql.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
                version = _version(connection)  # another process may have created the tables
                if version is None:
                    METADATA.create_all(connection)
                    connection.execute(VERSIONS.insert(), {"version_num": VERSION})
                    return engine, name
        if version != VERSION:
            what = f"the store has version {version}; this tmmu supports version {VERSION}."
            raise StoreFault(what, store=name, hint="Install a newer version of tmmu.")
    return engine, name


def _connect_read_only(path: str) -> sqlite3.Connection:
    """Open a file that cannot be written. Create no files beside it, unless its write-ahead log must be read."""
    log = f"{os.path.realpath(path)}-wal"
    mode = "mode=ro" if os.path.exists(log) and os.path.getsize(log) else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{Path(path).resolve().as_uri()}?{mode}", uri=True, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _set_up_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin explicitly
    for setting in (f"busy_timeout = {int(LOCK_TIMEOUT * 1000)}", "trusted_schema = OFF", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {setting}")
    connection.execute("PRAGMA synchronous = FULL")  # commits survive a power cut
    until = time.monotonic() + LOCK_TIMEOUT
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:  # the busy timeout does not apply to this setting
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: sql.Connection) -> None:
    # A reader cannot become a writer after another transaction has written, so writers take the lock first.
    writes = connection.get_execution_options().get("tmmu_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def faults_of(name: str) -> Iterator[None]:
    """Context manager: raise ``StoreFault`` for database errors, damaged rows, and text that UTF-8 cannot encode."""
    try:
        yield
    except SQLAlchemyError as error:
        inner = getattr(error, "orig", None) or error
        reason = first_line(inner).rstrip(".")
        hint = "Check the URL and the permissions, and that the database runs."
        if isinstance(inner, sqlite3.OperationalError):
            hint = "Check that the folder exists and is writable, and that the disk has space."
            if "locked" in str(inner):
                hint = f"Another process locked it for {LOCK_TIMEOUT:.0f} s; try again."
            if "decode" in str(inner):
                hint = "A row is damaged. Restore a backup."
        raise StoreFault(f"the store cannot be used: {reason}.", store=name, hint=hint) from error
    except UnicodeEncodeError as error:
        what, hint = "a name contains half a surrogate pair.", "Use a name that UTF-8 can encode."
        raise StoreFault(what, store=name, hint=hint) from error
    except (msgspec.DecodeError, TypeError) as error:
        raise StoreFault("a row of the store is damaged.", store=name, hint="Restore a backup.") from error


def parsed_url(url: str) -> tuple[URL, str]:
    """Return ``(URL with its driver, URL without password)``. Raises ``StoreFault`` for an unusable URL."""
    try:
        parsed = make_url(url)
        name = parsed.render_as_string(hide_password=True)
        parsed = parsed.set(drivername=DRIVERS.get(parsed.drivername, parsed.drivername))
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise StoreFault(f"the database {parsed.get_backend_name()} is not supported.", hint=_URL_HINT)
        if parsed.get_backend_name() == "sqlite" and (parsed.query or parsed.database in (None, "", ":memory:")):
            raise StoreFault("the URL of a SQLite store must name a file, without options.", store=name, hint=_URL_HINT)
        parsed.get_dialect().import_dbapi()
    except (NoSuchModuleError, ImportError) as error:  # NoSuchModuleError is a subclass of ArgumentError
        raise StoreFault(f"the URL's driver is not installed: {error}.", hint=_URL_HINT) from error
    except (ArgumentError, ValueError) as error:  # ValueError: the port is not a number
        safe_url = _PASSWORD.sub(":***@", url[:200])
        raise StoreFault(f"{safe_url!r} is not the URL of a store.", hint=_URL_HINT) from error
    return parsed, name


def _version(connection: sql.Connection) -> str | None:
    if not sql.inspect(connection).has_table(VERSIONS.name):
        return None
    version = connection.execute(sql.select(VERSIONS.c.version_num)).scalar()
    return None if version is None else visible(str(version)[:80])
