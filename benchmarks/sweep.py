"""Measure the processor use of a sweep: ``python -m benchmarks.sweep [--points N] [--workers K]``.

N small plans (a chain of nine tensors with other alignments and seeds) are computed in this process, then by K Dask
processes. The ideal rate of K processes is K times the rate of one process. If the machine has fewer free processors,
this rate cannot be reached; therefore a part of the points is also planned in K processes without Dask.
"""

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.sweep.sweep_run import Point, Source, cluster, run_here, run_on, run_point

FILE = Path(__file__).resolve().parents[1] / "sample_graphs" / "linear_chain.tmmu.json"


def points(many: int) -> tuple[Point, ...]:
    return tuple(Point(k, 0, PlanRequest(planner="slots", seed=k), head={"planner": "slots"}) for k in range(many))


def run_batch(pair: tuple[Source, Sequence[Point]]) -> int:
    source, points_to_run = pair
    return sum(1 for point in points_to_run if run_point(source, point).rows)


def rate(begun: float, many: int) -> float:
    return many / (time.perf_counter() - begun)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--points", type=int, default=10_000, help="number of plans [10000]")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="number of processes [all cores]")
    args = options.parse_args()
    sources, points_to_run, k = [Source(FILE.name, FILE.read_bytes())], points(args.points), args.workers
    run_batch((sources[0], points_to_run[:50]))  # loads the modules needed on first use
    begun = time.perf_counter()
    assert sum(len(done) for done in run_here(sources, points_to_run)) == len(points_to_run)
    one = rate(begun, len(points_to_run))
    print(f"one process                 {one:8,.0f} plans/s", flush=True)
    with ProcessPoolExecutor(k) as pool:
        list(pool.map(run_batch, [(sources[0], points_to_run[:50])] * k))
        parts = [(sources[0], points_to_run[n::k]) for n in range(k)]
        begun = time.perf_counter()
        assert sum(pool.map(run_batch, parts)) == len(points_to_run)
        pooled = rate(begun, len(points_to_run))
    print(f"{k} processes, bare           {pooled:8,.0f} plans/s, {pooled / one / k:.0%} of {k} times one", flush=True)
    with cluster(workers=k) as client:
        list(run_on(client, sources, points_to_run[: 50 * k]))
        begun = time.perf_counter()
        assert sum(len(done) for done in run_on(client, sources, points_to_run)) == len(points_to_run)
        dask = rate(begun, len(points_to_run))
    print(f"{k} processes of Dask         {dask:8,.0f} plans/s, {dask / one / k:.0%} of {k} times one, ", end="")
    print(f"{dask / pooled:.0%} of the bare processes")


if __name__ == "__main__":
    main()
