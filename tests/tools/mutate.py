"""Measure how many random mutants the tests kill: ``python -m tests.tools.mutate [--mutants 300] [--seed 0]``.

``make mutate`` runs it. Each mutant is one small change of ``tmmu_core`` (``mutation_sites.py``) in a copy of the
project. The tests of the folder that mirrors the module run first, then the laws, until one fails or time is up.
``.mutation/results.json`` lists every mutant. The exit code is 1 if fewer than ``--required`` percent are killed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from tests.tools.mutation_sites import UNTESTED_HERE, Site, drawn_from, sites_in

RESULTS = ROOT / ".mutation" / "results.json"
WITH_LOOPS = "tmmu_core/planners/", "tmmu_core/fitting/"
"""Folders with loops that also exist in C. Their tests run without the native library, which takes longer."""
PYTEST = ("-m", "pytest", "-x", "-q", "--tb=no", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow and not browser")


def copy_project(folder: Path) -> None:
    """Copy the tracked and the new files of the working tree."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def tests_for(file: str) -> list[tuple[str, ...]]:
    """Return the runs of tests for a module, the nearest first: ``TMMU_NATIVE`` and the test folders of each."""
    folder, native = f"tests/{file.split('/')[1]}", "0" if file.startswith(WITH_LOOPS) else "1"
    nearest = [folder] if (ROOT / folder).is_dir() else ["tests/library", "tests/app/cli"]
    return [(native, *nearest), (native, "tests/laws")]


def run_tests(copy: Path, tests: tuple[str, ...], seconds: float) -> str:
    """Run tests on the copy of the project; return "passed", "failed" or "timeout"."""
    native, *tests_of_run = tests
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "TMMU_NATIVE": native}
    try:
        done = subprocess.run(
            [sys.executable, *PYTEST, *tests_of_run], cwd=copy, env=environment, capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    return "passed" if done.returncode in (0, 5) else "failed"


def try_mutant(copy: Path, site: Site, seconds: dict[tuple[str, ...], float]) -> dict[str, Any]:
    """Run the tests with one mutant in place and return its row of the results."""
    path = copy / site.file
    text = path.read_text()
    path.write_text(site.mutate(text))
    outcome = "passed"
    try:
        for tests in tests_for(site.file):
            outcome = run_tests(copy, tests, 3 * seconds[tests] + 20)
            if outcome != "passed":
                break
    finally:
        path.write_text(text)
    row = {"file": site.file, "line": site.line, "old": site.old, "new": site.new}
    return {**row, "outcome": "alive" if outcome == "passed" else outcome}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=300, help="number of mutants [300]")
    parser.add_argument("--seed", type=int, default=0, help="seed that selects the mutants [0]")
    parser.add_argument("--below", action="append", default=[], help="only mutants in this folder of the product")
    parser.add_argument("--required", type=float, default=80, help="percent of mutants that tests must kill")
    given = parser.parse_args()
    sites = [site for site in sites_in(ROOT) if not site.file.startswith(UNTESTED_HERE)]
    if given.below:
        sites = [site for site in sites if site.file.startswith(tuple(given.below))]
    rows: list[dict[str, Any]] = []
    seconds: dict[tuple[str, ...], float] = {}
    RESULTS.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_project(copy)
        for site in drawn_from(sites, given.mutants, given.seed):
            for tests in tests_for(site.file):
                if tests not in seconds:
                    began = time.monotonic()
                    if run_tests(copy, tests, 1800) != "passed":
                        print(f"{tests}: tests fail without a mutant")
                        return 2
                    seconds[tests] = time.monotonic() - began
            rows.append(try_mutant(copy, site, seconds))
            if rows[-1]["outcome"] == "alive":
                print(f"alive: {site.file}:{site.line}: {site.old!r} -> {site.new!r}", flush=True)
            RESULTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False))
    killed = sum(row["outcome"] != "alive" for row in rows)
    print(f"{killed} of {len(rows)} mutants killed")
    return int(100 * killed < given.required * len(rows))


if __name__ == "__main__":
    sys.exit(main())
