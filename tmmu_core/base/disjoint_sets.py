"""Disjoint sets of the numbers 0 … n − 1 (union-find)."""

import numpy as np
from numpy.typing import NDArray


class DisjointSets:
    """Sets of numbers that can be joined. The name of a set is its lowest number."""

    def __init__(self, count: int) -> None:
        self.parent = np.arange(count, dtype=np.int64)

    def find(self, i: int) -> int:
        """Return the name of the set that contains ``i``."""
        parent = self.parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    def join(self, i: int, j: int) -> None:
        """Merge the sets that contain ``i`` and ``j``."""
        a, b = self.find(i), self.find(j)
        self.parent[max(a, b)] = min(a, b)

    def names(self) -> NDArray[np.int64]:
        """Return an array (n,): for each number, the name of its set. Callers must not change it."""
        joined = np.flatnonzero(self.parent != np.arange(len(self.parent)))
        self.parent[joined] = [self.find(i) for i in joined.tolist()]
        return self.parent
