"""Many ids at once: the words say what a dictionary says, and where they cannot, the dictionary is asked."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tmmu_core.graph import id_columns
from tmmu_core.graph.id_columns import Ids

LETTERS = "ab\u00e9\0/"
NAMES = st.lists(st.text(alphabet=LETTERS, max_size=20) | st.text(alphabet="ab", max_size=9), max_size=12)


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    monkeypatch.setattr(id_columns, "FEW", 1)


@given(NAMES, NAMES)
def test_ids_answer_as_a_dictionary_does(texts, asked):
    ids = Ids(texts)
    assert ids.distinct == (len(set(texts)) == len(texts))
    assert ids.ascending == all(a < b for a, b in pairwise(texts))
    by_bytes = sorted(range(len(texts)), key=lambda i: (texts[i].encode(), i))
    assert ids.by_bytes.tolist() == by_bytes
    assert [ids.rank[i] for i in by_bytes] == list(range(len(texts)))
    if ids.distinct:
        number = {text: i for i, text in enumerate(texts)}
        assert ids.numbers_of([*texts, *asked]).tolist() == [number.get(text, -1) for text in [*texts, *asked]]


def test_an_id_that_is_longer_than_all_known_ones_is_not_found():
    ids = Ids(["t00000012", "t0"])
    assert ids.numbers_of(["t0", "t00000012" + "x" * 20, "t00000012"]).tolist() == [1, -1, 0]


def test_half_a_surrogate_pair_is_left_to_the_dictionary():
    assert Ids(["\ud800", "a"]).numbers_of(["\ud800", "b"]).tolist() == [0, -1]


def test_one_name_that_comes_twice_among_many_is_seen():
    assert not Ids(["c", "b", "a", "b"]).distinct
    assert Ids(["c", "b", "a", "d"]).distinct
