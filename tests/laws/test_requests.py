"""What requests come to, drawn by number, is what the golden lines tell."""

from __future__ import annotations

import pytest

from tests.requests import REQUESTS, questions
from tests.verdicts import kept


@pytest.mark.parametrize("question", questions())
def test_requests_come_to_what_their_golden_lines_say(question: str) -> None:
    assert questions()[question]() == kept(REQUESTS)[question]


def test_every_golden_block_is_of_a_question() -> None:
    assert list(kept(REQUESTS)) == list(questions())
