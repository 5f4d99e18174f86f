"""What the readers of other tools' plans make of files with one thing changed is what the golden lines tell."""

from __future__ import annotations

import pickle

import pytest

from tests.others import OTHERS, PLAIN_VALUES, answer, kinds, pickled_value, questions
from tests.verdicts import kept


@pytest.mark.parametrize("question", questions())
def test_files_with_one_thing_changed_are_read_as_the_golden_lines_say(question: str) -> None:
    assert answer(question) == kept(OTHERS)[question]


def test_every_golden_block_is_of_a_question() -> None:
    assert list(kept(OTHERS)) == list(questions())


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_read_as_a_pickle_says_them(protocol: int) -> None:
    """The same as ``pickle`` itself makes of them, but that tuples are lists."""
    many = [[k] for k in range(300)]
    values = [*PLAIN_VALUES.values(), {"many": many, "again": many[::-1]}, [{str(k): k} for k in range(1200)]]
    for value in values:
        if isinstance(value, list) and protocol < 4:  # of these an older one makes calls
            value = [item for item in value if not isinstance(item, (bytes if protocol < 3 else set) | set | frozenset)]
        expected = pickle.loads(pickle.dumps(value, protocol))
        assert pickled_value(pickle.dumps(value, protocol)) == kinds(expected)
