"""Files that disappear between listing and reading are reported or skipped."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.cli import resolve
from app.cli.main import run
from app.session import opening
from tmmu_core.formats.xla import xla_dump

MODULE = "module_0001.jit_step"
NAMES = (MODULE + xla_dump.ASSIGNMENT_ENDING, MODULE + xla_dump.RANGES_ENDING, "other.txt")


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).write_text(name)
    return tmp_path


def test_file_that_disappears_is_skipped(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    @contextmanager
    def and_one_goes(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scan(folder) as entries:
            listed = list(entries)
        (dump / "other.txt").unlink(missing_ok=True)
        yield iter(listed)

    monkeypatch.setattr(os, "scandir", and_one_goes)
    assert xla_dump.sizes_in(dump) == {name: len(name) for name in NAMES[:2]}
    assert [*resolve.modules_in(dump)] == [MODULE]
    assert [name for name, _ in opening.files_at(dump)] == [f"{MODULE}.txt"]


@pytest.mark.parametrize("command", [["plan"], ["explore", "--no-browser"]])
def test_folder_that_disappears_is_reported(
    command: list[str], dump: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_folder = os.path.isdir

    def and_gone(path: str) -> bool:
        found = is_folder(path)
        if Path(path) == dump:
            for name in NAMES:
                (dump / name).unlink()
            dump.rmdir()
        return found

    monkeypatch.setattr(os.path, "isdir", and_gone)
    assert run([*command, str(dump)]) == 2
    shown_text = capsys.readouterr().err
    assert str(dump) in shown_text
    assert "the folder cannot be opened: no such file or directory." in shown_text
