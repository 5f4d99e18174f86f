"""Run a function in a child process with limits on time and memory; input and result are bytes."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tmmu_core.base.errors import first_line

ROOT = Path(__file__).resolve().parents[2]
START = "import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; main(sys.argv[2:])"


@contextmanager
def limited_growth(growth: int) -> Iterator[None]:
    """Context manager: more than ``growth`` further bytes of address space raise ``MemoryError`` (only on Linux)."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + growth
    try:
        if soft == resource.RLIM_INFINITY or limit < soft:
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def run_module(
    module: str, arguments: Sequence[str], data: bytes, timeout: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run ``main(arguments)`` of ``module`` in a subprocess with the input ``data``. Raises like ``subprocess.run``."""
    command = [sys.executable, "-P", "-c", START.format(module=module), str(ROOT), *arguments]
    return subprocess.run(command, input=data, capture_output=True, timeout=timeout, env=environment, check=False)


def serve(function: Callable[..., Any]) -> None:
    """Print the result of ``function(data, **request)`` as JSON.

    The first line of standard input is ``request``, in JSON; the rest is ``data``. If the function raises an error, the
    result is ``{"failed": first line of the message}``.
    """
    request, _, data = sys.stdin.buffer.read().partition(b"\n")
    out, sys.stdout = sys.stdout, sys.stderr  # the parent parses standard output, so libraries print to stderr
    try:
        result = function(data, **json.loads(request))
    except Exception as error:  # the parent reports it
        result = {"failed": first_line(error)[:300]}
    print(json.dumps(result), file=out, flush=True)  # Python flushes only sys.stdout at exit


def ended_by_limit(returncode: int) -> bool:
    """Return whether a process exceeded its processor time or memory; false on Windows, which has no such signals."""
    return returncode < 0 and -returncode in (getattr(signal, "SIGXCPU", 0), getattr(signal, "SIGKILL", 0))


def limit_process(seconds: int, memory: int, file_bytes: int | None = None) -> None:
    """Limit processor time, address space (``memory`` bytes) and file size of this process, and disable core files."""
    try:
        import resource
    except ImportError:  # Windows: only the timeout of the parent applies
        return
    limits = [(resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)]
    limits += [] if file_bytes is None else [(resource.RLIMIT_FSIZE, file_bytes)]
    for resource_id, limit in limits:
        hard = resource.getrlimit(resource_id)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)  # a hard limit cannot be raised
        resource.setrlimit(resource_id, (limit, limit))
