"""Files opened in the explorer, by the key of their link, so that links survive a restart of the server."""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import select

from tmmu_core.base.errors import StoreFault
from tmmu_core.base.escaping import visible
from tmmu_core.base.limits import UNPACKED_BYTES, ceiling, past
from tmmu_core.store.run_label import instant
from tmmu_core.store.store import Store, packed, unpacked
from tmmu_core.store.tables import FILES

LONGEST = 1 << 29
"""Bytes of the largest file without a configured limit."""


def keep(store: Store, key: str, file: tuple[str, bytes], at: datetime) -> None:
    """Store ``(name, bytes)`` under ``key``; an existing file is kept."""
    name, data = file
    _refuse_large(store, name, len(data))
    row = {"digest": key, "name": visible(name), "at": instant(at), "bytes": len(data), "packed": packed(data)}
    with store.writing() as connection:
        connection.execute(store.insert_missing(FILES), row)


def file(store: Store, key: str) -> tuple[str, bytes] | None:
    """Return ``(name, bytes)``; ``None`` without a file. Raises ``StoreFault`` for a damaged one."""
    found = store.rows(select(FILES.c.name, FILES.c.bytes, FILES.c.packed).where(FILES.c.digest == key))
    if not found:
        return None
    name, size, packs = found[0]
    _refuse_large(store, name, size)
    data = unpacked(packs, size)
    if data is None:
        raise StoreFault(f"the file {visible(name)} is damaged.", store=store.name, hint="Open it again.")
    return visible(name), data


def change(store: Store, key: str, name: str, edit: Callable[[bytes], bytes], at: datetime) -> bytes:
    """Replace a file by ``edit(its bytes)`` in one transaction and return the result; a missing file is empty."""
    this = FILES.c.digest == key
    missing = {"digest": key, "name": visible(name), "at": instant(at), "bytes": 0, "packed": packed(b"")}
    with store.writing() as connection:
        connection.execute(store.insert_missing(FILES), missing)
        size, packs = connection.execute(select(FILES.c.bytes, FILES.c.packed).where(this).with_for_update()).one()
        data = edit(unpacked(packs, size) or b"")
        _refuse_large(store, name, len(data))
        connection.execute(FILES.update().where(this).values(bytes=len(data), packed=packed(data)))
    return data


def drop(store: Store, key: str) -> None:
    """Delete a file."""
    with store.writing() as connection:
        connection.execute(FILES.delete().where(FILES.c.digest == key))


def _refuse_large(store: Store, name: str, size: int) -> None:
    most = ceiling(UNPACKED_BYTES, LONGEST)  # by default that of an upload
    if size > most:
        raise past(UNPACKED_BYTES, visible(name), store.name, most)
