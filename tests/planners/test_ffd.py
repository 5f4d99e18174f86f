"""ffd: the r10 planner's exit criteria."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from packings import extent, faults, offsets, problem, problems

from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.ffd import AllocationPlan, MemoryBinding, MemoryRegion, TensorLifetime, ffd, generate_plan
from tmmu_core.planners.problem import Problem


def lifetimes(p: Problem) -> list[TensorLifetime]:
    return [TensorLifetime(name, int(b), int(d)) for name, b, d in zip(p.ids, p.birth, p.death, strict=True)]


def test_a_chain_of_three_needs_two_regions() -> None:
    plan = generate_plan(problem((0, 2, 100), (1, 3, 60), (2, 4, 80), alignment=64))
    assert plan.tenants == (("t0", "t2"), ("t1",))
    assert plan.sharing_pairs == (("t0", "t2"),)
    assert plan.allocations["t1"] == MemoryRegion(128, 60)


def test_its_figures_are_peak_pool_and_what_sharing_saves() -> None:
    plan = generate_plan(problem((0, 2, 100), (1, 3, 60), (2, 4, 80), alignment=64))
    assert (plan.peak_bytes, plan.shared_peak, plan.isolated_peak, plan.saved_bytes) == (160, 188, 316, 128)


def test_every_tenant_of_a_region_is_asked_not_only_the_last() -> None:
    # t2 can live beside t1, the region's last tenant, but not beside t0, its first.
    plan = generate_plan(problem((0, 2, 100), (5, 6, 90), (1, 3, 80)))
    assert plan.tenants == (("t0", "t1"), ("t2",))


def test_an_offset_that_is_off_the_grid_is_not_shared() -> None:
    plan = generate_plan(problem((0, 9, 10), (0, 1, 9), (1, 2, 8), alignment=[1, 1, 8]))
    assert plan.allocations["t2"].offset_bytes == 24


def test_a_plan_with_two_live_tensors_on_one_byte_is_not_valid() -> None:
    plan = AllocationPlan({"a": MemoryRegion(0, 8), "b": MemoryRegion(7, 8)}, (("a",), ("b",)), 16, 15, 16)
    assert not plan.is_valid([TensorLifetime("a", 0, 2), TensorLifetime("b", 1, 3)])
    assert plan.is_valid([TensorLifetime("a", 0, 2), TensorLifetime("b", 2, 3)])


def test_a_binding_knows_what_is_bound_and_where() -> None:
    plan = generate_plan(problem((0, 2, 100), (1, 3, 60), alignment=64))
    binding = MemoryBinding.bind("m", plan, 0x1000)
    assert (binding.is_bound("t1"), binding.get_ptr("t1"), binding.is_bound("t9")) == (True, 0x1080, False)


def test_an_address_of_what_is_not_bound_is_a_broken_precondition() -> None:
    with pytest.raises(AssertionError, match="t9"):
        MemoryBinding.bind("m", generate_plan(problem((0, 1, 1))), 0).get_ptr("t9")


def test_the_place_handed_off_is_shared_and_the_pair_that_must_not_alias_is_not() -> None:
    p = problem((0, 2, 8), (2, 4, 6), (4, 5, 6), handoff_from=np.array([-1, 0, -1]), must_not_alias=np.array([[1, 2]]))
    assert offsets(ffd(p, {})) == [0, 0, 0 + 8]


def test_fixed_offsets_stay_and_the_rest_goes_above() -> None:
    p = problem((0, 2, 8), (0, 3, 8), (2, 3, 4), fixed=np.array([4, -1, -1]))
    assert offsets(ffd(p, {}))[0] == 4
    assert faults(p, offsets(ffd(p, {}))) == []


@given(problems())
def test_it_packs_rightly(p: Problem) -> None:
    assert faults(p, offsets(ffd(p, {}))) == []


@given(problems(odd=False))
def test_its_plans_are_always_valid_and_aligned(p: Problem) -> None:
    plan = generate_plan(p)
    assert plan.is_valid(lifetimes(p))
    grids = dict(zip(p.ids, p.alignment.tolist(), strict=True))
    assert all(region.offset_bytes % grids[name] == 0 for name, region in plan.allocations.items())


@given(problems(odd=False))
def test_the_sweep_says_what_the_pairs_say(p: Problem) -> None:
    plan = generate_plan(p)
    squeezed = replace(
        plan, allocations={k: MemoryRegion(r.offset_bytes // 2, r.size_bytes) for k, r in plan.allocations.items()}
    )
    offset = [squeezed.allocations[name].offset_bytes for name in p.ids]
    ungridded = replace(p, alignment=np.ones(len(p), dtype=np.uint64))
    assert squeezed.is_valid(lifetimes(p)) == (faults(ungridded, offset) == [])


@given(problems())
def test_sharing_never_costs(p: Problem) -> None:
    plan = generate_plan(p)
    assert lower_bound(p).max_live <= plan.shared_peak <= plan.isolated_peak
    assert plan.shared_peak == extent(p, ffd(p, {}).offset)
