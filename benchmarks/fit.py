"""What fitting brings beside its peers: ``python -m benchmarks.fit [JOINT]`` writes ``docs/measured/fit.md``.

Recomputation beside AOTAutograd's partitioner, order beside Inductor's three, and how long the ranking of single moves
takes (``python -m benchmarks.fit --what-if`` measures that alone). ``JOINT`` is a folder with what
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
from tmmu_core.fitting.problem.planner_calls import PlanInput, extents, initial_candidate, solve_input
from tmmu_core.fitting.recompute import lower
from tmmu_core.fitting.recompute.live_curve import Choice, run
from tmmu_core.fitting.recompute.min_cut import boundary
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel, recompute_model
from tmmu_core.fitting.recompute.recompute_moves import Bytes
from tmmu_core.fitting.recompute.recompute_search import choice_of
from tmmu_core.fitting.recompute.write_graph import write_graph
from tmmu_core.fitting.search.apply_moves import apply_moves
from tmmu_core.fitting.search.what_if import what_if
from tmmu_core.formats.open_file import read_graph_file
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.timeline import build_timeline, default_mode, default_preset
from tmmu_core.plans.making.request import PlanRequest

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


def what_if_lines() -> list[str]:
    """CPU seconds in which single moves on GPT-2's step are ranked, the first time and again."""
    start = initial_candidate(read_graph_file(SAMPLES / f"{WHAT_IF_ON}.tmmu.cbor.gz"), PlanRequest())
    lines = []
    for ranking in ("first", "again"):
        began = time.process_time()
        found = what_if(start)
        spent = time.process_time() - began
        lines.append(f"| {ranking} | {found.weighed} | {found.planned} | {len(found.moves)} | {spent:.2f} |")
        print(lines[-1], flush=True)
    return lines


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
    lines.append(WHAT_IF)
    lines += what_if_lines()
    return "\n".join(lines) + "\n"


HEAD = """# Fitting, measured

`python -m benchmarks.fit` writes this page; `make bench` installs what it compares with. Figures of one run on a
shared two-core machine: bytes and FLOPs are exact and the same every time, seconds are not.

## Recomputation beside AOTAutograd's partitioner

Joint graphs (forward and backward) of PyTorch, each traced once, attention written out, dropouts off. For each memory
budget of the partitioner (PyTorch's `activation_memory_budget`, solver `dp`) the values that it saves are carried
over: everything else that its backward pass needs is dropped behind the forward pass and made again just before its
first reader, as `tmmu` writes it. That graph is planned (planner `auto`) and gives a peak, the sum of all arenas'
extents, parameters and gradients included, and FLOPs (`tmmu_core/graph/flops.py`). Then `fit`'s recomputation, the
order left as it is, is asked for the cheapest plan within that very peak. Budgets that lead to one and the same choice
have one row. Every plan is verified.

The partitioner minimises what is saved, not the peak: at small budgets it makes more at once than is needed, and its
peak rises again. A plan with nothing recomputed may already be within its peak; then ours costs nothing. Its FLOPs are
counted as ours are, element-wise operators included, so they are not the ones that it weighs by itself.
"""

ORDER = """
## Order beside Inductor's three

MiB over all arenas without what is persistent, the sum of the arenas' peaks: the order as given; Inductor's LPMF (the
better of with and without the rule of pytorch#161810), breadth first and depth first on the same rules (data, bytes
written over, effects); the order of `fit`; what is proven. `randwire` and `searched` are drawn at random by
`benchmarks/wired.py`: networks wired by WS(4, 0.75), and cells stacked as a search for architectures finds them.

| graph | nodes | given | LPMF | BFS | DFS | fit | proven | s |
|---|---|---|---|---|---|---|---|---|"""


WHAT_IF_ON = "gpt2_small_train_b1_s1024"

WHAT_IF = f"""
## What if

Single moves on `{WHAT_IF_ON}`: those that the live curve does not rule out are weighed, the best of each kind planned
anew (`python -m benchmarks.fit --what-if`). The first ranking also loads what is compiled. CPU seconds.

| ranking | weighed | planned | told | CPU s |
|---|---:|---:|---:|---:|"""


if __name__ == "__main__" and sys.argv[1:] == ["--what-if"]:
    what_if_lines()
elif __name__ == "__main__":
    PAGE.write_text(page(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".venv-peers" / "joint"))
