"""MiniMalloc beside ours, where its sources are given: ``MINIMALLOC=FOLDER make bench``.

The folder is built as its own files say (CMake, or make) into a folder of its own, never into the sources. It is asked
to fit a capacity and writes offsets, which are verified like ours before they count; its time is CPU seconds, its own
and its children's.
"""

from __future__ import annotations

import contextlib
import csv
import os
import resource
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.dsa import is_valid
from tmmu_core.formats.csv.instance_csv import read_csv
from tmmu_core.planners.problem import Packing

SOURCES = "MINIMALLOC"
"""The environment variable that names the folder of its sources."""
SECONDS = 60
"""How long it may search, by its own clock."""
BUILD_SECONDS = 1200


@dataclass(frozen=True)
class Answer:
    """One run: the extent in bytes (``None``: nothing found that fits), and CPU seconds."""

    extent: int | None
    seconds: float


def given() -> Path | None:
    """The sources, where they are given."""
    said = os.environ.get(SOURCES)
    return Path(said) if said else None


def built(sources: Path, into: Path) -> Path:
    """The program, built from a copy of ``sources`` in ``into``. Raises ``FileNotFoundError`` where there is none."""
    copy = into / "sources"
    shutil.copytree(sources, copy)
    if (copy / "CMakeLists.txt").exists():
        where = into / "build"
        _run(["cmake", "-S", str(copy), "-B", str(where), "-DCMAKE_BUILD_TYPE=Release"])
        _run(["cmake", "--build", str(where), "--parallel", "2", "--target", "minimalloc"])
    elif (copy / "Makefile").exists():
        where = copy
        _run(["make", "-C", str(copy)])
    else:
        raise FileNotFoundError(f"{sources} holds no CMakeLists.txt and no Makefile: give MiniMalloc's own folder.")
    found = sorted(p for p in where.rglob("minimalloc") if p.is_file() and os.access(p, os.X_OK))
    if not found:
        raise FileNotFoundError(f"building {sources} made no program called minimalloc.")
    return found[0]


def answer(program: Path, instance: Path, capacity: int) -> Answer:
    """What it makes of an instance. Raises ``AssertionError`` where its offsets are no packing."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.csv"
        asked = [f"--capacity={capacity}", f"--input={instance}", f"--output={out}", f"--timeout={SECONDS}s"]
        before = _spent()
        # It ends with 1 where it finds nothing; what it wrote decides.
        with contextlib.suppress(subprocess.TimeoutExpired):  # then it was ended, and found what it had written
            subprocess.run([str(program), *asked], capture_output=True, timeout=2 * SECONDS, check=False)
        seconds = _spent() - before
        if not out.exists():
            return Answer(None, seconds)
        offset = _offsets(out)
    problem = read_csv(instance.read_bytes(), source=str(instance)).problem
    lies = np.array([offset[name] for name in problem.ids], np.uint64)
    extent = int((lies + problem.size).max(initial=0))
    valid = is_valid(problem, Packing(lies)) and extent <= capacity
    assert valid, f"{program.name} gave no packing of {instance.name}"
    return Answer(extent, seconds)


def _offsets(out: Path) -> dict[str, int]:
    with out.open(newline="") as file:
        return {row["id"]: int(row["offset"]) for row in csv.DictReader(file)}


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=BUILD_SECONDS)
