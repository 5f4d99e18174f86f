"""Delay ``fork()`` until no other thread holds an import lock of this library.

Modules are imported when they are first needed. Only the forking thread exists in the child process: an import lock
held by another thread would never be released there, and an import of that module would wait forever.
"""

from __future__ import annotations

import importlib
import os
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any

OURS = ("tmmu_core", "numpy")
"""Packages with modules that are imported late."""
PASSES = 100
"""Rounds of waiting; a module that this thread itself is waiting for never finishes."""


def wait_for_modules() -> None:
    """Wait until other threads have finished their imports of :data:`OURS`."""
    for _ in range(PASSES):
        names = being_loaded()
        if not names:
            return
        for name in names:
            with suppress(Exception):  # the thread that needs the module reports its errors
                import_module(name)


def being_loaded() -> list[str]:
    """Return the modules of :data:`OURS` whose import locks other threads hold."""
    me, found = threading.get_ident(), []
    kept = getattr(importlib, "_bootstrap", None)
    for name, reference in list(getattr(kept, "_module_locks", {}).items()):
        owner = getattr(reference(), "owner", None)
        if owner not in (None, me) and name.partition(".")[0] in OURS:
            found.append(name)
    return found


def hold_while_forking(lock: Any) -> None:
    """Acquire ``lock`` around every fork, so that it is free in the child process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=wait_for_modules)
