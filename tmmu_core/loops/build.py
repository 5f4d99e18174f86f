"""Compile the loops for every machine whose compiler is here: ``python -m tmmu_core.loops.build`` (``make native``).

The same compiler makes the same bytes: no date, no path and no build number goes in. Only Debian's cross compilers are
looked for beside the machine's own; a machine that has none keeps the library and the lines that it had, if these are
of the same sources.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tmmu_core.loops.library import FOLDER, MACHINES, MANIFEST, file_name, manifest
from tmmu_core.writing import replace_file

SOURCES = ("loops.h", "greedy.c", "exact.c", "rebuild.c")
FLAGS = (
    *("-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"),
    # No library stands behind it: nothing is called that is not written here.
    *("-nostdlib", "-nostartfiles", "-ffreestanding", "-fno-builtin", "-fno-tree-loop-distribute-patterns"),
    *("-fno-stack-protector", "-fno-asynchronous-unwind-tables"),
    # What would be undefined is not: numbers wrap.
    "-fwrapv",
    # The same bytes wherever it is compiled.
    *("-fno-ident", "-Wl,--build-id=none,--hash-style=both,-z,noexecstack,-z,defs,-s"),
)


def compiler_of(machine: str) -> str | None:
    """The compiler for a machine, by name; ``None`` where it is not installed."""
    own = MACHINES.get(platform.machine().lower()) == machine
    names = [f"{machine}-linux-gnu-gcc", *(["gcc"] if own else [])]
    return next((name for name in names if shutil.which(name)), None)


def version_of(compiler: str) -> str:
    """What it says of itself, and what its linker does: bytes depend on both."""
    linker = subprocess.run(
        [compiler, "-print-prog-name=ld"], capture_output=True, text=True, check=True
    ).stdout.strip()
    said = [
        subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
        for name in (compiler, linker)
    ]
    return "; ".join(line.partition(" ")[2] for line in said)


def compile_for(compiler: str, to: Path) -> None:
    """Write a library."""
    sources = [name for name in SOURCES if name.endswith(".c")]
    subprocess.run([compiler, *FLAGS, "-o", str(to.resolve()), *sources], cwd=FOLDER, check=True)


def sha256(path: Path) -> str:
    """Of a file's bytes, hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Compile what can be compiled, and write the manifest."""
    sources = {name: sha256(FOLDER / name) for name in SOURCES}
    before = manifest() if MANIFEST.exists() else {}
    same = before.get("sources") == sources and before.get("flags") == list(FLAGS)
    libraries: dict[str, Any] = {}
    for machine in sorted(set(MACHINES.values())):
        name, compiler = file_name(machine), compiler_of(machine)
        if compiler is not None:
            compile_for(compiler, FOLDER / name)
            libraries[name] = {"compiler": version_of(compiler), "sha256": sha256(FOLDER / name)}
        elif same and name in before["libraries"]:
            libraries[name] = before["libraries"][name]
        else:
            sys.exit(f"{name} would be of other sources than its manifest says: install gcc for {machine} first")
    made = {"flags": list(FLAGS), "libraries": libraries, "sources": sources}
    replace_file(MANIFEST, (json.dumps(made, indent=2, sort_keys=True) + "\n").encode())
    print("\n".join(f"{name}  {row['sha256']}  {row['compiler']}" for name, row in libraries.items()))


if __name__ == "__main__":
    main()
