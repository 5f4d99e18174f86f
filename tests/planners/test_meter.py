"""A stopped search is repeated by the number of nodes at which it stopped."""

from functools import partial
from random import Random

import pytest

from app.session.opening import SAMPLES
from tests.planners.packings import problem
from tmmu_core.formats.open_file import read_any
from tmmu_core.planners.auto import auto
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan


def planned(path: str, planner: str, options: dict[str, object], progress: Progress | None = None) -> Plan:
    file = next(SAMPLES.rglob(path))
    return make_plan(
        read_any(file.read_bytes(), file.name), PlanRequest(planner=planner, options=options), progress
    ).plan


def stopping_after(calls: int) -> Progress:
    """Return a progress callback that stops the search at this call."""
    left = iter(range(1, calls))
    return lambda *_: next(left, None) is not None


@pytest.mark.parametrize(
    ("sample", "planner", "calls"),
    [
        ("resnet50.*", "search", 3),
        ("resnet50.*", "portfolio", 2),
        ("A.*.csv", "auto", 2),
        ("somas_resnet50.csv", "auto", 6),
        ("D.*.csv", "exact", 2),
        ("D.*.csv", "exact", 12),
        ("E.*.csv", "exact", 14),
    ],
)
def test_a_stopped_search_is_repeated_by_its_node_limit(sample: str, planner: str, calls: int) -> None:
    stopped = planned(sample, planner, {}, stopping_after(calls))
    assert set(stopped.planner_options) == {"max_nodes"}
    again = planned(sample, planner, dict(stopped.planner_options))
    assert (again.notes, again.planner_options) == (stopped.notes, stopped.planner_options)
    assert (again.tmmu_plan_hash, again.layout_hash) == (stopped.tmmu_plan_hash, stopped.layout_hash)
    assert again.arenas == stopped.arenas


def test_a_stopped_repair_is_repeated_by_its_node_limit() -> None:
    stopped = planned("D.*.csv", "exact", {"budget": 3000}, lambda _, nodes, __: nodes < 3300)
    (notes,) = stopped.notes.values()
    assert "turns" in notes
    again = planned("D.*.csv", "exact", dict(stopped.planner_options))
    assert (again.notes, again.tmmu_plan_hash) == (stopped.notes, stopped.tmmu_plan_hash)


def test_reported_extent_never_grows_and_the_last_bytes_take_few_nodes() -> None:
    extents, rng = list[int](), Random(6)
    spans = ((k, k + rng.randint(1, 40), rng.randint(1, 1 << 16)) for k in range(450))
    progress = partial(lambda *_: True)
    vars(progress)["improved"] = lambda _arena, _nodes, extent, _bound: extents.append(extent)
    packing = auto(problem(*spans, alignment=[64] * 450), {}, progress)
    assert extents == sorted(extents, reverse=True)
    assert (extents[-1] - (packing.lower_bound or 0) < 64, packing.notes["nodes"] < 100_000) == (True, True)
