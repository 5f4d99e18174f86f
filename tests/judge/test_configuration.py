"""The lower bound is recomputed with the arena configuration that the plan declares, if its hash confirms it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tmmu_core as tmmu
from tests.judge.faults import rehashed
from tests.support.paths import SAMPLES
from tmmu_core.formats.planfile import plan_file
from tmmu_core.judge.verifier.finished_plan import Finished, finished
from tmmu_core.plans.model import Plan

REQUESTS: list[dict[str, Any]] = [
    {"alignment": 4096},
    {"alignment": 65536},
    {"alignment": 1 << 20},
    {"alignment": 8192, "page_size": 4096},
    {"alignment": 8192, "capacity": "1GiB"},
    {"alignment": 65536, "one_memory": True},
    {"arenas": {"activations": {"alignment_bytes": 65536, "capacity_bytes": 1 << 30}}},
]


def reread(plan: Plan, **how: Any) -> Finished:
    """The plan as its file gives it, checked against its graph."""
    return finished(plan_file.from_document(plan_file.to_json(plan)), plan.graph, **how)  # type: ignore[attr-defined]


@pytest.mark.parametrize("planner", ["slots", "greedy", "naive"])
@pytest.mark.parametrize("request_of", REQUESTS, ids=str)
@pytest.mark.parametrize("name", ["mixed_sizes", "fan_out_fan_in"])
def test_plan_with_its_own_alignment_keeps_its_certificate(name: str, request_of: dict[str, Any], planner: str) -> None:
    plan = tmmu.plan(SAMPLES / f"{name}.tmmu.json", planner=planner, **request_of)
    found = reread(plan)
    assert found.ok
    for arena, given in zip(found.plan.arenas, plan.arenas, strict=True):
        assert (arena.status, arena.bound_bytes) == (given.status, given.bound_bytes)


def test_alignment_that_no_configuration_hash_confirms_is_not_used() -> None:
    plan = tmmu.plan(SAMPLES / "mixed_sizes.tmmu.json", alignment=1 << 20)
    (arena,) = reread(replace(rehashed(replace(plan, arena_config_hash=bytes(32))), made=plan.made)).plan.arenas
    assert arena.status == "claimed"
    assert arena.bound_bytes < plan.lower_bound_bytes
    assert "configuration" in dict(reread(plan).verdict.left_out)


def test_configuration_that_is_given_is_checked() -> None:
    plan = tmmu.plan(SAMPLES / "mixed_sizes.tmmu.json", alignment=4096)
    given = {"activations": {"alignment_bytes": 4096}}
    assert "configuration" in reread(plan, arenas=given).verdict.checked
    assert not reread(plan, arenas={"activations": {"alignment_bytes": 64}}).ok
