"""Measure bytes over the lower bound, and CPU seconds, of every byte planner on real and on generated instances.

Each pair of instance and planner is measured once, after the native loops are loaded. Each generated size runs in a
separate process, to measure its peak memory. Every packing is checked.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tmmu_core.formats.csv.instance_csv import read_csv
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.problem import Packing, Problem
from tmmu_core.seed.r10 import AllocationPlan, MemoryRegion, TensorLifetime

DATA = Path(__file__).parent.parent / "sample_graphs" / "instances"
INSTANCES = (
    "A.1048576",
    "B.1048576",
    "C.1048576",
    "D.1048576",
    "E.1048576",
    "F.1048576",
    "somas_resnet50",
    "somas_tiny_bert",
    "iree_first",
    "iree_mobilebert",
)
NAMES = ("ffd", "greedy", "portfolio", "search", "exact", "auto")
GENERATED = (100_000, 1_000_000)


def rows() -> list[dict[str, Any]]:
    """Return a row per instance and planner: extent, bound, gap in percent, CPU seconds, and whether it is optimal."""
    return [*instance_rows(), *generated_rows()]


def instance_rows(instances: tuple[str, ...] = INSTANCES) -> Iterator[dict[str, Any]]:
    """Return the rows of the real instances with every planner."""
    _warm_up()
    for name in instances:
        problem = read_csv((DATA / f"{name}.csv").read_bytes()).problem
        for planner in NAMES:
            yield measure(name, problem, planner)


def generated_rows(sizes: tuple[int, ...] = GENERATED) -> Iterator[dict[str, Any]]:
    """Return time and peak memory of ``greedy`` and ``auto`` on generated instances."""
    for size in sizes:
        for planner in ("greedy", "auto"):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.dsa", str(size), planner], capture_output=True, text=True, check=True
            )
            yield json.loads(done.stdout)


def packer(planner: str) -> Callable[..., Packing]:
    """Return the function that packs one arena with a planner."""
    return ARENA_PLANNERS[planner].pack


def measure(name: str, problem: Problem, planner: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the row of one planner, with its default options unless others are given, on one problem."""
    pack = packer(planner)
    begun = time.process_time()
    packing = pack(problem, options or {}, None)
    seconds = time.process_time() - begun
    assert is_valid(problem, packing), f"{planner} on {name}"
    extent = max((int(at) + int(size) for at, size in zip(packing.offset, problem.size, strict=True)), default=0)
    bound = max(packing.lower_bound or 0, lower_bound(problem).bytes)
    return {
        "instance": name,
        "storages": len(problem),
        "planner": planner,
        "picked": packing.notes.get("picked"),
        "extent_bytes": extent,
        "lower_bound_bytes": bound,
        "over_bound_percent": round(100 * (extent - bound) / bound, 4) if bound else 0.0,
        "optimal": packing.optimal or extent == bound,
        "seconds": seconds,
    }


def is_valid(problem: Problem, packing: Packing) -> bool:
    """Return whether no two storages of a plain problem that are live at the same step share a byte."""
    regions = {
        name: MemoryRegion(int(at), max(int(size), 1))
        for name, at, size in zip(problem.ids, packing.offset, problem.size, strict=True)
    }
    lives = [
        TensorLifetime(name, int(birth), int(death))
        for name, birth, death in zip(problem.ids, problem.birth, problem.death, strict=True)
    ]
    return AllocationPlan(regions).is_valid(lives)


def generated(count: int, seed: int = 0) -> Problem:
    """Return ``count`` random storages from Philox words, with a long tail of lifetimes and sizes on a 64-byte grid."""
    draws = np.random.Philox(key=seed)
    birth = np.sort((draws.random_raw(count) % np.uint64(count)).astype(np.int64))
    tail = (draws.random_raw(count) % np.uint64(1 << 16)).astype(np.int64) + 1
    life = 1 + 8 * (1 << 16) // tail // 8
    octave = 6 + (draws.random_raw(count) % np.uint64(16)).astype(np.int64)
    size = ((1 << octave) + (draws.random_raw(count) >> np.uint64(40)).astype(np.int64) % (1 << octave)) // 64 * 64
    order = np.lexsort((np.arange(count), -size, birth))
    return Problem(
        "arena",
        tuple(f"{i:08d}" for i in range(count)),
        birth[order],
        (birth + life)[order],
        size[order].astype(np.uint64),
        np.full(count, 64, dtype=np.uint64),
    )


def _warm_up() -> None:
    problem = read_csv((DATA / "B.1048576.csv").read_bytes()).problem
    for planner in ("exact", "search"):
        packer(planner)(problem, {}, None)


def _one(size: int, planner: str) -> dict[str, Any]:
    _warm_up()
    row = measure(f"generated {size:,}", generated(size), planner)
    row["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return row


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(_one(int(sys.argv[1]), sys.argv[2])))
    else:
        for line in rows():
            print(json.dumps(line))
