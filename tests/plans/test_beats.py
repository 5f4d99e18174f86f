"""Curves are computed at events: a plan of two rows over 2^62 steps has a handful of points."""

from __future__ import annotations

import numpy as np
import pytest

from app.canvas.pack import pack_plan, picture_of
from app.kit.charts.compare_charts import curves
from tests.plans.examples import problem_of
from tmmu_core.plans.analysis.waste_ledger import resource_ledger
from tmmu_core.plans.figures.live_bytes import live_bytes_of, peak_of, peak_together
from tmmu_core.plans.figures.plan_storages import beats_of
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.model import Plan

LATE = 2**62


def late() -> Plan:
    """``a`` at first; then, for a moment long after, ``b`` and ``c`` together."""
    return plan_problem(problem_of(("a", 0, 2**31, 100), ("b", 2**40, LATE, 50), ("c", LATE - 1, LATE, 60)))


def test_long_plan_has_an_event_where_a_live_range_begins_or_ends() -> None:
    beats = beats_of(late())
    assert beats.steps.tolist() == [0, 2**31, 2**40, LATE - 1]
    assert [beats.at(step) for step in (0, 2**31 - 1, 2**31, LATE - 1)] == [0, 0, 1, 3]


def test_charts_of_a_long_plan_are_drawn() -> None:
    plan = late()
    ledger = resource_ledger(plan)
    assert ledger.rows()[-1]["t"] == LATE - 1
    assert curves(plan, plan, "arena").data


def test_picture_of_a_long_plan_has_a_column_per_event() -> None:
    drawn, steps = picture_of(late())
    assert steps is not None
    assert (drawn.steps, steps.tolist()) == (4, [0, 2**31, 2**40, LATE - 1, LATE])
    assert len(pack_plan(late()).data) < 10_000


@pytest.mark.parametrize("steps", [2_000, 2**20])
def test_peak_by_events_equals_peak_by_steps(steps: int) -> None:
    birth = np.array([0, 10, steps - 2], np.int64)
    death = np.array([12, steps // 2, steps], np.int64)
    size = np.array([3, 5, 7], np.uint64)
    curve = live_bytes_of(birth, death, size, steps)
    assert peak_together(birth, death, size, steps) == peak_of(curve)
