"""ffd: the exit criteria of the r10 planner."""

import numpy as np
from hypothesis import given

from tests.planners.packings import extent, faults, offsets, problem, problems
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.problem import Problem
from tmmu_core.planners.slots import ffd


def test_chain_of_three_needs_two_regions_and_reports_the_saving() -> None:
    packing = ffd(problem((0, 2, 100), (1, 3, 60), (2, 4, 80), alignment=64), {})
    assert offsets(packing) == [0, 128, 0]
    assert packing.notes == {"regions": 2, "sharing_pairs": 1, "saved_bytes": 316 - 188}


def test_handoff_shares_its_offset_and_a_must_not_alias_pair_does_not() -> None:
    p = problem((0, 2, 8), (2, 4, 6), (4, 5, 6), handoff_from=np.array([-1, 0, -1]), must_not_alias=np.array([[1, 2]]))
    assert offsets(ffd(p, {})) == [0, 0, 0 + 8]


@given(problems())
def test_packing_is_valid(p: Problem) -> None:
    assert faults(p, offsets(ffd(p, {}))) == []


@given(problems())
def test_sharing_never_costs(p: Problem) -> None:
    packing = ffd(p, {})
    assert lower_bound(p).max_live <= extent(p, packing.offset)
    assert packing.notes["saved_bytes"] >= 0
