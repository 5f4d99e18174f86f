"""Live bytes by the node that wrote them: their sum is the live bytes."""

from __future__ import annotations

import pytest

from app.session import planning
from app.session.view_state import Choice
from tmmu_core.plans.figures.plan_storages import held_by_writer, live_bytes, storages_of


@pytest.mark.parametrize("sample", ["views", "alias_group", "in_place", "training_step"])
def test_bytes_by_node_sum_to_the_live_bytes(sample: str) -> None:
    shown = planning.make_plan(Choice(source=f"sample:{sample}"))
    assert shown.solution is not None
    own, index = storages_of(shown.plan), shown.solution.liveness.timeline.index
    for arena in shown.plan.arenas:
        live = live_bytes(shown.plan, arena.name)
        for step in range(shown.plan.steps):
            by_node, loose = held_by_writer(shown.plan, own, index, step, arena.name)
            assert int(by_node.sum()) + loose == int(live[step])
