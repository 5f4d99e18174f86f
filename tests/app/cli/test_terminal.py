"""Tables on a terminal, and shell completion, requested as bash and zsh do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import SAMPLES

CHAIN = str(SAMPLES / "linear_chain.tmmu.json")


def on_a_terminal(*arguments: str) -> str:
    """Return the output of a command on a terminal of 200 columns."""
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


PROGRAM = "import sys; sys.argv = ['tmmu']; from tmmu_core.__main__ import main; main()"


def completions(shell: str, words: str) -> list[str]:
    variables = {"_TMMU_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    variables["_TYPER_COMPLETE_ARGS"] = words
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "shown_text"),
    [("tmmu pl", {"plan"}), ("tmmu re", {"report", "restore", "record"}), ("tmmu fit --mes", {"--mesh"})],
)
def test_bash_completion(words: str, shown_text: set[str]) -> None:
    assert set(completions("bash", words)) == shown_text


@pytest.mark.slow
def test_zsh_completion() -> None:
    assert any("plan" in line for line in completions("zsh", "tmmu pl"))
