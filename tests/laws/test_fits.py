"""Every room of fitting answers as its golden lines tell, on a family of small graphs."""

from __future__ import annotations

import pytest

from tests.fits import answer, kept, questions


@pytest.mark.parametrize("question", list(questions()))
def test_a_room_of_fitting_answers_as_its_golden_line_tells(question: str) -> None:
    assert answer(questions()[question]) == kept()[question]


def test_every_golden_line_is_of_a_question() -> None:
    assert list(kept()) == list(questions())
