"""The reader of structured packing problems."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.open_file import read_any
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.analysis.waste_ledger import explain_peak
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest

PROBLEM: dict[str, Any] = {
    "schema_version": 1,
    "profile": "pypto_research_v1",
    "instance": "kernel",
    "metadata": {"target": "Ascend910B"},
    "problem": {
        "pools": [
            {"id": 7, "name": "Vec", "capacity": 96, "reserved_ranges": [{"begin": 0, "end": 32}]},
            {"id": 2, "name": "Acc", "capacity": None, "reserved_ranges": []},
        ],
        "buffers": [
            {"id": k, "name": name, "size": 32, "alignment": 32, "live_intervals": lives, "allowed_pools": [pool]}
            for k, name, pool, lives in (
                (0, "x", 7, [{"lower": 0, "upper": 2}, {"lower": 6, "upper": 8}]),
                (1, "x", 7, [{"lower": 2, "upper": 4}]),
                (5, "y", 2, [{"lower": 0, "upper": 8}]),
            )
        ],
        "constraints": {
            "colocations": [],
            "separations": [{"first": 0, "second": 5, "reasons": ["generic"]}],
            "temporal_exclusions": [],
            "pinned_allocations": [{"buffer": 5, "pool": 2, "offset": 64, "exclusive_for_all_time": True}],
        },
        "cost_model": {"reuse_penalties": [{"first": 0, "second": 1, "cost": 3, "reason": "cross_pipe"}]},
        "objective": {"aggregation": "lexicographic", "terms": ["capacity_overflow", "reuse_cost"]},
    },
}


LIFE = [{"lower": 0, "upper": 1}]
MANY = [{"id": k, "name": str(k), "size": 1, "live_intervals": LIFE, "allowed_pools": [2]} for k in range(1_101)]
PINS = [{"buffer": k, "pool": 2, "offset": k, "exclusive_for_all_time": True} for k in range(1_101)]


def read(document: Any) -> PlainInstance:
    found = read_any(json.dumps(document).encode(), "kernel.json")
    assert isinstance(found, PlainInstance)
    return found


def test_pools_are_arenas_and_repeated_names_get_their_id() -> None:
    found = read(PROBLEM)
    assert [(p.arena, p.ids, p.capacity) for p in found.problems] == [
        ("Acc", ("y",), 2**64 - 1),
        ("Vec", ("x#0", "x#1"), 96),
    ]
    vec = found.problems[1]
    assert vec.gaps == (((2, 6),), ())
    assert vec.reuse is not None
    assert vec.reuse.penalties == ((0, 1, 3),)
    assert vec.reuse.reserved == ((0, 32),)


def test_plan_observes_capacity_reserved_range_and_pin() -> None:
    plan = make_plan(read(PROBLEM), PlanRequest()).plan
    assert plan.planner == "reuse"
    assert {name: plan.row(row).offset_bytes for name, row in plan.row_of.items() if name != "x#0@part1"} == {
        "x#0": 32,
        "x#1": 64,
        "y": 64,
    }
    assert plan.metrics["totals"]["reuse_cost"] == 0
    vec = plan.arena_of["Vec"]
    assert (vec.peak_live_bytes, vec.lower_bound_bytes) == (32, 64)  # above the 32 reserved bytes
    assert verify_plan(plan).arenas[1].lower_bound_bytes == 64
    assert explain_peak(plan).reason.endswith(": at #2, 32 B are free below the highest live tensor.")
    free = {**PROBLEM["problem"], "cost_model": {"reuse_penalties": []}}
    plan = make_plan(read({**PROBLEM, "problem": free}), PlanRequest()).plan
    assert explain_peak(plan).reason.endswith("needs less than 160 B: 32 B are reserved.")


def fault(change: Callable[[dict[str, Any]], None]) -> UnreadableInput:
    document = copy.deepcopy(PROBLEM)
    change(document["problem"])
    with pytest.raises(UnreadableInput) as caught:
        read(document)
    return caught.value


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        (lambda p: p["buffers"][0].update(allowed_pools=[7, 2]), "$.problem.buffers[0].allowed_pools", "2 allow"),
        (lambda p: p["buffers"][1].update(allowed_pools=[9]), "$.problem.buffers[1].allowed_pools", "does not exist"),
        (lambda p: p["buffers"][1].update(alignment=3), "$.problem.buffers[1].alignment", "power of two"),
        (lambda p: p["buffers"][1].update(id=0), "$.problem.buffers[1].id", "given twice"),
        (
            lambda p: p["buffers"][1].update(live_intervals=[{"lower": 4, "upper": 4}]),
            "$.problem.buffers[1].live_intervals",
            "empty or overlap",
        ),
        (
            lambda p: p["constraints"]["separations"].append({"first": 0, "second": 99}),
            "$.problem.constraints.separations[1].second",
            "no buffer 99",
        ),
        (
            lambda p: p["constraints"]["colocations"].append({"first": 0, "second": 5}),
            "$.problem.constraints.colocations[0]",
            "different pools",
        ),
        (
            lambda p: p["constraints"]["pinned_allocations"][0].update(pool=7),
            "$.problem.constraints.pinned_allocations[0].pool",
            "not its own",
        ),
        (
            lambda p: p["cost_model"]["reuse_penalties"][0].update(cost=-1),
            "$.problem.cost_model.reuse_penalties[0].cost",
            ">= 0",
        ),
        (
            lambda p: p.update(buffers=MANY, constraints={"pinned_allocations": PINS}),
            "$.problem.constraints.pinned_allocations[953]",
            "more than 1,048,576 pairs",
        ),
        (lambda p: p["pools"][1].update(name="Vec"), "$.problem.pools", "two pools"),
        (lambda p: p["pools"][1].update(capasity=64), "$.problem.pools[1]", "'capasity'"),
        (lambda p: p["buffers"][1].update(offset=64), "$.problem.buffers[1]", "'offset'"),
        (lambda p: p.update(constrains={}), "$.problem", "'constrains'"),
    ],
)
def test_fault_is_named_with_its_place(change: Callable[[dict[str, Any]], None], place: str, message: str) -> None:
    found = fault(change)
    assert (found.place, found.hint != "") == (place, True)
    assert message in found.message
