"""Which library fits this process, and whether it may be loaded: ``None`` is an answer, and never an error."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
MANIFEST = FOLDER / "manifest.json"
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
"""What ``platform.machine`` says, and how the library is called that is made for it."""
SWITCH = "TMMU_NATIVE"
"""Variable of the environment: ``0``, and no library is loaded."""
WIDE = 8
"""Bytes of a pointer and of each number handed over."""


def file_name(machine: str) -> str:
    """The library of a machine (a value of :data:`MACHINES`)."""
    return f"linux-{machine}.so"


def manifest() -> dict[str, Any]:
    """``sources`` and ``libraries`` by file name, each with its SHA-256; how a library was compiled."""
    found: dict[str, Any] = json.loads(MANIFEST.read_text(encoding="utf-8"))
    return found


@cache
def library() -> ctypes.CDLL | None:
    """The loops compiled ahead, once a process; ``None`` where they are switched off, or none can be loaded here."""
    if os.environ.get(SWITCH) == "0":
        return None
    machine = MACHINES.get(platform.machine().lower())
    narrow = ctypes.sizeof(ctypes.c_void_p) != WIDE or sys.byteorder != "little"
    if not sys.platform.startswith("linux") or machine is None or narrow:
        return None
    return load(FOLDER / file_name(machine))


def load(path: Path) -> ctypes.CDLL | None:
    """A library by its full path: no search path of the system's is asked, and no bytes but those of the manifest run.

    ``None`` where it is not there (a package in an archive, an incomplete copy), was changed, or is refused by the
    system (a folder from which nothing may be run).
    """
    try:
        right = manifest()["libraries"][path.name]["sha256"]
        if hashlib.sha256(path.read_bytes()).hexdigest() != right:
            return None
        return prepared(ctypes.CDLL(str(path)))
    except (OSError, KeyError, ValueError):
        return None


def prepared(found: ctypes.CDLL) -> ctypes.CDLL:
    """A library that says what its functions take and give."""
    for name in ("tmmu_place_near", "tmmu_place", "tmmu_search", "tmmu_neighbours", "tmmu_rebuild"):
        function = getattr(found, name)
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int64
    found.tmmu_settle.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    found.tmmu_settle.restype = ctypes.c_int64
    return found
