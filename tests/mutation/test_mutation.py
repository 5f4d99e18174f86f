"""The mutants themselves: each is another program, and is put in the place of the one that runs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.mutation.covering import ROOT, Covering
from tests.mutation.equivalents import SAME
from tests.mutation.mutants import MUTANTS
from tests.mutation.patching import patch, running
from tests.mutation.sample import within
from tests.mutation.sites import drawn_from, sites_in, sites_of

TEXT = """
class Box:
    @property
    def wide(self):
        return 2 if self.n < 3 else 5

    def __init__(self, n: int = 7):
        self.n = n


def add(a, b):
    return a + b
"""


def test_a_mutant_is_another_program_of_as_many_lines() -> None:
    for site in Random(0).sample(sites_in(ROOT, "tmmu_core/liveness"), 40):
        text = (ROOT / site.file).read_text()
        changed = site.mutate(text)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
        assert changed.count("\n") == text.count("\n")


def test_a_running_function_is_exchanged(tmp_path: Path) -> None:
    path = str(tmp_path / "it.py")
    names: dict[str, object] = {"__name__": "it"}
    exec(compile(TEXT, path, "exec"), names)
    add, box = names["add"], names["Box"](1)  # type: ignore[operator]
    swapped = {(site.old, site.new): site for site in sites_of("it.py", TEXT)}
    assert patch(swapped["a + b", "(a - b)"], path, TEXT, running())
    assert add(5, 3) == 2  # type: ignore[operator]
    assert patch(swapped["self.n < 3", "(self.n <= 3)"], path, TEXT, running())
    assert patch(swapped["2", "(3)"], path, TEXT, running())
    assert box.wide == 3
    assert not patch(swapped["7", "(8)"], path, TEXT, running()), "a default was taken when the module was run"


@pytest.mark.parametrize(("line", "killed_by"), [("1 & 'a'", "no test could be collected"), ("1 & 2", "")])
def test_a_mutant_that_no_test_can_import_is_killed(tmp_path: Path, line: str, killed_by: str) -> None:
    file, killer = tmp_path / "test_it.py", tmp_path / "killer"
    file.write_text(f"{line}\ndef test_it(): pass\n")
    trial = f"Trial(['test_it.py::test_it'], Path({str(killer)!r}))"
    code = (
        "import pytest; from pathlib import Path; from tests.mutation.sample import OPTIONS, Trial; "
        f"pytest.main([*OPTIONS, '--rootdir={tmp_path}', {str(file)!r}], plugins=[{trial}])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert (ran.returncode, killer.read_text()) == (0, killed_by)


def test_a_function_that_another_one_made_is_exchanged_where_it_lives(tmp_path: Path) -> None:
    path, text = str(tmp_path / "it.py"), "def times(n):\n    return lambda x: n * x\n\n\nTABLE = {2: times(2)}\n"
    names: dict[str, object] = {"__name__": "it"}
    exec(compile(text, path, "exec"), names)
    product = next(site for site in sites_of("it.py", text) if site.old == "n * x")
    assert patch(product, path, text, running())
    assert names["TABLE"][2](3) == 0  # type: ignore[index]


def test_drawn_mutants_are_different_ones_and_as_many_as_asked_for() -> None:
    sites = sites_of("it.py", TEXT)
    for count in (1, 3, len(sites), 2 * len(sites)):
        picked = drawn_from(sites, count, count)
        assert len(set(picked)) == len(picked) == min(count, len(sites))


def test_a_seed_names_the_same_mutants_whatever_is_written_around_them() -> None:
    """Four more functions before, in another folder: the old ones are drawn in the same order."""
    before = drawn_from(sites_of("it.py", TEXT), 99, 7)
    longer = "\n".join(f"def other{k}(a, b):\n    return a < b + {k}\n" for k in range(4)) + TEXT
    after = [site for site in drawn_from(sites_of("room/it.py", longer), 99, 7) if "other" not in site.function]
    assert [(s.function, s.old, s.new) for s in after] == [(s.function, s.old, s.new) for s in before]
    assert [s.old for s in drawn_from(sites_of("it.py", TEXT), 99, 8)] != [s.old for s in before]


def test_every_mutant_that_is_argued_for_is_one_of_today() -> None:
    for same in SAME:
        text = (ROOT / same.file).read_text()
        lines = text.splitlines()
        fits = [site for site in sites_of(same.file, text) if (site.old, site.new) == (same.old, same.new)]
        assert [site for site in fits if same.line in lines[site.line - 1]], same


def test_every_clause_that_is_broken_stands_where_its_mutant_says() -> None:
    """Code that moves takes its mutants along: each one's text is in its file, once."""
    standing = {mutant.clause: (ROOT / mutant.file).read_text().count(mutant.old) for mutant in MUTANTS}
    assert {clause: times for clause, times in standing.items() if times != 1} == {}


def test_a_place_is_known_by_the_name_that_the_interpreter_gives_its_function() -> None:
    """A map of tests is good as long as functions keep their names, wherever their lines have gone."""
    text = "class A:\n    def f(self):\n        def g():\n            return 1 + 2\n        return g\nk = 3 + 4\n"
    names: dict[str, object] = {"__name__": "it"}
    exec(compile(text, "it.py", "exec"), names)
    inner = names["A"]().f()  # type: ignore[operator]
    found = {site.old: site.function for site in sites_of("it.py", text) if "+" in site.old}
    assert found == {"1 + 2": inner.__code__.co_qualname, "3 + 4": ""}


def test_half_of_the_time_goes_to_the_quickest_and_half_to_golden_lines() -> None:
    quick, slow = [f"tests/plan/test_it.py::test_{k}" for k in range(8)], "tests/plan/test_it.py::test_slow"
    golden = [f"tests/laws/test_it.py::test_{k}" for k in range(3)]
    seconds = dict.fromkeys(quick, 1.0) | dict.fromkeys(golden, 2.0) | {slow: 9.0}
    covering = Covering(seconds)
    assert within([*quick, *golden, slow], covering, 8) == ([*quick[:4], *golden[:2]], 8)
    assert within([*quick, *golden[:1], slow], covering, 8) == ([*quick[:4], *golden[:1], *quick[4:6]], 8)
    assert within(quick, covering, 8) == (quick, 8)
    assert within([slow], covering, 8) == ([slow], 9)
    assert within([], covering, 8) == ([], 0)


def test_the_tests_of_the_room_come_before_quicker_ones_of_others() -> None:
    own, other, beside = "tests/fit/test_it.py::test", "tests/cli/test_it.py::test", "tests/cli/test_it.py::test_more"
    covering = Covering({own: 2.0, other: 1.0, beside: 0.5}, {"tmmu_core/fit/it.py:f": [other, own]})
    assert covering.tests_for("tmmu_core/fit/it.py", "f") == [own, other, beside]
    assert covering.tests_for("tmmu_core/cli.py", "f") == []


def test_what_needs_more_memory_than_a_mutant_has_is_left_out_of_the_map(tmp_path: Path) -> None:
    """A program under the address sanitizer, for one: it would fail with any mutant, and count for none."""
    file = tmp_path / "test_it.py"
    file.write_text(
        "import mmap\n"
        "def test_much():\n    mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000).close()\n"
        "def test_little():\n    mmap.mmap(-1, 1 << 20).close()\n"
    )
    code = (
        "import pytest; from tests.mutation.covering import Covering, Watch; known = Covering(); "
        f"pytest.main(['-q', '-p', 'no:cacheprovider', '--rootdir={tmp_path}', {str(file)!r}], [Watch(known, 9)]); "
        "print(sorted(known.seconds), known.dear)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1] == "['test_it.py::test_little'] ['test_it.py::test_much']"
