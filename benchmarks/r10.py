"""Measure the warm time of the r10 planner for 500 tensors: ``python -m benchmarks.r10``."""

import statistics
import time

import numpy as np

from tmmu_core.seed.r10 import MemoryPlanner, TensorLifetime

TENSORS, RUNS = 500, 200


def lifetimes(count: int, seed: int = 0) -> list[TensorLifetime]:
    """Return random tensors from Philox words: births in 400 steps, up to 20 live steps, up to 5,000 bytes."""
    draws = np.random.Philox(key=seed).random_raw(3 * count).reshape(3, count)
    rows = zip(*(row.tolist() for row in draws % np.array([[400], [19], [5000]], np.uint64)), strict=True)
    return [TensorLifetime(f"t{k}", born, born + lived + 1, size + 1, 64) for k, (born, lived, size) in enumerate(rows)]


def main() -> None:
    lives = lifetimes(TENSORS)
    took = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        plan = MemoryPlanner(lives).generate_plan()
        took.append(1e3 * (time.perf_counter() - begun))
    assert plan.is_valid(lives)
    print(f"{TENSORS} tensors: best {min(took):.2f} ms, median {statistics.median(took):.2f} ms of {RUNS} runs")


if __name__ == "__main__":
    main()
