"""Every attack on memory and time ends within a GiB with a result or a typed error that names the exceeded limit.
``python -m benchmarks.limits`` measures the same attacks at full size.
"""

import os
import resource
import sys
from pathlib import Path

import pytest

from app.cli.main import run
from tests.support.exhausting import ATTACKS
from tmmu_core.base.limits import LIMITS

GIB = 1 << 30
ENDLESS = 120
"""Seconds of the processor, where every attack takes about one: it is there so that the suite ends."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_ends_below_a_gibibyte(name: str, tmp_path: Path) -> None:
    attack = ATTACKS[name]
    file = tmp_path / f"attack.{attack.ending}"
    file.write_bytes(attack.make(attack.small or attack.size))
    child = os.fork()
    if not child:
        _run(attack.command, file, tmp_path)
    _, status, used = os.wait4(child, 0)
    shown_text = (tmp_path / "err").read_text()
    assert os.waitstatus_to_exitcode(status) in (0, 1, 2), shown_text[-2000:]
    assert "internal error" not in shown_text
    assert used.ru_maxrss * 1024 < _taken() + GIB
    if attack.limit:
        (limit,) = [limit for limit in LIMITS if limit.name == attack.limit]
        assert os.waitstatus_to_exitcode(status) == 2
        assert f"--max-{limit.name}" in shown_text
        assert limit.variable in shown_text


def _taken() -> int:
    """Return the bytes of address space of this process; a forked process begins with as many."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _run(command: tuple[str, ...], file: Path, folder: Path) -> None:
    """Run ``tmmu COMMAND FILE`` in a process that may use one GiB more than this process."""
    code = 99
    try:
        os.chdir(folder)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        sys.stderr = open("err", "w")  # noqa: SIM115
        resource.setrlimit(resource.RLIMIT_AS, (_taken() + GIB, _taken() + GIB))
        resource.setrlimit(resource.RLIMIT_CPU, (ENDLESS, ENDLESS))
        code = run([command[0], str(file), *command[1:]])
        sys.stderr.flush()
    finally:
        os._exit(code)
