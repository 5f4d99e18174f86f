"""Columns of ids: uniqueness, numbers and order of many ids at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from operator import lt

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


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

    @property
    def distinct(self) -> bool:
        """Whether none comes twice."""
        return self.ascending or len(self.number) == len(self.texts)

    def numbers_of(self, ids: Sequence[str]) -> I64:
        """Shape (ids,): the number of each, −1 for an unknown one. The ids must be distinct."""
        number = self.number
        return np.fromiter([number.get(name, -1) for name in ids], np.int64, len(ids))

    @cached_property
    def rank(self) -> I64:
        """Shape (ids,): each one's place when all are sorted by their bytes."""
        rank = np.empty(len(self.texts), np.int64)
        rank[self.by_bytes] = np.arange(len(rank))
        return rank

    @cached_property
    def by_bytes(self) -> I64:
        """Shape (ids,): numbers, sorted by the ids' bytes; of equal ids the first one first."""
        if self.ascending:
            return np.arange(len(self.texts), dtype=np.int64)
        return np.array(sorted(range(len(self.texts)), key=self.texts.__getitem__), np.int64)
