"""Visible part of a graph: all levels, or the neighbourhood of one tensor."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from tmmu_core.graph.index import GraphIndex
from tmmu_core.graph.modules.collapsed_graph import Collapsed, CollapseRequest, collapse
from tmmu_core.graph.modules.module_paths import Path
from tmmu_core.graph.modules.module_tree import Tree

MOST_AT_FIRST = 60
"""Vertices up to which levels are opened before anybody opens one."""
MOST_NEAR = 80
"""Vertices of a neighbourhood of nodes; past that the levels around the middle are closed."""
MOST_DRAWN = 3_000
"""Vertices that are seen at once at most."""


@dataclass(frozen=True)
class ViewRequest:
    """Request for a view."""

    opened: Collection[Path] = frozenset()
    """Levels opened by hand, on top of those that are open at first."""
    closed: Collection[Path] = frozenset()
    """Levels closed by hand."""
    tensor: int = -1
    node: int = -1
    radius: int | None = None
    """As in :class:`CollapseRequest`."""


@dataclass(frozen=True, eq=False)
class GraphView:
    """The visible part, and what was omitted for its size."""

    collapsed: Collapsed
    opened: frozenset[Path]
    by_level: bool
    """Of a neighbourhood: whether levels that do not hold the middle are closed, for too many nodes are that near."""
    radius: int | None
    """The radius that is seen: the wished one, or the largest below it that can be."""
    too_many: int
    """Vertices that were wished for where that was too many to be seen; 0 otherwise."""


def walk(index: GraphIndex, tree: Tree, wish: ViewRequest) -> GraphView:
    """The whole graph, or the neighbourhood that is wished for, of no more than :data:`MOST_DRAWN` vertices."""
    request = CollapseRequest(tensor=wish.tensor, node=wish.node, radius=wish.radius)
    if wish.radius is None:
        return _whole(index, tree, wish, request)
    everything = frozenset(tree.paths) - frozenset(wish.closed)
    found = collapse(index, tree, replace(request, opened=everything))
    if len(found.vertices) <= MOST_NEAR:
        return GraphView(found, everything, False, wish.radius, 0)
    wanted = len(found.vertices)
    maker = found.vertices[found.middle] if found.middle >= 0 else None
    around = tree.above(maker.item) if maker is not None and maker.kind == "node" else ()
    opened = (tree.stretches | frozenset(around) | frozenset(wish.opened)) - frozenset(wish.closed)
    radius = wish.radius
    found = collapse(index, tree, replace(request, opened=opened))
    while len(found.vertices) > MOST_DRAWN and radius > 0:
        radius -= 1
        found = collapse(index, tree, replace(request, opened=opened, radius=radius))
    return GraphView(found, opened, True, radius, wanted if radius < wish.radius else 0)


def _whole(index: GraphIndex, tree: Tree, wish: ViewRequest, request: CollapseRequest) -> GraphView:
    first = tree.opened(MOST_AT_FIRST)
    opened = (first | frozenset(wish.opened)) - frozenset(wish.closed)
    found = collapse(index, tree, replace(request, opened=opened))
    if len(found.vertices) <= MOST_DRAWN:
        return GraphView(found, opened, False, None, 0)
    return GraphView(collapse(index, tree, replace(request, opened=first)), first, False, None, len(found.vertices))
