"""The native library of an installation from the source distribution."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.wheel.environment import ROOT, environment

LOADED = """
import tmmu
from tmmu_core.planners.native import library
name = getattr(library(), "_name", "none").rpartition("/")[2]
print(name.partition("-")[0], tmmu.pack([0, 1], [2, 3], [8, 8]).extent_bytes)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the unpacked source distribution without prebuilt libraries, as on a platform that has none."""
    folder = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    libraries = list((unpacked / "tmmu_core" / "planners" / "native").glob("*.so"))
    assert len(libraries) == 2
    for library in libraries:
        library.unlink()
    return unpacked


def wheel_of(sources: Path, folder: Path, path: str) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    kept = {name: value for name, value in os.environ.items() if name != "CC"}
    subprocess.run(build, cwd=sources, env={**kept, "PATH": path}, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def loaded(wheel: Path, folder: Path) -> list[str]:
    binaries = environment(folder / "env", wheel)
    command = [str(binaries / "python"), "-c", LOADED]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")
def test_installation_from_source_compiles_the_library(sources: Path, tmp_path: Path) -> None:
    wheel = wheel_of(sources, tmp_path, os.environ["PATH"])
    assert not wheel.name.endswith("-none-any.whl")
    assert loaded(wheel, tmp_path) == ["built", "16"]


def test_installation_without_compiler_runs_plain_python(sources: Path, tmp_path: Path) -> None:
    wheel = wheel_of(sources, tmp_path, str(tmp_path / "empty"))
    assert wheel.name.endswith("-none-any.whl")
    assert not any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist())
    assert loaded(wheel, tmp_path) == ["none", "16"]


def test_wheel_of_a_linux_platform_has_its_tag_and_its_library_only(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    platform = "manylinux2014_aarch64"
    subprocess.run(build, cwd=ROOT, env={**os.environ, "AUDITWHEEL_PLAT": platform}, check=True, capture_output=True)
    (wheel,) = tmp_path.glob(f"*-py3-none-{platform}.whl")
    libraries = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    assert libraries == ["tmmu_core/planners/native/linux-aarch64.so"]


def test_long_description_has_no_relative_links(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    given = {**os.environ, "GITHUB_SERVER_URL": "https://git.example", "GITHUB_REPOSITORY": "team/net"}
    subprocess.run(build, cwd=ROOT, env=given, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        (metadata,) = (member for member in archive.getmembers() if member.name.endswith("/PKG-INFO"))
        text = archive.extractfile(metadata).read().decode()  # type: ignore[union-attr]
    assert "Project-URL: Homepage, https://git.example/team/net\n" in text
    assert "](https://git.example/team/net/blob/v" in text
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []
