"""What fitting brings beside its peers: ``python -m benchmarks.fit [JOINT]`` writes ``docs/measured/fit.md``.

Recomputation beside AOTAutograd's partitioner, and order beside Inductor's three. ``JOINT`` is a folder with what
``benchmarks/joint.py`` wrote, which needs PyTorch; without it ``.venv-peers`` is asked to write it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.wired import randwire, searched
from tmmu_core.fitting.order.baselines import baselines
from tmmu_core.fitting.order.order_loops import measure
from tmmu_core.fitting.order.order_model import order_model
from tmmu_core.fitting.order.order_search import best_order
from tmmu_core.fitting.problem.lower_bounds import grids_of
from tmmu_core.fitting.problem.lowered_graph import lower_graph
from tmmu_core.fitting.problem.planner_calls import PlanInput, extents, solve_input
from tmmu_core.fitting.recompute import lower
from tmmu_core.fitting.recompute.live_curve import Choice, run
from tmmu_core.fitting.recompute.min_cut import boundary
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel, recompute_model
from tmmu_core.fitting.recompute.recompute_moves import Bytes
from tmmu_core.fitting.recompute.recompute_search import choice_of
from tmmu_core.fitting.recompute.write_graph import write_graph
from tmmu_core.fitting.search.apply_moves import apply_moves
from tmmu_core.formats.open_file import read_graph_file
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.timeline import build_timeline, default_mode, default_preset

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measured" / "fit.md"
SAMPLES = ROOT / "sample_graphs"
PEERS = ROOT / ".venv-peers" / "bin" / "python"
PLANNER = "auto"
INDUCTOR = (("lpmf", "lpmf_threshold"), ("bfs",), ("dfs",))
BRANCHING = ("inception_v1", "inception_v2", "densenet121", "shufflenet", "squeezenet")


@dataclass(frozen=True)
class Row:
    """One budget of the partitioner, and the same bytes by ours."""

    budget: float
    saved: int
    peak: int
    flops: int
    ours_peak: int
    ours_flops: int
    seconds: float


def joint(folder: Path) -> list[Path]:
    """The graphs in ``folder``, written by the peers where there are none."""
    if not list(folder.glob("*.json")) and PEERS.exists():
        subprocess.run([str(PEERS), str(ROOT / "benchmarks" / "joint.py"), str(folder)], check=True)
    return sorted(folder.glob("*.json"))


def recompute_rows(file: Path) -> tuple[RecomputeModel, list[Row]]:
    plan_input = PlanInput(read_graph_file(file.with_suffix(".tmmu.cbor.gz")), planner=PLANNER)
    model = recompute_model(plan_input)
    rows: list[Row] = []
    for each in json.loads(file.read_text())["budgets"]:
        choice, saved = partitioned(model, each["saved"])
        peer = PlanInput(write_graph(model, choice), planner=PLANNER)
        plan = solve_input(peer).plan
        assert verify_plan(plan, peer.graph).ok
        peak, flops = sum(extents(plan).values()), run(model, choice).flops
        if rows and (peak, flops) == (rows[-1].peak, rows[-1].flops):
            continue  # a smaller budget, and the same choice
        began = time.perf_counter()
        ours_peak, ours_flops = cheapest_within(plan_input, peak)
        seconds = time.perf_counter() - began
        rows.append(Row(each["budget"], saved, peak, flops, ours_peak, ours_flops, seconds))
        print(file.stem, rows[-1], flush=True)
    return model, rows


def partitioned(model: RecomputeModel, saved: list[list[object]]) -> tuple[Choice, int]:
    """What the partitioner does not save is dropped behind the forward pass; and the bytes that it saves."""
    index, storage_of = model.timeline.index, model.liveness.storage_of
    names = [node if node in index.tensor_of else f"{node}:{which}" for node, which in saved]
    kept = {int(storage_of[index.tensor_of[name]]) for name in names}
    last = int(np.flatnonzero(~model.late).max())
    at = boundary(model, last)
    nodes = np.zeros(len(model.node_at), np.bool_)
    nodes[[int(model.producer[s]) for s in at.before.tolist() if model.droppable[s] and s not in kept]] = True
    return choice_of(model, at, nodes), sum(int(model.size[s]) for s in kept if model.producer[s] >= 0)


def cheapest_within(plan_input: PlanInput, peak: int) -> tuple[int, int]:
    """Extent and extra FLOPs of the cheapest plan found within ``peak`` bytes, verified."""
    plan = solve_input(plan_input).plan
    if sum(extents(plan).values()) <= peak:
        return sum(extents(plan).values()), 0
    for moves in lower(plan_input, None, Bytes(peak)):
        after = apply_moves(plan_input, moves)
        solution = solve_input(after)
        extent = sum(extents(solution.plan).values())
        if extent <= peak:
            assert verify_plan(solution.plan, after.graph).ok
            return extent, sum(move.cost.extra_flops for move in moves)
    raise AssertionError(f"nothing found within {peak:,} bytes")


def ordered_graphs(folder: Path) -> Iterator[tuple[str, Graph]]:
    """The branching samples, graphs wired at random, and the joint graphs with their optimizer's steps."""
    for name in BRANCHING:
        yield name, read_graph_file(SAMPLES / f"{name}.tmmu.json.gz")
    for seed in range(3):
        for made in (randwire(seed), searched(seed)):
            yield made.name, made
    for file in sorted(folder.glob("*.adamw.tmmu.cbor.gz")):
        yield file.name.split(".tmmu")[0], read_graph_file(file)


def as_run(graph: Graph) -> Graph:
    """The graph written out as its own mode and preset run it."""
    mode = default_mode(graph)
    return lower_graph(build_timeline(graph, mode, default_preset(mode)))


def order_lines(graphs: Iterable[tuple[str, Graph]]) -> Iterator[str]:
    for name, as_given in graphs:
        graph = as_run(as_given)
        plan_input = PlanInput(graph)
        model = order_model(solve_input(plan_input).liveness, grids_of(plan_input))
        assert model is not None
        began = time.perf_counter()
        found = best_order(model)
        seconds = time.perf_counter() - began
        peer_orders = {method: measure(model, order).total for method, order in baselines(model)}
        peers = [min(peer_orders[method] for method in methods) for methods in INDUCTOR]
        given = measure(model, np.arange(len(model))).total
        assert found.peak <= min(peers)
        constant = int(model.constant.sum())
        cells = [f"{(peak - constant) / 2**20:,.2f}" for peak in (given, *peers)]
        proven = "optimal" if found.optimal else f"≥ {(found.bound - constant) / 2**20:,.2f}"
        yield (
            "| "
            + " | ".join(
                [
                    name,
                    f"{len(graph.nodes):,}",
                    *cells,
                    f"{(found.peak - constant) / 2**20:,.2f}",
                    proven,
                    f"{seconds:.1f}",
                ]
            )
            + " |"
        )
        print(name, found.tried, found.peak, found.bound, round(seconds, 1), flush=True)


def page(folder: Path) -> str:
    files = joint(folder)
    lines = [HEAD]
    if not files:
        lines.append("The peers were not installed: `make bench` installs them where it can.\n")
    for file in files:
        model, rows = recompute_rows(file)
        total = model.flops.total
        PAGE.write_text("\n".join(lines) + "\n")
        lines.append(f"\n### {file.stem}, {len(model.node_at):,} nodes, {total:,} FLOPs\n")
        lines.append(
            "| budget | it saves MiB | peak MiB | FLOPs more | ours: peak MiB | FLOPs more | of its FLOPs | s |"
        )
        lines.append("|---|---|---|---|---|---|---|---|")
        for row in rows:
            share = f"{100 * row.ours_flops / row.flops:.1f} %" if row.flops else "–"
            lines.append(
                f"| {row.budget} | {row.saved / 2**20:,.0f} | {row.peak / 2**20:,.1f} "
                f"| {100 * row.flops / total:.4f} % | {row.ours_peak / 2**20:,.1f} "
                f"| {100 * row.ours_flops / total:.4f} % | {share} | {row.seconds:.1f} |"
            )
    lines.append(ORDER)
    lines += order_lines(ordered_graphs(folder))
    return "\n".join(lines) + "\n"


HEAD = """# Fitting, measured

`python -m benchmarks.fit` writes this page; `make bench` installs what it compares with. Bytes and FLOPs are exact;
seconds are of one run on two cores. Peaks are the sum of all arenas' extents; [PyTorch steps](real.md) compares
measured peaks in one memory.

## Recomputation beside AOTAutograd's partitioner

Joint graphs of PyTorch with attention written out and dropout off. At each `activation_memory_budget` (solver `dp`)
everything that the partitioner does not save is recomputed before its first reader in the backward pass. That graph is
planned with `auto`. Then `fit` searches for the cheapest recomputation within the same peak, in the given order. Equal
choices have one row. Every plan is verified.
"""

ORDER = """
## Order beside Inductor's three

MiB over all arenas without persistent tensors: the given order, Inductor's LPMF (the better of with and without the
rule of pytorch#161810), breadth first, depth first, `fit`, and what is proven. `randwire` and `searched` are random
networks of `benchmarks/wired.py`.

| graph | nodes | given | LPMF | BFS | DFS | fit | proven | s |
|---|---|---|---|---|---|---|---|---|"""


if __name__ == "__main__":
    PAGE.write_text(page(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".venv-peers" / "joint"))
