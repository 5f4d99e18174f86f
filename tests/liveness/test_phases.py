"""The phases of a timeline as stretches of steps."""

from __future__ import annotations

from hypothesis import given, settings

from tests.support.build import graph, node, tensor
from tests.support.strategies import Case, plannable_cases
from tmmu_core.liveness.phases import Stretch, phases_of
from tmmu_core.liveness.timeline import build_timeline


def test_backward_pass_is_a_stretch_and_loading_belongs_to_forward() -> None:
    tensors = [tensor("x", role="input"), tensor("a"), tensor("g", role="gradient")]
    which = graph(tensors, [node("n", "x", "a"), node("b", "a", "g", phase="backward")], "x", "g")
    timeline = build_timeline(which, "backward", "train_full")
    assert phases_of(timeline) == (Stretch("forward", 0, 2), Stretch("backward", 2, 3))


@settings(max_examples=15)
@given(plannable_cases())
def test_stretches_cover_all_steps(case: Case) -> None:
    timeline = build_timeline(case.graph, case.mode, case.preset)
    edges = [0]
    for stretch in phases_of(timeline):
        assert stretch.start == edges[-1] < stretch.end
        edges.append(stretch.end)
    assert edges[-1] == timeline.steps
