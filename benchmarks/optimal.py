"""Compare recomputation with the best: ``python -m benchmarks.optimal [GRAPH …]`` writes ``docs/measured/optimal.md``.

The problems are training steps of 20 to 300 nodes in one memory, at 20 to 90 % of their bytes without persistent
tensors. ``fit`` with recomputation in the given order is compared with OR-Tools CP-SAT (:mod:`benchmarks.retention`)
on the same problem. One small function recomputes peak and extra FLOPs of both. ``optimal.json`` next to the page has
every row; with names of graphs, only their rows are replaced. Steps traced with PyTorch are read from
``.venv-torch/joint`` (``benchmarks/joint.py``).
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks import peers
from tests.support.paths import read_graph_file
from tmmu_core.fitting.problem.answer import Allowed, Capacity
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, initial_candidate, solve_input
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel, recompute_model
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.plans.making.request import PlanRequest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "measured" / "optimal.md"
ROWS = PAGE.with_suffix(".json")
JOINT = ROOT / ".venv-torch" / "joint"
REQUEST = PlanRequest(planner="auto", one_memory=True, alignment=64, mode="backward")
RECOMPUTE = Allowed(kinds=frozenset({"recompute"}))
SHARES = (90, 75, 60, 50, 40, 30, 20)
"""Capacities in percent of the peak, both without persistent tensors."""
SAMPLES = ("mobilenet_v1", "mobilenet_v2", "squeezenet", "vgg19", "inception_v1")
LARGER = (
    "resnet50",
    "shufflenet",
    "inception_v2",
    "densenet121",
    "resnet50_train_b32_224",
    "gpt2_small_train_b1_s1024",
)
"""Samples for which only the answers of ``fit`` are measured, without CP-SAT."""
TRACED = ("WaveNet_like", "feature_pyramid", "graph_attention", "perceptron")
SECONDS = 20
"""Wall seconds that CP-SAT may use for a capacity."""
CLASSES = (50, 100, 200, 300)
"""Maximum numbers of nodes of the size classes on the page."""


@dataclass(frozen=True)
class Row:
    """Results for one capacity; costs are extra FLOPs in percent."""

    graph: str
    nodes: int
    share: int
    every_move: str
    """Answer of ``fit`` with all default moves."""
    answer: str = ""
    """Answer of ``fit`` with only recomputation."""
    cost: float = 0
    seconds: float = 0
    status: str = ""
    optimum: float = 0
    """Cost of CP-SAT's answer."""
    proven: float = 0
    """CP-SAT's lower bound of the cost."""
    peer_seconds: float = 0


def chain(name: str, sides: Sequence[int], skips: dict[int, int]) -> Graph:
    """Return a forward chain of layers with square results of ``sides``; ``skips``: layer → earlier one it reads."""
    tensors, nodes = [Tensor("x", (8, 16, sides[0], sides[0]), role="input")], []
    read = "x"
    for k, side in enumerate(sides):
        made = [(f"conv{k}", "Conv", (read, f"w{k}"), f"c{k}"), (f"act{k}", "Sigmoid", (f"c{k}",), f"a{k}")]
        made += [(f"skip{k}", "Mul", (f"a{k}", f"a{skips[k]}"), f"s{k}")] if k in skips else []
        tensors.append(Tensor(f"w{k}", (16, 16, 3, 3), role="parameter"))
        for node_id, instr, reads, read in made:
            tensors.append(Tensor(read, (8, 16, side, side)))
            nodes.append(Node(node_id, instr, reads, (read,)))
    return Graph(name=name, tensors=tuple(tensors), nodes=tuple(nodes), inputs=("x",), outputs=(read,))


def graphs() -> Iterator[tuple[str, Graph]]:
    """Yield the generated chains and U-shapes, the samples, and the traced steps if they exist."""
    for layers in (6, 12, 24, 48):
        yield f"chain_{layers}", chain(f"chain_{layers}", [32] * layers, {})
    for depth, each in ((2, 2), (3, 3), (4, 5)):
        down = [64 >> k for k in range(depth) for _ in range(each)]
        sides = [*down, *reversed(down)]
        skips = {len(sides) - each * k - 1: each * (k + 1) - 1 for k in range(depth)}
        yield f"u_{len(sides)}", chain(f"u_{len(sides)}", sides, skips)
    for name in (*SAMPLES, *LARGER):
        yield name, read_graph_file(next((ROOT / "sample_graphs").glob(f"{name}.tmmu.*")))
    for name in TRACED:
        if (file := JOINT / f"{name}.tmmu.cbor.gz").exists():
            yield name, read_graph_file(file)


def training_step(graph: Graph) -> Candidate:
    """Return the initial plan of a training step without in-place reuse."""
    start = initial_candidate(graph, REQUEST)
    nodes = tuple(msgspec.structs.replace(node, inplace="none") for node in start.plan_input.graph.nodes)
    without = PlanInput(
        msgspec.structs.replace(start.plan_input.graph, nodes=nodes), "auto", {}, start.plan_input.arenas
    )
    return Candidate(without, (), solve_input(without))


def problem_of(model: RecomputeModel) -> dict[str, Any]:
    """Return the nodes with their inputs and outputs, and the sizes of storages, without persistent storages."""
    rows = zip(model.in_ptr, model.in_ptr[1:], model.out_ptr, model.out_ptr[1:], strict=False)
    reads_and_makes = [(model.in_idx[a:b].tolist(), model.out_idx[c:d].tolist()) for a, b, c, d in rows]
    flops, again = model.node_flops.tolist(), model.can_rerun.tolist()
    nodes = [
        {"flops": flops[n], "reads": reads, "makes": makes, "again": again[n] and bool(model.droppable[makes].any())}
        for n, (reads, makes) in enumerate(reads_and_makes)
    ]
    there = model.starts_live | (model.producer >= 0)
    size = [int(bytes_) if is_there else 0 for bytes_, is_there in zip(model.size, there, strict=True)]
    droppable, held = model.droppable.tolist(), model.stays_live.tolist()
    return {"nodes": nodes, "size": size, "held": held, "droppable": droppable}


def live_bytes(problem: dict[str, Any], runs: Sequence[int]) -> list[int]:
    """Return the live bytes at the start and at each run of a node. A read uses the latest copy of a tensor."""
    lives: list[list[int]] = []
    """``(storage, first step, last step)`` of each copy."""
    copy_of: dict[int, int] = {}
    made = {s for node in problem["nodes"] for s in node["makes"]}

    def make(s: int, step: int, is_current: bool) -> None:
        if is_current:
            copy_of[s] = len(lives)
        lives.append([s, step, len(runs) if is_current and problem["held"][s] else step])

    for s in range(len(problem["size"])):
        if s not in made:
            make(s, 0, True)
    done: set[int] = set()
    for step, n in enumerate(runs, 1):
        for s in problem["nodes"][n]["reads"]:
            lives[copy_of[s]][2] = max(step, lives[copy_of[s]][2])
        for s in problem["nodes"][n]["makes"]:
            make(s, step, n not in done or problem["droppable"][s])
        done.add(n)
    assert done == set(range(len(problem["nodes"])))
    change = [0] * (len(runs) + 2)
    for s, first, last in lives:
        change[first] += problem["size"][s]
        change[last + 1] -= problem["size"][s]
    return list(accumulate(change))[:-1]


def extra_flops(problem: dict[str, Any], runs: Sequence[int]) -> int:
    """Return the FLOPs of all runs except the first run of each node."""
    return sum((count - 1) * problem["nodes"][n]["flops"] for n, count in Counter(runs).items())


def runs_of(model: RecomputeModel, fitted: Candidate) -> list[int]:
    """Return the nodes as a fitted plan runs them, by their positions in the given order."""
    position = {model.node_id(n): n for n in range(len(model.node_at))}
    given = {node.node_id: node.recomputes or node.node_id for node in fitted.plan_input.graph.nodes}
    return [position[given[name]] for name in fitted.plan.execution_order if given.get(name) in position]


def stages(runs: Sequence[int]) -> list[list[int]]:
    """Return, per node, the stage of each further run: the node that has the next first run (``retention.py``)."""
    first = {n: -step for step, n in reversed(list(enumerate(runs)))}
    found: list[list[int]] = [[] for _ in first]
    stage = -1
    for step, n in reversed(list(enumerate(runs))):
        if first[n] == -step:
            stage = n
        else:
            found[n].insert(0, stage)
    return found


def optimum(problem: dict[str, Any], capacity: int, runs: Sequence[int]) -> dict[str, Any]:
    """Return CP-SAT's answer; its search begins at ``runs``."""
    python = peers.interpreter("ortools")
    assert python is not None, "OR-Tools is missing: make bench"
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder) / "problem.json", Path(folder) / "answer.json"
        live = live_bytes(problem, range(len(problem["nodes"])))
        first = next(step for step, each in enumerate(live) if each > capacity) - 1
        given.write_text(json.dumps(problem | {"capacity": capacity, "hint": stages(runs), "first_over": first}))
        command = [python, str(ROOT / "benchmarks" / "retention.py"), str(given), str(answer), str(SECONDS)]
        subprocess.run(command, check=True)
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def rows_of(name: str, graph: Graph) -> Iterator[Row]:
    """Fit a graph at every capacity; for a small graph also run CP-SAT."""
    start = training_step(graph)
    model = recompute_model(start.plan_input)
    problem, fixed = problem_of(model), int(model.fixed.sum())
    peak = max(live_bytes(problem, range(len(problem["nodes"]))))
    for share in SHARES:
        capacity = peak * share // 100 // 64 * 64
        row = Row(name, len(problem["nodes"]), share, fit(start, Capacity(fixed + capacity)).answer)
        if row.nodes <= CLASSES[-1]:
            row = beside_optimum(row, start, model, capacity)
        print(row, flush=True)
        yield row


def beside_optimum(row: Row, start: Candidate, model: RecomputeModel, capacity: int) -> Row:
    """Return the row with recomputation alone and with CP-SAT's answer, both checked."""
    problem, percent = problem_of(model), 100 / model.flops
    began = time.process_time()
    fitted = fit(start, Capacity(int(model.fixed.sum()) + capacity), RECOMPUTE)
    seconds = time.process_time() - began
    runs = runs_of(model, fitted.best)
    cost = extra_flops(problem, runs)
    assert cost == fitted.best.cost.extra_flops
    assert fitted.answer != "fits" or max(live_bytes(problem, runs)) <= capacity
    found = optimum(problem, capacity, runs if fitted.answer == "fits" else range(len(problem["nodes"])))
    assert found["runs"] is None or max(live_bytes(problem, found["runs"])) <= capacity
    return replace(
        row,
        answer=fitted.answer,
        cost=round(cost * percent, 4),
        seconds=round(seconds, 2),
        status=found["status"],
        optimum=round(extra_flops(problem, found["runs"]) * percent, 4) if found["runs"] else 0,
        proven=round(found["bound"] * percent, 4),
        peer_seconds=round(found["seconds"], 1),
    )


def page(rows: Sequence[Row]) -> str:
    """Return the page: a row per class of sizes, then the answers with all moves."""
    lines = [HEAD.format(seconds=SECONDS, shares=", ".join(map(str, SHARES)))]
    for low, high in pairwise((0, *CLASSES)):
        lines.append(f"| {low + 1}–{high} | {class_cells([row for row in rows if low < row.nodes <= high])} |")
    wrong = [row for row in rows if row.answer == "cannot" and row.status in ("OPTIMAL", "FEASIBLE")]
    beyond = [row for row in rows if row.answer == "fits" and row.status == "INFEASIBLE"]
    lines += ["", TAIL.format(wrong=len(wrong), beyond=len(beyond))]
    alone, every = [row.answer for row in rows if row.answer], [row.every_move for row in rows]
    for kind, answers in (("recomputation alone", alone), ("all default moves", every)):
        share = 100 * answers.count("open") / len(answers)
        lines.append(f"| {kind} | {counts(answers, ' | ')} | {share:.0f} % |")
    return "\n".join(lines) + "\n"


def class_cells(rows: Sequence[Row]) -> str:
    """Return the cells of one class of sizes."""
    fitting = [row for row in rows if row.answer == "fits"]
    if not fitting:
        return f"0 | {counts([row.answer for row in rows], ' / ')} | 0 | | | 0 | |"
    solved = [ratio(row.cost, row.optimum) for row in fitting if row.status == "OPTIMAL"]
    unsolved = [row for row in fitting if row.status in ("FEASIBLE", "UNKNOWN")]
    cheaper = [row.cost / row.optimum for row in unsolved if row.status == "FEASIBLE" and row.optimum < row.cost]
    figures = [len({row.graph for row in rows}), counts([row.answer for row in rows], " / "), len(solved)]
    figures += [f"{median(solved):.3f}", f"{max(solved):.3f}"] if solved else ["", ""]
    figures.append(f"{len(unsolved)} ({len(cheaper)}: {max(cheaper):.3f})" if cheaper else f"{len(unsolved)} (0)")
    figures += [f"{median(row.seconds for row in fitting):.1f}", f"{median(row.peer_seconds for row in fitting):.1f}"]
    return " | ".join(map(str, figures))


def counts(answers: Sequence[str], between: str) -> str:
    """Return the numbers of capacities that fit, cannot fit and are open."""
    return between.join(str(answers.count(each)) for each in ("fits", "cannot", "open"))


def ratio(cost: float, least: float) -> float:
    """Return the ratio of a cost to the lowest cost; 1 if both are 0."""
    return 1.0 if cost == least else cost / least if least else float("inf")


def main(names: list[str]) -> None:
    """Measure and write the rows and the page after each graph."""
    rows = msgspec.json.decode(ROWS.read_bytes(), type=tuple[Row, ...]) if ROWS.exists() else ()
    order = [name for name, _ in graphs()]
    for name, graph in graphs():
        if names and name not in names:
            continue
        rows = (*(row for row in rows if row.graph != name), *rows_of(name, graph))
        rows = tuple(sorted(rows, key=lambda row: order.index(row.graph)))
        ROWS.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
        PAGE.write_text(page(rows))


HEAD = """# Recomputation beside the optimum, measured

`python -m benchmarks.optimal` writes this page, and every row to [optimal.json](optimal.json). Training steps of
generated chains and U-shapes, samples and traced modules in one memory, without in-place reuse, at
{shares} % of what they hold besides persistent tensors. `fit` recomputes in the given order.
OR-Tools CP-SAT solves the same problem in the staged formulation of Moccasin
([arXiv 2304.14463](https://arxiv.org/abs/2304.14463)), {seconds} s for each capacity.
One function recomputes peak and extra FLOPs of both from the nodes as run.

*Solved* counts the capacities that CP-SAT solves to optimality; *median* and *worst* are the extra FLOPs of `fit` over
this optimum. For the others (*not solved*), CP-SAT starts from the result of `fit`; the parentheses count those that it
improves, with the largest ratio. Seconds are medians where `fit` fits.

| nodes | graphs | fits / cannot / open | solved | median | worst | not solved | fit, CPU s | CP-SAT, s |
|---|---:|---:|---:|---:|---:|---:|---:|---:|"""

TAIL = """CP-SAT finds a solution at {wrong} capacities that `fit` proves impossible. At {beyond} capacities that `fit`
fits, the formulation of CP-SAT has no solution: a node would run twice in a stage.

## Answers

| moves | fits | cannot | open | share of open |
|---|---:|---:|---:|---:|"""


if __name__ == "__main__":
    main(sys.argv[1:])
