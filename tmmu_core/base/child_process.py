"""A process of its own for what may end the process that it is done in: how it is started, bounded and waited for.

It gets bytes and gives bytes back; neither way is anything else.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START = "import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; main(sys.argv[2:])"


def answer_of(module: str, arguments: Sequence[str], data: bytes, wait: float) -> subprocess.CompletedProcess[bytes]:
    """Run ``main(arguments)`` of ``module`` with ``data`` on standard input; wait at most ``wait`` seconds.

    Raises ``subprocess.TimeoutExpired``, and ``OSError`` if no process can be started.
    """
    command = [sys.executable, "-P", "-c", START.format(module=module), str(ROOT), *arguments]
    return subprocess.run(command, input=data, capture_output=True, timeout=wait, check=False)


def ended_by_limit(returncode: int) -> bool:
    """Whether a process was ended for its processor time or memory; Windows has neither signal."""
    return returncode < 0 and -returncode in (getattr(signal, "SIGXCPU", 0), getattr(signal, "SIGKILL", 0))


def bound(seconds: int, memory: int) -> None:
    """Give this process ``seconds`` of the processor and ``memory`` bytes of address space at most, and no core file.

    Where the system has no such limits, the parent's clock is the only one.
    """
    try:
        import resource
    except ImportError:
        return
    for what, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)  # a lower one stays
        resource.setrlimit(what, (least, least))
