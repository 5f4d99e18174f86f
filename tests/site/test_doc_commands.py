"""Commands in the documentation: each names a command, options, a module or a make target that exists."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli.main import build
from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"(?:^|`)tmmu ([a-z][a-z-]*)([^`\n#]*)", re.M)


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Return command → its options."""
    group: Any = typer.main.get_command(build())
    return {
        name: {word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in group.commands.items()
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_and_options_exist(page: Path, options: dict[str, set[str]]) -> None:
    for name, rest in COMMAND.findall(re.sub(r"\$\(.*?\)", "", page.read_text(encoding="utf-8"))):
        assert name in options, f"tmmu {name}"
        used = set(re.findall(r"(?<=\s)--[a-z][a-z-]*|(?<=\s)-[a-z]\b", rest))
        assert used - options[name] - {"--help", "-h"} == set(), f"tmmu {name}{rest}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_modules_and_make_targets_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) <= set(targets)
    modules = re.findall(r"python -m ((?:app|benchmarks|sample_graphs|tests|tmmu_core)[\w.]*)", text)
    places = [ROOT / module.rstrip(".").replace(".", "/") for module in modules]
    assert [place for place in places if not (place.with_suffix(".py").exists() or place.is_dir())] == []
