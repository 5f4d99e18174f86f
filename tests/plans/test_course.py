"""Progress of an exact search: recorded by the planner, and read from the plan."""

import pytest

from app.kit.charts import search_chart
from tests.support.paths import SAMPLES
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile.plan_file import from_document, to_json
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.analysis.plan_notes import SearchPoint, search_progress
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan

DATA = SAMPLES / "instances"


def planned(name: str, planner: str) -> Plan:
    instance = read_any((DATA / f"{name}.csv").read_bytes(), name)
    assert isinstance(instance, PlainInstance)
    return make_plan(instance, PlanRequest(planner=planner)).plan


@pytest.fixture(scope="module")
def exact() -> Plan:
    return planned("C.1048576", "exact")


def test_progress_begins_with_the_greedy_plan_and_ends_with_the_result(exact: Plan) -> None:
    first, last = search_progress(exact, "arena")[0], search_progress(exact, "arena")[-1]
    assert first == SearchPoint(0, 1417216, 1039360)
    assert (last.extent, last.bound) == (exact.arena_of["arena"].extent_bytes, exact.arena_of["arena"].bound_bytes)
    assert last.nodes <= exact.notes["arena"]["nodes"]


def test_progress_survives_the_plan_file(exact: Plan) -> None:
    assert search_progress(from_document(to_json(exact)), "arena") == search_progress(exact, "arena")


def test_chart_falls_in_steps_from_start_to_end(exact: Plan) -> None:
    fig = search_chart((SearchPoint(0, 30, 10), SearchPoint(100, 20, 10), SearchPoint(400, 20, 12)), 1000)
    extent, bound = fig.data
    assert (list(extent.x), list(extent.y), list(bound.y)) == ([50, 100, 400, 1000], [30, 20, 20, 20], [10, 10, 12, 12])
    assert (extent.line.shape, list(fig.layout.yaxis.tickvals)) == ("hv", [30, 20, 12, 10])
    close = search_chart((SearchPoint(0, 1260, 963), SearchPoint(9, 1008, 963)), 100, height=150)
    assert list(close.layout.yaxis.tickvals) == [1260, 1008]  # a label at 963 would overlap
