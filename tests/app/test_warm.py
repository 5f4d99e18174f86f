"""What is compiled ahead needs a search to be compiled."""

from __future__ import annotations

from app.cli import warm
from tmmu_core.planners import PLANNERS


def test_the_ring_takes_a_search() -> None:
    packing = PLANNERS["exact"].pack(warm.ring(), {}, None)
    assert (packing.optimal, packing.lower_bound, packing.notes["nodes"] > 0) == (True, 24, True)
