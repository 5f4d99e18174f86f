from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.canvas.component import drawn_plan, pack_plan
from tests.plans.examples import ledger_plan, problem_of, solved, views_graph
from tests.support.build import graph, node, tensor, view
from tests.support.strategies import Case, plannable_cases
from tmmu_core.base.errors import AllocationOverflow
from tmmu_core.formats.planfile import plan_file
from tmmu_core.graph.model import Arena, Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.analysis.waste_ledger import resource_ledger, slot_reports
from tmmu_core.plans.figures import metrics
from tmmu_core.plans.figures.live_bytes import (
    alive_at,
    curve_points_of,
    live_bytes,
    live_bytes_of,
    peak_and_count,
    peak_of,
    peak_of_ranges,
    storages_of,
)
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.model import Plan

RANGES = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 2**62)), max_size=12)


def columns(ranges: list[tuple[int, int, int]]) -> tuple[Any, Any, Any]:
    birth = np.array([b for b, _, _ in ranges], np.int64)
    death = np.array([b + n for b, n, _ in ranges], np.int64)
    return birth, death, np.array([s for _, _, s in ranges], np.uint64)


@given(RANGES)
def test_live_bytes_are_the_sum_of_live_ranges(ranges: list[tuple[int, int, int]]) -> None:
    birth, death, size = columns(ranges)
    curve = [sum(s for b, n, s in ranges if b <= t < b + n) for t in range(20)]
    if max(curve) > 2**64 - 1:
        with pytest.raises(AllocationOverflow):
            live_bytes_of(birth, death, size, 20)
    else:
        assert live_bytes_of(birth, death, size, 20).tolist() == curve


@given(RANGES)
def test_peak_of_a_long_timeline_equals_that_of_the_curve(ranges: list[tuple[int, int, int]]) -> None:
    birth, death, size = columns([(b, n, s % 2**60) for b, n, s in ranges])
    far = 2**40
    assert peak_and_count(birth + far, death + far, size, far + 20) == (
        peak_of(live_bytes_of(birth, death, size, 20))[1],
        max(sum(b <= t < b + n for b, n, _ in ranges) for t in range(20)),
    )
    with pytest.raises(AllocationOverflow) as caught:
        peak_and_count(*columns([(far, 3, 2**63), (far + 2, 3, 2**63)]), far + 20)
    assert caught.value.t == far + 2


def test_live_tensors_are_sorted_by_falling_size_then_id() -> None:
    plan = plan_graph(views_graph()).plan
    assert [plan.tensor_ids[row] for row in alive_at(plan, 1)] == ["h", "w", "x", "left", "right"]


def test_unknown_arena_raises_key_error() -> None:
    with pytest.raises(KeyError):
        live_bytes(ledger_plan(), "elsewhere")


def test_slots_of_the_ledger_example() -> None:
    first, second, third = slot_reports(ledger_plan(), "arena")
    assert (first.buffers, first.largest) == (2, "a")
    assert (first.backing_bytes, first.busy_steps, first.unused_byte_steps) == (100, 3, 36)
    assert (second.offset_bytes, second.backing_bytes) == (128, 50)
    assert (third.offset_bytes, third.backing_bytes) == (192, 40)


def test_committed_bytes_are_whole_pages() -> None:
    assert metrics.committed_bytes(1, 4096) == 4096
    assert metrics.committed_bytes(4096, 4096) == 4096
    assert metrics.committed_bytes(0, 4096) == 0
    assert metrics.committed_bytes(5, 0) == 5
    with pytest.raises(AllocationOverflow):
        metrics.committed_bytes(2**64 - 1, 4096)


@pytest.mark.parametrize("planner", ["slots", "greedy", "exact"])
def test_total_of_arenas_past_64_bits_overflows(planner: str) -> None:
    half = 2**63

    def of(activations: int, parameters: int) -> Graph:
        tensors = [tensor("a", activations, dtype="uint8"), tensor("w", parameters, role="parameter", dtype="uint8")]
        return graph(tensors, [node("n", "w", "a")], "", "a")

    arenas = {name: Arena(alignment_bytes=1) for name in ("activations", "parameters")}
    plan = plan_graph(of(half, half - 1), arenas=arenas, planner=planner).plan
    assert metrics.totals(plan).extent_bytes == 2**64 - 1
    assert verify_plan(plan).ok
    assert plan_file.from_document(plan_file.to_json(plan)).layout_hash == plan.layout_hash
    for activations, parameters, largest in ((half, half, "parameters"), (half + 1, half - 1, "activations")):
        with pytest.raises(AllocationOverflow) as caught:
            plan_graph(of(activations, parameters), arenas=arenas, planner=planner)
        size = max(activations, parameters)
        found = [caught.value.diagnostics[key] for key in ("arena", "size", "offset")]
        assert found == [largest, size, 2**64 - size]
        assert "the plan needs 18,446,744,073,709,551,616 B over all arenas" in str(caught.value)
    arenas = {name: Arena(alignment_bytes=1, page_size=2) for name in arenas}
    with pytest.raises(AllocationOverflow):  # in whole pages
        plan_graph(of(half, half - 1), arenas=arenas, planner=planner)


def test_metrics_of_the_ledger_example() -> None:
    totals = ledger_plan().metrics
    assert (totals["extent_bytes"], totals["peak_live_bytes"], totals["storages"]) == (232, 154, 4)
    assert totals["memory_reuse_ratio"] == 1 / 4
    assert totals["internal_fragmentation_ratio"] == (232 - 154) / 232


def test_resource_ledger_counts_up_to_each_step() -> None:
    rows = resource_ledger(ledger_plan())
    assert [row["bytes_allocated"] for row in rows] == [100, 150, 190, 90]
    assert [row["peak_bytes"] for row in rows] == [100, 178, 232, 232]
    assert [row["allocation_failures"] for row in rows] == [0, 0, 0, 0]
    assert rows[0]["internal_fragmentation_ratio"] == 0.0
    assert rows[1]["internal_fragmentation_ratio"] == 28 / 178


@pytest.mark.slow
@given(plannable_cases())
def test_last_row_of_the_resource_ledger_has_the_metrics_of_the_plan(case: Case) -> None:
    plan = solved(case).plan
    rows = resource_ledger(plan)
    if rows:
        assert rows[-1]["peak_bytes"] == plan.metrics["extent_bytes"]
        assert rows[-1]["internal_fragmentation_ratio"] == plan.metrics["internal_fragmentation_ratio"]


@pytest.mark.slow
@given(plannable_cases())
def test_arena_summary_agrees_with_the_rows(case: Case) -> None:
    plan = solved(case).plan
    assume(plan.steps)  # a timeline without a step has no curve to compare with
    s = storages_of(plan)
    for number, arena in enumerate(plan.arenas):
        here = s.arena == number
        assert arena.storages == int(here.sum())
        assert arena.peak_live_bytes == peak_of(live_bytes(plan, arena.name))[1]
        assert arena.extent_bytes == int((s.offset + s.backing)[here].max(initial=0))
        assert arena.slots == len(slot_reports(plan, arena.name))


def test_saved_activations_are_retained() -> None:
    tensors = [tensor("x", role="input"), tensor("a", saved_for_backward=True), tensor("b"), tensor("y")]
    nodes = [node("n0", "x", "a"), node("n1", "a", "b", inplace="none"), node("n2", "b", "y", inplace="none")]
    solved = plan_graph(graph(tensors, nodes, "x", "y"), mode="forward")
    assert metrics.activation_retention(solved.liveness) == (16, 48)


def test_activation_is_retained_while_a_view_of_it_is_live() -> None:
    """``a`` and ``b`` are kept for the backward pass, ``a`` only through its view ``v``; ``c`` is not."""
    tensors = [tensor("x", role="input"), tensor("a"), view("v", "a", 4, 0), tensor("b"), tensor("c")]
    tensors += [tensor("g", role="gradient"), tensor("y", role="output")]
    nodes = [
        node("n0", "x", "a", inplace="none"),
        node("n1", "a", "b", inplace="none"),
        node("n2", "b", "c", inplace="none"),
        node("n3", "c", "g", inplace="none"),
        node("n4", "g", "y", inplace="none", phase="backward"),
        node("n5", "y b v", "", inplace="none", phase="backward"),
    ]
    made = graph(tensors, nodes, "x", "", execution_order=tuple(node.node_id for node in nodes))
    plan = plan_graph(made, mode="backward").plan
    assert (plan.metrics["activation_bytes_retained"], plan.metrics["activation_bytes"]) == (32, 48)
    assert verify_plan(plan, made).ok


@pytest.mark.parametrize(("planner", "kept"), [("slots", 16), ("greedy", 32)])
def test_activation_read_by_the_first_backward_node_is_retained_unless_handed_over(planner: str, kept: int) -> None:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("g"), tensor("y")]
    nodes = [
        node("f", "x", "a", instr="RELU", inplace="none"),
        node("b", "a", "g", instr="RELU", inplace="any", phase="backward"),
        node("c", "g", "y", instr="RELU", inplace="none", phase="backward"),
    ]
    made = graph(tensors, nodes, "x", "y", execution_order=("f", "b", "c"))
    plan = plan_graph(made, planner=planner, mode="backward").plan
    assert plan.metrics["activation_bytes_retained"] == kept
    assert verify_plan(plan, made).ok


def test_peak_step_is_found_where_live_bytes_exceed_63_bits() -> None:
    birth, death, size = np.array([0, 2, 3]), np.array([2, 5, 4]), np.array([2**63, 2**63, 2**62], np.uint64)
    assert peak_of_ranges(birth, death, size, 6) == (3, 2**63 + 2**62)
    assert peak_of_ranges(birth[:2], death[:2], size[:2], 6) == (0, 2**63)


LATE = 2**62


def late() -> Plan:
    """Return a plan with ``a`` at the start and, after many steps, ``b`` and ``c`` at one step."""
    return plan_problem(problem_of(("a", 0, 2**31, 100), ("b", 2**40, LATE, 50), ("c", LATE - 1, LATE, 60)))


def test_long_plan_has_an_event_where_a_live_range_begins_or_ends() -> None:
    points = curve_points_of(late())
    assert points.steps.tolist() == [0, 2**31, 2**40, LATE - 1]
    assert [points.at(step) for step in (0, 2**31 - 1, 2**31, LATE - 1)] == [0, 0, 1, 3]


def test_resource_ledger_of_a_long_plan_ends_at_its_last_step() -> None:
    plan = late()
    assert resource_ledger(plan)[-1]["t"] == LATE - 1


def test_picture_of_a_long_plan_has_a_column_per_event() -> None:
    drawn, steps = drawn_plan(late())
    assert steps is not None
    assert (drawn.steps, steps.tolist()) == (4, [0, 2**31, 2**40, LATE - 1, LATE])
    assert len(pack_plan(late()).data) < 10_000


@pytest.mark.parametrize("steps", [2_000, 2**20])
def test_peak_by_events_equals_peak_by_steps(steps: int) -> None:
    birth = np.array([0, 10, steps - 2], np.int64)
    death = np.array([12, steps // 2, steps], np.int64)
    size = np.array([3, 5, 7], np.uint64)
    curve = live_bytes_of(birth, death, size, steps)
    assert peak_of_ranges(birth, death, size, steps) == peak_of(curve)
