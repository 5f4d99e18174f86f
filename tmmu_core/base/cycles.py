"""Find the nodes on cycles of a directed graph."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def nodes_on_cycles(edges: Iterable[tuple[T, T]]) -> set[T]:
    """Return the nodes of the strongly connected components with a cycle (Kosaraju; O(nodes + edges))."""
    after: dict[T, list[T]] = defaultdict(list)
    before: dict[T, list[T]] = defaultdict(list)
    for source, target in edges:
        after[source].append(target)
        before[target].append(source)
    finished: list[T] = []
    seen: set[T] = set()
    for root in list(after):
        stack = [(root, False)]
        while stack:
            node, is_left = stack.pop()
            if is_left:
                finished.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack += [(target, False) for target in after[node]]
    found: set[T] = set()
    for root in reversed(finished):
        component, todo = [], [root]
        while todo:
            node = todo.pop()
            if node in seen:
                seen.remove(node)
                component.append(node)
                todo += before[node]
        if len(component) > 1 or (component and root in after[root]):
            found.update(component)
    return found
