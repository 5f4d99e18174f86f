"""Find the nodes on cycles of a directed graph."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


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
