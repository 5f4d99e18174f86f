"""The standard streams as the command line writes to them: what a command found out is its exit code's to tell.

``tmmu compare a b | head -1`` closes our output at its first line, ``2>&-`` takes the remarks away, ``2>/dev/full`` has
no room for them: the verdict is the same. What was asked for and could not be written is another matter: a standard
output without room is an error, exit code 2.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any


class Going(io.RawIOBase):
    """A stream that goes on where nobody reads any more; with ``whatever`` also where it cannot be written to."""

    def __init__(self, descriptor: int, *, whatever: bool = False) -> None:
        self._descriptor = descriptor
        self._passed_over: type[OSError] = OSError if whatever else BrokenPipeError
        self._open = True

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The file descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        """How many bytes are done with: what could be written, or all where nobody reads."""
        view = memoryview(data).cast("B")
        while self._open:
            try:
                return os.write(self._descriptor, view)
            except BlockingIOError:  # the other end of a pipe that does not wait is slower than we are
                select.select([], [self._descriptor], [])
            except self._passed_over:
                self._open = False
        return len(view)


def settle() -> None:
    """Make the standard streams such that writing to them decides nothing. One that is closed leads nowhere."""
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # it took the place of a closed one: no file that is opened later must
    os.close(spare)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _going_on(sys.stdout or open(1, "w", closefd=False))  # noqa: SIM115
    sys.stderr = _going_on(sys.stderr or open(2, "w", closefd=False), whatever=True)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # whatever the terminal can write, the rest is spelled out


def _going_on(stream: Any, *, whatever: bool = False) -> Any:
    """A standard stream that is settled; one that is no file's as it is."""
    try:
        raw = io.BufferedWriter(Going(stream.fileno(), whatever=whatever))
    except (AttributeError, io.UnsupportedOperation):
        return stream
    stream.flush()
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=stream.line_buffering)


def write_no_more() -> None:
    """Close standard output for good, lest Python complain on its way out about what is left in it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
