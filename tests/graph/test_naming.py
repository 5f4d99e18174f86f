"""Many ids at once: the words say what a dictionary says, and where they cannot, the dictionary is asked."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tmmu_core.graph import naming
from tmmu_core.graph.naming import Ids

LETTERS = "ab\u00e9\0/"
NAMES = st.lists(st.text(alphabet=LETTERS, max_size=20) | st.text(alphabet="ab", max_size=9), max_size=12)


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    monkeypatch.setattr(naming, "FEW", 1)


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


def test_two_ids_of_one_key_are_told_apart(monkeypatch):
    # Every id has the same key: the words differ, so the dictionary has to answer.
    monkeypatch.setattr(naming, "_keys", lambda words: words[:, -1] * 0)
    ids = Ids(["b", "a"])
    assert ids.distinct
    assert ids.numbers_of(["a", "b", "c"]).tolist() == [1, 0, -1]


def test_what_is_settled_still_answers():
    ids = Ids(["b", "a", "c"])
    ids.numbers_of(["a"])
    assert ids._table is not None
    ids.settle()
    assert ids._table is None  # the memory is given back
    assert ids.rank.tolist() == [1, 0, 2]
    assert ids.numbers_of(["c", "d"]).tolist() == [2, -1]


def test_half_a_surrogate_pair_is_left_to_the_dictionary():
    assert Ids(["\ud800", "a"]).numbers_of(["\ud800", "b"]).tolist() == [0, -1]


def test_one_name_that_comes_twice_among_many_is_seen():
    assert not Ids(["c", "b", "a", "b"]).distinct
    assert Ids(["c", "b", "a", "d"]).distinct


WIDE = ["", "a", "ab", "b" * 8, "b" * 9, "b" * 8 + "c", "c" * 16, "c" * 15 + "d", "c" * 17, "c" * 8 + "b" + "c" * 8]


@pytest.mark.parametrize("texts", [WIDE, WIDE[::-1], WIDE[:3], WIDE[2:5], ["b"], ["b", "a"], ["d" * 64, "e"], [""]])
def test_every_id_is_found_by_its_words_and_nothing_else_is(texts):
    ids = Ids(texts)
    assert ids._table is not None  # by words, and not by the dictionary
    asked = [*texts, *WIDE, "zz", "c" * 16 + "d", "b" * 7 + "c", "d" * 63 + "e"]
    number = {text: i for i, text in enumerate(texts)}
    asked = [text for text in asked if len(text) <= ids._table.words.shape[1] * 8]
    assert ids.numbers_of(asked).tolist() == [number.get(text, -1) for text in asked]
    assert "number" not in vars(ids)


def test_how_many_words_an_id_takes():
    lengths = (1, 7, 8, 9, 16, 17, 63, 64, 65)
    widths = [table and table.words.shape[1] for table in (Ids(["a", "b" * long])._table for long in lengths)]
    assert widths == [1, 1, 1, 2, 2, 3, 8, 8, None]
    assert Ids([""])._table.words.tolist() == [[0]]
    assert Ids(["ab", "b\0"])._table is None


def test_few_ids_are_left_to_the_dictionary(monkeypatch):
    monkeypatch.setattr(naming, "FEW", 3)
    assert [Ids(["b", "c", "a"][:count])._table is None for count in range(4)] == [True, True, True, False]


def test_ids_in_the_place_of_one_key_are_told_apart_wherever_they_stand(monkeypatch):
    monkeypatch.setattr(naming, "_keys", lambda words: words[:, -1] % 7)
    assert Ids(["g", "n"])._table is None  # 103 and 110: one key
    assert Ids(["a", "g", "g", "n"])._table is None
    assert Ids(["a", "g", "g"])._table is not None  # 97 beside 103, which comes twice
    assert not Ids(["g", "g"]).distinct
    assert Ids(["b", "a", "h"])._table is None  # 97 and 104


def test_keys_spread_ids_of_several_words():
    texts = [f"{a}{b}" for a in ("x" * 8, "y" * 8, "x" * 16) for b in range(5)]
    assert len(set(naming._keys(naming._words(texts, 0)).tolist())) == len(texts)
