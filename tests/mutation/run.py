"""``python -m tests.mutation.run [WORD]``: break one clause at a time in a copy, and see that a test notices.

A mutant is *killed* when one of its tests fails, and *survives* when all pass. Exit code 0 when all are killed, 1
when one survives, 2 when one no longer fits the code. ``WORD`` picks the mutants whose clause or file holds it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.mutation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("tmmu_core", "tests", "sample_graphs", "pyproject.toml")


def copy_project(target: Path) -> None:
    """What the tests of the mutants need, without caches."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "golden"))
        else:
            shutil.copy(source, target / name)


def run_tests(copy: Path, tests: tuple[str, ...], *, tell: bool = False) -> bool:
    """Whether all of ``tests`` pass in ``copy``; with ``tell``, what failed is printed."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "TMMU_TRIALS": "4", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["TMMU_NATIVE"] = "0"  # a mutant of a loop is the loop in Python
    done = subprocess.run([*command, *tests], cwd=copy, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}")
    if tell and done.returncode:
        print(done.stdout[-6000:], file=sys.stderr)
    return done.returncode == 0


def kill(copy: Path, mutant: Mutant) -> bool:
    """Whether a test notices ``mutant``, one test file after the other; the copy is whole again afterwards."""
    path = copy / mutant.file
    whole = path.read_text()
    path.write_text(whole.replace(mutant.old, mutant.new))
    try:
        return any(not run_tests(copy, (tests,)) for tests in mutant.tests)
    finally:
        path.write_text(whole)


def main(arguments: list[str]) -> int:
    """Kill all mutants, or those picked."""
    word = arguments[0] if arguments else ""
    mutants = [m for m in MUTANTS if word in m.clause or word in m.file]
    misfits = [m for m in mutants if (ROOT / m.file).read_text().count(m.old) != 1]
    for mutant in misfits:
        print(f"does not fit any more: {mutant.clause} ({mutant.file}): {mutant.old!r}", file=sys.stderr)
    if misfits or not mutants:
        return 2
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_project(copy)
        if not run_tests(copy, tuple(dict.fromkeys(tests for m in mutants for tests in m.tests)), tell=True):
            print("the tests fail without any mutant: mend that first", file=sys.stderr)
            return 2
        with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
            task = progress.add_task("mutants", total=len(mutants))
            for mutant in mutants:
                progress.update(task, description=mutant.clause)
                if not kill(copy, mutant):
                    survivors.append(mutant)
                    print(f"survived: {mutant.clause} ({mutant.file})", file=sys.stderr, flush=True)
                progress.advance(task)
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
