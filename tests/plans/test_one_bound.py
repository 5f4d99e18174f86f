"""A problem has one lower bound, whatever planner ran, and no packing is below it (contract §11)."""

from contextlib import suppress
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.planners.packings import extent, faults, problem, problem_with, problems, smallest_extent
from tests.support.build import graph, node, tensor
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.checks import read_arenas
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import build_timeline
from tmmu_core.planners import ARENA_PLANNERS, PLANNERS
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.problem import Problem, live_parts
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.making.plan_rows import arena_problems

ONE = {"activations": {"alignment_bytes": 1}}


def growing() -> Graph:
    """Return tensors of 1, 2 and 4 KiB; each may reuse the memory of the previous one."""
    tensors = [tensor("x", 256, "input"), tensor("y", 512), tensor("z", 1024)]
    return graph(tensors, [node("n", "x", "y"), node("m", "y", "z")], "x", "z")


@pytest.mark.parametrize("planner", sorted(PLANNERS))
def test_growing_chain_has_one_bound_and_reaches_it(planner: str) -> None:
    plan = plan_graph(growing(), planner=planner).plan
    (arena,) = plan.arenas
    assert arena.lower_bound_bytes == plan.metrics["totals"]["lower_bound_bytes"] == 4096
    assert verify_plan(plan, growing()).ok
    if planner not in ("naive", "helia"):
        assert (arena.extent_bytes, arena.status, plan.taken) == (4096, "optimal", (True, True))


def test_bound_proven_by_a_search_is_kept_beside_the_lower_bound() -> None:
    how: dict[str, Any] = {"arenas": ONE, "mode": "inference"}
    found = [plan_graph(g, planner="exact", **how).plan.arenas[0] for g in map(knotted, range(40))]
    beyond = [arena for arena in found if arena.proven_bytes is not None]
    for arena in beyond:
        assert arena.lower_bound_bytes < arena.proven_bytes <= arena.extent_bytes  # type: ignore[operator]
        assert (arena.status == "optimal") == (arena.open_bytes == 0)


def knotted(seed: int) -> Graph:
    """Return six tensors whose sizes and live ranges follow a fixed rule."""
    sizes = [(seed * 7 + i * i * 5 + 3 * i) % 9 + 1 for i in range(6)]
    last = [min(i + (seed + i * 3) % 4 + 1, 6) for i in range(6)]
    tensors = [tensor(f"t{i}", sizes[i]) for i in range(6)]
    nodes = [
        node(f"n{i}", " ".join(f"t{k}" for k in range(i) if last[k] == i), f"t{i}" if i < 6 else "", inplace="none")
        for i in range(7)
    ]
    return graph(tensors, nodes)


@st.composite
def small_graphs(draw: st.DrawFn) -> Graph:
    """Draw up to six tensors; each node reads some earlier tensors and writes one, in place or not."""
    n = draw(st.integers(1, 5))
    tensors, nodes = [tensor("t0", draw(st.integers(0, 6)), "input")], []
    for i in range(1, n + 1):
        existing = [t.id for t in tensors]
        reads = draw(st.lists(st.sampled_from(existing), min_size=1, max_size=3))
        tensors.append(tensor(f"t{i}", draw(st.integers(0, 6)), alignment=draw(st.sampled_from([None, None, 8, 16]))))
        nodes.append(node(f"n{i}", " ".join(reads), f"t{i}", inplace=draw(st.sampled_from(["any", "any", "none"]))))
    return graph(tensors, nodes, "t0", f"t{n}")


def problem_of(g: Graph) -> Problem:
    config = read_arenas(ONE)
    (problem,) = arena_problems(analyse(build_timeline(g, "inference", "inference"), config), config)
    return problem


@pytest.mark.slow
@given(small_graphs())
def test_no_planner_and_no_packing_is_below_the_bound(g: Graph) -> None:
    problem = problem_of(g)
    bound = lower_bound(problem).bytes
    assert bound <= smallest_extent(problem)
    for planner in ARENA_PLANNERS:
        plan = plan_graph(g, planner=planner, arenas=ONE).plan
        (arena,) = plan.arenas
        assert arena.lower_bound_bytes == bound <= arena.extent_bytes
        assert verify_plan(plan, g).ok


@given(small_graphs())
def test_slots_respect_the_constraints_of_the_problem(g: Graph) -> None:
    problem = problem_of(g)
    assume(len(problem) == len(g.tensors))
    plan = plan_graph(g, arenas=ONE).plan
    offset = [int(plan.offset[plan.row_of[name]]) for name in problem.ids]
    assert faults(problem, offset) == []
    assert extent(problem, offset) <= plan.arenas[0].extent_bytes


def test_exact_reaches_the_optimum_where_outputs_grow() -> None:
    for sizes in combinations((1, 2, 3, 5), 3):
        tensors = [tensor(f"t{i}", size, "input" if i == 0 else "activation") for i, size in enumerate(sizes)]
        g = graph(tensors, [node("n", "t0", "t1"), node("m", "t1", "t2")], "t0", "t2")
        plan = plan_graph(g, planner="exact", arenas=ONE).plan
        assert plan.arenas[0].extent_bytes == smallest_extent(problem_of(g)) == 4 * max(sizes)


GAPS = problem_with(problem((0, 6, 100), (2, 4, 100)), gaps=(((2, 4),), ()))


@pytest.mark.parametrize("planner", list(ARENA_PLANNERS))
def test_storage_with_a_gap_is_live_in_its_parts_only(planner: str) -> None:
    """At most 100 bytes are live together: b uses the bytes of a in its gap."""
    plan = plan_problem(GAPS, planner=planner)
    (arena,) = plan.arenas
    assert (arena.peak_live_bytes, arena.max_live, arena.storages, arena.bound_bytes) == (100, 1, 3, 100)
    assert (totals(plan).peak_live_bytes, totals(plan).peak_step) == (100, 0)
    assert verify_plan(plan).ok


def test_bound_of_later_parts_has_its_witness_there() -> None:
    """a and b overlap at step 4 only, in the second part of both."""
    both = problem_with(problem((0, 6, 100), (2, 6, 100)), gaps=(((1, 4),), ((3, 4),)))
    plan = plan_problem(both, planner="greedy")
    assert (plan.arenas[0].witness_step, plan.arenas[0].bound_bytes) == (4, 200)
    assert verify_plan(plan).ok


def test_storages_are_numbered_by_first_live_step() -> None:
    """The first live part of a begins at step 2, that of b at 0, both at one offset."""
    both = problem_with(problem((0, 4, 100), (0, 2, 100)), gaps=(((0, 2),), ()))
    plan = plan_problem(both, planner="ffd")
    assert plan.offset.tolist() == [0, 0]
    assert plan.logical_slot.tolist() == [1, 0]
    assert verify_plan(plan).ok


@given(problems(), st.sampled_from(["slots", "naive", "ffd", "greedy", "portfolio"]))
def test_plan_of_an_instance_verifies(p: Problem, planner: str) -> None:
    p = problem_with(p, handoff_from=None)  # instances have no in-place reuse
    assume(bool(np.diff(live_parts(p)[0]).all()))  # a storage that is never live has no row
    with suppress(InvalidIrShapes):  # slots cannot keep given offsets
        plan = plan_problem(p, planner=planner)
        assert verify_plan(plan).errors == ()
