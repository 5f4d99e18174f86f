"""The shadow replay: no false alarm on any sample, and every broken plan caught."""

from dataclasses import replace

import numpy as np
import pytest

from tests.runtime import faults
from tests.runtime.faults import changed
from tests.support.build import chain, graph, node, residual, tensor, view
from tests.support.paths import SAMPLES
from tests.support.shadow.replay import kinds, shadow_replay
from tmmu_core.formats.open_file import read_graph_file
from tmmu_core.graph.model import MODES, PRESETS
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.problem import Packing, PlainInstance, Problem
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.instance import plan_problem

FILES = [*sorted(SAMPLES.glob("*.tmmu.json*")), SAMPLES / "node_centric.json"]


def found(plan, solution=None):
    timeline = solution.liveness.timeline if solution else None
    return kinds(shadow_replay(plan, timeline).findings)


# --- no false alarm


@pytest.mark.slow
@pytest.mark.parametrize("sample", FILES, ids=lambda path: path.name.split(".")[0])
def test_every_mode_and_preset_of_a_sample_is_executed_without_a_finding(sample):
    ir = read_graph_file(sample)
    for mode in MODES:
        for preset in PRESETS:
            solution = plan_graph(ir, mode=mode, preset=preset)
            assert str(shadow_replay(solution)).endswith("every byte as it should be"), (mode, preset)
            assert str(shadow_replay(solution.plan)).endswith("every byte as it should be")


@pytest.mark.parametrize("planner", [name for name in PLANNERS if name != "slots"])
@pytest.mark.parametrize("name", ["fan_out_fan_in", "in_place", "must_not_alias", "training_step", "views"])
def test_the_plans_of_every_planner_are_executed_without_a_finding(name, planner):
    solution = plan_graph(read_graph_file(SAMPLES / f"{name}.tmmu.json"), planner=planner)
    assert shadow_replay(solution).findings == ()
    assert shadow_replay(solution.plan).findings == ()


# --- every fault


@pytest.mark.slow
@pytest.mark.parametrize("kind", faults.KINDS)
@pytest.mark.parametrize("sample", FILES, ids=lambda path: path.name.split(".")[0])
def test_every_injected_fault_is_caught(sample, kind):
    ir = read_graph_file(sample)
    for mode in ("inference", "backward"):
        solution = plan_graph(ir, mode=mode)
        for plan in faults.spread(faults.KINDS[kind](solution), 5):
            assert not shadow_replay(plan, solution.liveness.timeline).ok


@pytest.mark.parametrize("kind", ["overlap", "shortened", "moved", "wrong_view", "illegal_in_place"])
def test_each_kind_of_fault_can_be_injected(kind):
    def plans(name):
        return faults.KINDS[kind](plan_graph(read_graph_file(SAMPLES / f"{name}.tmmu.json")))

    assert any(next(plans(name), None) for name in ("views", "residual_block", "fan_out_fan_in"))


# --- what is said


def test_an_overlap_names_reader_step_and_culprit():
    solution = plan_graph(residual())
    plan = solution.plan
    b, x = plan.row_of["b"], plan.row_of["x"]
    verdict = shadow_replay(changed(plan, "offset", b, plan.offset[x]), solution.liveness.timeline)
    lost = next(f for f in verdict.findings if f.kind == "overwritten" and f.tensor == "x")
    assert (lost.step, lost.reader, lost.culprit) == (4, "n3", "b")
    assert "byte 0 of it was overwritten by 'b'" in lost.message


def test_an_output_over_an_unoffered_input_is_poison():
    solution = plan_graph(chain(2, "none"))
    plan = solution.plan
    broken = changed(plan, "offset", plan.row_of["t1"], plan.offset[plan.row_of["t0"]])
    assert "poisoned" in found(broken, solution) or "overwritten" in found(broken, solution)


def test_a_hand_off_through_a_node_that_forbids_it_is_denied():
    solution = plan_graph(chain(2, "none"))
    plan = next(faults.illegal_in_place(solution))()
    verdict = shadow_replay(plan, solution.liveness.timeline)
    denied = [(f.step, f.tensor, f.reader) for f in verdict.findings if f.kind == "handoff_denied"]
    assert denied == [(1, "t0", "n000")]  # the first tensor of the graph gives


def test_a_read_after_death_is_dead_access_even_where_the_bytes_are_right():
    solution = plan_graph(residual())
    plan = changed(solution.plan, "death", solution.plan.row_of["x"], 3)
    assert found(plan, solution) == ("dead_access",)


def test_a_moved_view_is_misplaced():
    solution = plan_graph(
        graph([tensor("x", role="input"), view("v", "x", 2), tensor("y")], [node("n", "v", "y")], "x", "y")
    )
    plan = changed(solution.plan, "offset", solution.plan.row_of["v"], 8)
    assert "misplaced" in found(plan, solution)


def test_a_view_read_beside_its_base_finds_other_bytes():
    """Even with the rule about places set aside the bytes themselves tell."""
    solution = plan_graph(
        graph([tensor("x", role="input"), view("v", "x", 2), tensor("y")], [node("n", "v", "y")], "x", "y")
    )
    plan = changed(solution.plan, "offset", solution.plan.row_of["v"], 8)
    assert "overwritten" in found(plan, solution)


def test_bytes_past_the_extent_are_outside():
    solution = plan_graph(chain(2, "none"))
    assert "outside" in found(changed(solution.plan, "offset", 0, 1 << 20), solution)


def test_a_row_too_small_for_its_tensor_is_told():
    solution = plan_graph(chain(2, "none"))
    assert found(changed(solution.plan, "size", 1, 8), solution) == ("size",)


def test_a_plan_of_another_graph_is_told():
    here, there = plan_graph(chain(2)), plan_graph(chain(3))
    assert {"timeline", "missing"} <= set(found(here.plan, there))


def test_must_not_alias_is_broken_by_a_common_byte_at_any_time():
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b"), tensor("y", must_not_alias=("a",))]
    nodes = [node(f"n{i}", *edge, inplace="none") for i, edge in enumerate([("x", "a"), ("a", "b"), ("b", "y")])]
    solution = plan_graph(graph(tensors, nodes, "x", "y"))
    plan = solution.plan
    y, a = plan.row_of["y"], plan.row_of["a"]
    broken = changed(changed(plan, "offset", y, plan.offset[a]), "logical_slot", y, plan.logical_slot[a])
    assert found(broken, solution) == ("must_not_alias",)


def test_what_an_in_place_write_consumed_is_stale():
    """The engine refuses such a graph; the replay must see it by itself."""
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b"), tensor("c"), tensor("y")]
    nodes = [
        node("n0", "x", "a", inplace="none"),
        node("n1", "a", "b", inplace="none", in_place_write=((0, 0),)),
        node("n2", "b", "c", inplace="none"),
        node("n3", "c", "y", inplace="none"),
    ]
    legal = plan_graph(graph(tensors, nodes, "x", "y"))
    late = graph(tensors, [*nodes[:3], node("n3", "c a", "y", inplace="none")], "x", "y")
    from tmmu_core.liveness.timeline import build_timeline

    timeline = build_timeline(late, "inference", "inference")
    plan = changed(legal.plan, "death", legal.plan.row_of["a"], 5)
    assert "stale" in kinds(shadow_replay(plan, timeline).findings)


def test_a_graph_output_that_is_overwritten_after_its_last_reader_is_missed_at_the_end():
    tensors = [tensor("x", role="input"), tensor("a"), tensor("b"), tensor("y")]
    nodes = [node("n0", "x", "a"), node("n1", "a", "b"), node("n2", "b", "y")]
    solution = plan_graph(graph(tensors, [*nodes], "x", "a y"))
    plan = solution.plan
    broken = changed(plan, "offset", plan.row_of["y"], plan.offset[plan.row_of["a"]])
    lost = [f for f in shadow_replay(broken, solution.liveness.timeline).findings if f.tensor == "a"]
    assert any(f.reader == "@end" and f.culprit == "y" for f in lost)


def test_a_saved_tensor_is_read_after_the_forward_pass():
    tensors = [tensor("x", role="input"), tensor("a", saved_for_backward=True), tensor("y")]
    nodes = [node("n0", "x", "a"), node("n1", "a", "y")]
    solution = plan_graph(graph(tensors, nodes, "x", "y"), mode="forward")
    plan = changed(solution.plan, "death", solution.plan.row_of["a"], 3 - 1)
    assert [f.reader for f in shadow_replay(plan, solution.liveness.timeline).findings if f.kind == "dead_access"]


# --- plans without a graph


def instance(rows, offsets):
    """Rows of (birth, death, size) at the offsets given."""
    birth, death, size = (np.array(column) for column in zip(*rows, strict=True))
    problem = Problem(
        arena="arena",
        ids=tuple(f"s{i}" for i in range(len(rows))),
        birth=birth.astype(np.int64),
        death=death.astype(np.int64),
        size=size.astype(np.uint64),
        alignment=np.ones(len(rows), np.uint64),
    )
    return plan_problem(PlainInstance("", problem, Packing(np.array(offsets, np.uint64))))


def test_an_instance_without_overlap_is_executed():
    assert shadow_replay(instance([(0, 2, 8), (1, 3, 8), (2, 4, 8)], [0, 8, 0])).ok


def test_an_instance_with_an_overlap_of_one_byte_is_caught():
    verdict = shadow_replay(instance([(0, 2, 8), (1, 3, 8)], [0, 7]))
    assert [(f.tensor, f.culprit, f.step) for f in verdict.findings] == [("s0", "s1", 1)]


def test_two_rows_born_together_are_told_apart():
    assert not shadow_replay(instance([(0, 1, 8), (0, 1, 8)], [0, 0])).ok


def test_an_empty_range_is_dead_access():
    plan = instance([(0, 2, 8), (1, 3, 8)], [0, 8])
    assert found(changed(plan, "death", 1, 1)) == ("dead_access",)


def test_an_arena_of_a_terabyte_takes_as_many_cells_as_blocks_have_ends():
    big = 1 << 39
    verdict = shadow_replay(instance([(0, 2, big), (1, 3, big), (2, 4, big)], [0, big, 0]))
    assert verdict.ok
    assert verdict.cells < 10


def test_a_tensor_without_a_row_is_told_of_no_row():
    """The finding is about the missing tensor alone: it names no other one as concerned."""
    shorter, longer = plan_graph(chain(2, "none")).plan, plan_graph(chain(3, "none")).liveness.timeline
    missing = [f for f in shadow_replay(shorter, longer).findings if f.kind == "missing"]
    assert [(f.tensor, f.message) for f in missing] == [("", "tensor 't3' is in no row of the plan.")]


def test_a_hand_off_to_the_first_tensor_of_the_graph_is_one():
    ir = graph([tensor("y"), tensor("x", role="input")], [node("n", "x", "y", inplace="any")], "x", "y")
    solution = plan_graph(ir)
    assert [(x, y) for _, x, y in solution.plan.handoffs] == [("x", "y")]
    assert shadow_replay(solution).findings == ()


def test_a_row_that_outlives_the_plan_is_looked_at_in_the_last_step():
    """s1 is born where s0 lies, which is said to live on: what s0 lost is told in a step that there is."""
    plan = instance([(0, 2, 8), (2, 3, 8)], [0, 0])
    assert plan.steps == 3
    for death in (3, 4, 99):
        verdict = shadow_replay(changed(plan, "death", 0, death))
        lost = [(f.tensor, f.culprit, f.step) for f in verdict.findings if f.kind == "overwritten"]
        assert lost == [("s0", "s1", 2)]


def test_a_tensor_that_the_graph_does_not_have_is_told_also_where_it_has_only_one():
    alone = plan_graph(graph([tensor("x", role="input")], [], "x", "x")).liveness.timeline
    verdict = shadow_replay(plan_graph(chain(1)).plan, alone)
    assert [f.step for f in verdict.findings if f.kind == "unknown_tensor"] == [-1, -1]


def test_what_a_stranger_has_spoilt_is_seen_before_the_storage_is_written_over():
    """Step 2 writes s over b, and step 4 writes the whole of b's storage anew: at its end all is well again."""
    tensors = [tensor("x", role="input"), *map(tensor, "bsty"), view("v", "b")]
    edges = [("x", "b"), ("x", "s"), ("s", "t"), ("b", "v"), ("v t", "y")]
    nodes = [node(f"n{k}", *edge, inplace="none") for k, edge in enumerate(edges)]
    plan = plan_graph(graph(tensors, nodes, "x", "y"), planner="greedy").plan
    broken = changed(plan, "offset", plan.row_of["s"], plan.offset[plan.row_of["b"]])
    lost = [(f.tensor, f.culprit, f.step, f.reader) for f in shadow_replay(broken).findings]
    assert lost == [("b", "s", 4, "")]


def test_a_storage_of_two_keeps_its_bytes_also_where_none_of_them_lies_any_more():
    plan = instance([(0, 2, 8), (2, 4, 8), (2, 4, 8)], [0, 8, 0])
    joined = replace(plan, storage=np.array([0, 0, 1]))
    assert [(f.tensor, f.culprit, f.step) for f in shadow_replay(joined).findings] == [("s0", "s2", 3)]
    assert shadow_replay(plan).ok


def test_a_view_at_its_bases_start_need_not_keep_the_grid_of_the_arena():
    """Base and view are moved off the arena's grid together, by their own alignment: the base alone is misaligned."""
    tensors = [tensor("x", role="input"), view("v", "x", 2), tensor("y")]
    solution = plan_graph(graph(tensors, [node("n", "v", "y", inplace="none")], "x", "y"), planner="greedy")
    plan = solution.plan
    both = [plan.row_of["x"], plan.row_of["v"]]
    moved = changed(plan, "offset", both, plan.offset[both] + np.uint64(4))
    off = [f.tensor for f in shadow_replay(moved, solution.liveness.timeline).findings if f.kind == "misaligned"]
    assert off == ["x"]


def test_a_plan_alone_is_looked_at_by_its_rows_and_with_its_graph_by_the_graph():
    """A view moved out of its base: once told of the row without the graph, once of the tensor with it."""
    tensors = [tensor("x", role="input"), view("v", "x", 2), tensor("y")]
    solution = plan_graph(graph(tensors, [node("n", "v", "y", inplace="none")], "x", "y"), planner="greedy")
    plan = solution.plan
    moved = changed(plan, "offset", [plan.row_of["v"]], plan.offset[plan.row_of["y"]])
    alone, with_graph = shadow_replay(moved), shadow_replay(moved, solution.liveness.timeline)
    assert (alone.with_graph, with_graph.with_graph, shadow_replay(solution).with_graph) == (False, True, True)
    says = "the view 'v' does not lie inside its base 'x'."
    assert says in [f.message for f in alone.findings]
    assert says not in [f.message for f in with_graph.findings]
    assert "misplaced" in {f.kind for f in with_graph.findings}


def test_where_nothing_is_loaded_the_first_node_runs_at_step_0():
    g = graph(
        [tensor("a"), tensor("b"), tensor("c")],
        [node("n0", "", "a"), node("n1", "a", "b"), node("n2", "b", "c")],
        gives="c",
    )
    solution = plan_graph(g)
    verdict = shadow_replay(solution)
    assert (verdict.ok, verdict.steps) == (True, 3)
    gone = changed(solution.plan, "birth", [solution.plan.row_of["a"]], [1])
    assert "dead_access" in found(gone, solution)


@pytest.mark.parametrize(
    ("handed", "why"),
    [
        ((1, "t0", "t2"), "no node reads the one and writes the other at that step"),
        ((2, "t0", "t2"), "no node reads the one and writes the other at that step"),
        ((0, "t0", "t1"), "no node reads the one and writes the other at that step"),
        ((3, "t1", "t2"), "no node reads the one and writes the other at that step"),
        ((-1, "t1", "t2"), "no node reads the one and writes the other at that step"),
        ((1, "t0", "gone"), "the plan does not hold both"),
        ((1, "gone", "t1"), "the plan does not hold both"),
        ((1, "t0", "t1"), ""),
        ((2, "t1", "t2"), ""),
    ],
)
def test_a_hand_off_is_of_a_node_that_reads_the_one_and_writes_the_other(handed, why):
    solution = plan_graph(chain(2))
    plan = replace(solution.plan, handoffs=(handed,), taken=(True,))
    said = [f.message for f in shadow_replay(plan, solution.liveness.timeline).findings if f.kind == "handoff_denied"]
    step, x, y = handed
    assert said == ([f"step {step}: the plan hands the place of {x!r} to {y!r}, but {why}."] if why else [])
