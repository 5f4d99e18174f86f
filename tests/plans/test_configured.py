"""The arena configuration of a request: a setting for one arena declares all arenas in use."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.plans.examples import problem_of
from tests.support.build import chain
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import ANY_ARENA, PlanRequest, arena_config, with_arena_settings


@pytest.mark.parametrize(
    ("fields", "made"),
    [
        ({}, None),
        ({"alignment": 64}, {"activations": {"alignment_bytes": 64}}),
        ({"page_size": 4096}, {"activations": {"page_size": 4096}}),
        ({"capacities": {"activations": 9}}, {"activations": {"capacity_bytes": 9}}),
        ({"capacities": {ANY_ARENA: 9}}, {"memory": {"capacity_bytes": 9}}),
        ({"one_memory": True}, {"memory": {}}),
        ({"arenas": {"activations": {}, "kv": {}}}, {"activations": {}, "kv": {}}),
        (
            {"arenas": {"activations": {"page_size": 16}, "kv": {}}, "alignment": 64},
            {"activations": {"page_size": 16, "alignment_bytes": 64}, "kv": {"alignment_bytes": 64}},
        ),
    ],
)
def test_each_arena_setting_alone_makes_a_configuration(fields: dict[str, Any], made: dict[str, Any] | None) -> None:
    request = PlanRequest(**fields)
    assert arena_config(chain(2), request) == made
    whole = with_arena_settings(chain(2), request)
    assert (whole.alignment, whole.page_size, dict(whole.capacities)) == (None, None, {})
    assert arena_config(chain(2), whole) == made


def test_arena_settings_of_an_instance_keep_its_capacity() -> None:
    problem = replace(problem_of(("a", 0, 1, 4)), capacity=64)
    request = PlanRequest(arenas={"arena": {"alignment_bytes": 16, "page_size": 32}})
    plan = make_plan(PlainInstance("", problem), request).plan
    found = [(arena.alignment_bytes, arena.capacity_bytes, arena.committed_bytes) for arena in plan.arenas]
    assert (found, plan.alignment.tolist()) == ([(16, 64, 32)], [64])


def test_fixed_offset_in_any_arena_of_an_instance_is_kept() -> None:
    pinned = replace(problem_of(("b", 0, 1, 4)), arena="other", fixed=np.array([128]))
    plan = make_plan(PlainInstance("", problem_of(("a", 0, 1, 4)), others=(pinned,)), PlanRequest()).plan
    assert plan.offset.tolist() == [0, 128]


def test_capacity_of_an_unknown_arena_is_rejected() -> None:
    with pytest.raises(InvalidIrShapes, match="'kv'") as caught:
        arena_config(chain(2), PlanRequest(capacities={"kv": 9}))
    assert caught.value.diagnostics["reason"] == "unknown_arena"


def test_memory_limit_beside_declared_arenas_is_rejected() -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        arena_config(chain(2), PlanRequest(capacities={ANY_ARENA: 9}, arenas={"activations": {}, "weights": {}}))
    assert caught.value.diagnostics["reason"] == "one_memory"


def test_unknown_mode_or_preset_is_rejected_beside_arena_settings() -> None:
    unknown: tuple[dict[str, Any], ...] = ({"mode": "else", "alignment": 64}, {"preset": "else", "page_size": 64})
    for fields in unknown:
        request = PlanRequest(**fields)
        with pytest.raises(InvalidIrShapes, match="'else'"):
            make_plan(chain(2), request)
