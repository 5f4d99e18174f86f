"""Work for workers that knows nothing heavy: what a worker imports to do it is done at once."""

from __future__ import annotations

import itertools
import time

from app.session.workers import Told


def count(told: Told) -> int:
    """Go on until asked to stop."""
    for k in itertools.count(1):
        if not told.progress("counting", k, 0):
            break
        time.sleep(0.01)
    return k


def eat(told: Told) -> None:
    """Take more memory than there is."""
    del told
    bytearray(1 << 45)
