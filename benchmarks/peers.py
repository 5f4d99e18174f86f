"""Peers from the package index on the same instances: OR-Tools CP-SAT, and ethos-u-vela's two allocators.

Runs without this project's packages, in whichever interpreter has the peers (``make bench`` makes ``.venv-peers`` for
them, because their pins disagree with ours): ``python benchmarks/peers.py PEER FILE.csv`` prints one JSON row.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CAPACITY = 1_048_576
CP_SAT_SECONDS = 30.0
VELA_ITERATIONS = 20_000
PEERS = ("cp_sat", "vela_greedy", "vela_hillclimb")

Buffer = tuple[int, int, int]
"""lower, upper, size: half-open steps, bytes."""


def interpreter(*needed: str) -> str | None:
    """The Python that has the peers: this one, else ``.venv-peers``; ``None`` where neither does."""
    if all(importlib.util.find_spec(name) for name in needed or ("ortools", "ethosu")):
        return sys.executable
    own = ROOT / ".venv-peers" / "bin" / "python"
    return str(own) if own.exists() else None


def row(python: str, peer: str, path: Path) -> dict[str, Any]:
    """One peer on one instance, in a process of its own."""
    done = subprocess.run(
        [python, str(Path(__file__)), peer, str(path)], capture_output=True, text=True, check=True, timeout=300
    )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def read(path: Path) -> list[Buffer]:
    """The three columns that every peer takes."""
    with path.open(newline="") as file:
        return [(int(r["lower"]), int(r["upper"]), int(r["size"])) for r in csv.DictReader(file)]


def cp_sat(buffers: list[Buffer], seconds: float = CP_SAT_SECONDS) -> dict[str, Any]:
    """A plain two-dimensional no-overlap model, asked to fit :data:`CAPACITY`."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    xs, ys, offsets = [], [], []
    for i, (lower, upper, size) in enumerate(buffers):
        offset = model.new_int_var(0, max(CAPACITY - size, 0), f"o{i}")
        offsets.append(offset)
        xs.append(model.new_fixed_size_interval_var(lower, upper - lower, f"x{i}"))
        ys.append(model.new_fixed_size_interval_var(offset, size, f"y{i}"))
    model.add_no_overlap_2d(xs, ys)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 0
    fits = solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    found = [solver.value(offset) for offset in offsets] if fits else None
    return {"extent": CAPACITY if fits else None, "limit_seconds": seconds, "offset": found}


def vela(buffers: list[Buffer], hillclimb: bool) -> dict[str, Any]:
    """Vela's live ranges have inclusive ends, and its search keeps a list per step: time is squeezed to the events."""
    from ethosu.vela import greedy_allocation, hillclimb_allocation
    from ethosu.vela.live_range import LiveRange

    rank = {t: k for k, t in enumerate(sorted({t for lower, upper, _ in buffers for t in (lower, upper)}))}
    ranges = []
    for i, (lower, upper, size) in enumerate(buffers):
        one = LiveRange(None, 1)
        one.start_time, one.end_time, one.size, one.name = rank[lower], rank[upper] - 1, size, str(i)
        ranges.append(one)
    if hillclimb:
        addresses = hillclimb_allocation.allocate_live_ranges(ranges, VELA_ITERATIONS, CAPACITY)
        return {"extent": max(a + size for a, (_, _, size) in zip(addresses, buffers, strict=True))}
    every = type("Ranges", (), {"lrs": ranges})()
    return {"extent": greedy_allocation.allocate_live_ranges(every, 1)}


def main() -> None:
    """Print one row; seconds are CPU seconds, of all threads."""
    peer, path = sys.argv[1], Path(sys.argv[2])
    buffers = read(path)
    begun = time.process_time()
    answer = (
        cp_sat(buffers, *map(float, sys.argv[3:]))
        if peer == "cp_sat"
        else vela(buffers, hillclimb=peer == "vela_hillclimb")
    )
    print(json.dumps({"peer": peer, "seconds": time.process_time() - begun, **answer}))


if __name__ == "__main__":
    main()
