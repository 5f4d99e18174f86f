"""Plans, ledgers, replays and fits as one line of JSON: ``python -m tests.planners.without``.

With the library of loops, with numba alone (``numba``), or with neither (``neither``).
"""

from __future__ import annotations

import json
import os
import sys
from itertools import islice
from pathlib import Path

from tmmu_core.graph.model import Graph, Node, Tensor


def branches(count: int) -> Graph:
    """Branches that each begin large and end small, every one begun before the first is ended."""
    one = [Tensor(id=f"a{k}", shape=(64 * (9 + k % 3),)) for k in range(count)]
    two = [Tensor(id=f"b{k}", shape=(16,)) for k in range(count)]
    begin = [Node(node_id=f"m{k:02}", instr="OP", inputs=("x",), outputs=(one[k].id,)) for k in range(count)]
    end = [Node(node_id=f"n{k:02}", instr="OP", inputs=(one[k].id,), outputs=(two[k].id,)) for k in range(count)]
    tensors = (Tensor(id="x", shape=(64,), role="input"), *one, *two)
    return Graph(tensors=tensors, nodes=(*begin, *end), inputs=("x",), outputs=tuple(t.id for t in two))


def main() -> None:
    """Ask for what has a compiled loop."""
    sys.path.append(str(Path(__file__).parent))
    from brute_force import made

    from app.cli.warm import chain, ring
    from tmmu_core.fit.asking import question_of
    from tmmu_core.fit.capacity import Capacity
    from tmmu_core.fit.fitting import fit
    from tmmu_core.fit.order.model import order_model
    from tmmu_core.fit.order.searching import best_order
    from tmmu_core.fit.recompute import lower
    from tmmu_core.plan.analysis.waste import waste_ledger
    from tmmu_core.plan.formats.reading import read_graph_file
    from tmmu_core.plan.making.engine import plan_graph
    from tmmu_core.plan.making.request import PlanRequest
    from tmmu_core.planners import PLANNERS
    from tmmu_core.runtime.shadow import shadow_replay

    samples = Path(__file__).resolve().parents[2] / "sample_graphs"
    found: list[object] = [
        PLANNERS[name].pack(problem, {}, None).offset.tolist()
        for name in ("greedy", "search", "exact", "auto")
        for problem in (ring(), *(made(seed, 12) for seed in range(8)))
    ]
    solution = plan_graph(chain(12_000), planner="greedy")
    ledger = waste_ledger(solution.plan, solution.plan.arenas[0].name)
    found += [solution.plan.layout_hash.hex(), ledger.holes.sum().item(), ledger.alignment_gaps.sum().item()]
    replay = shadow_replay(solution)
    found += [replay.ok, replay.reads, replay.cells]
    model = order_model(plan_graph(branches(14)).liveness)
    found.append(repr(model and best_order(model)))
    for graph in (branches(8), chain(24), read_graph_file(samples / "training_step.tmmu.json")):
        start = question_of(graph, PlanRequest(mode="backward"))
        offered = islice(lower(start.question, start.solution, Capacity(1), None), 4)
        found += [[move.what for move in moves] for moves in offered]
        found.append(fit(start, Capacity(1)).best.plan.layout_hash.hex())
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:] in (["numba"], ["neither"]):
        os.environ["TMMU_NATIVE"] = "0"
    if sys.argv[1:] == ["neither"]:
        sys.modules["numba"] = None  # type: ignore[assignment]
    main()
