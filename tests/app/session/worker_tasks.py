"""Work for workers that imports nothing heavy."""

import itertools
import time

from app.session.work.workers import TaskContext


def count(context: TaskContext, seconds_to_stop: float = 0) -> int:
    """Count until the task is stopped."""
    for k in itertools.count(1):
        if not context.progress("counting", k, 0):
            break
        time.sleep(0.01)
    time.sleep(seconds_to_stop)
    return k


def eat(context: TaskContext) -> None:
    """Allocate more memory than the machine has."""
    del context
    bytearray(1 << 45)
