"""Idle steps of storages."""

from hypothesis import given, settings

from tests.support.build import graph, node, residual, tensor
from tests.support.strategies import Case, plannable_cases
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.timeline import Liveness, PhaseSteps, build_timeline, phases_of
from tmmu_core.liveness.why_live import idle_of


def facts(liveness: Liveness) -> dict[str, tuple[int, ...]]:
    idle, ids = idle_of(liveness), liveness.timeline.index.tensor_ids
    columns = (idle.live, idle.idle, idle.gap_from, idle.gap_to, idle.last_use, idle.previous_use)
    return {ids[h]: tuple(int(c[k]) for c in columns) for k, h in enumerate(liveness.storages.head)}


def test_skip_connection_is_idle_between_its_readers() -> None:
    # @inputs 0 writes x; n0 at 1 and n3 at 4 read it.
    liveness = analyse(build_timeline(residual(), "inference", "inference"))
    assert facts(liveness)["x"] == (5, 2, 2, 4, 4, 1)
    assert facts(liveness)["a"] == (2, 0, 3, 3, 2, 1)


def test_in_place_overwrite_is_the_last_use() -> None:
    # n0 at 1 writes a, n1 at 2 does not use it, and n2 at 3 overwrites it.
    nodes = [node("n0", "x", "a"), node("n1", "x", "b"), node("n2", "a", "y", inplace=((0, 0),))]
    which = graph([tensor(name) for name in "xaby"], nodes, "x", "y b")
    assert facts(analyse(build_timeline(which, "inference", "inference")))["a"] == (2, 1, 2, 3, 3, 1)


def test_parameter_is_idle_except_at_its_reads() -> None:
    which = graph(
        [tensor("w", role="parameter"), tensor("x", role="input"), tensor("y")], [node("n", "x w", "y")], "x", "y"
    )
    assert facts(analyse(build_timeline(which, "inference", "inference")))["w"] == (2, 1, 0, 1, 1, -1)


def test_graph_without_planned_tensors_has_no_idle_steps() -> None:
    g = graph([tensor("x"), tensor("y")], [node("n", "", "x", phase="backward"), node("m", "x", "y", phase="backward")])
    assert facts(analyse(build_timeline(g, "inference", "inference"))) == {}


@settings(max_examples=15)
@given(plannable_cases())
def test_idle_steps_are_inside_the_live_range(case: Case) -> None:
    liveness = analyse(build_timeline(case.graph, case.mode, case.preset))
    idle, storages = idle_of(liveness), liveness.storages
    assert ((idle.idle >= 0) & (idle.idle <= idle.live)).all()
    assert ((idle.gap_from >= storages.birth) & (idle.gap_to <= storages.death)).all()
    assert (idle.gap_to - idle.gap_from <= idle.idle).all()
    assert ((idle.gap_to > idle.gap_from) == (idle.idle > 0)).all()
    assert (idle.previous_use < storages.death).all()


def test_backward_pass_is_a_stretch_and_loading_belongs_to_forward() -> None:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("g", role="gradient")]
    which = graph(tensors, [node("n", "x", "a"), node("b", "a", "g", phase="backward")], "x", "g")
    timeline = build_timeline(which, "backward", "train_full")
    assert phases_of(timeline) == (PhaseSteps("forward", 0, 2), PhaseSteps("backward", 2, 3))


@settings(max_examples=15)
@given(plannable_cases())
def test_phases_cover_all_steps(case: Case) -> None:
    timeline = build_timeline(case.graph, case.mode, case.preset)
    edges = [0]
    for stretch in phases_of(timeline):
        assert stretch.start == edges[-1] < stretch.end
        edges.append(stretch.end)
    assert edges[-1] == (timeline.steps if timeline.order else 0)
