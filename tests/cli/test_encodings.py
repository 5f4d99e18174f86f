"""Whatever the terminal's encoding is, a command ends with its own exit code, and JSON is UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tmmu_core.errors import InvalidIrShapes, UnreadableInput

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-16"])
@pytest.mark.parametrize(
    "command", ["--help", "plan sample_graphs/views.tmmu.json", "plan sample_graphs/views.tmmu.json --json"]
)
def test_an_encoding_without_our_letters_is_no_fault(encoding: str, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app.cli.main", *command.split()],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    if command.endswith("--json"):
        assert json.loads(done.stdout)["ir_name"] == "views"


@pytest.mark.parametrize(
    "error", [UnreadableInput("a\udcff", source="b\udcff"), InvalidIrShapes("c\udcff", tensor="d\udcff")]
)
def test_a_surrogate_in_an_errors_words_is_spelled_out_in_its_record(error: UnreadableInput | InvalidIrShapes) -> None:
    assert b"\\udcff" in json.dumps(error.record(), ensure_ascii=False).encode()
