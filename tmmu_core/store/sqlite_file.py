"""SQLite's side of a store: how a connection is set up, and what a file may not bring with it.

The file may come from anywhere. SQLite runs what stands in a file's schema (a view can count for ever, a trigger undo
what is written), reads texts of a gigabyte, and, where a journal beside the file names another file, takes that file
for its own and deletes it. A store of ours has none of these: its tables are tables, and it is alone in its
transactions.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DisconnectionError

from tmmu_core.errors import StoreFault
from tmmu_core.limits import UNPACKED_BYTES, ceiling
from tmmu_core.names import visible
from tmmu_core.store.schema import METADATA

PATIENCE = 120.0
"""Seconds that a writer waits for its turn."""
LONGEST = 1 << 29
"""Bytes of the longest text or blob of a row, where no limit is set: what an upload of the explorer may have."""
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""How a rollback journal ends that names another one (sqlite.org/fileformat.html, "The Rollback Journal")."""
_FILE = "tmmu.file"
"""What a connection's record calls the file that it has open."""
_MOVED = "it was moved, deleted or replaced while it was open"
_TABLES = ("alembic_version", *METADATA.tables)
_STRANGE = (
    "SELECT name, type FROM sqlite_schema WHERE lower(tbl_name) IN ({tables})"
    " AND (type IN ('view', 'trigger') OR (type = 'table' AND coalesce(rootpage, 0) = 0)) LIMIT 1"
).format(tables=", ".join(f"'{name}'" for name in _TABLES))
_COMPUTED = "SELECT name FROM pragma_table_xinfo('{table}') WHERE hidden <> 0 LIMIT 1"


def set_up(engine: Engine, name: str, *, create: bool) -> None:
    """Have every connection of ``engine`` settled when it is made; what is wrong with the store is raised then.

    That is ``StoreFault``, or what SQLite raises. The file is made by the first connection, and where ``create`` says
    so; one that is gone later is not made anew, and no connection goes on with a file that is in its place no more.
    """
    path, makes = Path(str(engine.url.database)).absolute(), [create]

    def opened(dialect: Any, record: Any, _: Any, options: dict[str, Any]) -> Any:
        record.info[_FILE] = _file_at(path)
        if options.get("uri") or (makes and makes.pop()):
            return None
        return dialect.connect(f"{path.as_uri()}?mode=rw", **options, uri=True)

    def settled(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say so
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(ceiling(UNPACKED_BYTES, LONGEST), 2**31 - 1))
        cursor = connection.cursor()
        try:
            _refuse_a_journal_of_several(cursor, name)  # before anything is read: reading is what deletes
            cursor.execute(f"PRAGMA busy_timeout = {int(PATIENCE * 1000)}")
            cursor.execute("PRAGMA trusted_schema = OFF")
            _refuse_what_is_no_table(cursor, name)
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.execute("PRAGMA synchronous = FULL")  # what is committed outlives a power cut, not only a kill
            _log_ahead(cursor)
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
    """Raise ``DisconnectionError`` where the file of a connection is in its place no more: nobody would find it."""
    if connection.info[_FILE] != _file_at(Path(str(connection.engine.url.database))):
        raise DisconnectionError(_MOVED)


def _file_at(path: Path) -> tuple[int, int] | None:
    """What tells a file from all others, wherever it is moved; ``None`` where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _refuse_a_journal_of_several(cursor: Any, name: str) -> None:
    """A transaction over several files leaves a journal in each that names a common one, which is deleted at the end.

    Nobody writes one here, so whoever made it means a file to be deleted.
    """
    for _, _, file in cursor.execute("PRAGMA database_list").fetchall():
        journal = Path(f"{file}-journal")
        if file and journal.is_file() and _ending(journal, name) == _JOURNAL_MAGIC:
            raise StoreFault(
                f"{journal.name} names another file, which opening the store would delete.",
                store=name,
                hint="No command of ours writes one: take it away, and ask who put it there.",
            )


def _ending(journal: Path, name: str) -> bytes:
    """The last bytes of a journal; none where a process that is making the store has taken it away meanwhile."""
    try:
        with journal.open("rb") as data:
            data.seek(max(0, data.seek(0, os.SEEK_END) - len(_JOURNAL_MAGIC)))
            return data.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        why = f"{journal.name} cannot be read: {error.strerror or error}."
        raise StoreFault(why, store=name, hint="It belongs to the store: mend the rights of both.") from error


def _refuse_what_is_no_table(cursor: Any, name: str) -> None:
    found = cursor.execute(_STRANGE).fetchone()
    for table in _TABLES if found is None else ():
        column = cursor.execute(_COMPUTED.format(table=table)).fetchone()
        found = found or (column and (f"{table}.{column[0]}", "computed column"))
    if found is not None:
        thing, kind = (visible(str(part))[:80] for part in found)
        raise StoreFault(
            f"the database computes where a store keeps: {thing} is a {kind}.",
            store=name,
            hint="No version of ours makes one: drop it, or record into a new store.",
        )


def _log_ahead(cursor: Any) -> None:
    """Turn the write-ahead log on, which is kept in the file; the turning itself does not wait for its turn."""
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
    # A reader that turns writer would be refused where another wrote meanwhile: writers say so at once.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
