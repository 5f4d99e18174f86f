"""Whatever is made of a small input is what its golden line says."""

from __future__ import annotations

import pytest

from tests.made.kinds import FILES, answers, kept, questions


@pytest.mark.parametrize(("file", "question"), [(file, question) for file in FILES for question in questions(file)])
def test_what_is_made_of_an_input_is_what_its_golden_line_says(file: str, question: str) -> None:
    assert answers(file, question) == kept(file)[question]


def test_every_golden_line_is_of_an_input() -> None:
    for file in FILES:
        assert list(kept(file)) == list(questions(file))
