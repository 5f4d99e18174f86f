"""``tmmu.pack`` on arrays: ``python -m benchmarks.pack`` prints CPU milliseconds a call, with numba and without it.

Buffers are drawn by a seed; each count runs in a process of its own per way, the first call left out, the least of
several taken. ``fits`` asks on a grid of 64 whether they fit a capacity, which they do; ``placing`` is one greedy run
alone, the loop that is compiled.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

COUNTS = (100, 500, 1000, 2000)
RUNS = 9
WAYS = ("with", "without")
WHAT = ("pack", "fits", "placing")


def buffers(count: int) -> tuple[Any, Any, Any]:
    """(lower, upper, size), each of shape (count,)."""
    draw = np.random.default_rng(0)
    lower = draw.integers(0, count, count)
    return lower, lower + draw.integers(1, 40, count), draw.integers(1, 1 << 16, count)


def measured(count: int, way: str) -> dict[str, Any]:
    """One row, in this process."""
    if way == "without":
        sys.modules["numba"] = None  # type: ignore[assignment]
    import tmmu_core as tmmu
    from tmmu_core.library.packed import instance_of
    from tmmu_core.planners.columns import columns
    from tmmu_core.planners.greedy import by_size, place

    lower, upper, size = buffers(count)
    instance, _ = instance_of({"lower": lower, "upper": upper, "size": size, "alignment": 1}, None)
    cols = columns(instance.problem)
    order = by_size(cols)
    packed = tmmu.pack(lower, upper, size)
    return {
        "buffers": count,
        "extent_bytes": packed.extent_bytes,
        "pack": _least(lambda: tmmu.pack(lower, upper, size)),
        "fits": _least(lambda: tmmu.pack(lower, upper, size, alignment=64, capacity=1 << 40)),
        "placing": _least(lambda: place(cols, order, "lowest", compiled=way == "with")),
    }


def _least(call: Callable[[], object]) -> float:
    call()
    spent = []
    for _ in range(RUNS):
        begun = time.process_time()
        call()
        spent.append(time.process_time() - begun)
    return min(spent) * 1000


def main() -> None:
    """Print the table."""
    if len(sys.argv) == 3:
        print(json.dumps(measured(int(sys.argv[1]), sys.argv[2])))
        return
    print("| buffers | " + " | ".join(f"{what} ms | without numba | ratio" for what in WHAT) + " |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for count in COUNTS:
        rows = []
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.pack", str(count), way]
            rows.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        assert rows[0]["extent_bytes"] == rows[1]["extent_bytes"]
        cells = [f"{count:,}"]
        for what in WHAT:
            one, two = (row[what] for row in rows)
            cells += [f"{one:.1f}", f"{two:.1f}", f"{two / one:.1f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
