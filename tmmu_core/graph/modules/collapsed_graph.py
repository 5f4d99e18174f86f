"""The visible part of a graph: levels collapsed into one vertex each, or the neighbourhood of one vertex.

A *vertex* is a node, a closed level, all graph inputs (loaded in one step), or a requested tensor without producer. An
*edge* holds the tensors that one vertex writes and another reads. A tensor that only nodes of one vertex write and read
is on no edge; the vertex counts these tensors. Two levels that read from each other have two edges.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tmmu_core.graph.index import I64, U64, GraphIndex
from tmmu_core.graph.modules.module_paths import Path
from tmmu_core.graph.modules.module_tree import Tree

Kind = Literal["node", "level", "inputs", "tensor"]


@dataclass(frozen=True)
class ViewRequest:
    """The levels that the user opened and closed, and the neighbourhood to show, if any."""

    opened: Collection[Path] = frozenset()  # levels that the user opened, besides the initially open ones
    closed: Collection[Path] = frozenset()  # Levels that the user closed. They hide the levels below.
    tensor: int = -1  # Tensor in the middle of the neighbourhood, or −1. A tensor without producer becomes a vertex.
    node: int = -1  # node in the middle of the neighbourhood, or −1; ignored if there is a tensor
    radius: int | None = None  # radius of the neighbourhood in edges; ``None`` for the whole graph


@dataclass(frozen=True)
class Vertex:
    """One box of the drawing."""

    kind: Kind
    item: int  # number of the node, level or tensor; −1 for the inputs
    level: int  # number of the innermost open level that contains the vertex; 0, the root, for inputs and tensors
    members: int  # number of nodes that the vertex represents; 0 for inputs and tensors
    internal: int  # number of tensors that nodes of the vertex write and only nodes of the vertex read
    hidden: int  # number of neighbours outside of the radius


@dataclass(frozen=True)
class Edge:
    """All tensors that one vertex writes and another reads."""

    source: int
    target: int
    tensors: tuple[int, ...]  # tensor numbers, ascending


@dataclass(frozen=True, eq=False)
class Collapsed:
    """Vertices, edges and the open levels that contain them."""

    vertices: tuple[Vertex, ...]  # vertices, sorted by the lowest number of their nodes; inputs and tensors first
    edges: tuple[Edge, ...]  # edges, sorted by source, then target
    levels: tuple[int, ...]  # numbers of the open levels that contain a vertex, without the root; parents first
    of_node: I64  # shape (nodes,): position of each node's vertex in ``vertices``; −1 outside of the radius
    middle: int  # position of the middle of the neighbourhood in ``vertices``, or −1

    def total(self, per_node: I64 | U64) -> tuple[int, ...]:
        """Return, per vertex, the sum of ``per_node`` (integers, shape (nodes,)) over its nodes."""
        sums: Counter[int] = Counter()
        for vertex, amount in zip(self.of_node.tolist(), per_node.tolist(), strict=True):
            sums[vertex] += amount
        return tuple([sums[vertex] for vertex in range(len(self.vertices))])


def writer_of(index: GraphIndex, tensor: int) -> int:
    """Return the number of the node that writes a tensor, or the base of a view that no node writes; −1 for none."""
    return int(index.producer[index.written_base[tensor]])


def collapse(index: GraphIndex, tree: Tree, opened: Collection[Path], request: ViewRequest | None = None) -> Collapsed:
    """Return the graph with each level outside of ``opened`` as one vertex; with a radius, the neighbourhood."""
    # Until they are numbered, vertices have codes: 2 × node, 2 × level + 1, −1 for the inputs, −2 − tensor.
    request = request or ViewRequest()
    closed = np.zeros(len(tree.paths), np.int64)  # the root is never a vertex
    for level, path in enumerate(tree.paths):
        closed[level] = closed[tree.parent[level]] or (0 if path in opened else level)
    level_of_node = closed[tree.of_node]  # the outermost closed level
    code = np.where(level_of_node, 2 * level_of_node + 1, 2 * np.arange(len(level_of_node), dtype=np.int64))
    reader = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    tensor, root = index.in_idx, index.written_base[index.in_idx]
    writer, is_input = index.producer[root], index.is_input[root]
    writer_code = np.where(writer >= 0, code[writer], np.where(is_input, -1, -2 - tensor))
    rows = np.stack([writer_code, code[reader], tensor])
    rows = rows[:, (writer >= 0) | is_input | (tensor == request.tensor)]
    source, target, tensor = np.unique(rows, axis=1)
    crosses = source != target
    node = request.node if request.tensor < 0 else writer_of(index, request.tensor)
    middle = int(code[node]) if node >= 0 else None
    if node < 0 <= request.tensor:
        middle = -1 if index.is_input[index.written_base[request.tensor]] else -2 - request.tensor
    visible = {*code.tolist(), *source.tolist(), *target.tolist()}
    neighbours: defaultdict[int, set[int]] = defaultdict(set)
    if middle is not None:
        visible.add(middle)  # it may have no edge
        if request.radius is not None:
            for one, other in zip(source[crosses].tolist(), target[crosses].tolist(), strict=True):
                neighbours[one].add(other)
                neighbours[other].add(one)
            visible = {middle}
            for _ in range(request.radius):
                visible = visible.union(*(neighbours[one] for one in visible))
    codes, first, counts = np.unique(code, return_index=True, return_counts=True)
    first_node = dict(zip(codes.tolist(), first.tolist(), strict=True))
    order = sorted(visible, key=lambda vertex: (first_node.get(vertex, -1), -vertex))  # vertices without nodes first
    number = {vertex: k for k, vertex in enumerate(order)}
    is_on_edge = np.zeros(len(index.tensor_ids), np.bool_)
    is_on_edge[tensor[crosses]] = True
    internal = Counter(source[~crosses & ~is_on_edge[tensor]].tolist())
    members = dict(zip(codes.tolist(), counts.tolist(), strict=True))
    vertices = []
    for vertex_code in order:
        place = _place(tree, vertex_code, request.radius is not None)
        hidden = len(neighbours[vertex_code] - number.keys())
        vertices.append(Vertex(*place, members.get(vertex_code, 0), internal[vertex_code], hidden))
    levels = {level for vertex in vertices for level in tree.to_root(vertex.level)}
    edges = _edges(number, np.stack([source, target, tensor])[:, crosses].T.tolist())
    of_node = np.array([number.get(node_code, -1) for node_code in code.tolist()], np.int64)
    return Collapsed(tuple(vertices), edges, tuple(sorted(levels)), of_node, -1 if middle is None else number[middle])


def _place(tree: Tree, code: int, in_neighbourhood: bool) -> tuple[Kind, int, int]:
    """Return ``kind``, ``item`` and ``level`` of the vertex with this code."""
    if code < 0:
        return ("inputs", -1, 0) if code == -1 else ("tensor", -2 - code, 0)
    item = code // 2
    level = int(tree.parent[item]) if code % 2 else int(tree.of_node[item])
    if in_neighbourhood:  # a neighbourhood has no frames for ranges of nodes
        level = next((above for above in tree.to_root(level) if tree.paths[above] not in tree.ranges), 0)
    return "level" if code % 2 else "node", item, level


def _edges(number: dict[int, int], reads: Iterable[Sequence[int]]) -> tuple[Edge, ...]:
    found: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for source, target, tensor in reads:
        if source in number and target in number:
            found[number[source], number[target]].append(tensor)
    return tuple([Edge(*ends, tuple(tensors)) for ends, tensors in sorted(found.items())])


MAX_INITIAL_VERTICES = 60  # maximum number of vertices of the initial view of the whole graph
MAX_NEIGHBOURHOOD_VERTICES = 80  # maximum number of vertices of a neighbourhood with all levels open
MAX_VERTICES = 3_000  # maximum number of vertices that are drawn at once


@dataclass(frozen=True, eq=False)
class GraphView:
    """The visible part of a graph, and how it was reduced because of its size."""

    collapsed: Collapsed
    opened: frozenset[Path]  # the open levels
    by_level: bool  # whether levels are closed because of ``MAX_NEIGHBOURHOOD_VERTICES``
    radius: int | None  # the radius shown, at most the requested one; ``None``: the whole graph
    rejected_vertices: int  # number of vertices of the last view with over ``MAX_VERTICES``; 0: none


def visible_part(index: GraphIndex, tree: Tree, request: ViewRequest) -> GraphView:
    """Return the requested part; if it has too many vertices, with more levels closed or a smaller radius."""
    if request.radius is None:
        initial = tree.levels_to_open(MAX_INITIAL_VERTICES)
        opened = (initial | frozenset(request.opened)) - frozenset(request.closed)
        found = collapse(index, tree, opened, request)
        if len(found.vertices) <= MAX_VERTICES:
            return GraphView(found, opened, False, None, 0)
        return GraphView(collapse(index, tree, initial, request), initial, False, None, len(found.vertices))
    everything = frozenset(tree.paths) - frozenset(request.closed)
    found = collapse(index, tree, everything, request)
    if len(found.vertices) <= MAX_NEIGHBOURHOOD_VERTICES:
        return GraphView(found, everything, False, request.radius, 0)
    middle = found.vertices[found.middle] if found.middle >= 0 else None
    above_middle = tree.above(middle.item) if middle is not None and middle.kind == "node" else ()
    opened = (tree.ranges | frozenset(above_middle) | frozenset(request.opened)) - frozenset(request.closed)
    radius, rejected_vertices = request.radius, 0
    found = collapse(index, tree, opened, request)
    while len(found.vertices) > MAX_VERTICES and radius > 0:
        radius, rejected_vertices = radius - 1, len(found.vertices)
        found = collapse(index, tree, opened, replace(request, radius=radius))
    return GraphView(found, opened, True, radius, rejected_vertices)
