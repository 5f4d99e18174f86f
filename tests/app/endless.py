"""Work for workers that knows nothing heavy: what a worker imports to do it is done at once."""

from __future__ import annotations

import itertools
import time

from app.session.question import Asker


def count(asker: Asker) -> int:
    """Go on until asked to stop."""
    for k in itertools.count(1):
        if not asker.progress("counting", k, 0):
            break
        time.sleep(0.01)
    return k


def eat(asker: Asker) -> None:
    """Take more memory than there is."""
    del asker
    bytearray(1 << 45)
