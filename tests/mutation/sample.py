"""``python -m tests.mutation.sample [--mutants 300] [--seed 0]``: small changes at random, and whether a test notices.

``make mutate`` runs it. Mutants are drawn from every place of ``tmmu_core`` where one can be made (``sites.py``), each
as likely as any other. For each, the tests that enter its function run in a copy, soonest first, until one fails
(``covering.py`` knows them; it is asked first where nothing is known). A mutant is

* *killed* when a test fails, or the tests come to no end in three times their time and ``SPARE`` seconds;
* *the same* when it stands in ``equivalents.py``, with the reason why nothing could tell it from the original;
* *alive* else. ``--at FILE:LINE`` tries every mutant of that line instead of drawing.

No more than ``--budget`` seconds of tests are run for one mutant. In the end the tests that killed are run without any
mutant: what one that fails then has killed is counted as alive. Exit code 1 where fewer than 95 % are killed or the
same. What was found is written to ``.mutation/results.json`` as it comes.

The tests are collected once, and each mutant is a fork of that process in which the changed function is put in the
place of the running one (``patching.py``). What cannot be exchanged so begins in a process of its own. The mutants of
compiled loops come last, in a process without numba, where the loops run as they stand.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.mutation.covering import LOOPS, MAP, MEMORY, ROOMS, ROOT, WITH_LOOPS, Covering, find_out, load, without_numba
from tests.mutation.equivalents import reason_of
from tests.mutation.patching import Running, patch, running
from tests.mutation.sites import ELSEWHERE, Site, drawn_from, sites_in

UNKNOWN = 0.01
"""Seconds that a test is taken to need which is newer than the map."""
LAWS = ("tests/laws/", "tests/planners/test_every_planner.py", "tests/fuzz/")
BUDGET = 30.0
"""Seconds of tests for one mutant; ``--budget`` says another."""
SPARE = 10
ALONE = 10
"""Seconds of the processor that a process of its own needs before its first test."""
OPTIONS = ("-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", "--tb=no")


class Chosen:
    """The plugin of pytest that keeps the chosen tests alone, and then does with them what it is given to do."""

    def __init__(self, tests: list[str]) -> None:
        self.wanted = set(tests)
        self.items: dict[str, pytest.Item] = {}

    def pytest_collection(self) -> None:
        """Behind conftest: a failure need not be made small."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", deadline=None, phases=phases, database=None)
        settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what is wanted."""
        items[:] = [item for item in items if self.is_wanted(item)]
        self.items = {item.nodeid: item for item in items}

    def is_wanted(self, item: pytest.Item) -> bool:
        """Whether a test is one of the chosen."""
        return item.nodeid in self.wanted

    def first_failure(self, tests: list[str]) -> str:
        """Run tests in their order; the first that fails, or ``""``."""
        from _pytest.runner import runtestprotocol

        items = [self.items[test] for test in tests if test in self.items]
        for k, item in enumerate(items):
            after = items[k + 1] if k + 1 < len(items) else None
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=after)):
                return item.nodeid
        return ""


class Trial(Chosen):
    """One mutant that stands in the copy already: its tests, in a process that has imported it."""

    def __init__(self, tests: list[str], killer_file: Path) -> None:
        super().__init__(tests)
        self.tests, self.killer_file = tests, killer_file

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of pytest's own, which would have ended where a file of tests cannot be imported."""
        unread = "no test could be collected" if session.testsfailed else ""
        self.killer_file.write_text(unread or self.first_failure(self.tests))
        os._exit(0)


class Run(Chosen):
    """All mutants, one after the other, each in a fork of the process that has collected all tests."""

    def __init__(self, sites: list[Site], covering: Covering, written: Path, budget: float) -> None:
        super().__init__(list(covering.seconds))
        self.sites, self.covering, self.written, self.budget = sites, covering, written, budget
        self.again = False
        self.newer: set[str] = set()
        self.results: list[dict[str, Any]] = []
        self.functions: Running = {}

    def is_wanted(self, item: pytest.Item) -> bool:
        """Those that are known, and what is new in their files."""
        return item.nodeid in self.wanted or not self.covering.is_dear(item.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of pytest's own."""
        self.newer = set(self.items) - set(self.covering.seconds)
        self.covering.seconds |= dict.fromkeys(self.newer, UNKNOWN)
        print(f"{len(self.items)} tests, {len(self.sites)} mutants", flush=True)
        self.functions = running()
        gc.collect()
        gc.freeze()  # what is not looked at is not copied
        gc.disable()
        for site in self.sites:
            self.results.append(self._tried(site))
            self._write_down()
        self._without_mutants()
        self._write_down()
        return True

    def _tried(self, site: Site) -> dict[str, Any]:
        text = Path(site.file).read_text()
        why = reason_of(site, text.splitlines()[site.line - 1])
        tests = self.covering.tests_for(site.file, site.function)
        if self.again:
            tests += sorted(self.newer.difference(tests))
            tests.sort(key=lambda test: (test not in self.newer, not test.startswith(LAWS)))
        tests, seconds = within(tests, self.covering, self.budget)
        begun = time.monotonic()
        by = "" if why or not tests else self._killer(site, text, tests, seconds)
        how = "the same" if why else "killed" if by else "alive"
        if how == "alive":
            print(f"{site.file}:{site.line}: {site.old!r} → {site.new!r} ({len(tests)} tests)", flush=True)
        row = {"file": site.file, "line": site.line, "old": site.old, "new": site.new, "how": how, "by": by}
        return {**row, "tests": len(tests), "why": why, "seconds": round(time.monotonic() - begun, 1)}

    def _killer(self, site: Site, text: str, tests: list[str], seconds: float) -> str:
        """``""`` when all tests pass with the mutant in its place, else the test that failed, or how it ended."""
        path = Path(site.file)
        stat = path.stat()
        killer_file = Path("killer")
        killer_file.unlink(missing_ok=True)
        try:
            path.write_text(site.mutate(text))
            child = os.fork()
            if not child:
                patched = patch(site, str(path.resolve()), text, self.functions)
                _limited(seconds if patched else seconds + ALONE)
                if patched:
                    killer_file.write_text(self.first_failure(tests))
                    os._exit(0)
                _alone(tests, killer_file)
            return _waited(child, 8 * (3 * (seconds + ALONE) + SPARE), killer_file)
        finally:
            path.write_text(text)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def _without_mutants(self) -> None:
        """A test that fails as it is has killed nothing."""
        for killer in sorted({row["by"] for row in self.results if "::" in row["by"]}):
            killer_file = Path("killer")
            child = os.fork()
            if not child:
                _limited(BUDGET)
                killer_file.write_text(self.first_failure([killer]))
                os._exit(0)
            if _waited(child, 4 * (3 * BUDGET + SPARE), killer_file):
                print(f"fails without any mutant: {killer}", flush=True)
                for row in self.results:
                    row["how"] = "alive" if row["by"] == killer else row["how"]

    def _write_down(self) -> None:
        self.written.write_text(json.dumps(self.results, indent=1, ensure_ascii=False))


def copy_project(folder: Path) -> None:
    """The project as it stands, with what was compiled of it: loops and modules are good for the copy as well."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    for cache in (ROOT / "tmmu_core").rglob("__pycache__"):
        shutil.copytree(cache, folder / cache.relative_to(ROOT), dirs_exist_ok=True)
    compileall.compile_dir(folder / "tmmu_core", quiet=2)


def _limited(seconds: float) -> None:
    """This process: killed after three times ``seconds`` of the processor, mute, and the head of its group."""
    os.setpgid(0, 0)
    limit = int(3 * seconds) + SPARE
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)  # whoever began this may allow less
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _alone(tests: list[str], killer_file: Path) -> None:
    """Become a new process that runs ``tests``, with numba or without as this one."""
    list_ = Path("tests.json")
    list_.write_text(json.dumps(tests))
    how = ["--loops"] if sys.modules.get("numba", list_) is None else []
    command = [sys.executable, "-m", "tests.mutation.sample", *how, "--trial", str(list_), str(killer_file)]
    os.execv(sys.executable, command)


def _waited(child: int, seconds: float, killer_file: Path) -> str:
    """How the child ended, at most ``seconds`` from now."""
    ends = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > ends:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, 9)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, 9)  # what the tests have left behind
    if status == 0 and killer_file.exists():
        return killer_file.read_text()
    return f"ended by signal {status & 127}" if status & 127 else f"ended with {status >> 8}"


def within(tests: list[str], covering: Covering, budget: float) -> tuple[list[str], float]:
    """The tests that fit the budget, and their seconds: the first of all for half of it, then the first laws.

    Hundreds of quick tests enter what everything enters; golden lines, which see more, would hardly ever come to turn.
    """
    chosen: dict[str, float] = {}
    laws = [test for test in tests if test.startswith(LAWS)]
    for some, limit in ((tests, budget / 2), (laws, budget), (tests, budget)):
        for test in some:
            if test in chosen:
                continue
            if chosen and sum(chosen.values()) + covering.seconds[test] > limit:
                break
            chosen[test] = covering.seconds[test]
    return list(chosen), sum(chosen.values())


def drawn(count: int, seed: int) -> list[Site]:
    """The mutants of one seed, in an order of their own, so that a run cut short is a sample too."""
    return drawn_from([s for s in sites_in(ROOT) if not s.file.startswith(ELSEWHERE)], count, seed)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="begin with this one of the drawn")
    parser.add_argument("--below", action="append", default=[], help="of the drawn only those below this folder")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of tests for one mutant")
    parser.add_argument("--written", default="results.json", help="the file of .mutation/ that holds what was found")
    parser.add_argument(
        "--again",
        type=Path,
        help="those that were alive in these results: by tests newer than the map, then by the laws",
    )
    parser.add_argument("--on", action="store_true", help="leave out what these results have as killed already")
    parser.add_argument("--at", action="append", default=[], help="FILE:LINE, every mutant of it")
    parser.add_argument("--trial", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--loops", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.loops:
        without_numba()
    if given.trial:
        tests = json.loads(Path(given.trial[0]).read_text())
        pytest.main([*OPTIONS, *_files(tests)], plugins=[Trial(tests, Path(given.trial[1]))])
        return 3  # nothing could be collected
    if given.results:
        return _inside(given)
    if not MAP.exists():
        find_out(ROOMS)
    if not LOOPS.exists():
        find_out(WITH_LOOPS, LOOPS)
    with tempfile.TemporaryDirectory() as folder:
        copy_project(Path(folder))
        command = [sys.executable, "-m", "tests.mutation.sample", *sys.argv[1:], "--results", str(MAP.parent)]
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        whole = True
        for loops in ([], ["--loops"]):
            whole &= not subprocess.run([*command, *loops], cwd=folder, env=environment).returncode
    rows = json.loads((MAP.parent / given.written).read_text())
    counts = Counter(row["how"] for row in rows)
    print(f"{len(rows)} mutants: " + ", ".join(f"{counts[how]} {how}" for how in ("killed", "the same", "alive")))
    return int(not whole or counts["alive"] > 0.05 * len(rows))


def _inside(given: argparse.Namespace) -> int:
    """The run itself, in the copy: of the mutants of compiled loops, or of all others."""
    here = [site for site in sites_in(ROOT) if f"{site.file}:{site.line}" in given.at]
    sites = here or drawn(given.mutants, given.seed)[given.first :]
    sites = [site for site in sites if not given.below or site.file.startswith(tuple(given.below))]
    if given.again:
        rows = [row for row in json.loads((given.results / given.again).read_text()) if row["how"] == "alive"]
        alive = {(row["file"], row["old"], row["new"], row["line"]) for row in rows}
        sites = [site for site in sites_in(ROOT) if (site.file, site.old, site.new, site.line) in alive]
    sites = [site for site in sites if ("njit" in (ROOT / site.file).read_text()) == given.loops]
    sites.sort(key=lambda site: not site.function)  # the slow ones last
    written = given.results / given.written
    before = json.loads(written.read_text()) if written.exists() and (given.loops or given.on) else []
    if given.on and not given.loops:
        before = [row for row in before if row["how"] == "killed"]
    known = {(row["file"], row["line"], row["old"], row["new"]) for row in before}
    sites = [site for site in sites if (site.file, site.line, site.old, site.new) not in known]
    run = Run(sites, load(given.results / (LOOPS if given.loops else MAP).name), written, given.budget)
    run.results, run.again = list(before), given.again is not None
    if not sites:
        written.write_text(json.dumps(before, indent=1, ensure_ascii=False))
        return 0
    pytest.main([*OPTIONS, f"--rootdir={ROOT}", *_files(list(run.covering.seconds))], plugins=[run])
    return int(len(run.results) < len(sites) + len(before))


def _files(tests: list[str]) -> list[str]:
    return list(dict.fromkeys(test.split("::")[0] for test in tests))


if __name__ == "__main__":
    sys.exit(main())
