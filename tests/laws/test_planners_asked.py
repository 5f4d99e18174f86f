"""Each room of the planners says of small problems what its golden line tells."""

from __future__ import annotations

import pytest

from tests.planners_asked import QUESTIONS, kept, said


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_room_of_the_planners_answers_as_its_golden_line_tells(question: str) -> None:
    assert said(QUESTIONS[question]()) == kept()[question]


def test_every_golden_line_is_of_a_question() -> None:
    assert list(kept()) == list(QUESTIONS)
