"""Shell completion, requested as bash and zsh do."""

import os
import subprocess
import sys

import pytest

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
