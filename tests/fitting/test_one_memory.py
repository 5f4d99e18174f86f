"""A memory limit without an arena name is one address space that holds all arenas."""

import json
from pathlib import Path

import pytest

import tmmu
from app.cli.main import run
from tests.support.build import graph, node, tensor
from tests.support.paths import SAMPLES, read_graph_file
from tmmu_core.fitting.order.order_search import order_move
from tmmu_core.fitting.problem.answer import Allowed, Capacity
from tmmu_core.fitting.problem.planner_calls import initial_candidate
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import native_file
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest


def apart() -> Graph:
    """Return a graph with an activation and a gradient of 12,800 bytes that are never live at one step."""
    tensors = [tensor("x", 4, "input"), tensor("a", 3_200), tensor("s", 4), tensor("g", 3_200, "gradient")]
    nodes = [
        node("n0", "x", "a", inplace="none"),
        node("n1", "a", "s", inplace="none"),
        node("n2", "s", "g", inplace="none"),
        node("n3", "g", "y", inplace="none"),
    ]
    return graph([*tensors, tensor("y", 4, "output")], nodes, "x", "y")


def test_tensors_of_two_arenas_share_the_bytes_of_one_memory() -> None:
    made = apart()
    plan = make_plan(made, PlanRequest(capacities={"": 20_000})).plan
    assert [arena.name for arena in plan.arenas] == ["memory"]
    assert plan.arenas[0].capacity_bytes == 20_000
    assert verify_plan(plan, made).ok


def test_library_plans_and_fits_in_one_memory() -> None:
    assert tmmu.plan(apart(), capacity="20KiB").arena_of["memory"].capacity_bytes == 20_480
    fitted = tmmu.fit(apart(), capacity=20_000)
    assert fitted.answer == "fits"
    assert "memory" in fitted.plan.arena_of


@pytest.mark.parametrize("planner", ARENA_PLANNERS)
def test_every_planner_places_a_training_step_in_one_memory(planner: str) -> None:
    step = read_graph_file(SAMPLES / "training_step.tmmu.json")
    plan = make_plan(step, PlanRequest(planner=planner, one_memory=True)).plan
    assert verify_plan(plan, step).ok
    assert plan.arenas[0].peak_live_bytes == plan.metrics["totals"]["peak_live_bytes"]


def test_every_move_keeps_to_one_memory() -> None:
    start = initial_candidate(read_graph_file(SAMPLES / "training_step.tmmu.json"), PlanRequest(one_memory=True))
    kinds = frozenset({"planner", "order", "recompute", "offload"})
    fitted = fit(start, Capacity(start.extent_bytes * 9 // 10), Allowed(kinds))
    assert {arena.name for arena in fitted.best.plan.arenas} <= {"memory", "offload"}
    assert verify_plan(fitted.best.plan, fitted.best.plan_input.graph).ok


def test_order_search_aligns_the_storages_of_a_fitted_file() -> None:
    start = initial_candidate(apart(), PlanRequest(one_memory=True))
    reopened = initial_candidate(start.plan_input.graph, PlanRequest())
    peaks = [found.ordered.peak for each in (start, reopened) if (found := order_move(each))]
    assert peaks == [12_800 + 128] * 2


def test_command_line_names_the_limit_that_is_exceeded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "apart.json"
    path.write_bytes(native_file.encode_json(apart()))
    expected = {
        ("--capacity", "10000"): "the memory limit (--capacity)",
        ("--capacity", "activations=10000"): "the capacity of arena 'activations'",
        ("--budget", "20000"): "the quota (--budget)",
    }
    for arguments, words in expected.items():
        assert run(["plan", str(path), *arguments]) == 2
        assert words in capfd.readouterr()[1]
    for arguments in (("--capacity", "20000"), ("--one-memory",)):
        assert run(["plan", str(path), *arguments, "--json"]) == 0
        assert list(json.loads(capfd.readouterr()[0])["arenas"]) == ["memory"]
    assert run(["fit", str(path), "--capacity", "20000"]) == 0
    assert run(["plan", str(path), "--capacity", "20000", "--capacity", "activations=1"]) == 2
