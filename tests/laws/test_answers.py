"""Whatever can be asked of a plan answers for odd plans as the golden digests say."""

from __future__ import annotations

import pytest

from tests.answers import ANSWERS, QUESTIONS, answer
from tests.verdicts import kept


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_for_odd_plans_as_its_golden_lines_say(question: str) -> None:
    assert answer(question) == kept(ANSWERS)[question]


def test_every_golden_block_is_of_a_question() -> None:
    assert list(kept(ANSWERS)) == list(QUESTIONS)
