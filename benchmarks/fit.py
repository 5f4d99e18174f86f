"""Compare ``fit`` with other tools: ``python -m benchmarks.fit [JOINT [STEP …]]`` writes ``docs/measured/fit.md``.

Recomputation is compared with AOTAutograd's partitioner, order with Inductor. ``JOINT``: folder of the graphs that
``benchmarks/joint.py`` writes; if it has none, the PyTorch of ``.venv-torch`` writes them. ``fit.json`` next to the
page has every row with its commit. With names of steps, only the rows of these steps are replaced.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.wired import nasnet, pnasnet, randwire, searched
from tests.support.paths import read_graph_file
from tmmu_core.fitting.order.order_memory import baselines, measure
from tmmu_core.fitting.order.order_model import order_model
from tmmu_core.fitting.order.order_search import best_order
from tmmu_core.fitting.problem.answer import Allowed, Capacity
from tmmu_core.fitting.problem.lower_bounds import alignments_of
from tmmu_core.fitting.problem.planner_calls import PlanInput, extents, initial_candidate, lower_graph, solve_input
from tmmu_core.fitting.recompute.live_curve import Choice, run
from tmmu_core.fitting.recompute.recompute_model import NEVER, RecomputeModel, recompute_model
from tmmu_core.fitting.recompute.recompute_search import boundary, choice_of
from tmmu_core.fitting.recompute.write_graph import write_graph
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.timeline import build_timeline, default_mode, default_preset
from tmmu_core.plans.making.request import PlanRequest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measured" / "fit.md"
ROWS = PAGE.with_suffix(".json")
SAMPLES = ROOT / "sample_graphs"
PEERS = ROOT / ".venv-torch" / "bin" / "python"
REQUEST = PlanRequest(planner="auto", one_memory=True, alignment=64)
ALLOWED = Allowed(kinds=frozenset({"order", "recompute"}), keep_phases=True)
BRANCHING = ("inception_v1", "inception_v2", "densenet121", "shufflenet", "squeezenet")


@dataclass(frozen=True)
class Row:
    """One budget of the partitioner, and the fit within the same peak: peaks in MiB, extra FLOPs in percent."""

    step: str
    budget: str
    peak: float
    percent: float
    answer: str
    ours_peak: float
    ours_percent: float
    seconds: float
    commit: str

    @property
    def is_no_worse(self) -> bool:
        """Return whether the fit needs at most the partitioner's FLOPs within its peak."""
        return self.answer == "fits" and self.ours_percent <= self.percent


@dataclass(frozen=True)
class Order:
    """Peaks of orders of one graph in MiB without persistent tensors; ``inductor``: best of its four orders."""

    graph: str
    nodes: int
    given: float
    inductor: float
    fit: float
    proven: float
    seconds: float


@dataclass(frozen=True)
class Found:
    """All results of the page."""

    rows: tuple[Row, ...] = ()
    orders: tuple[Order, ...] = ()


def joint(folder: Path) -> list[Path]:
    """Return the JSON files of the graphs in ``folder``; write them with PyTorch if there are none."""
    if not list(folder.glob("*.json")) and PEERS.exists():
        subprocess.run([str(PEERS), "-m", "benchmarks.joint", str(folder)], check=True, cwd=ROOT)
    return sorted(folder.glob("*.json"))


def recompute_rows(file: Path) -> Iterator[Row]:
    """Compare one step at each budget below 1. Budgets with the same choice have one row."""
    found = json.loads(file.read_text())
    start = initial_candidate(read_graph_file(file.with_suffix(".tmmu.cbor.gz")), REQUEST)
    model = recompute_model(start.plan_input)
    total = model.flops
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
        assert verify_plan(fitted.best.plan, fitted.best.plan_input.graph).ok
        percents = [100 * each / total for each in (flops, fitted.best.cost.extra_flops)]
        peaks = [round(each / 2**20, 2) for each in (peak, fitted.best.extent_bytes)]
        ours = fitted.answer, peaks[1], round(percents[1], 4), round(seconds, 2)
        row = Row(found["name"], budget, peaks[0], round(percents[0], 4), *ours, commit())
        print(row, flush=True)
        yield row


def partitioned(model: RecomputeModel, saved: list[str]) -> Choice:
    """Return the choice that drops, after the forward pass, each tensor that the partitioner does not save.

    A result that reads a buffer which is written later is kept, because the partitioner's step raises an error there.
    """
    index, storage_of = model.timeline.index, model.liveness.storage_of
    kept = {int(storage_of[index.tensor_of[name]]) for name in saved}
    at = boundary(model, int(np.flatnonzero(~model.is_after_forward).max()))
    nodes = np.zeros(len(model.node_at), np.bool_)
    nodes[[int(model.producer[s]) for s in at.present.tolist() if model.droppable[s] and s not in kept]] = True
    return choice_of(model, at, nodes & (model.expires == NEVER))


def ordered_graphs(folder: Path) -> Iterator[tuple[str, Graph]]:
    """Return the branching samples, random graphs, and the joint graphs with the optimizer's nodes."""
    for name in BRANCHING:
        yield name, read_graph_file(SAMPLES / f"{name}.tmmu.json.gz")
    for seed in range(3):
        for made in (randwire(seed), searched(seed)):
            yield made.name, made
    for made in (nasnet(large=False), nasnet(large=True), pnasnet()):
        yield made.name, made
    for file in sorted(folder.glob("*.adamw.tmmu.cbor.gz")):
        yield file.name.split(".tmmu")[0], read_graph_file(file)


def as_run(graph: Graph) -> Graph:
    """Return the graph with the nodes and the order of its mode and preset."""
    mode = default_mode(graph)
    return lower_graph(build_timeline(graph, mode, default_preset(mode)))


def orders_of(graphs: Iterable[tuple[str, Graph]]) -> Iterator[Order]:
    """Search the order of each graph and compare it with Inductor's."""
    for name, as_given in graphs:
        graph = as_run(as_given)
        plan_input = PlanInput(graph)
        liveness = solve_input(plan_input).liveness
        model = order_model(liveness, alignments_of(plan_input, liveness.arenas))
        assert model is not None
        began = time.process_time()
        found = best_order(model)
        seconds = time.process_time() - began
        inductor = min(int(measure(model, order).sum()) for _, order in baselines(model))
        given = int(measure(model, np.arange(len(model))).sum())
        assert found.peak <= inductor
        constant = int(model.constant.sum())
        peaks = [round((peak - constant) / 2**20, 2) for peak in (given, inductor, found.peak, found.bound)]
        row = Order(name, len(graph.nodes), peaks[0], peaks[1], peaks[2], peaks[3], round(seconds, 1))
        print(row, flush=True)
        yield row


def commit() -> str:
    """Return the commit of the repository."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()


def page(found: Found) -> str:
    """Return the page: a row per step, and a row per graph whose given order is not optimal."""
    lines = [HEAD]
    for step in dict.fromkeys(row.step for row in found.rows):
        rows = [row for row in found.rows if row.step == step]
        theirs, ours, seconds = (
            sum(getattr(row, name) for row in rows) / len(rows) for name in ("percent", "ours_percent", "seconds")
        )
        good = sum(row.is_no_worse for row in rows)
        lines.append(f"| {step} | {good} of {len(rows)} | {theirs:.2f} | {ours:.2f} | {seconds:.1f} |")
    good, commits = sum(row.is_no_worse for row in found.rows), sorted({row.commit for row in found.rows})
    lines += [
        "",
        f"{good} of {len(found.rows)} fits need at most its FLOPs within its peak (commit {', '.join(commits)}).",
        ORDER,
    ]
    settled = [each for each in found.orders if each.proven >= each.given]
    for each in (each for each in found.orders if each not in settled):
        proven = "optimal" if each.fit <= each.proven else f"≥ {each.proven:,.2f}"
        peaks = " | ".join(f"{peak:,.2f}" for peak in (each.given, each.inductor, each.fit))
        lines.append(f"| {each.graph} | {each.nodes:,} | {peaks} | {proven} | {each.seconds:.1f} |")
    lines += ["", f"For {len(settled)} other graphs the given order is optimal."]
    return "\n".join(lines) + "\n"


def main(folder: Path, names: list[str]) -> None:
    """Measure and write the rows and the page after each step."""
    found = msgspec.json.decode(ROWS.read_bytes(), type=Found) if ROWS.exists() else Found()
    for file in joint(folder):
        step = json.loads(file.read_text())["name"]
        if not names or step in names:
            rows = [row for row in found.rows if row.step != step] + list(recompute_rows(file))
            found = record(replace(found, rows=tuple(sorted(rows, key=lambda row: row.step))))
    if not names:
        record(replace(found, orders=tuple(orders_of(ordered_graphs(folder)))))


def record(found: Found) -> Found:
    """Write the rows and the page; return the rows."""
    ROWS.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    PAGE.write_text(page(found))
    return found


HEAD = """# Fitting, measured

`python -m benchmarks.fit` writes this page, and every row with its commit to [fit.json](fit.json).
Seconds are CPU seconds. [PyTorch steps](real.md) compares measured peaks.

## Recomputation beside AOTAutograd's partitioner

Training steps of `benchmarks/real_steps.py` and `benchmarks/joint.py` in one memory. At each
`activation_memory_budget` from 0.9 to 0.1, what the partitioner does not save is recomputed before its first reader in
the backward pass, and that graph is planned. Then `fit` searches order and recomputation within the same peak. Budgets
with equal choices count once. Every plan is verified. FLOPs are extra ones in percent, seconds those of a fit: means
over the budgets.

| step | no worse | its FLOPs | fit's FLOPs | s |
|---|---:|---:|---:|---:|"""

ORDER = """
## Order beside Inductor's

MiB without persistent tensors: the given order, the best of Inductor's four (LPMF with and without the rule of
pytorch#161810, breadth first, depth first, eager-free of pytorch#196848), `fit`, and what is proven. `randwire` and
`searched` are random networks of `benchmarks/wired.py`; NASNet-A and PNASNet-5 are built there from their papers.

| graph | nodes | given | Inductor | fit | proven | s |
|---|---:|---:|---:|---:|---|---:|"""


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".venv-torch" / "joint", sys.argv[2:])
