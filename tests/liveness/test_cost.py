"""Cost of liveness and judge: a graph twice as large takes about twice as many interpreter instructions."""

import sys
import timeit
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tests.planners.packings import problem, problem_with
from tests.support.build import chain, graph, node, tensor, view
from tmmu_core.graph.model import Graph
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.reference.backward import with_backward
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact.driver import search_models
from tmmu_core.planners.problem import ReuseTerms
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.instance import plan_problem


def written_in_place(count: int) -> Graph:
    """Return a chain in which every node overwrites its input."""
    tensors, nodes = [tensor("t0000", role="input")], []
    for k in range(count):
        tensors.append(tensor(f"t{k + 1:04}"))
        nodes.append(node(f"n{k:04}", f"t{k:04}", f"t{k + 1:04}", inplace="none", in_place_write=((0, 0),)))
    return graph(tensors, nodes, "t0000", f"t{count:04}")


def among_aliases(count: int) -> Graph:
    """Return the same chain with all tensors in one alias group."""
    g = written_in_place(count)
    aliases = [tensor(t.id, role=t.role, alias_group_id="g") for t in g.tensors]
    return Graph(tuple(aliases), g.nodes, g.inputs, g.outputs)


def with_views(count: int) -> Graph:
    """Return one tensor with ``count`` views and a reader of each."""
    views = [view(f"v{k:04}", "x") for k in range(count)]
    reads = [node(f"n{k:04}", f"v{k:04}", f"y{k:04}") for k in range(count)]
    return graph([tensor("x", role="input"), *views, *(tensor(f"y{k:04}") for k in range(count))], reads, "x")


def written_views(count: int) -> Graph:
    """Return a chain in which each node writes a view of the previous output."""
    views = [view(f"v{k + 1:04}", f"v{k:04}" if k else "x") for k in range(count)]
    names = ["x", *(each.id for each in views)]
    nodes = [node(f"n{k:04}", names[k], names[k + 1]) for k in range(count)]
    return graph([tensor("x", role="input"), *views], nodes, "x", names[-1])


def operations(play: Callable[[], Any]) -> int:
    """Return the number of instructions that liveness and judge run in ``play``."""
    counted = 0

    def step(frame: FrameType, event: str, _: object) -> Any:
        nonlocal counted
        file = frame.f_code.co_filename
        if not any(
            part in file for part in ("tmmu_core/liveness", "tmmu_core/judge", "planners/columns", "search_model")
        ):
            return None
        frame.f_trace_opcodes = True
        counted += event == "opcode"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        play()
    finally:
        sys.settrace(before)
    return counted


@pytest.mark.slow
@pytest.mark.parametrize("of", [written_in_place, among_aliases, with_views, written_views])
@pytest.mark.parametrize("who", ["planner", "judge"])
def test_cost_is_linear_in_the_size_of_the_graph(of: Callable[[int], Graph], who: str) -> None:
    spent = []
    for count in (100, 200):
        g = of(count)
        plan = plan_graph(g).plan
        assert verify_plan(plan, g).ok
        spent.append(operations(lambda: plan_graph(g) if who == "planner" else lint_verdict(plan, g)))  # noqa: B023
    assert spent[0] > 1_000
    assert spent[1] < 2.5 * spent[0], spent


@pytest.mark.slow
def test_time_of_backward_nodes_is_linear_in_the_depth() -> None:
    """The sets of a deep graph are compared in C, which runs no interpreter instructions."""
    deep = [(g, [each.node_id for each in g.nodes]) for g in map(chain, (2_500, 10_000))]
    spent = [min(timeit.repeat(lambda: with_backward(*each, True), number=1, repeat=3)) for each in deep]  # noqa: B023
    assert spent[1] < 8 * spent[0], spent


def verify_fixed_pairs(count: int) -> None:
    """Plan and verify pairs of fixed and colocated storages."""
    pairs = tuple((k, k + count) for k in range(count))
    terms = ReuseTerms(colocations=pairs, penalties=tuple((i, j, 1) for i, j in pairs))
    fixed = np.arange(2 * count) % count * 8
    p = problem_with(problem(*[(0, 2, 8)] * count, *[(2, 4, 8)] * count), fixed=fixed, reuse=terms)
    verify_plan(plan_problem(p, planner="reuse"))


def model_chain(count: int) -> None:
    """Build the search models of storages that reuse each other in a chain."""
    chain = problem(*[(k, k + 1, 8) for k in range(count)])
    search_models(columns(problem_with(chain, handoff_from=np.arange(-1, count - 1))))


@pytest.mark.slow
@pytest.mark.parametrize("play", [verify_fixed_pairs, model_chain])
def test_cost_is_linear_in_the_size_of_the_problem(play: Callable[[int], None]) -> None:
    spent = [operations(lambda: play(count)) for count in (100, 200)]  # noqa: B023
    assert spent[1] < 3 * spent[0], spent
