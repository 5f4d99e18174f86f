"""How long storages are held without being used."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings

from tests.build import graph, node, residual, tensor
from tests.odd import drawn
from tests.strategies import Case, plannable_cases
from tmmu_core.errors import ContractError
from tmmu_core.liveness.analyse import analyse
from tmmu_core.liveness.idle import idle_of
from tmmu_core.liveness.model import Liveness
from tmmu_core.liveness.timeline import build_timeline


def facts(liveness: Liveness) -> dict[str, tuple[int, ...]]:
    idle, ids = idle_of(liveness), liveness.timeline.index.tensor_ids
    columns = (idle.held, idle.idle, idle.gap_from, idle.gap_to, idle.last, idle.before)
    return {ids[h]: tuple(int(c[k]) for c in columns) for k, h in enumerate(liveness.storages.head)}


def test_a_skip_is_idle_between_its_two_readers() -> None:
    # @inputs 0 writes x; n0 at 1 and n3 at 4 read it.
    liveness = analyse(build_timeline(residual(), "inference", "inference"))
    assert facts(liveness)["x"] == (5, 2, 2, 4, 4, 1)
    assert facts(liveness)["a"] == (2, 0, 3, 3, 2, 1)


def test_a_parameter_is_idle_but_for_its_reads_and_the_first_of_equal_stretches_counts() -> None:
    which = graph(
        [tensor("w", role="parameter"), tensor("x", role="input"), tensor("y")], [node("n", "x w", "y")], "x", "y"
    )
    assert facts(analyse(build_timeline(which, "inference", "inference")))["w"] == (2, 1, 0, 1, 1, -1)


@settings(max_examples=40)
@given(plannable_cases())
def test_idle_steps_and_stretches_lie_inside_the_life(case: Case) -> None:
    liveness = analyse(build_timeline(case.graph, case.mode, case.preset))
    idle, storages = idle_of(liveness), liveness.storages
    assert ((idle.idle >= 0) & (idle.idle <= idle.held)).all()
    assert ((idle.gap_from >= storages.birth) & (idle.gap_to <= storages.death)).all()
    assert (idle.gap_to - idle.gap_from <= idle.idle).all()
    assert ((idle.gap_to > idle.gap_from) == (idle.idle > 0)).all()
    assert (idle.before < storages.death).all()


@pytest.mark.parametrize("k", range(0, 90, 3))
def test_uses_and_the_longest_stretch_between_them_are_those_that_counting_finds(k: int) -> None:
    case = drawn(k)
    try:
        liveness = analyse(build_timeline(case.graph, case.mode, case.preset, order=case.order, dims=case.dims))
    except ContractError:
        return
    timeline, storages, idle = liveness.timeline, liveness.storages, idle_of(liveness)
    index = timeline.index
    uses: dict[int, set[int]] = {s: set() for s in range(len(storages))}
    for number, node_ in enumerate(timeline.graph.nodes):
        for name in (*node_.inputs, *node_.outputs) if timeline.step_of[number] >= 0 else ():
            uses.get(int(liveness.storage_of[index.tensor_of[name]]), set()).add(int(timeline.step_of[number]))
    for name in timeline.graph.inputs if timeline.has_inputs_step else ():
        uses.get(int(liveness.storage_of[index.tensor_of[name]]), set()).add(0)
    for s, steps in uses.items():
        birth, death = int(storages.birth[s]), int(storages.death[s])
        inside = sorted(step for step in steps if birth <= step < death)
        stretches = [(a + 1, b) for a, b in pairwise([birth - 1, *inside, death]) if a + 1 < b]
        longest = max(stretches, key=lambda each: (each[1] - each[0], -each[0]), default=(death, death))
        last, before = [-1, -1, *inside][:-3:-1]
        found = (idle.held[s], idle.idle[s], idle.gap_from[s], idle.gap_to[s], idle.last[s], idle.before[s])
        assert found == (death - birth, death - birth - len(inside), *longest, last, before)
