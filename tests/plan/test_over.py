"""A plan over its limits is given where it is asked for, under the limits that it is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import chain
from tmmu_core.errors import AllocationFailure, ArenaTooSmall
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.formats.reading import read_any, read_graph_file
from tmmu_core.plan.making.make import make_plan
from tmmu_core.plan.making.over import make_plan_anyway
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.planners.problem import PlainInstance

SAMPLES = Path(__file__).resolve().parents[2] / "sample_graphs"
MIXED = read_graph_file(SAMPLES / "mixed_sizes.tmmu.json")


def test_what_fits_is_the_plan_that_it_always_was() -> None:
    request = PlanRequest(capacities={"activations": 2**30})
    assert make_plan_anyway(MIXED, request).plan.tmmu_plan_hash == make_plan(MIXED, request).plan.tmmu_plan_hash


def test_a_plan_over_its_capacity_has_it_and_is_found_to_be_over() -> None:
    request = PlanRequest(capacities={"activations": 1024})
    with pytest.raises(ArenaTooSmall):
        make_plan(MIXED, request)
    plan = make_plan_anyway(MIXED, request).plan
    arena = plan.arena_of["activations"]
    assert arena.capacity_bytes == 1024 < arena.extent_bytes
    assert {finding.rule for finding in verify_plan(plan, MIXED).findings} == {"capacity"}


def test_the_layout_is_that_without_limits() -> None:
    free = make_plan(MIXED, PlanRequest()).plan
    over = make_plan_anyway(MIXED, PlanRequest(capacities={"activations": 1024})).plan
    assert over.layout_hash == free.layout_hash
    assert over.tmmu_plan_hash != free.tmmu_plan_hash


def test_a_quota_is_let_go() -> None:
    request = PlanRequest(budget=1)
    with pytest.raises(AllocationFailure):
        make_plan(MIXED, request)
    assert make_plan_anyway(MIXED, request).plan.arenas


def test_an_instance_over_its_capacity_is_drawn_too() -> None:
    found = read_any((SAMPLES / "instances" / "iree_first.csv").read_bytes(), "iree_first.csv")
    assert isinstance(found, PlainInstance)
    plan = make_plan_anyway(found, PlanRequest(planner="greedy", capacities={"arena": 64})).plan
    assert plan.arenas[0].capacity_bytes == 64
    assert {finding.rule for finding in verify_plan(plan).findings} == {"capacity"}


def test_an_arena_that_is_not_declared_is_still_refused() -> None:
    with pytest.raises(ArenaTooSmall):
        make_plan_anyway(chain(3), PlanRequest(arenas={"elsewhere": {}}))
