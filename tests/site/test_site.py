"""The documentation site builds without a warning and without a network, and the tutorial works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tmmu
from app.cli.main import COMMANDS, run
from tests.support.paths import ROOT

NOWHERE = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "NO_MKDOCS_2_WARNING": "1"}
"""Whatever would ask the network is refused."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site that ``make docs`` builds."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, env={**os.environ, **NOWHERE}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return folder


def test_reference_has_every_method_of_the_library(site: Path) -> None:
    page = (site / "reference" / "library.html").read_text()
    for name in ("plan", "fit", "pack", "compare", "read", "verify"):
        assert f'id="tmmu_core.library.functions.{name}"' in page
    for name in ("gate", "report", "table", "show", "compare", "fit"):
        assert f'id="tmmu_core.library.plan_result.Plan.{name}"' in page


def test_reference_has_every_command(site: Path) -> None:
    page = (site / "reference" / "commands.html").read_text()
    assert [name for name in COMMANDS if f'id="tmmu-{name}"' not in page] == []


def test_every_decision_is_in_the_navigation(site: Path) -> None:
    page = (site / "index.html").read_text()
    decisions = [path.stem for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert [name for name in decisions if f"decisions/{name}.html" not in page] == []


def test_pages_load_nothing_from_the_network(site: Path) -> None:
    asked = [
        (page.name, found)
        for page in site.rglob("*.html")
        for found in re.findall(
            r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(https?:[^"]+)"', page.read_text()
        )
    ]
    assert asked == []


def test_tutorial_commands_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text()
    monkeypatch.chdir(tmp_path)
    ((name, graph),) = re.findall(r'```json title="([\w.]+)"\n(.*?)```', text, re.S)
    Path(name).write_text(graph)
    commands = [line for block in re.findall(r"```console\n(.*?)```", text, re.S) for line in block.splitlines()]
    assert len(commands) >= 6
    for command in commands:
        assert run(command.split()[1:]) == 0, command
    assert "passed" in capsys.readouterr().out
    assert tmmu.read("golden.json").extent_bytes == tmmu.read("golden.json").lower_bound_bytes == 3 * 16 * 1024
    assert run(["gate", "golden.json", "--max-extent", "40KiB"]) == 1
    assert b"<html" in Path("small.html").read_bytes()
