"""Standard streams that do not change a command's exit code.

A closed pipe (``tmmu compare a b | head -1``) and a standard error that is closed or full are ignored. A standard
output that is full is an error with exit code 2.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any


class TolerantStream(io.RawIOBase):
    """A raw stream that discards data after the reader closed the pipe; with ``any_error`` after any write error."""

    def __init__(self, descriptor: int, *, any_error: bool = False) -> None:
        self._descriptor = descriptor
        self._ignored: type[OSError] = OSError if any_error else BrokenPipeError
        self._open = True

    def writable(self) -> bool:
        """Return true."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        """Write ``data`` and return the number of bytes written or discarded."""
        view = memoryview(data).cast("B")
        while self._open:
            try:
                return os.write(self._descriptor, view)
            except BlockingIOError:  # a non-blocking pipe whose reader is slower
                select.select([], [self._descriptor], [])
            except self._ignored:
                self._open = False
        return len(view)


def settle() -> None:
    """Replace the standard streams by tolerant ones; a closed stream is replaced by ``/dev/null``."""
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # fills descriptors 0 to 2, so that no file opened later gets one of them
    os.close(spare)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _tolerant(sys.stdout or open(1, "w", closefd=False))  # noqa: SIM115
    sys.stderr = _tolerant(sys.stderr or open(2, "w", closefd=False), any_error=True)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for characters outside the terminal's encoding


def _tolerant(stream: Any, *, any_error: bool = False) -> Any:
    """Return a tolerant stream in place of ``stream``; ``stream`` itself if it has no file descriptor."""
    try:
        raw = io.BufferedWriter(TolerantStream(stream.fileno(), any_error=any_error))
    except (AttributeError, io.UnsupportedOperation):
        return stream
    stream.flush()
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=stream.line_buffering)


def write_no_more() -> None:
    """Redirect standard output to ``/dev/null``, so that Python does not fail when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
