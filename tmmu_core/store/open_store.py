"""Open a store: an engine with migrated tables, for SQLite and PostgreSQL.

SQLite is one file with a write-ahead log: readers never wait, a writer locks at its start and waits for its turn.
Migrations run in one transaction behind the same lock, so that one of several processes creates a new store.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, NoSuchModuleError, SQLAlchemyError

from tmmu_core.base.errors import StoreFault
from tmmu_core.base.escaping import visible
from tmmu_core.base.limits import UNPACKED_BYTES
from tmmu_core.store import sqlite_file
from tmmu_core.store.tables import HEAD

LOCK = 0x746D6D75
"""Key of the advisory lock for migrations in PostgreSQL: "tmmu"."""

SERVERS = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg", "sqlite": "sqlite+pysqlite"}


def open_engine(url: str, *, create: bool) -> tuple[Engine, str]:
    """Return ``(engine, URL without password)`` of a store with current tables.

    Without ``create`` a missing store raises ``StoreFault``.
    """
    parsed, name = _parsed(url)
    if parsed.get_backend_name() == "sqlite" and not create and not os.path.isfile(str(parsed.database)):
        raise StoreFault("the store does not exist.", store=name, hint="Check the URL, or create one with tmmu record.")
    with faults_of(name):
        try:
            engine = create_engine(parsed, pool_pre_ping=parsed.get_backend_name() != "sqlite")
            if engine.dialect.name == "sqlite":
                sqlite_file.set_up(engine, name, create=create)
            engine.connect().close()
        except (TypeError, ValueError) as error:
            why = f"the URL's options are not those of its driver: {error}."
            raise StoreFault(why, store=name, hint=_FORMS) from error
        _upgrade(engine, name, create=create)
    return engine, name


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes: commit at its end, roll back on an error."""
    with engine.execution_options(tmmu_writes=True).connect() as connection:
        with connection.begin():
            yield connection
        if engine.dialect.name == "sqlite":
            sqlite_file.refuse_if_moved(connection)


@contextmanager
def faults_of(name: str) -> Iterator[None]:
    """Convert database errors to ``StoreFault``."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreFault(_reason(error), store=name, hint=_hint(error)) from error
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


_NAMES = "tmmu history lists what there is."
_PASSWORD = re.compile(r":[^:@/]*@")
_FORMS = "Write sqlite:///plans.db, or postgresql://user@host/database."


def _reason(error: SQLAlchemyError) -> str:
    inner = getattr(error, "orig", None) or error
    lines = str(inner).strip().splitlines()
    return f"the store cannot be used: {(lines[0] if lines else type(inner).__name__).rstrip('.')}."


def _hint(error: SQLAlchemyError) -> str:
    inner = getattr(error, "orig", None)
    if isinstance(inner, sqlite3.OperationalError) and "locked" in str(inner):
        return f"Another process locked it for {sqlite_file.PATIENCE:.0f} s; try again."
    if isinstance(error, DisconnectionError):
        return "The file was replaced during the write: write again."
    if isinstance(inner, sqlite3.DataError) and "too big" in str(inner):
        return f"Raise the limit: --max-{UNPACKED_BYTES.name} N, or {UNPACKED_BYTES.variable}=N."
    return "Check the URL, the rights and that the database runs."


# --- versions ----------------------------------------------------------------------------------------------------


class _MigrationLock:
    """The migration lock of this process; a forked process gets a new one."""

    def __init__(self) -> None:
        self.create_lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.create_lock)

    def create_lock(self) -> None:
        """Create the lock."""
        self.lock = threading.Lock()


_migrating = _MigrationLock()


def _upgrade(engine: Engine, name: str, *, create: bool) -> None:
    with engine.connect() as connection:
        found = _revision(connection)
    if found == HEAD:
        return
    if found is None and not create:
        raise StoreFault(
            "the database contains no store.", store=name, hint="Check the URL, or create one with tmmu record."
        )
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        if _revision(connection) != HEAD:
            _migrate(connection, name)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else visible(str(found)[:80])


def _migrate(connection: Connection, name: str) -> None:
    """Run missing migrations in the open transaction.

    Alembic's ``op`` uses one connection per process, so that migrations are serialised.
    """
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    script = ScriptDirectory.from_config(config)
    known = {revision.revision for revision in script.walk_revisions()}
    found = _revision(connection)
    if found is not None and found not in known:
        raise StoreFault(
            f"the store has revision {found}; this version supports {HEAD}.",
            store=name,
            hint="Install a newer version.",
        )
    how = EnvironmentContext(config, script, fn=lambda rev, _: script._upgrade_revs("head", rev))
    with _migrating.lock, how as environment:
        environment.configure(connection=connection, transactional_ddl=True)
        environment.run_migrations()
