"""Profile planning with ``slots``: ``python -m benchmarks.where 1000000``.

After the graph is generated, a signal samples the running functions of the core every 2 ms of CPU time and adds the
CPU seconds since the previous sample, so that long calls into numpy are counted. Stages are the functions that the
engine calls.
"""

import resource
import signal
import sys
import time
from collections import defaultdict
from types import FrameType
from typing import Any

from benchmarks.generated import layered
from tmmu_core.plans.making.engine import plan_graph

EVERY = 0.002
"""Seconds of CPU time between two samples."""
ENGINE = "_planned"  # function of ``engine.py`` that calls the stages
FUNCTIONS = 14
"""Maximum number of functions in the table."""


def measured(size: int) -> dict[str, Any]:
    """Return the CPU seconds in total, by stage and by function, and the peak memory of the process in bytes."""
    plan_graph(layered(100))
    graph = layered(size)
    stages: dict[str, float] = defaultdict(float)
    functions: dict[str, float] = defaultdict(float)
    last = time.process_time()

    def look(signum: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.process_time()
        names = _stack(frame)
        if names:
            functions[names[0]] += now - last
            stages[_stage(names)] += now - last
        last = now

    before = signal.signal(signal.SIGPROF, look)
    begun = last = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
    try:
        plan_graph(graph, ir_hash=bytes(32))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return {
        "cpu_seconds": time.process_time() - begun,
        "stages": stages,
        "functions": functions,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _stack(frame: FrameType | None) -> list[str]:
    """Return the running functions of the core, innermost first, as ``module.function``, without comprehensions."""
    names = []
    while frame is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module.startswith("tmmu_core") and not name.startswith("<"):
            names.append(f"{module.rpartition('.')[2]}.{name}")
        frame = frame.f_back
    return names


def _stage(names: list[str]) -> str:
    """Return the function that the engine called."""
    at = next((k for k, name in enumerate(names) if name.endswith(f".{ENGINE}")), 0)
    return names[max(0, at - 1)]


def main() -> None:
    """Print two tables."""
    found = measured(int(sys.argv[1]))
    whole = found["cpu_seconds"]
    print(f"{whole:.2f} CPU seconds, peak {found['peak_bytes'] / 2**30:.2f} GiB\n")
    for what, many in (("stages", None), ("functions", FUNCTIONS)):
        print(f"| {what} | CPU seconds | share |\n|---|---:|---:|")
        for name, seconds in sorted(found[what].items(), key=lambda each: -each[1])[:many]:
            print(f"| `{name}` | {seconds:.3f} | {seconds / whole:.0%} |")
        print()


if __name__ == "__main__":
    main()
