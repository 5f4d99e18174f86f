"""Every search gives its golden result after the golden number of nodes."""

import pytest

from tests.support.searches import QUESTIONS, golden_results, through_json

SLOW = ("recompute in chain of 14", "recompute in chain in place", "fit chain in place, stopped")


@pytest.mark.parametrize(
    "question", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in QUESTIONS]
)
def test_search_gives_the_golden_result(question: str) -> None:
    assert through_json(QUESTIONS[question]()) == golden_results()[question]


def test_every_golden_row_is_recomputed() -> None:
    assert list(golden_results()) == list(QUESTIONS)
