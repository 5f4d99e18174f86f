"""Run planners from the package index: OR-Tools CP-SAT, and the two allocators of ethos-u-vela.

The module uses no package of this project and runs in an interpreter that has the peers (``.venv-peers``, because
their version pins conflict with ours): ``python benchmarks/peers.py PEER PROBLEM.csv OFFSETS.csv LIMIT SECONDS``
writes the columns ``id,offset``. All three minimise the extent and may stop at LIMIT bytes. For PROBLEM.json, CP-SAT
minimises the reuse cost within the capacity of the problem.
"""

import csv
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VELA_ITERATIONS = 2_000
CP_SAT_WORKERS = 8

Buffer = tuple[int, int, int]
"""Rows ``(lower, upper, size)``: half-open steps, bytes."""


def interpreter(needed: str) -> str | None:
    """Return the Python interpreter that has a package: this one, else that of ``.venv-peers``; else ``None``."""
    if importlib.util.find_spec(needed):
        return sys.executable
    own = ROOT / ".venv-peers"
    return str(own / "bin" / "python") if any(own.glob(f"lib/*/site-packages/{needed}")) else None


def cp_sat(buffers: list[Buffer], limit: int, seconds: float) -> list[int] | None:
    """Return offsets of a two-dimensional no-overlap model with a cumulative constraint, of least extent."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    top = model.new_int_var(limit, max(limit, sum(size for *_, size in buffers)), "extent")
    xs, ys, offsets = [], [], []
    for i, (lower, upper, size) in enumerate(buffers):
        offset = model.new_int_var(0, sum(size for *_, size in buffers), f"o{i}")
        model.add(offset + size <= top)
        offsets.append(offset)
        xs.append(model.new_fixed_size_interval_var(lower, upper - lower, f"x{i}"))
        ys.append(model.new_fixed_size_interval_var(offset, size, f"y{i}"))
    model.add_no_overlap_2d(xs, ys)
    model.add_cumulative(xs, [size for *_, size in buffers], top)
    model.minimize(top)
    return solved(model, offsets, seconds)


def cp_sat_costs(problem: dict[str, Any], seconds: float) -> list[int] | None:
    """Return offsets within the capacity of a problem of one pool, of least reuse cost found."""
    from ortools.sat.python import cp_model

    model, rows, capacity = cp_model.CpModel(), problem["buffers"], problem["pools"][0]["capacity"]
    size = {row["id"]: row["size"] for row in rows}
    at = {number: model.new_int_var(0, capacity - size[number], f"o{number}") for number in size}
    lives = [row["live_intervals"][0] for row in rows]
    xs = [model.new_fixed_size_interval_var(live["lower"], live["upper"] - live["lower"], "") for live in lives]
    model.add_no_overlap_2d(xs, [model.new_fixed_size_interval_var(at[k], size[k], "") for k in at])
    costs = []
    for pair in problem["cost_model"]["reuse_penalties"]:
        a, b = pair["first"], pair["second"]
        below, above, shared = (model.new_bool_var("") for _ in range(3))
        model.add(at[a] + size[a] <= at[b]).only_enforce_if(below)
        model.add(at[b] + size[b] <= at[a]).only_enforce_if(above)
        model.add_bool_or(below, above, shared)
        costs.append(pair["cost"] * shared)
    model.minimize(sum(costs))
    return solved(model, list(at.values()), seconds)


def solved(model: Any, offsets: list[Any], seconds: float) -> list[int] | None:
    """Return the values of the offsets in the best solution of a CP-SAT model, or ``None``."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = CP_SAT_WORKERS
    solver.parameters.random_seed = 0
    found = solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return [solver.value(offset) for offset in offsets] if found else None


def vela(buffers: list[Buffer], limit: int, hillclimb: bool) -> list[int]:
    """Return the offsets of Vela, whose live ranges have inclusive ends; time is reduced to births and deaths."""
    from ethosu.vela import greedy_allocation, hillclimb_allocation
    from ethosu.vela.live_range import LiveRange

    rank = {t: k for k, t in enumerate(sorted({t for lower, upper, _ in buffers for t in (lower, upper)}))}
    ranges = []
    for i, (lower, upper, size) in enumerate(buffers):
        one = LiveRange(None, 1)
        one.start_time, one.end_time, one.size, one.name = rank[lower], rank[upper] - 1, size, str(i)
        one.tensors = [SimpleNamespace(address=0)]
        ranges.append(one)
    if hillclimb:
        return [int(at) for at in hillclimb_allocation.allocate_live_ranges(ranges, VELA_ITERATIONS, limit)]
    greedy_allocation.allocate_live_ranges(SimpleNamespace(lrs=ranges), 1)
    return [int(one.tensors[0].address) for one in ranges]


def main() -> int:
    """Write the offsets; return 1 if no offsets were found."""
    peer, path, out, limit, seconds = sys.argv[1:]
    with open(path, newline="", encoding="utf-8") as file:
        problem = json.load(file)["problem"] if path.endswith(".json") else None
        rows = problem["buffers"] if problem else list(csv.DictReader(file))
    buffers = [] if problem else [(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in rows]
    if problem:
        offsets = cp_sat_costs(problem, float(seconds))
    elif peer == "cp_sat":
        offsets = cp_sat(buffers, int(limit), float(seconds))
    else:
        offsets = vela(buffers, int(limit), hillclimb=peer == "vela_hillclimb")
    if offsets is None:
        return 1
    with open(out, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "offset"), *zip((row["id"] for row in rows), offsets, strict=True)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
