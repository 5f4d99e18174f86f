"""Disjoint sets of the numbers 0 … n − 1 (union-find)."""

import numpy as np
from numpy.typing import NDArray


class DisjointSets:
    """Sets that can be joined; a set is named by its lowest member."""

    def __init__(self, count: int) -> None:
        self.parent = np.arange(count, dtype=np.int64)

    def find(self, i: int) -> int:
        """Return the name of the set of ``i``."""
        parent = self.parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    def join(self, i: int, j: int) -> None:
        """Merge two sets."""
        a, b = self.find(i), self.find(j)
        self.parent[max(a, b)] = min(a, b)

    def names(self) -> NDArray[np.int64]:
        """Return the name of the set of each number."""
        joined = np.flatnonzero(self.parent != np.arange(len(self.parent)))
        self.parent[joined] = [self.find(i) for i in joined.tolist()]
        return self.parent
