"""MiniMalloc in the benchmarks, with a small program in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import minimalloc
from benchmarks.__main__ import minimalloc_cells
from tests.support.paths import DATA

SOURCES = DATA / "minimalloc"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return minimalloc.built(SOURCES, tmp_path_factory.mktemp("minimalloc"))


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    file = tmp_path / "three.csv"
    file.write_text("id,lower,upper,size\na,0,2,8\nb,1,3,4\nc,2,4,8\n")
    return file


def test_capacity_is_passed_and_cpu_seconds_are_counted(program: Path, instance: Path) -> None:
    found = minimalloc.answer(program, instance, 12)
    assert found.extent == 12
    assert found.seconds > 0
    assert minimalloc.answer(program, instance, 11).extent is None


def test_invalid_offsets_are_rejected(tmp_path: Path, instance: Path) -> None:
    liar = tmp_path / "minimalloc"
    liar.write_text(
        "#!/bin/sh\nfor word; do case $word in --output=*) out=${word#--output=};; esac; done\n"
        "printf 'id,lower,upper,size,offset\\na,0,2,8,0\\nb,1,3,4,4\\nc,2,4,8,0\\n' > \"$out\"\n"
    )
    liar.chmod(0o755)
    with pytest.raises(AssertionError, match="no packing"):
        minimalloc.answer(liar, instance, 12)


def test_folder_without_build_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"CMakeLists\.txt"):
        minimalloc.built(tmp_path / "empty", tmp_path / "into")


def test_column_is_empty_without_a_result(program: Path, instance: Path) -> None:
    assert minimalloc_cells(None, [instance], {"three": 12}, 12) == {"three": "not given"}
    assert minimalloc_cells(program, [instance], {"three": 12}, 12)["three"].startswith("0 % · ")
    assert minimalloc_cells(program, [instance], {"three": 12}, 11)["three"].startswith("no fit in ")
