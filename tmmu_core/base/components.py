"""Components of graphs: disjoint sets of numbers (union-find), and the nodes on cycles of a directed graph."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=Hashable)


class DisjointSets:
    """A partition of the numbers 0 … n − 1 into sets, which can be joined. A set's name is its lowest number."""

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


def nodes_on_cycles(edges: Iterable[tuple[T, T]]) -> set[T]:
    """Return the nodes on cycles, including self-loops, by Kosaraju's algorithm in O(nodes + edges)."""
    successors: dict[T, list[T]] = defaultdict(list)
    predecessors: dict[T, list[T]] = defaultdict(list)
    for source, target in edges:
        successors[source].append(target)
        predecessors[target].append(source)
    postorder: list[T] = []
    visited: set[T] = set()
    for root in list(successors):
        stack = [(root, False)]
        while stack:
            node, is_finished = stack.pop()
            if is_finished:
                postorder.append(node)
            elif node not in visited:
                visited.add(node)
                stack.append((node, True))
                stack += [(target, False) for target in successors[node]]
    on_cycles: set[T] = set()
    unassigned = visited
    for root in reversed(postorder):
        component, pending = [], [root]
        while pending:
            node = pending.pop()
            if node in unassigned:
                unassigned.remove(node)
                component.append(node)
                pending += predecessors[node]
        if len(component) > 1 or (component and root in successors[root]):
            on_cycles.update(component)
    return on_cycles
