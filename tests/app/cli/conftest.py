"""The command line in this process."""

from collections.abc import Callable

import pytest

from app.cli.main import run

Tmmu = Callable[..., tuple[int, str, str]]  # ``tmmu(*arguments) -> (exit code, stdout, stderr)``


@pytest.fixture
def tmmu(capsysbinary: pytest.CaptureFixture[bytes]) -> Tmmu:
    def call(*arguments: str) -> tuple[int, str, str]:
        capsysbinary.readouterr()
        code = run(arguments)
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return call
