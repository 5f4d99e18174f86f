"""Measure planning of graphs with ten thousand to a million tensors.

Each size runs in a separate process, to measure its peak memory. The time begins with a graph in memory whose ir_hash
is known, and ends with the plan and both hashes.
"""

import json
import resource
import subprocess
import sys
import time
from typing import Any

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
RUNS = 3


def rows() -> list[dict[str, Any]]:
    """Return one row per size: seconds (best of three), peak memory and slots."""
    return [_in_a_process(size) for size in SIZES]


def _in_a_process(size: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", str(size)], capture_output=True, text=True, check=True
    )
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def measure(size: int) -> dict[str, Any]:
    """Return the row of one size, measured in this process."""
    from benchmarks.generated import layered
    from tmmu_core.plans.making.engine import plan_graph
    from tmmu_core.plans.model import Plan

    plan_graph(layered(100))
    graph = layered(size)
    # Any 32 bytes are enough: the time of hashing the graph is not measured.
    known = bytes(32)
    seconds = []
    plan: Plan | None = None
    for _ in range(RUNS):
        plan = None
        begun = time.perf_counter()
        plan = plan_graph(graph, ir_hash=known).plan
        seconds.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert plan is not None
    (arena,) = plan.arenas
    return {
        "tensors": size,
        "seconds": min(seconds),
        "peak_bytes": peak,
        "slots": arena.slots,
        "max_live": arena.max_live,
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
