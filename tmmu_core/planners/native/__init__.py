"""Inner loops in C: greedy and skyline placement, searches of ``exact`` and ``reuse``, recomputation, minimum cuts.

``*.c`` and ``native.h`` are the sources. This module loads the library of the platform; :mod:`.native` calls it.
``make native`` compiles the prebuilt libraries. At installation, ``hatch_build.py`` compiles a library if no prebuilt
library fits the platform. If no library can be loaded, or the environment variable ``TMMU_NATIVE`` is ``0``, the same
loops run as plain Python with the same results.
"""

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
"""Result of ``platform.machine`` in lower case → machine in the name of the prebuilt library."""
SWITCH = "TMMU_NATIVE"  # environment variable: ``0`` disables the library
POINTER_BYTES = 8  # bytes of a pointer and of each field of an argument structure


def file_name(machine: str) -> str:
    """Return the file name of the prebuilt library of a machine (a value of :data:`MACHINES`)."""
    return f"linux-{machine}.so"


def manifest() -> dict[str, Any]:
    """Return ``flags``, ``sources`` (file name → SHA-256) and ``libraries`` (file name → compiler, SHA-256)."""
    return json.loads(MANIFEST.read_text(encoding="utf-8"))


def built_file_name() -> str:
    """Return the file name of the library compiled at installation. The name contains a hash of the sources."""
    sources = json.dumps(manifest()["sources"], sort_keys=True)
    return f"built-{hashlib.sha256(sources.encode()).hexdigest()[:16]}.so"


@cache
def library() -> ctypes.CDLL | None:
    """Return the library, loaded once per process; ``None`` if it is disabled or cannot be loaded."""
    if os.environ.get(SWITCH) == "0" or not is_supported():
        return None
    return prebuilt() or load(FOLDER / built_file_name())


def is_supported() -> bool:
    """Return whether this process has 64-bit pointers and is little-endian, as the library requires."""
    return ctypes.sizeof(ctypes.c_void_p) == POINTER_BYTES and sys.byteorder == "little"


def prebuilt() -> ctypes.CDLL | None:
    """Load the prebuilt library of this platform; ``None`` if there is none, its hash differs, or it fails to load."""
    machine = MACHINES.get(platform.machine().lower())
    if machine is None or not sys.platform.startswith("linux"):
        return None
    path = FOLDER / file_name(machine)
    try:
        is_intact = hashlib.sha256(path.read_bytes()).hexdigest() == manifest()["libraries"][path.name]["sha256"]
    except (OSError, KeyError, ValueError):
        return None
    return load(path) if is_intact else None


def load(path: Path) -> ctypes.CDLL | None:
    """Load a library by its full path; ``None`` if it is missing or the system rejects it (``noexec``)."""
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        return None
