"""What is compiled ahead is all that is compiled, and some of it needs a search to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import warm
from tests.compiled_ahead import left_out
from tmmu_core.loops.library import library
from tmmu_core.planners import PLANNERS


@pytest.mark.skipif(library() is None, reason="no library for this machine: all loops would be compiled")
def test_no_fit_waits_for_the_compiler(tmp_path: Path) -> None:
    assert left_out(tmp_path, native=True) == []


def test_the_ring_takes_a_search() -> None:
    packing = PLANNERS["exact"].pack(warm.ring(), {}, None)
    assert (packing.optimal, packing.lower_bound, packing.notes["nodes"] > 0) == (True, 24, True)
