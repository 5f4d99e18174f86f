"""How a part is hunted down: what is proven of choices of hand-offs, how a budget is shared, where to aim next."""

from __future__ import annotations

import pytest
from packings import extent, faults, offsets, problem_with

from tests.searches import crowd
from tests.small_problems import after, handed
from tmmu_core.planners.columns import columns
from tmmu_core.planners.exact import exact, hunt
from tmmu_core.planners.exact.model import handoffs
from tmmu_core.planners.problem import Problem

# --- what is proven ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "least"), [(23, 27), (24, 23), (37, 28), (38, 27), (40, 23), (42, 22)])
def test_what_one_choice_of_many_hand_offs_cannot_is_no_proof(
    seed: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six or seven hand-offs: all of them taken a byte more is needed than with one left out."""
    p = handed(seed)
    assert len(handoffs(columns(p))) > hunt.ALL_CHOICES
    one = exact(p, {"budget": 20_000})
    assert (extent(p, one.offset), one.optimal) == (least + 1, False)
    assert one.lower_bound is not None
    assert one.lower_bound <= least
    assert not one.stopped, "there was nothing left to ask"
    exact(problem_with(p, capacity=least), {"budget": 20_000})  # refused where it were proven that nothing fits
    monkeypatch.setattr(hunt, "ALL_CHOICES", 7)
    every = exact(p, {"budget": 20_000})
    assert (extent(p, every.offset), every.optimal) == (least, True)
    assert faults(p, offsets(one)) == faults(p, offsets(every)) == []


@pytest.mark.parametrize("p", [crowd(0, 11), after(63, 18)])
def test_a_budget_that_is_too_small_for_shares_of_two_parts_is_spent_and_told(p: Problem) -> None:
    packing = exact(p, {"budget": 1})
    assert (packing.notes["nodes"], packing.stopped, packing.optimal) == (1, True, False)
