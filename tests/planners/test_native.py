"""The native library: built from its sources, self-contained, with the results of plain Python."""

import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.planners.alike import compared
from tests.planners.elsewhere import FUNCTIONS, recorded, results_on
from tests.support.paths import ROOT
from tests.tools import native_library as build
from tmmu_core.planners import native as loading
from tmmu_core.planners.native import FOLDER, MACHINES, SWITCH, built_file_name, file_name, library, load, manifest

LIBRARIES = sorted({file_name(machine) for machine in MACHINES.values()})
TRIALS = int(os.environ.get("TESTS_TRIALS", "20"))
here = pytest.mark.skipif(library() is None, reason="no library for this machine")


def native_library() -> ctypes.CDLL:
    loops = library()
    assert loops is not None
    return loops


def test_manifest_matches_sources_and_libraries() -> None:
    assert {name: build.sha256(FOLDER / name) for name in build.SOURCES} == manifest()["sources"]
    assert {name: build.sha256(FOLDER / name) for name in LIBRARIES} == {
        name: row["sha256"] for name, row in manifest()["libraries"].items()
    }
    assert manifest()["flags"] == list(build.FLAGS)


@pytest.mark.slow
@pytest.mark.parametrize("machine", sorted(set(MACHINES.values())))
def test_same_compiler_produces_the_same_bytes(machine: str, tmp_path: Path) -> None:
    compiler = build.compiler_of(machine)
    if compiler is None or build.version_of(compiler) != manifest()["libraries"][file_name(machine)]["compiler"]:
        pytest.skip("the compiler of the manifest is not here")
    build.compile_for(compiler, tmp_path / "made.so")
    assert (tmp_path / "made.so").read_bytes() == (FOLDER / file_name(machine)).read_bytes()


def dynamic(path: Path) -> tuple[int, set[int], int]:
    """Return the machine of a shared object, the tags of its dynamic section, and its number of undefined symbols."""
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
def test_library_needs_no_other_library_and_no_relocation(machine: str, number: int) -> None:
    needed, relocated = 1, {7, 17, 23, 36}  # DT_NEEDED; DT_RELA, DT_REL, DT_JMPREL, DT_RELR
    found, tags, lacking = dynamic(FOLDER / file_name(machine))
    assert (found, lacking) == (number, 0)
    assert tags & ({needed} | relocated) == set()


def test_missing_or_rejected_file_is_not_loaded(tmp_path: Path) -> None:
    assert load(tmp_path / "missing.so") is None
    (tmp_path / "text.so").write_text("no library")
    assert load(tmp_path / "text.so") is None


@here
def test_prebuilt_library_with_other_bytes_than_the_manifest_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(native_library()._name)
    monkeypatch.setattr(loading, "FOLDER", tmp_path)
    assert loading.prebuilt() is None
    shutil.copy(path, tmp_path)
    assert loading.prebuilt() is not None
    (tmp_path / path.name).write_bytes(path.read_bytes() + b"\0")
    assert loading.prebuilt() is None


@here
def test_library_of_another_machine_is_rejected_without_error() -> None:
    assert [load(FOLDER / name) is not None for name in LIBRARIES] == [
        name in native_library()._name for name in LIBRARIES
    ]


LOADED = """
import tmmu
from tmmu_core.planners.native import library
draw = __import__("random").Random(0)
lower = [draw.randrange(90) for _ in range(120)]
packed = tmmu.pack(lower, [at + draw.randrange(1, 40) for at in lower], [draw.randrange(1, 999) for _ in lower])
print(packed.plan.arenas[0].extent_bytes, library() is not None)
"""


def loaded(**environment: str) -> list[str]:
    command = [sys.executable, "-c", LOADED]
    variables = {**{key: value for key, value in os.environ.items() if key != SWITCH}, **environment}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.slow
@here
def test_environment_variable_disables_the_library() -> None:
    extent, native = loaded()
    assert native == "True"
    assert loaded(TMMU_NATIVE="0") == [extent, "False"]


def test_native_loops_return_the_results_of_plain_python() -> None:
    difference, results = compared(TRIALS, 0)
    assert difference == ""
    assert results > 50 * TRIALS


@pytest.mark.slow
@here
@pytest.mark.parametrize("machine", ["aarch64"])
def test_library_of_another_machine_returns_the_same_results(
    machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = [name for name in (f"qemu-{machine}", f"{machine}-linux-gnu-gcc") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    recorder = recorded(60, monkeypatch)
    assert {struct.unpack_from("<q", call)[0] for call in recorder.calls} == set(range(len(FUNCTIONS)))
    assert results_on(recorder, machine, tmp_path) == recorder.results


def test_build_without_a_compiler_rejects_changed_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    ("machine", "byteorder", "system", "expected"),
    [
        ("x86_64", "little", "linux", "linux-x86_64.so"),
        ("AMD64", "little", "linux", "linux-x86_64.so"),
        ("arm64", "little", "linux", "linux-aarch64.so"),
        ("riscv64", "little", "linux", "built"),
        ("s390x", "big", "linux", None),
        ("x86_64", "little", "darwin", "built"),
    ],
)
def test_prebuilt_library_is_chosen_by_platform_before_the_one_built_at_installation(
    machine: str, byteorder: str, system: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading.platform, "machine", lambda: machine)
    monkeypatch.setattr(loading, "sys", SimpleNamespace(byteorder=byteorder, platform=system))
    monkeypatch.setattr(loading, "load", lambda path: path.name)
    monkeypatch.delenv(SWITCH, raising=False)
    assert library.__wrapped__() == (built_file_name() if expected == "built" else expected)


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
def test_plain_gcc_compiles_for_its_own_machine_only(
    machine: str, here_: str, installed: set[str], compiler: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "platform", SimpleNamespace(machine=lambda: here_))
    monkeypatch.setattr(build, "shutil", SimpleNamespace(which=lambda name: name if name in installed else None))
    assert build.compiler_of(machine) == compiler


@pytest.mark.slow
def test_native_loops_are_clean_under_the_sanitizers() -> None:
    command = [sys.executable, "-m", "tests.planners.sanitized", "20"]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
