"""Every search goes the way that its golden line tells: the same answer, after as many nodes."""

from __future__ import annotations

import pytest

from tests.support.searches import QUESTIONS, kept, said


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_search_answers_as_its_golden_line_tells_after_as_many_steps(question: str) -> None:
    assert said(QUESTIONS[question]()) == kept()[question]


def test_every_golden_line_is_of_a_question() -> None:
    assert list(kept()) == list(QUESTIONS)
