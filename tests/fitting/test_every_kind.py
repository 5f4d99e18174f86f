"""All kinds of moves together: fitted plans verify, replay, and compute the same bits."""

from pathlib import Path

import msgspec
import onnx
import pytest

from tests.fitting.test_fitting import FREE, shown, started
from tests.support.build import chain
from tests.support.onnx_run import arena_run, plain_run
from tests.support.paths import SAMPLES, read_graph_file
from tmmu_core.fitting.move import Kind
from tmmu_core.fitting.problem.answer import Allowed, Capacity
from tmmu_core.fitting.search.fit_search import fit
from tmmu_core.fitting.search.overviews import curve
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


@pytest.mark.parametrize("kinds", [{"recompute"}, {"offload"}, {"planner", "order", "inplace", "recompute", "offload"}])
def test_training_step_is_lowered_by_the_allowed_kinds(kinds: set[Kind]) -> None:
    start = started(chain(10, "none", floats=4096), mode="backward", planner="auto")
    fitted = shown(fit(start, Capacity(start.extent_bytes * 8 // 10), Allowed(frozenset(kinds))))
    assert fitted.answer == "fits"
    assert fitted.best.cost.weight > 0
    assert {move.kind for move in fitted.best.moves} <= kinds


def test_every_point_of_the_curve_is_a_valid_plan() -> None:
    start = started(chain(8, "none", floats=4096), mode="backward", planner="auto")
    points = curve(start, points=3)
    assert points[0].cost.weight == 0
    assert [c.extent_bytes for c in points] == sorted((c.extent_bytes for c in points), reverse=True)
    assert [c.cost.key for c in points] == sorted(c.cost.key for c in points)
    assert len(points) > 1
    for candidate in points:
        again = plan_graph(candidate.plan_input.graph)
        assert again.plan.layout_hash == candidate.plan.layout_hash
        assert verify_plan(candidate.plan, candidate.plan_input.graph).ok


def test_cost_above_the_limit_is_not_paid() -> None:
    start = started(read_graph_file(SAMPLES / "training_step.tmmu.json"), planner="auto")
    free = fit(start, Capacity(1), Allowed(frozenset({"planner", "order", "inplace", "recompute"}), max_cost=0))
    assert free.best.cost.extra_flops == 0


def test_reordered_model_computes_the_same_bits() -> None:
    oracle = plain_run((LIGHT / "light_shufflenet.onnx").read_bytes(), "light_shufflenet.onnx")
    start = started(oracle.graph)
    moved = next(c for c in curve(start, FREE) if any(move.kind == "order" for move in c.moves))
    assert moved.plan.execution_order != start.plan.execution_order
    assert arena_run(oracle, moved.plan).differences == ()


def test_phases_can_be_kept_in_order() -> None:
    start = started(read_graph_file(SAMPLES / "training_step.tmmu.json"))
    fitted = fit(start, Capacity(1), Allowed(frozenset({"planner", "order"}), keep_phases=True))
    phase = {n.node_id: n.phase for n in start.plan_input.graph.nodes}
    runs = [phase[n] for n in fitted.best.plan.execution_order]
    assert runs == sorted(runs, key=["forward", "backward", "optimizer"].index)
    assert msgspec.structs.asdict(start.plan_input.graph)["execution_order"] is not None
