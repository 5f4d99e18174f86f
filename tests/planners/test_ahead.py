"""Loops compiled ahead: of these sources, alone, and to the bytes of the loops in Python."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from alike import ways, wild
from brute_force import made
from elsewhere import CALLS, asked_again, drawn, recorded
from hypothesis import given
from packings import problem, problems

from tmmu_core.loops import build, calls
from tmmu_core.loops import library as ahead
from tmmu_core.loops.library import FOLDER, MACHINES, SWITCH, file_name, library, load, manifest
from tmmu_core.planners import kernels
from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact import kernel
from tmmu_core.planners.exact.kernel import Ask
from tmmu_core.planners.exact.run import search_by
from tmmu_core.planners.greedy import _place, by_size, place
from tmmu_core.planners.problem import Problem

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = sorted({file_name(machine) for machine in MACHINES.values()})
TRIALS = int(os.environ.get("TMMU_TRIALS", "250"))
here = pytest.mark.skipif(library() is None, reason="no library for this machine")


def test_the_manifest_is_of_these_sources_and_these_libraries() -> None:
    assert {name: build.sha256(FOLDER / name) for name in build.SOURCES} == manifest()["sources"]
    assert {name: build.sha256(FOLDER / name) for name in LIBRARIES} == {
        name: row["sha256"] for name, row in manifest()["libraries"].items()
    }
    assert manifest()["flags"] == list(build.FLAGS)


@pytest.mark.parametrize("machine", sorted(set(MACHINES.values())))
def test_the_same_compiler_makes_the_same_bytes(machine: str, tmp_path: Path) -> None:
    compiler = build.compiler_of(machine)
    if compiler is None or build.version_of(compiler) != manifest()["libraries"][file_name(machine)]["compiler"]:
        pytest.skip("the compiler of the manifest is not here")
    build.compile_for(compiler, tmp_path / "made.so")
    assert (tmp_path / "made.so").read_bytes() == (FOLDER / file_name(machine)).read_bytes()


def dynamic(path: Path) -> tuple[int, set[int], int]:
    """Of a shared object of 64 bits: its machine, the tags of its dynamic section, and how many symbols it lacks."""
    data = path.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01"
    machine, at = struct.unpack_from("<H", data, 18)[0], struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    tags, lacking = set[int](), 0
    for row in range(at, at + size * count, size):
        kind, begin, length = (struct.unpack_from("<I", data, row + 4)[0], *struct.unpack_from("<QQ", data, row + 24))
        if kind == 6:  # SHT_DYNAMIC
            tags |= {tag for tag, _ in struct.iter_unpack("<qQ", data[begin : begin + length])}
        if kind == 11:  # SHT_DYNSYM: the first one is nobody's
            symbols = struct.iter_unpack("<IBBHQQ", data[begin + 24 : begin + length])
            lacking += sum(section == 0 for _, _, _, section, _, _ in symbols)
    return machine, tags, lacking


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_a_library_needs_no_other_and_nothing_that_it_lacks(machine: str, number: int) -> None:
    needed, relocated = 1, {7, 17, 23, 36}  # DT_NEEDED; DT_RELA, DT_REL, DT_JMPREL, DT_RELR
    found, tags, lacking = dynamic(FOLDER / file_name(machine))
    assert (found, lacking) == (number, 0)
    assert tags & ({needed} | relocated) == set()


def test_what_was_changed_or_is_not_there_is_not_loaded(tmp_path: Path) -> None:
    assert load(tmp_path / "linux-x86_64.so") is None
    assert load(tmp_path / "another.so") is None
    for name in LIBRARIES:
        data = bytearray((FOLDER / name).read_bytes())
        data[-1] ^= 1
        (tmp_path / name).write_bytes(data)
        assert load(tmp_path / name) is None


@here
def test_what_is_whole_is_loaded_from_wherever_it_lies(tmp_path: Path) -> None:
    path = Path(str(library()._name))  # type: ignore[union-attr]
    assert path.parent == FOLDER
    shutil.copy(path, tmp_path)
    assert load(tmp_path / path.name) is not None


def test_another_machines_library_is_no_error() -> None:
    for name in LIBRARIES:
        assert (load(FOLDER / name) is not None) == (library() is not None and name in str(library()._name))  # type: ignore[union-attr]


LOADED = """
import sys
import tmmu_core as tmmu
from tmmu_core.loops.library import library
draw = __import__("random").Random(0)
lower = [draw.randrange(90) for _ in range(120)]
packed = tmmu.pack(lower, [at + draw.randrange(1, 40) for at in lower], [draw.randrange(1, 999) for _ in lower])
print(packed.plan.arenas[0].extent_bytes, library() is not None, "numba" in sys.modules)
"""


def loaded(**environment: str) -> list[str]:
    command = [sys.executable, "-c", LOADED]
    asked = {**{key: value for key, value in os.environ.items() if key != SWITCH}, **environment}
    return subprocess.run(command, cwd=ROOT, env=asked, capture_output=True, text=True, check=True).stdout.split()


@here
def test_packing_waits_for_no_compiler_and_the_switch_takes_it_back() -> None:
    extent, there, numba = loaded()
    assert (there, numba) == ("True", "False")
    assert loaded(TMMU_NATIVE="0")[:2] == [extent, "False"]


def test_library_numba_and_python_answer_alike() -> None:
    apart, compared = ways(TRIALS, 0)
    assert apart == ""
    assert compared > 20 * TRIALS


@here
@pytest.mark.parametrize("machine", ["aarch64"])
def test_another_machines_library_answers_alike(machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [name for name in (f"qemu-{machine}", f"{machine}-linux-gnu-gcc") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not here: {', '.join(missing)}")
    recorder = recorded(drawn(60), monkeypatch)
    assert {struct.unpack_from("<q", call)[0] for call in recorder.asked} == set(range(len(CALLS)))
    assert asked_again(recorder, machine, tmp_path) == recorder.answers


@here
@given(problems())
def test_a_pool_that_is_too_small_grows_and_the_run_goes_on(p: Problem) -> None:
    cols = columns(p)
    order = by_size(cols)
    before, calls.POOL = calls.POOL, (1, 0)
    try:
        for tightest in (False, True):
            assert kernels.place(cols, order, tightest) == _place(cols, order, tightest)
    finally:
        calls.POOL = before


@here
def test_a_place_in_the_order_that_there_is_not_is_refused() -> None:
    cols = columns(problem((0, 2, 8), (1, 3, 8)))
    for order in ([0, 2], [0, -1]):
        with pytest.raises(AssertionError):
            kernels.place(cols, order, tightest=False)
        with pytest.raises(AssertionError):
            place(cols, order, "lowest", compiled=True)


@here
def test_numbers_beyond_2_62_are_left_to_python() -> None:
    nothing = np.zeros(1, np.int64)
    for capacity, beyond in ((2**62, True), (2**62 - 1, False), (1 - 2**62, False), (-(2**62), True)):
        assert (search_by(Ask(capacity, nothing, 0, 1)) is kernel.search) == beyond


def test_the_problems_compared_have_everything_in_them() -> None:
    drawn = [wild(seed) for seed in range(250)]
    assert max(int(p.alignment.max()) for p in drawn) >= 2**40
    assert sum(p.gaps is not None for p in drawn) > 40
    assert sum(p.handoff_from is not None for p in drawn) > 40
    assert sum(p.must_not_alias is not None for p in drawn) > 30
    assert sum(p.fixed is not None and bool((p.fixed > 2**61).any()) for p in drawn) > 10
    assert len({len(made(seed, 14)) for seed in range(250)}) == 14


def test_without_a_compiler_a_library_of_other_sources_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in FOLDER.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    written = tmp_path / build.MANIFEST.name
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    monkeypatch.setattr(build, "MANIFEST", written)
    monkeypatch.setattr(build, "compiler_of", lambda machine: None)

    whole = manifest()
    monkeypatch.setattr(build, "manifest", lambda: whole)
    build.main()
    assert json.loads(written.read_text()) == whole
    for part, nothing in {"libraries": {}, "flags": [], "sources": {}}.items():
        monkeypatch.setattr(build, "manifest", lambda other={**whole, part: nothing}: other)
        with pytest.raises(SystemExit, match="install gcc for"):
            build.main()
    written.unlink()
    with pytest.raises(SystemExit, match="install gcc for"):
        build.main()


@pytest.mark.parametrize(
    ("machine", "byteorder", "system", "loaded"),
    [
        ("x86_64", "little", "linux", True),
        ("AMD64", "little", "linux", True),
        ("arm64", "little", "linux", True),
        ("riscv64", "little", "linux", False),
        ("x86_64", "big", "linux", False),
        ("x86_64", "little", "darwin", False),
    ],
)
def test_a_library_is_for_machines_of_its_kind(
    machine: str, byteorder: str, system: str, loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead.platform, "machine", lambda: machine)
    monkeypatch.setattr(ahead, "sys", SimpleNamespace(byteorder=byteorder, platform=system))
    monkeypatch.setattr(ahead, "load", lambda path: path.name)
    monkeypatch.delenv(SWITCH, raising=False)
    kind = {"x86_64": "x86_64", "amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower())
    assert library.__wrapped__() == (f"linux-{kind}.so" if loaded else None)


@pytest.mark.parametrize(
    ("machine", "here_", "installed", "compiler"),
    [
        ("x86_64", "AMD64", {"gcc"}, "gcc"),
        ("x86_64", "x86_64", {"gcc", "x86_64-linux-gnu-gcc"}, "x86_64-linux-gnu-gcc"),
        ("aarch64", "x86_64", {"gcc"}, None),
        ("aarch64", "x86_64", {"gcc", "aarch64-linux-gnu-gcc"}, "aarch64-linux-gnu-gcc"),
        ("aarch64", "riscv64", {"gcc"}, None),
    ],
)
def test_gcc_alone_compiles_for_its_own_machine(
    machine: str, here_: str, installed: set[str], compiler: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "platform", SimpleNamespace(machine=lambda: here_))
    monkeypatch.setattr(build, "shutil", SimpleNamespace(which=lambda name: name if name in installed else None))
    assert build.compiler_of(machine) == compiler


def test_a_compiler_that_fails_ends_the_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of what is asked of it; else a manifest would tell of bytes that were not made."""
    program = tmp_path / "cc"
    asked = {
        "-o": lambda: build.compile_for(str(program), tmp_path / "made.so"),
        "-print-prog-name=ld": lambda: build.version_of(str(program)),
        "--version": lambda: build.version_of(str(program)),
    }
    for failing, ask in asked.items():
        program.write_text(f'#!/bin/sh\ncase "$*" in *{failing}*) exit 3;; *) echo true;; esac\n')
        program.chmod(0o755)
        with pytest.raises(subprocess.CalledProcessError) as failed:
            ask()
        assert failed.value.returncode == 3
