"""Find the nodes on cycles of a directed graph."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def nodes_on_cycles(edges: Iterable[tuple[T, T]]) -> set[T]:
    """Return the nodes that lie on a cycle or a self-loop: Kosaraju's components, in O(nodes + edges)."""
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
            node, is_finished = stack.pop()
            if is_finished:
                finished.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack += [(target, False) for target in after[node]]
    on_cycles: set[T] = set()
    for root in reversed(finished):
        component, pending = [], [root]
        while pending:
            node = pending.pop()
            if node in seen:
                seen.remove(node)
                component.append(node)
                pending += before[node]
        if len(component) > 1 or (component and root in after[root]):
            on_cycles.update(component)
    return on_cycles
