"""Every search gives its golden result after the golden number of nodes."""

from __future__ import annotations

import pytest

from tests.support.searches import QUESTIONS, kept, said


@pytest.mark.parametrize("question", QUESTIONS)
def test_search_gives_the_golden_result(question: str) -> None:
    assert said(QUESTIONS[question]()) == kept()[question]


def test_every_golden_row_is_recomputed() -> None:
    assert list(kept()) == list(QUESTIONS)
