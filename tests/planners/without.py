"""Print plans, ledgers, replays and fits as one line of JSON: ``python -m tests.planners.without``."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np

from tests.support.paths import SAMPLES
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.planners.problem import Problem


def branches(count: int) -> Graph:
    """Branches that begin large and end small; every branch begins before the first one ends."""
    one = [Tensor(id=f"a{k}", shape=(64 * (9 + k % 3),)) for k in range(count)]
    two = [Tensor(id=f"b{k}", shape=(16,)) for k in range(count)]
    begin = [Node(node_id=f"m{k:02}", instr="OP", inputs=("x",), outputs=(one[k].id,)) for k in range(count)]
    end = [Node(node_id=f"n{k:02}", instr="OP", inputs=(one[k].id,), outputs=(two[k].id,)) for k in range(count)]
    tensors = (Tensor(id="x", shape=(64,), role="input"), *one, *two)
    return Graph(tensors=tensors, nodes=(*begin, *end), inputs=("x",), outputs=tuple(t.id for t in two))


def ring() -> Problem:
    """Five buffers, at most two live together, that need three places: the planner needs a search to prove it."""
    lives = ((0, 5), (0, 2), (1, 3), (2, 4), (3, 5))
    birth, death = (np.array(column, dtype=np.int64) for column in zip(*lives, strict=True))
    ids = tuple(f"b{k}" for k in range(len(lives)))
    size, ones = np.full(len(lives), 8, dtype=np.uint64), np.ones(len(lives), dtype=np.uint64)
    return Problem("arena", ids, birth, death, size, ones, gaps=(((1, 4),), (), (), (), ()))


def chain(length: int) -> Graph:
    """One tensor after another, of three sizes."""
    tensors = tuple(Tensor(id=f"t{k:06}", shape=(64 * (1 + k % 3),)) for k in range(length))
    nodes = tuple(
        Node(node_id=f"n{k:06}", instr="OP", inputs=(tensors[k - 1].id,) if k else (), outputs=(tensors[k].id,))
        for k in range(length)
    )
    return Graph(tensors=tensors, nodes=nodes, outputs=(tensors[-1].id,))


def main() -> None:
    """Run everything that has a native loop."""
    from tests.planners.brute_force import made
    from tests.support.shadow.replay import shadow_replay
    from tmmu_core.fitting.order.order_model import order_model
    from tmmu_core.fitting.order.order_search import best_order
    from tmmu_core.fitting.problem.capacity import Capacity
    from tmmu_core.fitting.problem.planner_calls import initial_candidate
    from tmmu_core.fitting.recompute import lower
    from tmmu_core.fitting.search.fit_search import fit
    from tmmu_core.formats.open_file import read_graph_file
    from tmmu_core.planners import PLANNERS
    from tmmu_core.plans.analysis.waste_ledger import waste_ledger
    from tmmu_core.plans.making.engine import plan_graph
    from tmmu_core.plans.making.request import PlanRequest

    samples = SAMPLES
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
        start = initial_candidate(graph, PlanRequest(mode="backward"))
        offered = islice(lower(start.plan_input, start.solution, Capacity(1), None), 4)
        found += [[move.what for move in moves] for moves in offered]
        found.append(fit(start, Capacity(1)).best.plan.layout_hash.hex())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
