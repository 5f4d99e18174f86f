"""Tables on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import SAMPLES

CHAIN = str(SAMPLES / "linear_chain.tmmu.json")


def on_a_terminal(*arguments: str) -> str:
    """What a command writes to a terminal 200 columns wide."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "COLUMNS": "200", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "app.cli.main", *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            written += piece
        assert process.wait() == 0
    os.close(ours)
    return written.decode()


@pytest.mark.slow
def test_table_on_a_terminal_has_a_frame() -> None:
    written = on_a_terminal("plan", CHAIN)
    assert "─" in written
    assert "64.0 KiB (65,536 B)" in written


@pytest.mark.slow
def test_id_in_brackets_is_no_markup(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(Path(CHAIN).read_text().replace('"t3"', '"[bold]t3[/bold]"'))
    ours = on_a_terminal("gate", str(path), "--max-peak", "1MiB")
    assert "ok" in ours
    assert "[bold]t3[/bold]" in on_a_terminal("trace", str(path))
