"""Nothing hangs on where in their lists a graph's tensors and nodes stand: whoever is the first is one like the others.

A border that takes the number 0 for nobody is seen here and hardly anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.fits import member, seeds
from tests.odd import drawn, spelled
from tests.strategies import Case
from tests.verdicts import planned
from tmmu_core.errors import ContractError
from tmmu_core.fit.asking import Question, ask
from tmmu_core.fit.bounds import grids_of, lower_bound
from tmmu_core.fit.order.model import order_model
from tmmu_core.fit.recompute.model import recompute_model
from tmmu_core.graph.model import Graph
from tmmu_core.liveness.idle import idle_of
from tmmu_core.liveness.why import explain
from tmmu_core.plan.making.engine import Solution

OWN_NUMBERS = ("node_at", "node_ids", "units", "touch_ptr", "touch_idx", "cand_ptr", "cand_idx", "out")
"""What goes by a node's place in its list."""


def rotated(graph: Graph) -> Iterator[Graph]:
    """The graph with every tensor in turn as the first, and with every node."""
    for k in range(1, max(len(graph.tensors), len(graph.nodes))):
        t, n = k % len(graph.tensors), k % max(1, len(graph.nodes))
        yield msgspec.structs.replace(
            graph, tensors=graph.tensors[t:] + graph.tensors[:t], nodes=graph.nodes[n:] + graph.nodes[:n]
        )


def said(solution: Solution) -> Any:
    """All that is said of a plan by names."""
    plan, lives = solution.plan, solution.liveness
    columns = (idle_of(lives).idle, idle_of(lives).last, lives.storages.handoff_from)
    return spelled(
        [
            [list(plan.rows()), list(plan.handoffs), plan.taken, plan.arenas, plan.execution_order],
            sorted(map(str, lives.refusals)),
            [explain(lives, name) for name in plan.tensor_ids],
            sorted(map(tuple, lives.storages.must_not_alias.tolist())),
            *columns,
            plan.layout_hash,
        ]
    )


@pytest.mark.parametrize("k", range(0, 72, 3))
def test_a_plan_is_the_same_whichever_tensor_and_node_come_first(k: int) -> None:
    case = drawn(k)

    def answer(graph: Graph) -> Any:
        try:
            return said(planned(Case(**{**vars(case), "graph": graph})))
        except ContractError as error:
            return error.code_id

    first = answer(case.graph)
    for graph in rotated(case.graph):
        assert answer(graph) == first


def problems(question: Question) -> Any:
    """What searches are given: columns by step and by storage, which no list of the graph numbers."""
    solution = ask(question)
    order = order_model(solution.liveness, grids_of(question))
    assert order is not None
    found = []
    for model in (recompute_model(question), order):
        for field in fields(model):
            value = getattr(model, field.name)
            if isinstance(value, np.ndarray) and field.name not in OWN_NUMBERS:
                found.append((field.name, value.tolist()))
    units = [[order.node_ids[node] for node in unit] for unit in order.units]
    touched = {
        order.node_ids[n]: [
            sorted(order.touch_idx[order.touch_ptr[n] : order.touch_ptr[n + 1]].tolist()),
            order.cand_idx[order.cand_ptr[n] : order.cand_ptr[n + 1]].tolist(),
            int(order.out[n]),
        ]
        for n in range(len(order.node_ids))
    }
    bound = lower_bound(question, solution, {"order", "inplace", "planner"})
    return [found, units, touched, bound.bytes_of]  # of steps that need as much, the first in the list is named


@pytest.mark.parametrize("seed", seeds()[:16])
def test_problems_of_fitting_are_the_same_whichever_tensor_and_node_come_first(seed: int) -> None:
    question = member(seed).question
    first = problems(question)
    for number, graph in enumerate(rotated(question.graph)):
        if number % 3 == seed % 3:
            assert problems(replace(question, graph=graph)) == first
