"""Numbers and order of many ids at once."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tmmu_core.graph.id_columns import Ids

LETTERS = "ab\u00e9\0/"
NAMES = st.lists(st.text(alphabet=LETTERS, max_size=20) | st.text(alphabet="ab", max_size=9), max_size=12)


@given(NAMES, NAMES)
def test_ids_are_looked_up_as_in_a_dictionary(texts, asked):
    ids = Ids(texts)
    assert ids.distinct == (len(set(texts)) == len(texts))
    assert ids.ascending == all(a < b for a, b in pairwise(texts))
    by_bytes = sorted(range(len(texts)), key=lambda i: (texts[i].encode(), i))
    assert ids.by_bytes.tolist() == by_bytes
    assert [ids.rank[i] for i in by_bytes] == list(range(len(texts)))
    if ids.distinct:
        number = {text: i for i, text in enumerate(texts)}
        assert ids.numbers_of([*texts, *asked]).tolist() == [number.get(text, -1) for text in [*texts, *asked]]
