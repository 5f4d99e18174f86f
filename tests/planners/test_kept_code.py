"""The machine code that numba makes is kept so that no process runs what another one compiled of something else."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOOP = """
from tmmu_core.compiled import njit

def total(values):
    found = values[0]
    for k in range(len(values)):
        found += values[k]
    return found

total = njit(total)
"""
ASKED = """
import sys; sys.path.insert(0, {root!r})
import contextlib, os, time, numpy as np
from numba.core.caching import IndexDataCacheFile
me, folder, how, last = sys.argv[1:5]
writes, load, write = [], IndexDataCacheFile._load_index, IndexDataCacheFile._open_for_write
def done(what): open(os.path.join(folder, what), "w").close()
def wait(what):
    while not os.path.exists(os.path.join(folder, what)): time.sleep(0.01)
def both_have_looked(self):
    found = load(self)
    if sys._getframe(1).f_code.co_name == "save":
        done(me + " looked"), wait("i looked"), wait("f looked")
    return found
@contextlib.contextmanager
def woven(self, path):
    # one write of the last, both of the other, the second of the last
    writes.append(1)
    if (len(writes), me == last) in ((1, False), (2, True)):
        wait("last wrote" if me != last else "other wrote twice")
    with write(self, path) as file: yield file
    if (len(writes), me == last) in ((1, True), (2, False)):
        done("last wrote" if me == last else "other wrote twice")
def killed(self, path):
    writes.append(1)
    return write(self, path) if len(writes) < 2 else os._exit(9)
if how == "at once": IndexDataCacheFile._load_index, IndexDataCacheFile._open_for_write = both_have_looked, woven
if how == "killed": IndexDataCacheFile._open_for_write = killed
import loop
print(loop.total(np.arange(1, 5, dtype={{"i": np.int64, "f": np.float64}}[me])), flush=True)
"""

pytestmark = pytest.mark.skipif(find_spec("numba") is None, reason="nothing is compiled without numba")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "asked.py").write_text(ASKED.format(root=str(ROOT)))
    return tmp_path


def asked(folder: Path, kind: str, how: str = "", last: str = "") -> subprocess.Popen[str]:
    """A process that adds numbers of a kind up."""
    command = [sys.executable, str(folder / "asked.py"), kind, str(folder), how, last]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)


def said(process: subprocess.Popen[str]) -> tuple[int, str]:
    out = process.communicate(timeout=240)[0]
    return process.returncode, out.strip()


@pytest.mark.parametrize("last", ["i", "f"])
def test_two_processes_that_compile_for_other_types_at_once_keep_each_its_own(folder: Path, last: str) -> None:
    sums = {"i": (0, "11"), "f": (0, "11.0")}
    both = {kind: asked(folder, kind, "at once", last) for kind in sums}
    for kind in sums:
        assert said(both[kind]) == sums[kind]
    for kind in sums:
        assert said(asked(folder, kind)) == sums[kind]


def test_a_process_that_is_killed_while_it_keeps_its_code_leaves_none_of_an_earlier_version(folder: Path) -> None:
    assert said(asked(folder, "i")) == (0, "11")
    (folder / "loop.py").write_text(LOOP.replace("+= values[k]", "+= 2 * values[k]"))
    assert said(asked(folder, "i", "killed"))[0] == 9
    for _ in range(2):
        assert said(asked(folder, "i")) == (0, "21")
    kept = [path.name for path in (folder / "__pycache__").iterdir() if path.suffix == ".nbc"]
    assert len(kept) == 1, "what is of an earlier version is not kept"
