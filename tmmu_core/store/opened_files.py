"""Files that people opened, under the keys of their links: so that a link outlives the server that gave it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select

from tmmu_core.base.errors import StoreFault
from tmmu_core.base.escaping import visible
from tmmu_core.base.limits import UNPACKED_BYTES, ceiling, past
from tmmu_core.store import stored_rows
from tmmu_core.store.open_store import faults_of, writing
from tmmu_core.store.run_label import instant
from tmmu_core.store.sqlite_file import LONGEST
from tmmu_core.store.store import Store, packed
from tmmu_core.store.tables import FILES


def keep(store: Store, key: str, file: tuple[str, bytes], at: datetime) -> None:
    """Keep ``(name, bytes)`` under ``key``; what is there under it stays."""
    name, data = file
    if len(data) > _most():
        raise past(UNPACKED_BYTES, visible(name), store.name, _most())
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
    name, size, packs = stored_rows.typed(stored_rows.FileRow, row, store.name)
    if size > _most():
        raise past(UNPACKED_BYTES, visible(name), store.name, _most())
    data = stored_rows.unpacked(packs, size)
    if data is None:
        raise StoreFault(f"the file {visible(name)} is damaged.", store=store.name, hint="Open it again.")
    return visible(name), data


def drop(store: Store, key: str) -> None:
    """Let go of a file."""
    with faults_of(store.name), writing(store.engine) as connection:
        connection.execute(FILES.delete().where(FILES.c.digest == key))


def _most() -> int:
    """Bytes of the largest file that is kept: what an upload may have, where no limit is set."""
    return ceiling(UNPACKED_BYTES, LONGEST)
