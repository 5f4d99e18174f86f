"""Dynamic shapes: sessions, policies, the cache, replan records, and the curve over an envelope."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.build import node
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.planfile.checkpoint import checkpoint, restore
from tmmu_core.formats.planfile.trace import read_trace, to_json_lines
from tmmu_core.graph.model import Dim, Graph, Tensor
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans import canonical
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.replan import (
    envelope_hash,
    peak_over_dim,
    replan_session,
)
from tmmu_core.plans.making.request import PlanRequest


def batched(policy="REPLAN_AT_SAFEPOINT", safepoints=("n1",), **dims):
    """``x → n0 → h → n1 → y``, each of B × 64 floats; ``w`` of 64."""
    tensors = [Tensor(t, ("B", 64), role=r) for t, r in (("x", "input"), ("h", "activation"), ("y", "output"))]
    nodes = [node("n0", "x w", "h", inplace="none"), node("n1", "h", "y", inplace="none")]
    return Graph(
        (*tensors, Tensor("w", (64,), role="parameter")),
        tuple(nodes),
        ("x",),
        ("y",),
        dims=dims or {"B": Dim(1, 4)},
        replan_policy=policy,
        safepoints=safepoints,
    )


def run(batches, policy="REPLAN_AT_SAFEPOINT", **rest):
    return replan_session(batched(policy), [{"B": b} for b in batches], **rest)


def extents(log):
    return [i.solution.plan.arena_of["activations"].extent_bytes for i in log.iterations]


def test_first_shape_outside_the_envelope_is_replanned_and_recorded():
    log = run([6, 2])
    (record,) = log.replans
    assert (record["iteration"], record["safepoint"]) == (log.iterations[0].number, "n1")
    assert record["reason"] == "left_envelope"
    assert record["old_tmmu_plan_hash"] == plan_graph(batched()).plan.tmmu_plan_hash.hex()
    assert record["new_tmmu_plan_hash"] == log.iterations[0].solution.plan.tmmu_plan_hash.hex()
    assert log.iterations[0].replanned


def test_abort_ends_the_session_at_the_shape_that_leaves_the_envelope():
    log = run([4, 6, 2], "ABORT")
    assert [i.number for i in log.iterations] == [0]
    assert log.aborted.record()["diagnostics"]["reason"] == "dim_out_of_envelope"
    assert log.aborted.diagnostics["iteration"] == 1


def test_replan_widens_the_envelope_for_good():
    log = run([4, 6, 2])
    assert [i.planned_at for i in log.iterations] == [(("B", 4),), (("B", 6),), (("B", 6),)]
    assert [i.replanned for i in log.iterations] == [False, True, False]
    assert log.iterations[2].key.shape_envelope_hash == envelope_hash({"B": Dim(1, 6)})


def test_replan_without_a_safepoint_is_rejected():
    log = replan_session(batched(safepoints=()), [{"B": 4}, {"B": 6}])
    assert log.aborted.diagnostics["reason"] == "no_safepoint"


def test_ir_hash_does_not_depend_on_the_envelope():
    assert {i.solution.plan.ir_hash for i in run([4, 6]).iterations} == {canonical.ir_hash(batched())}


def test_replan_record_has_the_old_and_the_new_plan():
    log = run([4, 6])
    (record,) = log.replans
    old, new = (i.solution.plan.tmmu_plan_hash.hex() for i in log.iterations)
    assert (record["old_tmmu_plan_hash"], record["new_tmmu_plan_hash"]) == (old, new)
    assert old != new
    assert (record["iteration"], record["safepoint"], record["reason"]) == (1, "n1", "left_envelope")


def test_replan_records_survive_a_trace():
    log = run([4, 6, 9])
    trace = read_trace(to_json_lines(log.iterations[-1].solution.plan, replans=log.replans))
    assert [dict(record) for record in trace.replans] == [dict(record) for record in log.replans]


def test_checkpoint_after_a_replan_has_the_new_hash():
    log = run([4, 6])
    hashes = [restore(checkpoint(i.solution.plan, i.solution.liveness)).tmmu_plan_hash for i in log.iterations]
    assert hashes == [i.solution.plan.tmmu_plan_hash for i in log.iterations]


def test_mode_and_arena_configuration_are_in_the_cache_key():
    plain = run([4]).iterations[0].key
    assert run([4], request=PlanRequest(mode="backward")).iterations[0].key != plain
    assert run([4], request=PlanRequest(arenas={"activations": {}, "parameters": {}})).iterations[0].key != plain


@pytest.mark.slow
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_plan_of_each_iteration_is_large_enough(batches):
    log = replan_session(batched(), [{"B": b} for b in batches])
    assert [dict(i.point)["B"] for i in log.iterations] == batches
    for iteration in log.iterations:
        assert all(a >= b for (_, a), (_, b) in zip(iteration.planned_at, iteration.point, strict=True))
        assert verify_plan(iteration.solution.plan).ok


@pytest.mark.slow
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_session_is_deterministic(batches):
    def hashes():
        log = replan_session(batched(), [{"B": b} for b in batches])
        return [i.solution.plan.tmmu_plan_hash for i in log.iterations], log.replans

    assert hashes() == hashes()


@pytest.mark.parametrize(("shape", "reason"), [({"Z": 1}, "unknown_dim"), ({"B": -1}, "negative_dim")])
def test_unknown_dimension_or_negative_size_is_rejected(shape, reason):
    with pytest.raises(InvalidIrShapes) as caught:
        replan_session(batched(), [shape])
    assert caught.value.diagnostics["reason"] == reason


def test_unknown_policy_is_rejected():
    with pytest.raises(InvalidIrShapes) as caught:
        replan_session(batched(), [], "MAYBE")
    assert caught.value.diagnostics["reason"] == "replan_policy"


def test_curve_has_the_peak_at_every_size():
    curve = peak_over_dim(batched(), "B")
    assert curve.values.tolist() == [1, 2, 3, 4]
    assert curve.arena_names == ("activations", "parameters")
    assert curve.peak_live_bytes[:, 0].tolist() == [512, 1024, 1536, 2048]
    assert curve.peak_live_bytes[:, 1].tolist() == [256] * 4


def test_point_that_does_not_fit_is_listed():
    curve = peak_over_dim(batched(), "B", request=PlanRequest(capacities={"activations": 1100}))
    assert (curve.values.tolist(), [value for value, _ in curve.refused]) == ([1, 2], [3, 4])


@pytest.mark.parametrize("how", [{"dim": "Z"}, {"dim": "B", "values": [99]}])
def test_curve_over_an_unknown_dimension_or_size_is_rejected(how):
    with pytest.raises(InvalidIrShapes):
        peak_over_dim(batched(), **how)


def test_curve_stops_when_progress_returns_false():
    asked = []

    def go_on(what, number, of):
        asked.append((what, number, of))
        return number < 2

    assert peak_over_dim(batched(), "B", progress=go_on).values.tolist() == [1, 2]
    assert asked == [("B", 0, 4), ("B", 1, 4), ("B", 2, 4)]
