"""What every reader says of damaged files is what its golden lines tell."""

from __future__ import annotations

import pytest

from tests.refusals import answer, kept, questions


@pytest.mark.parametrize("question", questions())
def test_damaged_files_are_told_of_as_the_golden_lines_say(question: str) -> None:
    assert answer(question) == kept()[question]


def test_every_golden_block_is_of_a_question() -> None:
    assert list(kept()) == list(questions())
