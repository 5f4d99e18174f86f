"""Compile what is compiled on first use, once: ``python -m app.cli.warm``. Its machine code is kept beside the sources.

The searches, the waste ledger and the replay of a large plan have loops in numba. The first one to press "Best plan"
would wait for the compiler; ``make explore`` has it done while it installs.
"""

from __future__ import annotations

import numpy as np

from tmmu_core.fit.asking import question_of
from tmmu_core.fit.order.kernels import alone
from tmmu_core.fit.order.model import order_model
from tmmu_core.fit.order.nudging import eager, late
from tmmu_core.fit.order.searching import best_order
from tmmu_core.fit.recompute.cut import minimum_cut
from tmmu_core.fit.recompute.simulate import run
from tmmu_core.fit.recompute.unwrite import unwritten
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.plan.analysis.waste import waste_ledger
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.problem import Problem
from tmmu_core.runtime.shadow import shadow_replay

LARGE = 12_000
"""Tensors of a chain for which every loop is compiled."""


def ring() -> Problem:
    """Five buffers, each alive beside the next and the last, in its second life, beside the first.

    Never more than two at a time, and yet they need three places: it takes a search to prove that.
    """
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
    """Run each compiled loop."""
    ARENA_PLANNERS["exact"].pack(ring(), {}, None)
    solution = plan_graph(chain(LARGE), planner="greedy")
    waste_ledger(solution.plan, solution.plan.arenas[0].name)
    shadow_replay(solution)
    model = order_model(plan_graph(chain(9)).liveness)
    assert model is not None
    order = best_order(model).order
    alone(model, late(model, eager(model, order)))
    run(*unwritten(question_of(chain(9), PlanRequest(mode="backward")).question))
    minimum_cut(2, *(np.array([n], dtype=np.int64) for n in (0, 1, 1)))


if __name__ == "__main__":
    main()
