"""Access to this server's store (``--store`` or ``TMMU_STORE``): recorded runs, their plans, and opened files."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from tmmu_core.base.errors import StoreFault, TmmuError, UnreadableInput, require

if TYPE_CHECKING:
    from tmmu_core.store.runs import Run
    from tmmu_core.store.store import Store

T = TypeVar("T")
VARIABLE = "TMMU_STORE"
KIND = "store"  # source of a stored plan: store:<SHA-256 of its file, in hex>


def url() -> str:
    """Return the URL of this server's store; ``""`` without a store."""
    return os.environ.get(VARIABLE, "")


def store() -> Store | None:
    """Return the open store; ``None`` without a store. Raises ``TmmuError`` if it cannot be opened."""
    if not url():
        return None
    require("sqlalchemy", "a store")
    return _opened(url())


@lru_cache(maxsize=4)
def _opened(store_url: str) -> Store:
    from tmmu_core.store.store import Store

    return Store.at(store_url, create=True)


def source_of(run: Run) -> str:
    """Return the source of a run's plan for links."""
    return f"{KIND}:{run.content.hex()}"


def plan_file(hex_digest: str) -> tuple[bytes, str]:
    """Return ``(content, file name)`` of the stored plan with this content hash. Raises ``UnreadableInput``."""
    try:
        server_store, digest = store(), bytes.fromhex(hex_digest)
        if server_store is None:
            raise StoreFault("this server has no store.", hint="Start it with tmmu explore --store URL.")
        return server_store.document(digest), f"{hex_digest[:12]}.plan.cbor"
    except ValueError:
        message = f"{hex_digest[:80]!r} is not the hash of a stored plan."
        raise UnreadableInput(message, hint="Open the plan from Compare, History.") from None
    except TmmuError as error:
        raise UnreadableInput(error.message, source=f"{KIND}:{hex_digest[:12]}", hint=error.hint) from error


def with_store(operation: Callable[[Store], T]) -> T | None:
    """Return ``operation(store)``; ``None`` without a store, or if the store cannot be used."""
    with suppress(TmmuError):
        if (server_store := store()) is not None:
            return operation(server_store)
    return None
