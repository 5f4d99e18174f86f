"""Open a store: an engine with its tables, for SQLite and PostgreSQL.

SQLite is one file with a write-ahead log: readers never wait, a writer locks at its start and waits for its turn.
Tables are created in one transaction behind the same lock, so that one of several processes creates a new store.
"""

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from tmmu_core.base.errors import StoreFault
from tmmu_core.base.escaping import visible
from tmmu_core.store.tables import METADATA, VERSION, VERSIONS

LOCK = 0x746D6D75
"""Key of the advisory lock for creating tables in PostgreSQL: "tmmu"."""
LOCK_TIMEOUT = 120.0
"""Seconds that a SQLite writer waits for its turn."""

SERVERS = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg", "sqlite": "sqlite+pysqlite"}


def open_engine(url: str, *, create: bool) -> tuple[Engine, str]:
    """Return ``(engine, URL without password)`` of a store with current tables.

    Without ``create`` a missing store raises ``StoreFault``.
    """
    parsed, name = _parsed(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    if is_sqlite and not create and not os.path.isfile(str(parsed.database)):
        raise StoreFault("the store does not exist.", store=name, hint=_CREATE)
    with faults_of(name):
        try:
            # A replaced SQLite file is opened again; a server's connection may have been closed.
            engine = create_engine(parsed, **({"poolclass": NullPool} if is_sqlite else {"pool_pre_ping": True}))
            if is_sqlite:
                event.listen(engine, "connect", _set_up_sqlite)
                event.listen(engine, "begin", _begin_sqlite)
            engine.connect().close()
        except (TypeError, ValueError) as error:
            why = f"the URL's options are not those of its driver: {error}."
            raise StoreFault(why, store=name, hint=_FORMS) from error
        _create_tables(engine, name, create=create)
    return engine, name


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes: commit at its end, roll back on an error."""
    with engine.execution_options(tmmu_writes=True).begin() as connection:
        yield connection


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


def _begin_sqlite(connection: Connection) -> None:
    # A reader cannot become a writer after another write: writers lock at their start.
    writes = connection.get_execution_options().get("tmmu_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def faults_of(name: str) -> Iterator[None]:
    """Convert database errors to ``StoreFault``."""
    try:
        yield
    except SQLAlchemyError as error:
        inner = getattr(error, "orig", None) or error
        reason = (str(inner).strip().splitlines() or [type(inner).__name__])[0].rstrip(".")
        hint = "Check the URL, the rights and that the database runs."
        if isinstance(inner, sqlite3.OperationalError) and "locked" in str(inner):
            hint = f"Another process locked it for {LOCK_TIMEOUT:.0f} s; try again."
        raise StoreFault(f"the store cannot be used: {reason}.", store=name, hint=hint) from error
    except UnicodeEncodeError as error:
        raise StoreFault("a name contains half a surrogate pair.", store=name, hint=_NAMES) from error


def _parsed(url: str) -> tuple[URL, str]:
    try:
        parsed = make_url(url)
        name = parsed.render_as_string(hide_password=True)
        parsed = parsed.set(drivername=SERVERS.get(parsed.drivername, parsed.drivername))
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise StoreFault(f"the database {parsed.get_backend_name()} is not supported.", hint=_FORMS)
        if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
            raise StoreFault("a store in memory is lost when the command ends.", hint=_FORMS)
        parsed.get_dialect().import_dbapi()
    except (NoSuchModuleError, ImportError) as error:  # the first of them is an ArgumentError, too
        raise StoreFault(f"the URL's driver is not installed: {error}.", hint=_FORMS) from error
    except ArgumentError as error:
        shown = _PASSWORD.sub(":***@", url[:200])
        raise StoreFault(f"{shown!r} is not the URL of a store.", hint=_FORMS) from error
    return parsed, name


_NAMES = "tmmu history lists the stored runs."
_CREATE = "Check the URL, or create one with tmmu record."
_PASSWORD = re.compile(r":[^:@/]*@")
_FORMS = "Write sqlite:///plans.db, or postgresql://user@host/database."


# --- versions ----------------------------------------------------------------------------------------------------


def _create_tables(engine: Engine, name: str, *, create: bool) -> None:
    with engine.connect() as connection:
        found = _version(connection)
    if found is None and not create:
        raise StoreFault("the database contains no store.", store=name, hint=_CREATE)
    if found is None:
        with writing(engine) as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            found = _version(connection)
            if found is None:
                METADATA.create_all(connection)
                connection.execute(VERSIONS.insert(), {"version_num": VERSION})
                found = VERSION
    if found != VERSION:
        why = f"the store has revision {found}; this version supports {VERSION}."
        raise StoreFault(why, store=name, hint="Install a newer version.")


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSIONS.name):
        return None
    found = connection.execute(select(VERSIONS.c.version_num)).scalar()
    return None if found is None else visible(str(found)[:80])
