"""The visible part of a graph: levels collapsed into one vertex each, or the neighbourhood of one vertex.

A *vertex* is a node, a closed level, all graph inputs (loaded in one step), or a requested tensor without producer. An
*edge* holds the tensors that one vertex writes and another reads. Tensors inside a closed level are only counted. Two
levels that read from each other have two edges.

Collapsing is a quotient of the graph: paths between nodes remain paths between their vertices.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
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
class ViewRequest:
    """The levels opened and closed by hand, and the neighbourhood to show, if any."""

    opened: Collection[Path] = frozenset()
    """Levels opened by hand, in addition to those that are open initially. A level below a closed one is hidden."""
    closed: Collection[Path] = frozenset()
    """Levels closed by hand."""
    tensor: int = -1
    """Tensor in the middle of the neighbourhood, or −1. A tensor without producer becomes a vertex."""
    node: int = -1
    """Node in the middle of the neighbourhood, or −1; ignored if there is a tensor."""
    radius: int | None = None
    """Radius of the neighbourhood in edges; ``None`` for the whole graph."""


@dataclass(frozen=True)
class Vertex:
    """One box of the drawing."""

    kind: Kind
    item: int
    """Number of the node, level or tensor; −1 for the inputs."""
    level: int
    """The open level that contains the vertex."""
    members: int
    """Number of nodes that the vertex represents; 0 for inputs and tensors."""
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
    """Tensor numbers, ascending."""
    nbytes: int
    """Bytes of these tensors, views included."""
    largest: int
    """Number of the largest of these tensors."""


@dataclass(frozen=True, eq=False)
class Collapsed:
    """Vertices, edges and the open levels that contain them."""

    vertices: tuple[Vertex, ...]
    """Vertices, sorted by the position of their first node; inputs and tensors first."""
    edges: tuple[Edge, ...]
    """Edges, sorted by source, then target."""
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
    """Return the node that writes a tensor (for an unwritten view: its base); −1 for none."""
    return int(index.producer[index.root[tensor]])


WHOLE_GRAPH = ViewRequest()


def collapse(index: GraphIndex, tree: Tree, opened: Collection[Path], around: ViewRequest = WHOLE_GRAPH) -> Collapsed:
    """Return the graph with each level outside of ``opened`` as one vertex; with a radius, only the neighbourhood.

    The middle is the vertex that writes the requested tensor, else the vertex of the requested node; without
    either, the whole graph is returned. O(operands + size of the neighbourhood).

    Vertices have codes: 2 × node, 2 × level + 1, −1 for the inputs, −2 − tensor.
    """
    closed = np.zeros(len(tree.paths), np.int64)  # the root is never a vertex
    for level, path in enumerate(tree.paths):
        closed[level] = closed[tree.parent[level]] or (0 if path in opened else level)
    level_of_node = closed[tree.of_node]  # the outermost closed level
    code = np.where(level_of_node, 2 * level_of_node + 1, 2 * np.arange(len(level_of_node), dtype=np.int64))
    source, target, tensor = _passages(index, code, around.tensor)
    crosses = source != target
    middle = NOWHERE
    if around.tensor >= 0 or around.node >= 0:
        producer = writer_of(index, around.tensor) if around.tensor >= 0 else around.node
        unwritten = -1 if index.is_input[index.root[around.tensor]] else -2 - around.tensor
        middle = int(code[producer]) if producer >= 0 else unwritten
    middle_codes = {middle} - {NOWHERE}  # the middle may have no edge
    visible = {*code.tolist(), *source.tolist(), *target.tolist(), *middle_codes}
    neighbours: dict[int, set[int]] = {}
    if around.radius is not None and middle_codes:
        for one, other in zip(source[crosses].tolist(), target[crosses].tolist(), strict=True):
            neighbours.setdefault(one, set()).add(other)
            neighbours.setdefault(other, set()).add(one)
        visible = frontier = middle_codes
        for _ in range(around.radius):
            frontier = {other for one in frontier for other in neighbours.get(one, ())} - visible
            visible = visible | frontier
    codes, first, counts = np.unique(code, return_index=True, return_counts=True)
    first_node = dict(zip(codes.tolist(), first.tolist(), strict=True))
    order = sorted(visible, key=lambda code: (first_node.get(code, -1), -code))  # vertices without nodes first
    number = {code: k for k, code in enumerate(order)}
    leaves_vertex = np.zeros(len(index.tensor_ids), np.bool_)
    leaves_vertex[tensor[crosses]] = True
    inside = Counter(source[~crosses & ~leaves_vertex[tensor]].tolist())
    members = dict(zip(codes.tolist(), counts.tolist(), strict=True))
    vertices = []
    for each in order:
        hidden = sum(1 for other in neighbours.get(each, ()) if other not in number)
        vertices.append(_vertex(tree, each, (members.get(each, 0), inside[each], hidden), around.radius is not None))
    levels: set[int] = set()
    for level in {vertex.level for vertex in vertices}:
        while level:
            levels.add(level)
            level = int(tree.parent[level])
    edges = _edges(index.nbytes, number, np.stack([source, target, tensor])[:, crosses].T.tolist())
    of_node = np.array([number.get(each, -1) for each in code.tolist()], np.int64)
    return Collapsed(tuple(vertices), edges, tuple(sorted(levels)), of_node, number.get(middle, -1))


def _passages(index: GraphIndex, code: I64, wanted: int) -> tuple[I64, I64, I64]:
    """Return distinct (source vertex, target vertex, tensor) columns of all reads.

    Tensors without producer are left out, except graph inputs and ``wanted``.
    """
    readers = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    root = index.root
    maker, tensor = index.producer[root[index.in_idx]], index.in_idx
    known = (maker >= 0) | index.is_input[root[tensor]] | (tensor == wanted)
    readers, maker, tensor = readers[known], maker[known], tensor[known]
    loose = np.where(index.is_input[root[tensor]], -1, -2 - tensor)
    rows = np.stack([np.where(maker >= 0, code[maker], loose), code[readers], tensor])
    source, target, tensor = np.unique(rows, axis=1)
    return source, target, tensor


def _vertex(tree: Tree, code: int, counts: tuple[int, int, int], is_near: bool) -> Vertex:
    """Return the vertex of a code; ``counts``: members, inside, hidden."""
    if code < 0:
        return Vertex("inputs" if code == -1 else "tensor", -1 if code == -1 else -2 - code, 0, 0, 0, counts[2])
    item = code // 2
    level = int(tree.parent[item]) if code % 2 else int(tree.of_node[item])
    while is_near and tree.paths[level] in tree.ranges:  # a neighbourhood has no frames for ranges of nodes
        level = int(tree.parent[level])
    return Vertex("level" if code % 2 else "node", item, level, *counts)


def _edges(size: U64, number: dict[int, int], passages: Iterable[Sequence[int]]) -> tuple[Edge, ...]:
    found: dict[tuple[int, int], list[int]] = {}
    for source, target, tensor in passages:
        if source in number and target in number:
            found.setdefault((number[source], number[target]), []).append(tensor)
    edges = []
    for ends, tensors in sorted(found.items()):
        largest = max(tensors, key=lambda tensor: (int(size[tensor]), -tensor))
        edges.append(Edge(*ends, tuple(tensors), sum(int(size[tensor]) for tensor in tensors), largest))
    return tuple(edges)


MOST_AT_FIRST = 60
"""Maximum number of vertices for which levels are open at first."""
MOST_NEAR = 80
"""Maximum number of vertices of a neighbourhood of nodes; above, only the levels around the middle are open."""
MOST_DRAWN = 3_000
"""Maximum number of vertices that are drawn at once."""


@dataclass(frozen=True, eq=False)
class GraphView:
    """The visible part of a graph, and the parts omitted because of its size."""

    collapsed: Collapsed
    opened: frozenset[Path]
    by_level: bool
    """Whether levels without the middle are closed, because the neighbourhood has too many nodes."""
    radius: int | None
    """The radius shown: as requested, or the largest below it that can be drawn."""
    too_many: int
    """Number of requested vertices if they are too many to draw; else 0."""


def walk(index: GraphIndex, tree: Tree, view: ViewRequest) -> GraphView:
    """Return the whole graph or the requested neighbourhood, with at most :data:`MOST_DRAWN` vertices."""
    if view.radius is None:
        first = tree.opened(MOST_AT_FIRST)
        opened = (first | frozenset(view.opened)) - frozenset(view.closed)
        found = collapse(index, tree, opened, view)
        if len(found.vertices) <= MOST_DRAWN:
            return GraphView(found, opened, False, None, 0)
        return GraphView(collapse(index, tree, first, view), first, False, None, len(found.vertices))
    everything = frozenset(tree.paths) - frozenset(view.closed)
    found = collapse(index, tree, everything, view)
    if len(found.vertices) <= MOST_NEAR:
        return GraphView(found, everything, False, view.radius, 0)
    wanted = len(found.vertices)
    maker = found.vertices[found.middle] if found.middle >= 0 else None
    around = tree.above(maker.item) if maker is not None and maker.kind == "node" else ()
    opened = (tree.ranges | frozenset(around) | frozenset(view.opened)) - frozenset(view.closed)
    radius = view.radius
    found = collapse(index, tree, opened, view)
    while len(found.vertices) > MOST_DRAWN and radius > 0:
        radius -= 1
        found = collapse(index, tree, opened, replace(view, radius=radius))
    return GraphView(found, opened, True, radius, wanted if radius < view.radius else 0)
