"""What fitting brings beside its peers: ``python -m benchmarks.fit [JOINT [STEP …]]`` writes ``docs/measured/fit.md``.

Recomputation beside AOTAutograd's partitioner, and order beside Inductor's. ``JOINT`` is a folder with what
``benchmarks/joint.py`` wrote, which needs PyTorch; without it ``.venv-torch`` is used to write it. With names of steps,
only these are compared, and the part on order stays as it is.
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
from tmmu_core.fitting.problem.answer import Allowed
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.lower_bounds import grids_of
from tmmu_core.fitting.problem.lowered_graph import lower_graph
from tmmu_core.fitting.problem.planner_calls import PlanInput, extents, initial_candidate, solve_input
from tmmu_core.fitting.recompute.live_curve import Choice, run
from tmmu_core.fitting.recompute.min_cut import boundary
from tmmu_core.fitting.recompute.recompute_model import NEVER, RecomputeModel, recompute_model
from tmmu_core.fitting.recompute.recompute_search import choice_of
from tmmu_core.fitting.recompute.write_graph import write_graph
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.formats.open_file import read_graph_file
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.timeline import build_timeline, default_mode, default_preset
from tmmu_core.plans.making.request import PlanRequest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measured" / "fit.md"
SAMPLES = ROOT / "sample_graphs"
PEERS = ROOT / ".venv-torch" / "bin" / "python"
REQUEST = PlanRequest(planner="auto", one_memory=True, alignment=64)
ALLOWED = Allowed(kinds=frozenset({"order", "recompute"}), keep_phases=True)
INDUCTOR = (("lpmf", "lpmf_threshold"), ("bfs",), ("dfs",), ("eager_free",))
BRANCHING = ("inception_v1", "inception_v2", "densenet121", "shufflenet", "squeezenet")


@dataclass(frozen=True)
class Row:
    """One budget of the partitioner, and the fit to the same bytes."""

    step: str
    budget: str
    peak: int
    percent: float
    answer: str
    ours_peak: int
    ours_percent: float
    seconds: float

    @property
    def is_no_worse(self) -> bool:
        """Whether the fit needs at most the partitioner's FLOPs within its peak."""
        return self.answer == "fits" and self.ours_percent <= self.percent


def joint(folder: Path) -> list[Path]:
    """The graphs in ``folder``, written with PyTorch where there are none."""
    if not list(folder.glob("*.json")) and PEERS.exists():
        subprocess.run([str(PEERS), "-m", "benchmarks.joint", str(folder)], check=True, cwd=ROOT)
    return sorted(folder.glob("*.json"))


def recompute_rows(file: Path) -> Iterator[Row]:
    """Compare one step at each budget below 1; equal choices have one row."""
    found = json.loads(file.read_text())
    start = initial_candidate(read_graph_file(file.with_suffix(".tmmu.cbor.gz")), REQUEST)
    model = recompute_model(start.plan_input)
    total = model.flops.total
    known = set()
    for budget, saved in found["saved"].items():
        choice = partitioned(model, saved)
        peer = PlanInput(write_graph(model, choice), planner="auto", arenas=start.plan_input.arenas)
        plan = solve_input(peer).plan
        assert verify_plan(plan, peer.graph).ok
        peak, flops = sum(extents(plan).values()), run(model, choice).flops
        if budget == "1.0" or (peak, flops) in known:
            continue
        known.add((peak, flops))
        began = time.process_time()
        fitted = fit(start, Capacity(peak), ALLOWED)
        seconds = time.process_time() - began
        assert verify_plan(fitted.best.plan, fitted.best.fitted_graph).ok
        percents = [100 * each / total for each in (flops, fitted.best.cost.extra_flops)]
        row = Row(
            found["name"], budget, peak, percents[0], fitted.answer, fitted.best.extent_bytes, percents[1], seconds
        )
        print(row, flush=True)
        yield row


def partitioned(model: RecomputeModel, saved: list[str]) -> Choice:
    """What the partitioner does not save is dropped behind the forward pass and recomputed before its first reader.

    Results that read a buffer which is written later are kept: the partitioner's step raises an error there.
    """
    index, storage_of = model.timeline.index, model.liveness.storage_of
    kept = {int(storage_of[index.tensor_of[name]]) for name in saved}
    at = boundary(model, int(np.flatnonzero(~model.late).max()))
    nodes = np.zeros(len(model.node_at), np.bool_)
    nodes[[int(model.producer[s]) for s in at.before.tolist() if model.droppable[s] and s not in kept]] = True
    return choice_of(model, at, nodes & (model.expires == NEVER))


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


def main(folder: Path, names: list[str]) -> None:
    """Write the page; it is complete after each step."""
    order = "## Order" + PAGE.read_text().partition("## Order")[2]
    rows: list[Row] = []
    for file in joint(folder):
        if names and json.loads(file.read_text())["name"] not in names:
            continue
        rows += recompute_rows(file)
        PAGE.write_text(HEAD + "".join(map(line_of, rows)) + summary(rows) + order)
    if not names:
        lines = "\n".join([ORDER, *order_lines(ordered_graphs(folder))])
        PAGE.write_text(HEAD + "".join(map(line_of, rows)) + summary(rows) + lines + "\n")


def line_of(row: Row) -> str:
    """Return the row of the table."""
    return (
        f"| {row.step} | {row.budget} | {row.peak / 2**20:,.2f} | {row.percent:.4f} % | {row.answer} "
        f"| {row.ours_peak / 2**20:,.2f} | {row.ours_percent:.4f} % | {row.seconds:.1f} |\n"
    )


def summary(rows: list[Row]) -> str:
    """Return the sentence below the table."""
    good = sum(row.is_no_worse for row in rows)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout
    steps = len({row.step for row in rows})
    return (
        f"\n{good} of {len(rows)} fits of {steps} steps need at most its FLOPs within its peak"
        f" (commit {commit.strip()}).\n\n"
    )


HEAD = """# Fitting, measured

`python -m benchmarks.fit` writes this page; named steps replace only the first table.
Bytes and FLOPs are exact; seconds are CPU seconds of one run.
[PyTorch steps](real.md) compares measured peaks.

## Recomputation beside AOTAutograd's partitioner

Training steps of `benchmarks/real_steps.py` and `benchmarks/joint.py` in one memory. At each
`activation_memory_budget` below 1 everything that the partitioner does not save is recomputed before its first reader
in the backward pass, and that graph is planned. Then `fit` searches order and recomputation within the same peak.
Equal choices have one row. Every plan is verified. Peaks are in MiB; FLOPs are extra ones.

| step | budget | its peak | its FLOPs | fit | peak | FLOPs | s |
|---|---|---:|---:|---|---:|---:|---:|
"""

ORDER = """## Order beside Inductor's

MiB over all arenas without persistent tensors: the given order, Inductor's LPMF (the better of with and without the
rule of pytorch#161810), breadth first, depth first, the eager-free order of pytorch#196848, `fit`, and what is proven.
`randwire` and `searched` are random networks of `benchmarks/wired.py`.

| graph | nodes | given | LPMF | BFS | DFS | eager-free | fit | proven | s |
|---|---|---|---|---|---|---|---|---|---|"""


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".venv-torch" / "joint", sys.argv[2:])
