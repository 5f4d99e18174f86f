"""Helpers of the child processes that run a model: their answer, and what native code prints."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def printed_to(lines: list[str]) -> Iterator[None]:
    """Add what native code writes to standard error."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode("utf-8", "replace").splitlines()


def write_answer(compute: Callable[[], Any]) -> None:
    """Write the result as JSON to standard output; of an exception, the first line of its text as ``failed``."""
    out, sys.stdout = sys.stdout, sys.stderr  # what a runtime prints is no part of the answer
    try:
        answer = compute()
    except Exception as error:  # the parent reports it
        answer = {"failed": (str(error).strip().splitlines() or [type(error).__name__])[0][:300]}
    out.write(json.dumps(answer))
