"""What the engine, the simulator and the judge say of small odd graphs is what the golden lines tell."""

from __future__ import annotations

import pytest

from tests.verdicts import GRAPHS, JUDGED, ODD, VERDICTS, kept, odd_answer, verdicts


@pytest.mark.parametrize("k", range(GRAPHS))
def test_an_odd_graph_is_planned_and_simulated_as_its_golden_lines_say(k: int) -> None:
    assert odd_answer(k) == kept(ODD)[str(k)]


@pytest.mark.parametrize("which", range(JUDGED))
def test_plans_with_one_thing_wrong_are_judged_as_the_golden_lines_say(which: int) -> None:
    assert verdicts(which) == kept(VERDICTS)[str(which)]


def test_every_golden_block_is_asked_for() -> None:
    assert (len(kept(ODD)), len(kept(VERDICTS))) == (GRAPHS, JUDGED)
