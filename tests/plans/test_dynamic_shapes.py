"""Dynamic shapes: replan sessions and the peak as a function of a dimension."""

import msgspec
import pytest

from tests.support.build import node
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.planfile.plan_file import checkpoint, restore
from tmmu_core.formats.planfile.trace import read_trace, to_json_lines
from tmmu_core.graph.model import Dim, Graph, Tensor
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans import canonical
from tmmu_core.plans.making.plan_sets import peak_over_dim, replan_session
from tmmu_core.plans.making.request import PlanRequest


def batched(policy="REPLAN_AT_SAFEPOINT", safepoints=("n1",), **dims):
    """Return ``x → n0 → h → n1 → y``, each of B × 64 floats, with ``w`` of 64 floats."""
    tensors = [Tensor(t, ("B", 64), role=r) for t, r in (("x", "input"), ("h", "activation"), ("y", "output"))]
    nodes = [node("n0", "x w", "h", inplace="none"), node("n1", "h", "y", inplace="none")]
    tensors.append(Tensor("w", (64,), role="parameter"))
    dims = dims or {"B": Dim(1, 4)}
    return Graph(tuple(tensors), tuple(nodes), ("x",), ("y",), dims=dims, replan_policy=policy, safepoints=safepoints)


def run(batches, request=None, **changes):
    return list(replan_session(batched(**changes), [{"B": b} for b in batches], request))


@pytest.mark.parametrize(
    ("changes", "reason"), [({"policy": "ABORT"}, "dim_out_of_envelope"), ({"safepoints": ()}, "no_safepoint")]
)
def test_shape_outside_the_envelope_ends_the_session(changes, reason):
    session = replan_session(batched(**changes), [{"B": b} for b in (4, 6, 2)])
    next(session)
    with pytest.raises(InvalidIrShapes) as caught:
        next(session)
    assert (caught.value.diagnostics["reason"], caught.value.diagnostics["iteration"]) == (reason, 1)


def test_safepoint_that_does_not_run_is_none():
    graph = batched(safepoints=("n2",))
    graph = msgspec.structs.replace(graph, nodes=(*graph.nodes, node("n2", "y", "", phase="backward")))
    with pytest.raises(InvalidIrShapes) as caught:
        list(replan_session(graph, [{"B": 6}], PlanRequest(mode="inference")))
    assert caught.value.diagnostics["reason"] == "no_safepoint"


def test_replan_widens_the_envelope_for_good():
    first, second, third = run([4, 6, 2])
    assert (first.key != second.key, second.key == third.key) == (True, True)
    assert [i.solution.plan.arena_of["activations"].extent_bytes for i in (first, third)] == [2048, 3072]
    assert {i.solution.plan.ir_hash for i in (first, second)} == {canonical.ir_hash(batched())}
    assert verify_plan(third.solution.plan).ok


def test_replan_record_has_the_old_and_the_new_plan():
    old, new = run([4, 6])
    assert (old.replan, new.replan["iteration"], new.replan["safepoint"]) == (None, 1, "n1")
    hashes = [i.solution.plan.tmmu_plan_hash for i in (old, new)]
    assert [new.replan[f"{which}_tmmu_plan_hash"] for which in ("old", "new")] == [h.hex() for h in hashes]
    assert [restore(checkpoint(i.solution.plan, i.solution.liveness)).tmmu_plan_hash for i in (old, new)] == hashes


def test_replan_records_survive_a_trace():
    iterations = run([4, 6, 9])
    replans = [i.replan for i in iterations if i.replan]
    trace = read_trace(to_json_lines(iterations[-1].solution.plan, replans=replans))
    assert list(trace.replans) == replans


def test_mode_and_arena_configuration_are_in_the_replan_key():
    plain = run([4])[0].key
    assert run([4], PlanRequest(mode="backward"))[0].key != plain
    assert run([4], PlanRequest(arenas={"activations": {}, "parameters": {}}))[0].key != plain


def test_curve_has_the_peak_at_every_size():
    curve = peak_over_dim(batched(), "B", PlanRequest())
    assert curve.values.tolist() == [1, 2, 3, 4]
    assert curve.arena_names == ("activations", "parameters")
    assert curve.peak_live_bytes[:, 0].tolist() == [512, 1024, 1536, 2048]
    assert curve.peak_live_bytes[:, 1].tolist() == [256] * 4
    largest = 2**64 - 1
    empty = Graph((Tensor("x", ("B", 0)),), (node("n", "", "x"),), (), ("x",), dims={"B": Dim(largest - 1, largest)})
    assert peak_over_dim(empty, "B", PlanRequest()).values.tolist() == [largest - 1, largest]


@pytest.mark.parametrize("limit", [{"capacities": {"activations": 1100}}, {"budget": 1400}])
def test_point_over_a_limit_has_its_figures(limit):
    curve = peak_over_dim(batched(), "B", PlanRequest(**limit))
    assert (curve.extent_bytes[:, 0].tolist(), curve.refused) == ([512, 1024, 1536, 2048], ())
    assert curve.fits.tolist() == [True, True, False, False]


def test_curve_stops_when_progress_returns_false():
    reports = []

    def progress(what, number, of):
        reports.append((what, number, of))
        return number < 2

    assert peak_over_dim(batched(), "B", PlanRequest(), progress).values.tolist() == [1, 2]
    assert reports == [("B", 0, 4), ("B", 1, 4), ("B", 2, 4)]
