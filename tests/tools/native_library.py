"""Compile the prebuilt libraries: ``python -m tests.tools.native_library`` (``make native``).

The same compiler and linker write the same bytes. Debian's cross compilers build the libraries of other machines.
Without a compiler, the existing library is kept if sources and flags have not changed.
"""

import hashlib
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tmmu_core.base.atomic_files import replace_file
from tmmu_core.planners.native import FOLDER, MACHINES, MANIFEST, file_name, manifest

SOURCES = ("native.h", "branch_and_bound.c", "greedy.c", "lns.c", "recompute.c", "reuse.c")
FLAGS = (
    *("-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"),
    # Freestanding: no C library is linked.
    *("-nostdlib", "-nostartfiles", "-ffreestanding", "-fno-builtin", "-fno-tree-loop-distribute-patterns"),
    *("-fno-stack-protector", "-fno-asynchronous-unwind-tables"),
    # Signed overflow wraps.
    "-fwrapv",
    # Reproducible output.
    *("-fno-ident", "-Wl,--build-id=none,--hash-style=both,-z,noexecstack,-z,defs,-s"),
)


def compiler_of(machine: str) -> str | None:
    """Return the name of the compiler for a machine; ``None`` if it is not installed."""
    is_host = MACHINES.get(platform.machine().lower()) == machine
    names = [f"{machine}-linux-gnu-gcc", *(["gcc"] if is_host else [])]
    return next((name for name in names if shutil.which(name)), None)


def version_of(compiler: str) -> str:
    """Return the versions of a compiler and its linker, which determine the output."""

    def first_line(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]

    linker = first_line(compiler, "-print-prog-name=ld")
    return "; ".join(first_line(name, "--version").partition(" ")[2] for name in (compiler, linker))


def compile_for(compiler: str, to: Path) -> None:
    """Compile all sources into a shared library."""
    sources = [name for name in SOURCES if name.endswith(".c")]
    subprocess.run([compiler, *FLAGS, "-o", str(to.resolve()), *sources], cwd=FOLDER, check=True)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Compile the libraries and write the manifest. Exit if a library is out of date and its compiler is missing."""
    sources = {name: sha256(FOLDER / name) for name in SOURCES}
    before = manifest() if MANIFEST.exists() else {}
    is_unchanged = before.get("sources") == sources and before.get("flags") == list(FLAGS)
    libraries: dict[str, Any] = {}
    for machine in sorted(set(MACHINES.values())):
        name, compiler = file_name(machine), compiler_of(machine)
        if compiler is not None:
            compile_for(compiler, FOLDER / name)
            libraries[name] = {"compiler": version_of(compiler), "sha256": sha256(FOLDER / name)}
        elif is_unchanged and name in before["libraries"]:
            libraries[name] = before["libraries"][name]
        else:
            sys.exit(f"{name} is out of date and there is no compiler for it: install gcc for {machine}.")
    after = {"flags": list(FLAGS), "libraries": libraries, "sources": sources}
    replace_file(MANIFEST, (json.dumps(after, indent=2, sort_keys=True) + "\n").encode())
    print("\n".join(f"{name}  {row['sha256']}  {row['compiler']}" for name, row in libraries.items()))


if __name__ == "__main__":
    main()
