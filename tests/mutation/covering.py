"""Which tests enter which functions of the core, and how long each takes: found out once, by running them.

``python -m tests.mutation.covering [--loops] [ROOM …]`` writes ``.mutation/map.json``. A test is known by its id; what
it enters is seen by the interpreter's own trace of calls. A test of more than ``DEAR`` seconds of the processor,
or that does not pass, is left out; so is one that needs more memory than there is where mutants run, which would fail
there with any of them.

Compiled loops are seen by nobody, and compiled anew for each mutant they would cost a minute each. They run as plain
Python too, to the same bytes: ``--loops`` makes a map of its own for them, ``.mutation/loops.json``, of tests of the
rooms ``WITH_LOOPS`` run without numba.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAP = ROOT / ".mutation" / "map.json"
LOOPS = ROOT / ".mutation" / "loops.json"
ROOMS = (
    *("liveness", "graph", "planners", "plan", "judge", "runtime", "laws", "importers"),
    *("store", "library", "sweep", "fit", "cli", "test_limits.py"),
)
WITH_LOOPS = (
    *("laws/test_planners_asked.py", "laws/test_searches.py", "laws/test_fits.py"),
    *("planners/test_greedy.py", "planners/test_orders.py", "planners/test_exact.py", "planners/test_bounds.py"),
    *("planners/test_rebuild.py", "planners/test_ranges.py", "planners/test_plain.py", "planners/test_loops.py"),
    *("fit/test_order_model.py", "fit/test_order.py", "fit/test_recompute.py", "fit/test_recompute_plainly.py"),
    "fit/test_order_plainly.py",
    *("plan/test_waste.py", "runtime/test_shadow.py", "runtime/test_shadow_laws.py"),
)
"""What asks the compiled loops, small enough to be run without the compiler."""
DEAR = 10.0
DEAR_AS_LOOP = 3.0
MEMORY = 8 << 30
"""Bytes of addresses that the tests of a mutant have: one that asks for ever more ends by itself."""


@dataclass
class Covering:
    """What is known of the tests: seconds of each, and the tests that enter a function (``file:qualified name``)."""

    seconds: dict[str, float] = field(default_factory=dict)
    entered_by: dict[str, list[str]] = field(default_factory=dict)
    dear: list[str] = field(default_factory=list)
    """Tests that were left out."""

    def is_dear(self, test: str) -> bool:
        """Whether a test was left out of the map, for its time or because it failed."""
        return test in self.dear

    def tests_for(self, file: str, function: str) -> list[str]:
        """The tests for one function, soonest first; of a module's own lines, or of a compiled loop, its module's.

        What a module declares is asked by a test that is called by it. Before all others come the room's own tests:
        hundreds of other rooms' enter what everything enters, and ask after nothing of it. Behind those that enter it
        come the others of their files: what they ask may have been kept from the first.
        """
        direct = self.entered_by.get(f"{file}:{function}", [])
        declared = [test for test in self.seconds if not function and test.endswith(f"[{file}]")]
        if not direct:
            of_module = [tests for place, tests in self.entered_by.items() if place.startswith(f"{file}:")]
            direct = sorted({test for tests in of_module for test in tests})
        files = {test.split("::")[0] for test in direct}
        beside = [test for test in self.seconds if test.split("::")[0] in files and test not in set(direct)]
        room = f"tests/{file.split('/')[1]}/"
        own = [test for test in direct if test.startswith(room)]
        others = [test for test in direct if not test.startswith(room)]
        return list(dict.fromkeys((*declared, *self._by_time(own), *self._by_time(others), *self._by_time(beside))))

    def _by_time(self, tests: list[str]) -> list[str]:
        return sorted((t for t in tests if t in self.seconds), key=lambda test: (self.seconds[test], test))


class Watch:
    """The plugin of pytest that writes down what each test enters."""

    def __init__(self, covering: Covering, dear: float) -> None:
        self.covering, self.dear = covering, dear
        self.prefix = str(ROOT / "tmmu_core") + os.sep
        self.known: dict[Any, str] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that does not pass tells nothing."""
        if not report.passed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Around set-up, call and end of one test."""
        entered: set[Any] = set()
        dear = False

        def trace(frame: FrameType, event: str, arg: object) -> None:
            entered.add(frame.f_code)

        def late(number: int, frame: object) -> None:
            nonlocal dear
            dear = True
            raise TimeoutError("too dear for mutants")

        signal.signal(signal.SIGPROF, late)
        signal.setitimer(signal.ITIMER_PROF, self.dear)
        begun = sum(os.times()[:4])
        sys.settrace(trace)  # type: ignore[arg-type]  # asked for calls alone, never for lines
        try:
            with _as_with_a_mutant():
                return (yield)
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
            taken = sum(os.times()[:4]) - begun
            if dear or taken >= self.dear or item.nodeid in self.failed:
                self.covering.dear.append(item.nodeid)
            else:
                self.covering.seconds[item.nodeid] = round(taken, 3)
                for place in {self._place(code) for code in entered} - {""}:
                    self.covering.entered_by.setdefault(place, []).append(item.nodeid)

    def _place(self, code: Any) -> str:
        if code not in self.known:
            inside = code.co_filename.startswith(self.prefix)
            file = Path(code.co_filename).relative_to(ROOT).as_posix() if inside else ""
            self.known[code] = f"{file}:{code.co_qualname}" if inside else ""
        return self.known[code]


@contextlib.contextmanager
def _as_with_a_mutant() -> Iterator[None]:
    """No more memory than a mutant's tests have; what this process holds already is not counted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = [held + MEMORY, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def load(file: Path = MAP) -> Covering:
    """What was found out."""
    parts = json.loads(file.read_text())
    return Covering(**parts)


def without_numba() -> None:
    """Have every loop of this process run as it stands. To be called before any of them is imported."""
    assert "numba" not in sys.modules, "a loop may be compiled already"
    sys.modules["numba"] = None  # type: ignore[assignment]  # what import makes an ImportError of
    os.environ["TMMU_NATIVE"] = "0"  # nor as the library has them


def find_out(rooms: tuple[str, ...], file: Path = MAP) -> None:
    """Run the tests of some rooms, a process each, and add what they enter to the map."""
    file.parent.mkdir(exist_ok=True)
    for room in rooms:
        child = os.fork()
        if not child:
            covering = load(file) if file.exists() else Covering()
            log = os.open(
                file.with_name(f"{file.stem}.{room.replace('/', '.')}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            )
            os.dup2(log, 1)
            os.dup2(log, 2)
            if file == LOOPS:
                without_numba()
            options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--deselect", "tests/library/test_notebook.py"]
            pytest.main([*options, f"tests/{room}"], plugins=[Watch(covering, DEAR_AS_LOOP if file == LOOPS else DEAR)])
            file.write_text(json.dumps(asdict(covering)))
            os._exit(0)
        os.waitpid(child, 0)
        print(f"{room}: {len(load(file).seconds)} tests known, {sum(load(file).seconds.values()):.0f} s", flush=True)


if __name__ == "__main__":
    asked = tuple(each for each in sys.argv[1:] if each != "--loops")
    if "--loops" in sys.argv:
        find_out(asked or WITH_LOOPS, LOOPS)
    else:
        find_out(asked or ROOMS)
