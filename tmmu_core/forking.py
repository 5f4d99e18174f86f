"""A process is forked when no other thread is in the middle of loading the library, or of compiling a loop of it.

Modules are loaded when they are first needed, under a lock for each, and of all threads only the one that forks lives
on in the new process: a lock that another one held there is never let go of, and whoever needs that module waits for
ever. So who forks waits first until those that are being loaded are there (POSIX has ``pthread_atfork`` for this).
"""

from __future__ import annotations

import importlib
import os
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any

OURS = ("tmmu_core", "numba", "llvmlite", "numpy")
"""Packages that are loaded while the library works, by their first names."""
PASSES = 100
"""So many times what is being loaded is looked for: what this very thread waits for does not come."""


def wait_for_modules() -> None:
    """Wait until other threads have loaded what of the library they are loading."""
    for _ in range(PASSES):
        names = being_loaded()
        if not names:
            return
        for name in names:
            with suppress(Exception):  # what is wrong with it is told to who needs it
                import_module(name)


def being_loaded() -> list[str]:
    """The modules of :data:`OURS` whose locks other threads hold; none where Python keeps its locks otherwise."""
    me, found = threading.get_ident(), []
    kept = getattr(importlib, "_bootstrap", None)
    for name, reference in list(getattr(kept, "_module_locks", {}).items()):
        owner = getattr(reference(), "owner", None)
        if owner not in (None, me) and name.partition(".")[0] in OURS:
            found.append(name)
    return found


def hold_while_forking(lock: Any) -> None:
    """Have ``lock`` taken by who forks, so that no other thread holds it in the new process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=wait_for_modules)
