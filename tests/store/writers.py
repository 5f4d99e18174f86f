"""Eight processes that write to one store: ``python -m tests.store.writers URL FOLDER RUNS``.

Each process writes a line to ``FOLDER/acks.N`` per recorded run. The first one kills itself in the middle of a run.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from tests.store.plans import label, plan_of
from tmmu_core.store.store import Store

PROCESSES = 8


def write(url: str, folder: Path, me: int, runs: int) -> None:
    plans = [plan_of({"shared": 1}), plan_of({f"own{me}": 2})]
    store = Store.at(url, create=True)  # all processes at once: one of them creates the store
    with (folder / f"acks.{me}").open("a") as acks:
        for k in range(runs):
            if me == 0 and k == runs // 2:
                threading.Timer(0.002, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            commit = f"w{me}n{k:03}"
            store.record(plans[k % 2], label(commit, k))
            acks.write(commit + "\n")
            acks.flush()
    if me == 0:
        signal.pause()


def main() -> None:
    url, folder, runs = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    children = []
    for me in range(PROCESSES):
        child = os.fork()
        if child == 0:
            try:
                write(url, folder, me, runs)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    print(*[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])


if __name__ == "__main__":
    main()
