"""Set up SQLite connections of a store, and reject files with unsafe content.

A file may come from anywhere: SQLite executes views and triggers of its schema, reads texts of a gigabyte, and
deletes a file that a journal names. A valid store has only tables, and no journal of several files.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DisconnectionError

from tmmu_core.base.errors import StoreFault
from tmmu_core.base.escaping import visible
from tmmu_core.base.limits import UNPACKED_BYTES, ceiling
from tmmu_core.store.tables import METADATA

PATIENCE = 120.0
"""Seconds that a writer waits for its turn."""
LONGEST = 1 << 29
"""Bytes of the longest text or blob of a row, without a configured limit."""
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""How a rollback journal ends that names another one (sqlite.org/fileformat.html, "The Rollback Journal")."""
_FILE = "tmmu.file"
"""What a connection's record calls the file that it has open."""
_MOVED = "the file was moved, deleted or replaced while it was open"
_TABLES = ("alembic_version", *METADATA.tables)
_STRANGE = (
    "SELECT name, type FROM sqlite_schema WHERE lower(tbl_name) IN ({tables})"
    " AND (type IN ('view', 'trigger') OR (type = 'table' AND coalesce(rootpage, 0) = 0)) LIMIT 1"
).format(tables=", ".join(f"'{name}'" for name in _TABLES))
_COMPUTED = "SELECT name FROM pragma_table_xinfo('{table}') WHERE hidden <> 0 LIMIT 1"


def set_up(engine: Engine, name: str, *, create: bool) -> None:
    """Configure every connection of ``engine`` when it is opened.

    Raises ``StoreFault`` or SQLite's errors. Only the first connection creates the file, and only with ``create``; a
    file that is deleted or replaced later is not created again.
    """
    path, makes = Path(str(engine.url.database)).absolute(), [create]

    def opened(dialect: Any, record: Any, _: Any, options: dict[str, Any]) -> Any:
        record.info[_FILE] = _file_at(path)
        if options.get("uri") or (makes and makes.pop()):
            return None
        return dialect.connect(f"{path.as_uri()}?mode=rw", **options, uri=True)

    def settled(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions begin explicitly
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(ceiling(UNPACKED_BYTES, LONGEST), 2**31 - 1))
        cursor = connection.cursor()
        try:
            _reject_shared_journal(cursor, name)  # before any read, which would delete the file
            cursor.execute(f"PRAGMA busy_timeout = {int(PATIENCE * 1000)}")
            cursor.execute("PRAGMA trusted_schema = OFF")
            _reject_views_and_triggers(cursor, name)
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.execute("PRAGMA synchronous = FULL")  # commits survive a power cut
            _enable_write_ahead_log(cursor)
        finally:
            cursor.close()
        record.info[_FILE] = record.info[_FILE] or _file_at(path)

    def in_its_place(_: Any, record: Any, __: Any) -> None:
        if record.info[_FILE] != _file_at(path):
            raise DisconnectionError(_MOVED)  # and another connection is made

    event.listen(engine, "do_connect", opened)
    event.listen(engine, "connect", settled)
    event.listen(engine, "checkout", in_its_place)
    event.listen(engine, "begin", _begin)


def refuse_if_moved(connection: Connection) -> None:
    """Raise ``DisconnectionError`` if the file of a connection was moved, deleted or replaced."""
    if connection.info[_FILE] != _file_at(Path(str(connection.engine.url.database))):
        raise DisconnectionError(_MOVED)


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return the identity of a file; ``None`` if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _reject_shared_journal(cursor: Any, name: str) -> None:
    """Reject a journal that names another file, which opening the store would delete."""
    for _, _, file in cursor.execute("PRAGMA database_list").fetchall():
        journal = Path(f"{file}-journal")
        if file and journal.is_file() and _ending(journal, name) == _JOURNAL_MAGIC:
            raise StoreFault(
                f"{journal.name} names another file, which opening the store would delete.",
                store=name,
                hint="tmmu never writes such a journal: delete it.",
            )


def _ending(journal: Path, name: str) -> bytes:
    """Return the last bytes of a journal; empty if another process has just deleted it."""
    try:
        with journal.open("rb") as data:
            data.seek(max(0, data.seek(0, os.SEEK_END) - len(_JOURNAL_MAGIC)))
            return data.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        why = f"{journal.name} cannot be read: {error.strerror or error}."
        raise StoreFault(why, store=name, hint="Check the permissions of the store and its journal.") from error


def _reject_views_and_triggers(cursor: Any, name: str) -> None:
    found = cursor.execute(_STRANGE).fetchone()
    for table in _TABLES if found is None else ():
        column = cursor.execute(_COMPUTED.format(table=table)).fetchone()
        found = found or (column and (f"{table}.{column[0]}", "computed column"))
    if found is not None:
        thing, kind = (visible(str(part))[:80] for part in found)
        raise StoreFault(
            f"the database contains the {kind} {thing}, which a store never has.",
            store=name,
            hint="Drop it, or record into a new store.",
        )


def _enable_write_ahead_log(cursor: Any) -> None:
    """Turn on the write-ahead log, with retries while the file is locked."""
    until = time.monotonic() + PATIENCE
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("tmmu_writes", False)
    # A reader cannot become a writer after another write: writers lock at their start.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
