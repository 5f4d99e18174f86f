"""The r10 planner under the names of its document, with its exit criteria."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tmmu_core.base.errors import AlignmentViolation, AllocationOverflow
from tmmu_core.seed.r10 import (
    AllocationPlan,
    MemoryBinding,
    MemoryPlanner,
    MemoryRegion,
    SharingOpportunity,
    TensorLifetime,
)


def lives(*rows: tuple[int, int, int], alignment: int = 1) -> list[TensorLifetime]:
    return [TensorLifetime(f"t{k}", birth, death, size, alignment) for k, (birth, death, size) in enumerate(rows)]


def planned(*rows: tuple[int, int, int], alignment: int = 1) -> AllocationPlan:
    found = lives(*rows, alignment=alignment)
    plan = MemoryPlanner(found).generate_plan()
    assert plan.is_valid(found)
    return plan


def test_chain_of_three_shares_one_region() -> None:
    plan = planned((0, 2, 100), (1, 3, 60), (2, 4, 80), alignment=64)
    assert plan.allocations == {"t0": MemoryRegion(0, 100), "t2": MemoryRegion(0, 100), "t1": MemoryRegion(128, 60)}
    assert plan.sharing_pairs == [("t0", "t2")]
    assert (plan.peak_bytes, plan.pool_bytes, plan.saved_bytes) == (160, 188, 316 - 188)


def test_every_tenant_of_a_region_is_compared() -> None:
    # t2 can live beside t1, the region's last tenant, but not beside t0, its first.
    assert planned((0, 2, 100), (5, 6, 90), (1, 3, 80)).sharing_pairs == [("t0", "t1")]


def test_misaligned_region_is_not_shared() -> None:
    found = [TensorLifetime("a", 0, 9, 10), TensorLifetime("b", 0, 1, 9), TensorLifetime("c", 1, 2, 8, 8)]
    assert MemoryPlanner(found).generate_plan().allocations["c"] == MemoryRegion(24, 8)


def test_touching_lives_do_not_overlap() -> None:
    one, two, three = lives((0, 2, 1), (2, 4, 1), (1, 3, 1))
    assert not one.overlaps(two)
    assert one.overlaps(three)
    assert three.overlaps(two)


def test_only_given_opportunities_are_shared() -> None:
    found = lives((0, 1, 8), (1, 2, 8), (2, 3, 8))
    asked = MemoryPlanner(found, [SharingOpportunity("t2", "t0"), SharingOpportunity("t0", "t1")])
    assert asked.generate_plan().sharing_pairs == [("t0", "t1")]
    assert MemoryPlanner(found, []).generate_plan().sharing_pairs == []


def test_invalid_opportunity_is_ignored() -> None:
    found = lives((0, 2, 8), (1, 3, 8))
    plan = MemoryPlanner(found, [SharingOpportunity("t0", "t1")]).generate_plan()
    assert plan.is_valid(found)
    assert len(plan.sharing_pairs) == 0


def test_plan_with_overlapping_tensors_is_invalid() -> None:
    plan = AllocationPlan({"a": MemoryRegion(0, 8), "b": MemoryRegion(7, 8)}, peak_bytes=16, saved_bytes=0)
    assert not plan.is_valid([TensorLifetime("a", 0, 2), TensorLifetime("b", 1, 3)])
    assert plan.is_valid([TensorLifetime("a", 0, 2), TensorLifetime("b", 2, 3)])


def test_lifetime_without_a_region_is_invalid() -> None:
    assert not AllocationPlan({}).is_valid([TensorLifetime("a", 0, 2)])
    assert not planned((0, 1, 4)).is_valid([TensorLifetime("t0", 0, 1), TensorLifetime("other", 4, 5)])


def test_binding_has_its_documented_fields() -> None:
    binding = MemoryBinding(model_id="m", plan=planned((0, 2, 8)), bound_regions={"t0": 0x1080})
    assert (binding.is_bound("t0"), binding.get_ptr("t0"), binding.is_bound("t9")) == (True, 0x1080, False)
    with pytest.raises(AssertionError, match="t9"):
        binding.get_ptr("t9")
    assert MemoryBinding.bind("m", binding.plan, 0x2000).get_ptr("t0") == 0x2000


def test_size_past_64_bits_overflows() -> None:
    with pytest.raises(AlignmentViolation, match="t0"):
        MemoryPlanner(lives((0, 1, 1), alignment=3)).generate_plan()
    with pytest.raises(AllocationOverflow):
        MemoryPlanner(lives((0, 2, 2**63), (0, 2, 2**63))).generate_plan()


ROWS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 20)), max_size=12)


@given(ROWS, st.sampled_from([1, 4, 64]))
def test_plan_is_valid_aligned_and_not_larger_than_without_sharing(
    rows: list[tuple[int, int, int]], alignment: int
) -> None:
    found = lives(*((birth, birth + length, size) for birth, length, size in rows), alignment=alignment)
    plan = MemoryPlanner(found).generate_plan()
    for one, two in combinations(found, 2):
        assert not (one.overlaps(two) and plan.allocations[one.tensor_id].overlaps(plan.allocations[two.tensor_id]))
    assert plan.is_valid(found)
    assert all(region.offset_bytes % alignment == 0 for region in plan.allocations.values())
    assert plan.peak_bytes <= plan.pool_bytes
    assert plan.saved_bytes >= 0


@given(ROWS, st.data())
def test_validity_check_equals_that_of_all_pairs(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    found = lives(*((birth, birth + length, size) for birth, length, size in rows))
    regions = {life.tensor_id: MemoryRegion(data.draw(st.integers(0, 40)), life.size_bytes) for life in found}
    clash = any(
        one.overlaps(two) and regions[one.tensor_id].overlaps(regions[two.tensor_id])
        for one, two in combinations(found, 2)
    )
    assert AllocationPlan(regions).is_valid(found) is not clash
