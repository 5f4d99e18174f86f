"""Files that people opened, under the keys of their links: so that a link outlives the server that gave it."""

from __future__ import annotations

import zlib
from datetime import datetime

from sqlalchemy import select

from tmmu_core.errors import StoreFault
from tmmu_core.names import visible
from tmmu_core.store.opening import faults_of, writing
from tmmu_core.store.run import instant
from tmmu_core.store.schema import FILES
from tmmu_core.store.store import Store, packed


def keep(store: Store, key: str, file: tuple[str, bytes], at: datetime) -> None:
    """Keep ``(name, bytes)`` under ``key``; what is there under it stays."""
    name, data = file
    row = {"digest": key, "name": visible(name), "at": instant(at), "bytes": len(data), "packed": packed(data)}
    with faults_of(store.name), writing(store.engine) as connection:
        connection.execute(store.unless_there(FILES), row)


def file(store: Store, key: str) -> tuple[str, bytes] | None:
    """``(name, bytes)``; ``None`` where nothing is kept. Raises ``StoreFault``, also for what is damaged."""
    with faults_of(store.name), store.engine.connect() as connection:
        found = connection.execute(select(FILES.c.name, FILES.c.bytes, FILES.c.packed).where(FILES.c.digest == key))
        row = found.first()
    if row is None:
        return None
    try:
        data = zlib.decompressobj().decompress(row.packed, row.bytes + 1)
    except zlib.error:
        data = b""
    if len(data) != row.bytes:
        raise StoreFault(f"the file {row.name} is damaged.", store=store.name, hint="Open it again.")
    return row.name, data


def drop(store: Store, key: str) -> None:
    """Let go of a file."""
    with faults_of(store.name), writing(store.engine) as connection:
        connection.execute(FILES.delete().where(FILES.c.digest == key))
