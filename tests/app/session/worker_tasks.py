"""Work for workers that imports nothing heavy."""

import itertools
import time

from app.session.work.workers import TaskContext


def count(context: TaskContext) -> int:
    """Go on until asked to stop."""
    for k in itertools.count(1):
        if not context.progress("counting", k, 0):
            break
        time.sleep(0.01)
    return k


def eat(context: TaskContext) -> None:
    """Take more memory than there is."""
    del context
    bytearray(1 << 45)
