"""The points of a sweep and their rows."""

import hashlib
from typing import Any

import pytest

from tests.support.build import chain
from tests.support.paths import SAMPLES
from tmmu_core.formats.open_file import read_graph
from tmmu_core.formats.planfile import plan_file
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.analysis.plan_notes import plan_warnings
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.sweep import sweep_run
from tmmu_core.sweep.sweep_run import (
    FIGURES,
    FIT_FIGURES,
    Axes,
    Point,
    Source,
    error_row,
    figures,
    points_of,
    run_point,
)

INSTANCE = Source("few.csv", b"id,lower,upper,size\na,0,2,8\nb,1,3,4\n")


def sample(name: str) -> Source:
    return Source(name, (SAMPLES / f"{name}.tmmu.json").read_bytes())


def test_points_enumerate_the_axes_with_the_last_one_fastest() -> None:
    axes = Axes(planners=("slots", None), alignments=(None, 64), shards=(("none", None), ("two", {"w": 2})))
    found = points_of(PlanRequest(dims={"S": 3}), axes, [(None, ("B", 2)), (None,)], ["one", ""])
    assert [point.number for point in found] == list(range(16 + 8))
    assert [point.source for point in found] == [0] * 16 + [1] * 8
    last = found[15]
    assert dict(last.head) == {
        "model": "one",
        "planner": None,
        "mode": None,
        "preset": None,
        "alignment": 64,
        "dims": {"S": 3, "B": 2},
        "shard": "two",
    }
    assert (last.request.dims, last.request.alignment, last.request.shard_spec) == ({"S": 3, "B": 2}, 64, {"w": 2})
    first = found[16]
    assert dict(first.head) == {"planner": "slots", "mode": None, "preset": None, "alignment": None, "shard": "none"}
    assert (first.request.planner, first.request.dims, first.capacity) == ("slots", {"S": 3}, None)
    assert [point.request.alignment for point in found[16:]] == [PlanRequest().alignment] * 4 + [64] * 4
    assert [point.head["planner"] for point in found[16:]] == ["slots", "slots", None, None] * 2
    assert [point.head["shard"] for point in found[16:]] == ["none", "two"] * 4


def test_source_is_identified_by_name_and_bytes() -> None:
    assert Source("ab", b"c").digest == hashlib.sha256(b"ab\0c").hexdigest() != Source("a", b"bc").digest


def test_key_of_a_point_covers_everything_its_rows_depend_on() -> None:
    of = [Source("a", b"a"), Source("b", b"b")]
    request = PlanRequest()
    points = [
        Point(0, 0, request),
        Point(0, 1, request),
        Point(0, 0, request.but(seed=1)),
        Point(0, 0, request, capacity={"": 8}),
        Point(0, 0, request, capacity={"x": 8, "y": 9}),
        Point(0, 0, request, head={"mode": None}),
    ]
    assert len({point.key(of) for point in points}) == len(points)
    assert Point(7, 0, request).key(of) == points[0].key(of), "the key does not depend on the number"
    assert Point(0, 0, request, capacity={"y": 9, "x": 8}).key(of) == points[4].key(of)


def test_row_has_the_figures_of_its_plan() -> None:
    source = sample("two_arenas")
    plan = plan_graph(read_graph(source.data, source.name), planner="slots").plan
    assert verify_plan(plan).ok
    (row,) = run_point(source, Point(3, 0, PlanRequest(planner="slots"), head={"model": "x"})).rows
    assert {name: value for name, value in row.items() if name != "allocation_time_ns"} == {
        "model": "x",
        "name": plan.ir_name,
        "mode": plan.mode,
        "preset": plan.preset,
        "lower_bound_bytes": sum(arena.bound_bytes for arena in plan.arenas),
        "extent_bytes": sum(arena.extent_bytes for arena in plan.arenas),
        "places": plan.places,
        "slots": sum(arena.slots for arena in plan.arenas),
        "storages": sum(arena.storages for arena in plan.arenas),
        "steps": plan.steps,
        "layout_hash": plan.layout_hash.hex(),
        "status": {arena.name: arena.status for arena in plan.arenas},
        "warnings": list(plan_warnings(plan)),
        "arenas": {arena.name: arena.extent_bytes for arena in plan.arenas},
        "error": None,
    }
    assert figures(plan)["allocation_time_ns"] == plan.metrics["allocation_time_ns"]


def test_open_size_is_set_by_the_point() -> None:
    source = sample("dynamic_batch")
    extents = []
    for size in (1, 8):
        request = PlanRequest(planner="slots", dims={"B": size})
        (row,) = run_point(source, Point(0, 0, request)).rows
        made = make_plan(sweep_run.read_at(read_graph(source.data, source.name), {"B": size}, b"", ""), request)
        assert row["layout_hash"] == made.plan.layout_hash.hex()
        extents.append(row["extent_bytes"])
    assert extents[0] < extents[1]


def test_capacity_is_for_all_arenas_or_one() -> None:
    source = sample("two_arenas")
    graph = read_graph(source.data, source.name)
    extent = {arena.name: arena.extent_bytes for arena in plan_graph(graph, planner="slots").plan.arenas}
    name = max(extent, key=lambda name: extent[name])
    limits = (({"": sum(extent.values())}, "fits"), ({name: extent[name]}, "fits"), ({name: 0}, "cannot"))
    for capacity, answer in limits:
        (row,) = run_point(source, Point(0, 0, PlanRequest(planner="slots"), capacity=capacity)).rows
        assert (row["answer"], row["over_bytes"] > 0) == (answer, answer == "cannot")
        assert row["cost"].keys() == {"extra_flops", "moved_bytes", "extra_steps", "moves"}


@pytest.mark.parametrize(
    ("point", "more"), [(Point(0, 0, PlanRequest()), ()), (Point(0, 0, PlanRequest(), capacity={"": 1}), FIT_FIGURES)]
)
def test_row_without_a_plan_has_no_figures(point: Point, more: tuple[str, ...]) -> None:
    row = error_row(Point(0, 0, point.request, point.capacity, {"mode": "m"}), {"code_id": "X"})
    assert row == {"mode": "m", "error": {"code_id": "X"}} | dict.fromkeys((*FIGURES, *more))


def error_of(source: Source, **fields: Any) -> Any:
    (row,) = run_point(source, Point(0, 0, PlanRequest(planner="slots"), **fields)).rows
    return row["error"] and (row["error"]["code_id"], row["error"]["message"])


def test_source_without_a_graph_is_rejected_in_its_row() -> None:
    plan = plan_graph(chain(3)).plan
    assert error_of(INSTANCE) is None
    assert "finished plan" in error_of(Source("p.json", plan_file.WRITERS["json"](plan)))[1]
    assert "no graph" in error_of(INSTANCE, capacity={"": 99})[1]
    overlapping = Source("given.csv", b"id,lower,upper,size,offset\na,0,2,100,0\nb,1,3,100,50\n")
    (row,) = run_point(overlapping, Point(0, 0, PlanRequest())).rows
    assert row["error"]["code_id"] != "INTERNAL"
    assert row["extent_bytes"] is None


def test_internal_error_is_reported_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(sweep_run, "make_plan", broken)
    code, message = error_of(INSTANCE)
    assert (code, message.partition(" (")[0]) == ("INTERNAL", "ZeroDivisionError: no")
    assert message.partition(" (")[2].startswith("test_points.py:")
