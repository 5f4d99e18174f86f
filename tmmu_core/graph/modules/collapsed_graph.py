"""The visible part of a graph: levels collapsed into one vertex each, or the neighbourhood of one vertex.

A *vertex* is a node, a closed level, all graph inputs (they are loaded in one step), or one requested tensor without
producer. An *edge* holds the tensors that one vertex writes and another reads. Tensors inside of a closed level are
counted; two levels that read from each other have two edges.

Collapsing is a quotient of the graph: paths between nodes remain paths between their vertices.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from tmmu_core.graph.index import I64, U64, GraphIndex
from tmmu_core.graph.modules.module_paths import Path
from tmmu_core.graph.modules.module_tree import Tree

Kind = Literal["node", "level", "inputs", "tensor"]
NOWHERE = np.iinfo(np.int64).min
"""Code of no vertex (−1 is the inputs)."""


@dataclass(frozen=True)
class CollapseRequest:
    """The open levels of the module tree, and the neighbourhood to show, if any."""

    opened: Collection[Path] = frozenset()
    """Open levels besides the root. A level below a closed one is hidden."""
    tensor: int = -1
    """Tensor in the middle of the neighbourhood, or −1; one without producer becomes a vertex."""
    node: int = -1
    """Node in the middle of the neighbourhood if there is no tensor, or −1."""
    radius: int | None = None
    """Radius of the neighbourhood in edges; ``None`` for the whole graph."""


@dataclass(frozen=True)
class Vertex:
    """One box of the drawing."""

    kind: Kind
    item: int
    """Number of the node, level or tensor; −1 for the inputs."""
    level: int
    """The open level that contains it."""
    members: int
    """Number of nodes that it represents; 0 for inputs and tensors."""
    inside: int
    """Number of tensors that are written and read inside only."""
    hidden: int
    """Number of neighbours outside of the radius."""


@dataclass(frozen=True)
class Edge:
    """All tensors that one vertex writes and another reads."""

    source: int
    target: int
    tensors: tuple[int, ...]
    """Rising."""
    nbytes: int
    """Bytes of these tensors; a view has the bytes that it shows."""
    largest: int
    """The largest of them."""


@dataclass(frozen=True, eq=False)
class Collapsed:
    """Vertices, edges and the open levels that contain them."""

    vertices: tuple[Vertex, ...]
    """By the position of the first node; inputs and tensors first."""
    edges: tuple[Edge, ...]
    """By source, then target."""
    levels: tuple[int, ...]
    """Open levels with visible content except the root, parents first."""
    of_node: I64
    """Shape (nodes,): vertex of each node; −1 outside of the radius."""
    middle: int
    """Vertex in the middle of the neighbourhood, or −1."""

    def carrying(self, tensor: int) -> tuple[int, ...]:
        """Return the edges that contain a tensor."""
        return self._along.get(tensor, ())

    @cached_property
    def _along(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {}
        for number, edge in enumerate(self.edges):
            for tensor in edge.tensors:
                found.setdefault(tensor, []).append(number)
        return {tensor: tuple(edges) for tensor, edges in found.items()}

    def total(self, per_node: I64 | U64) -> tuple[int, ...]:
        """Return, per vertex, the sum of ``per_node`` (integers, shape (nodes,)) over its nodes."""
        sums = [0] * len(self.vertices)
        for vertex, amount in zip(self.of_node.tolist(), per_node.tolist(), strict=True):
            if vertex >= 0:
                sums[vertex] += amount
        return tuple(sums)


def writer_of(index: GraphIndex, tensor: int) -> int:
    """Return the node that writes a tensor or the base of its view; −1 for none."""
    return int(index.producer[index.root[tensor]])


def collapse(index: GraphIndex, tree: Tree, request: CollapseRequest) -> Collapsed:
    """Return the graph with each closed level as one vertex; with a radius, the neighbourhood of the middle.

    The middle is the vertex that writes the requested tensor, else that of the requested node; without either, the
    whole graph is returned. O(operands), and the size of the neighbourhood.
    """
    code = _codes(tree, request.opened)
    source, target, tensor = _passages(index, code, request.tensor)
    middle = NOWHERE
    if request.tensor >= 0 or request.node >= 0:
        maker = writer_of(index, request.tensor) if request.tensor >= 0 else request.node
        unwritten = -1 if index.is_input[index.root[request.tensor]] else -2 - request.tensor
        middle = int(code[maker]) if maker >= 0 else unwritten
    alone = [] if middle == NOWHERE else [middle]  # it may have no reader either
    seen = np.unique(np.concatenate([code, source, target, alone]).astype(np.int64))
    neighbours: dict[int, set[int]] = {}
    if request.radius is not None and alone:
        outer = source != target
        for one, other in zip(source[outer].tolist(), target[outer].tolist(), strict=True):
            neighbours.setdefault(one, set()).add(other)
            neighbours.setdefault(other, set()).add(one)
        near = reached = {middle}
        for _ in range(request.radius):
            reached = {other for one in reached for other in neighbours.get(one, ())} - near
            near = near | reached
        seen = np.array(sorted(near), np.int64)
    parts = _Parts(index, tree, code, source, target, tensor, request.radius is not None)
    return _drawn(parts, seen, middle, neighbours)


@dataclass(frozen=True, eq=False)
class _Parts:
    index: GraphIndex
    tree: Tree
    code: I64
    """Shape (nodes,): the vertex of each, as a code: 2 × node, 2 × level + 1, −1 inputs, −2 − tensor."""
    source: I64
    target: I64
    tensor: I64
    near: bool
    """Whether the result is a neighbourhood."""


def _codes(tree: Tree, opened: Collection[Path]) -> I64:
    """Return, per node, ``2 × node`` if all its levels are open, else ``2 × level + 1`` of the outermost closed one."""
    closed = np.zeros(len(tree.paths), np.int64)  # the root is never a vertex
    for level, path in enumerate(tree.paths):
        closed[level] = closed[tree.parent[level]] or (0 if path in opened else level)
    into = closed[tree.of_node]
    return np.where(into, 2 * into + 1, 2 * np.arange(len(into), dtype=np.int64))


def _passages(index: GraphIndex, code: I64, wanted: int) -> tuple[I64, I64, I64]:
    """Return distinct ``(source, target, tensor)`` of all reads; tensors without producer only if ``wanted``."""
    readers = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    root = index.root
    maker, tensor = index.producer[root[index.in_idx]], index.in_idx
    known = (maker >= 0) | index.is_input[root[tensor]] | (tensor == wanted)
    readers, maker, tensor = readers[known], maker[known], tensor[known]
    loose = np.where(index.is_input[root[tensor]], -1, -2 - tensor)
    rows = np.stack([np.where(maker >= 0, code[maker], loose), code[readers], tensor])
    source, target, tensor = np.unique(rows, axis=1)
    return source, target, tensor


def _drawn(parts: _Parts, seen: I64, middle: int, neighbours: dict[int, set[int]]) -> Collapsed:
    codes, first, times = np.unique(parts.code, return_index=True, return_counts=True)
    at = dict(zip(codes.tolist(), first.tolist(), strict=True))
    order = sorted(seen.tolist(), key=lambda code: (at.get(code, -1), -code))  # vertices without nodes first
    number = {int(code): k for k, code in enumerate(order)}
    members, inside = dict(zip(codes.tolist(), times.tolist(), strict=True)), _inside(parts)
    vertices = []
    for code in order:
        hidden = sum(1 for other in neighbours.get(code, ()) if other not in number)
        vertices.append(_vertex(parts, code, members.get(code, 0), inside.get(code, 0), hidden))
    edges = _edges(parts, number)
    levels: set[int] = set()
    for vertex in vertices:
        level = vertex.level
        while level:
            levels.add(level)
            level = int(parts.tree.parent[level])
    of_node = np.array([number.get(code, -1) for code in parts.code.tolist()], np.int64)
    return Collapsed(tuple(vertices), edges, tuple(sorted(levels)), of_node, number.get(middle, -1))


def _inside(parts: _Parts) -> dict[int, int]:
    """Return, per vertex, the number of its internal tensors."""
    outer = np.zeros(len(parts.index.tensor_ids), np.bool_)
    outer[parts.tensor[parts.source != parts.target]] = True
    within = (parts.source == parts.target) & ~outer[parts.tensor]
    kept, tensors = np.unique(parts.source[within], return_counts=True)
    return dict(zip(kept.tolist(), tensors.tolist(), strict=True))


def _vertex(parts: _Parts, code: int, members: int, inside: int, hidden: int) -> Vertex:
    if code == -1:
        return Vertex("inputs", -1, 0, 0, 0, hidden)
    if code < -1:
        return Vertex("tensor", -2 - code, 0, 0, 0, hidden)
    tree, item = parts.tree, code // 2
    level = int(tree.parent[item]) if code % 2 else int(tree.of_node[item])
    while parts.near and tree.paths[level] in tree.stretches:  # around a node no frame is drawn for a stretch
        level = int(tree.parent[level])
    return Vertex("level" if code % 2 else "node", item, level, members, inside, hidden)


def _edges(parts: _Parts, number: dict[int, int]) -> tuple[Edge, ...]:
    found: dict[tuple[int, int], list[int]] = {}
    outer = parts.source != parts.target
    rows = zip(parts.source[outer].tolist(), parts.target[outer].tolist(), parts.tensor[outer].tolist(), strict=True)
    for source, target, tensor in rows:
        if source in number and target in number:
            found.setdefault((number[source], number[target]), []).append(tensor)
    size = parts.index.nbytes
    return tuple(
        [
            Edge(
                *ends,
                tuple(tensors),
                sum(int(size[t]) for t in tensors),
                max(tensors, key=lambda t: (int(size[t]), -t)),
            )
            for ends, tensors in sorted(found.items())
        ]
    )


MOST_AT_FIRST = 60
"""Most vertices for which levels are open at first."""
MOST_NEAR = 80
"""Most vertices of a neighbourhood of nodes; above, only the levels around the middle are open."""
MOST_DRAWN = 3_000
"""Most vertices that are drawn at once."""


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
    """Whether a neighbourhood has too many nodes, so that levels without its middle are closed."""
    radius: int | None
    """The radius shown: as requested, or the largest below it that can be drawn."""
    too_many: int
    """Number of requested vertices where it is too large to be drawn; else 0."""


def walk(index: GraphIndex, tree: Tree, view: ViewRequest) -> GraphView:
    """Return the whole graph or the requested neighbourhood, with at most :data:`MOST_DRAWN` vertices."""
    request = CollapseRequest(tensor=view.tensor, node=view.node, radius=view.radius)
    if view.radius is None:
        first = tree.opened(MOST_AT_FIRST)
        opened = (first | frozenset(view.opened)) - frozenset(view.closed)
        found = collapse(index, tree, replace(request, opened=opened))
        if len(found.vertices) <= MOST_DRAWN:
            return GraphView(found, opened, False, None, 0)
        wanted = len(found.vertices)
        return GraphView(collapse(index, tree, replace(request, opened=first)), first, False, None, wanted)
    everything = frozenset(tree.paths) - frozenset(view.closed)
    found = collapse(index, tree, replace(request, opened=everything))
    if len(found.vertices) <= MOST_NEAR:
        return GraphView(found, everything, False, view.radius, 0)
    wanted = len(found.vertices)
    maker = found.vertices[found.middle] if found.middle >= 0 else None
    around = tree.above(maker.item) if maker is not None and maker.kind == "node" else ()
    opened = (tree.stretches | frozenset(around) | frozenset(view.opened)) - frozenset(view.closed)
    radius = view.radius
    found = collapse(index, tree, replace(request, opened=opened))
    while len(found.vertices) > MOST_DRAWN and radius > 0:
        radius -= 1
        found = collapse(index, tree, replace(request, opened=opened, radius=radius))
    return GraphView(found, opened, True, radius, wanted if radius < view.radius else 0)
