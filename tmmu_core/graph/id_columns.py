"""Columns of ids: uniqueness, numbers and order of many ids at once.

A dictionary is used for few, long or non-ASCII ids. For a million short ids it costs a second in cache misses, so they
become rows of eight-byte words, which numpy sorts and searches::

    "t41" ─► 74 34 31 00 00 00 00 00 ─► one big-endian word, ordered as the bytes are
    longer ─► several words ─► one key, the words as digits of one number; what a key finds is compared word by word
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from operator import lt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

FEW = 4096
"""Ids below which the dictionary is as quick."""
LONGEST = 64
"""Bytes up to which ids are laid out in words: all rows are as wide as the longest id."""
_WORD = 8
_ODD = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: its multiples spread well."""


class Ids:
    """Ids by number, in the order given."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    @cached_property
    def number(self) -> dict[str, int]:
        """Id → number; of an id that comes twice the last."""
        return dict(zip(self.texts, range(len(self.texts)), strict=True))

    @cached_property
    def ascending(self) -> bool:
        """Whether each comes after the one before it, by bytes (so none comes twice)."""
        return all(map(lt, self.texts, islice(self.texts, 1, None)))

    @cached_property
    def distinct(self) -> bool:
        """Whether none comes twice."""
        if self.ascending:
            return True
        table = self._table
        if table is None:
            return len(self.number) == len(self.texts)
        return not (table.sorted[1:] == table.sorted[:-1]).any()

    def numbers_of(self, ids: Sequence[str]) -> I64:
        """Shape (ids,): the number of each, −1 where there is none such. The ids must be distinct."""
        table = self._table
        if table is not None:
            words = _words(ids, table.words.shape[1])
            if words is not None:
                return table.find(words)
        number = self.number
        return np.fromiter([number.get(name, -1) for name in ids], np.int64, len(ids))

    @cached_property
    def rank(self) -> I64:
        """Shape (ids,): each one's place when all are sorted by their bytes."""
        rank = np.empty(len(self.texts), np.int64)
        rank[self.by_bytes] = np.arange(len(rank))
        return rank

    def settle(self) -> None:
        """Drop the lookup tables and keep the order; few lookups follow."""
        if self.__dict__.get("_table") is not None:
            assert len(self.rank) == len(self.texts)
            self.__dict__["_table"] = None

    @cached_property
    def by_bytes(self) -> I64:
        """Shape (ids,): numbers, sorted by the ids' bytes; of equal ids the first one first."""
        if self.ascending:
            return np.arange(len(self.texts), dtype=np.int64)
        table = self._table
        if table is not None and table.words.shape[1] == 1:
            return table.order
        return np.array(sorted(range(len(self.texts)), key=self.texts.__getitem__), np.int64)

    @cached_property
    def _table(self) -> _Table | None:
        """``None`` where the dictionary has to do it."""
        words = _words(self.texts, 0) if len(self.texts) >= FEW else None
        if words is None:
            return None
        keys = _keys(words)
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        same = np.flatnonzero(ordered[1:] == ordered[:-1])
        if (words[order[same]] != words[order[same + 1]]).any():
            return None  # two ids, one key
        return _Table(words, order, ordered)


class _Table(NamedTuple):
    words: U64
    """Shape (ids, words)."""
    order: I64
    """Numbers by key, of equal keys the first one first."""
    sorted: U64
    """The keys in that order."""

    def find(self, words: U64) -> I64:
        """Shape (ids,): the number of the id that each row of ``words`` is, −1 where it is none."""
        at = np.minimum(np.searchsorted(self.sorted, _keys(words)), len(self.order) - 1)
        found = self.order[at]
        found[(self.words[found] != words).any(axis=1)] = -1
        return found


def _words(texts: Sequence[str], wide: int) -> U64 | None:
    """Shape (texts, ``wide``), big-endian; 0 for as many words as the longest needs. ``None``: they have no such form.

    A NUL inside an id would be ambiguous with the padding.
    """
    wide = wide or max(1, -(-max(map(len, texts)) // _WORD))
    if wide * _WORD > LONGEST:
        return None
    try:
        rows = np.array(texts, dtype=f"S{wide * _WORD}")
    except UnicodeEncodeError:
        return None
    if np.count_nonzero(rows.view(np.uint8)) != sum(map(len, texts)):
        return None  # cut off, or a NUL among the letters
    return rows.view(">u8").reshape(len(texts), wide).astype(np.uint64)


def _keys(words: U64) -> U64:
    """Return one hash per row. The last word is added unchanged, so that similar names are close to each other."""
    keys = words[:, 0]
    for k in range(1, words.shape[1]):
        keys = keys * np.uint64(_ODD) + words[:, k]
    return keys
