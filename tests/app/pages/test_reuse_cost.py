"""The view Reuse cost of the page Plan."""

import json
from random import Random

from app.session.opening import shelf
from tests.app.pages.run_page import html, opened
from tests.planners.test_reuse import document, instance_of
from tmmu_core.planners.problem import UNLIMITED, Problem
from tmmu_core.plans.analysis.reuse_costs import cost_curve, costly_reuses
from tmmu_core.plans.making.instance import plan_problem


def source() -> str:
    """A problem whose least cost is above 0."""
    rng = Random(7)
    while True:
        found = document(rng, ())
        if (plan_problem(instance_of(found), planner="reuse").arenas[0].reuse_cost or 0) > 0:
            return shelf().put("kernel.json", json.dumps(found).encode())


def test_view_shows_costs_reasons_and_curve() -> None:
    at = opened("plan", graph=source(), tab="reuse")
    assert "Reuse cost " in html(at)
    assert ", proven least" in html(at)
    assert "waits for the bytes of" in html(at)
    assert "Why it is unavoidable" in html(at)
    assert " more saves " in html(at)


def test_costly_reuses_add_up_to_the_cost_of_the_plan() -> None:
    rng = Random(7)
    for _ in range(20):
        plan = plan_problem(instance_of(document(rng, ("reserved",), 3)), planner="reuse")
        assert sum(reuse.cost for reuse in costly_reuses(plan)) == plan.arenas[0].reuse_cost


def test_curve_falls_from_bytes_without_cost() -> None:
    problem: Problem = instance_of(document(Random(7), (), 6)).problem
    points = cost_curve(problem)
    assert problem.capacity < UNLIMITED
    assert points[0].cost == 0
    assert [point.extent for point in points] == sorted((point.extent for point in points), reverse=True)
    assert [point.cost for point in points] == sorted({point.cost for point in points})
    assert all(point.cost == point.bound for point in points)
