"""The tree of a collapsible graph (phases, modules, families of repeated blocks, nodes), and its visible part.

::

    forward                          a phase, in a graph with several phases
      transformer                    a module
        h                            a module that contains only blocks of one family
          h.0 … h.11                 the blocks
    block*                           a level for a family beside other modules
      block1 … block17               the blocks
    nodes 33–64                      a range of the execution order, in a level with too many nodes

A level other than a range is omitted if it contains all nodes of its parent, or a single node. Ranges follow the
execution order, so that the edges between them form no cycle.

The visible part is the whole graph or the neighbourhood of one vertex. A *vertex* is a node, a closed level, all graph
inputs (loaded in one step), or a requested tensor without producer. An *edge* holds the tensors that one vertex writes
and another reads. A tensor that only nodes of one vertex write and read is on no edge; the vertex counts these tensors.
Two levels that read from each other have two edges.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from tmmu_core.graph.index import I64, U64, GraphIndex
from tmmu_core.graph.modules.module_paths import Modules, Path, block_of, families_of, starred

REPEATED = "×"  # prefix of the level of a family, ``×block*``; names of modules do not begin with it
RANGE = "…"  # prefix of the level of a range of nodes, ``…nodes 33–64``
MAX_DIRECT_NODES = 40  # maximum number of nodes directly in one level before they are grouped into ranges
RANGE_SIZE = 32  # maximum number of nodes or inner ranges in one range
Kind = Literal["node", "level", "inputs", "tensor"]
MAX_INITIAL_VERTICES = 60  # the initial view of the whole graph opens levels up to this number of vertices
MAX_NEIGHBOURHOOD_VERTICES = 80  # maximum number of vertices of a neighbourhood with all levels open
MAX_VERTICES = 3_000  # with more vertices, levels are closed or the radius is reduced


@dataclass(frozen=True, eq=False)
class Tree:
    """The levels of a graph, the root first, parents before children."""

    paths: tuple[Path, ...]  # path of each level; families and ranges are parts of a path too
    parent: I64  # shape (levels,): index of the level above; 0 for the root
    members: I64  # shape (levels,): number of nodes in the level and below
    blocks: I64  # shape (levels,): number of the level's children that are repeated blocks
    of_node: I64  # shape (nodes,): index of the innermost level that contains the node

    def to_root(self, level: int) -> Iterator[int]:
        """Yield ``level`` and the levels above it, without the root."""
        while level:
            yield level
            level = int(self.parent[level])

    def above(self, node: int) -> tuple[Path, ...]:
        """Return the levels that contain a node, outermost first, without the root."""
        return tuple([self.paths[level] for level in self.to_root(int(self.of_node[node]))][::-1])

    def label(self, level: int) -> str:
        """Return the name of a level relative to its parent: ``h.0`` for ``transformer.h.0`` in ``transformer.h``."""
        path, above = self.paths[level], self.paths[int(self.parent[level])]
        rest = path[len(above) :]
        if above and rest[0].isdigit():  # h.3 is clearer than 3
            rest = (above[-1], *rest)
        named = [*(part for part in rest[:-1] if not part.startswith(REPEATED)), *rest[-1:]]
        return ".".join([part.removeprefix(RANGE).removeprefix(REPEATED) for part in named])

    @cached_property
    def ranges(self) -> frozenset[Path]:
        """The levels that are ranges of nodes."""
        return frozenset([path for path in self.paths if _is_range(path)])

    def levels_to_open(self, max_vertices: int) -> frozenset[Path]:
        """Return all levels down to the greatest depth that shows at most ``max_vertices`` nodes and closed levels."""
        below: list[list[int]] = [[] for _ in self.paths]
        for level, parent in enumerate(self.parent.tolist()[1:], 1):
            below[parent].append(level)
        direct = np.bincount(self.of_node, minlength=len(below)).tolist()
        count, opened, closed = len(below[0]) + direct[0], set[Path](), below[0]
        while closed and (count := count + sum(len(below[k]) + direct[k] - 1 for k in closed)) <= max_vertices:
            opened |= {self.paths[k] for k in closed}
            closed = [child for k in closed for child in below[k]]
        return frozenset(opened)


def tree_of(index: GraphIndex, modules: Modules, order: Iterable[int]) -> Tree:
    """Return the tree of a graph by modules and phases; ``order``: the node number of each step, or −1."""
    families = families_of(modules.paths)
    phases = [node.phase for node in index.graph.nodes]
    several_phases = len(set(phases)) > 1
    below: dict[Path, set[str]] = {}
    for path in modules.paths:
        for depth, part in enumerate(path):
            below.setdefault(path[:depth], set()).add(starred(part))
    one_family = {path for path, name in families if path and below[path] == {name}}  # parents of only one family
    module_levels = []
    for path in modules.paths:
        block = block_of(path, families)
        if block and block[:-1] not in one_family:  # insert a level for the family of the outermost block
            depth = len(block) - 1
            path = (*path[:depth], REPEATED + starred(path[depth]), *path[depth:])
        module_levels.append(path)
    prefixes = [(phase,) if several_phases else () for phase in phases]
    node_levels = [prefix + module_levels[k] for prefix, k in zip(prefixes, modules.of_node.tolist(), strict=True)]
    members = _count_members(node_levels)
    innermost: dict[Path, Path] = {(): ()}  # path → its longest prefix that is a level
    for path in sorted(filter(None, members), key=len):
        above = innermost[path[:-1]]
        innermost[path] = path if 1 < members[path] < members[above] else above
    of_node = _split_into_ranges([innermost[path] for path in node_levels], [node for node in order if node >= 0])
    members = _count_members(of_node)
    paths = tuple(sorted([path for path in members if innermost.get(path) == path or _is_range(path)], key=len))
    number = {path: k for k, path in enumerate(paths)}
    parents = [next((number[path[:d]] for d in range(len(path) - 1, 0, -1) if path[:d] in number), 0) for path in paths]
    blocks = [0] * len(paths)
    for level, path in enumerate(paths):
        # The path without its phase and without family levels
        plain = tuple([part for part in path[1 if several_phases else 0 :] if not part.startswith(REPEATED)])
        if plain and path[-1] == plain[-1] and (plain[:-1], starred(plain[-1])) in families:
            blocks[parents[level]] += 1
    columns = (parents, [members[path] for path in paths], blocks, [number[path] for path in of_node])
    return Tree(paths, *(np.array(column, np.int64) for column in columns))


def _is_range(path: Path) -> bool:
    return bool(path) and path[-1].startswith(RANGE)


def _split_into_ranges(of_node: Sequence[Path], order: Sequence[int]) -> list[Path]:
    """Return the innermost level of each node; levels with too many nodes are split into nested ranges."""
    nodes_of: dict[Path, list[int]] = {}
    for node in order:
        nodes_of.setdefault(of_node[node], []).append(node)
    found = list(of_node)
    for path, nodes in nodes_of.items():
        if len(nodes) <= MAX_DIRECT_NODES:
            continue
        sizes = [RANGE_SIZE]  # of the ranges, outermost first
        while sizes[0] * RANGE_SIZE < len(nodes):
            sizes.insert(0, sizes[0] * RANGE_SIZE)
        for position, node in enumerate(nodes):
            starts = [(position // size * size, size) for size in sizes]
            ranges = [f"{RANGE}nodes {start + 1:,}–{min(start + size, len(nodes)):,}" for start, size in starts]
            found[node] = (*path, *ranges)
    return found


def _count_members(of_node: Iterable[Path]) -> Counter[Path]:
    members: Counter[Path] = Counter({(): 0})
    for path, count in Counter(of_node).items():
        for depth in range(len(path) + 1):
            members[path[:depth]] += count
    return members


@dataclass(frozen=True)
class ViewRequest:
    """The levels that the user opened and closed, and the neighbourhood to show, if any."""

    opened: Collection[Path] = frozenset()  # levels that the user opened, besides the initially open ones
    closed: Collection[Path] = frozenset()  # levels that the user closed; they hide the levels below
    tensor: int = -1  # tensor in the middle of the neighbourhood, or −1; a vertex of its own if no vertex writes it
    node: int = -1  # node in the middle of the neighbourhood, or −1; ignored if there is a tensor
    radius: int | None = None  # radius of the neighbourhood in edges; ``None`` for the whole graph


@dataclass(frozen=True)
class Vertex:
    """One box of the drawing."""

    kind: Kind
    item: int  # number of the node, level or tensor; −1 for the inputs
    level: int  # number of the innermost drawn level around the vertex (a neighbourhood draws no ranges); 0: the root
    members: int  # number of nodes that the vertex represents; 0 for inputs and tensors
    internal: int  # number of tensors that nodes of the vertex write and only nodes of the vertex read
    hidden: int  # number of neighbours outside of the radius


@dataclass(frozen=True)
class Edge:
    """All tensors that one vertex writes and another reads."""

    source: int  # position in :attr:`Collapsed.vertices`
    target: int  # position in :attr:`Collapsed.vertices`
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
    """Return the graph with each level outside of ``opened`` as one vertex; with a radius, only the neighbourhood."""
    # 1. The vertex of each node, as a code: node k is 2k, level k is 2k + 1; the inputs are −1, tensor k is −2 − k.
    request = request or ViewRequest()
    closed = np.zeros(len(tree.paths), np.int64)  # level → the outermost closed level around it; 0: none
    for level, path in enumerate(tree.paths):
        closed[level] = closed[tree.parent[level]] or (0 if path in opened else level)
    closed_level = closed[tree.of_node]
    code = np.where(closed_level, 2 * closed_level + 1, 2 * np.arange(len(closed_level), dtype=np.int64))
    # 2. The reads: (vertex of the writer, vertex of the reader, tensor). A read between two vertices is on an edge.
    reader = np.repeat(np.arange(len(index.node_ids), dtype=np.int64), np.diff(index.in_ptr))
    tensor, root = index.in_idx, index.written_base[index.in_idx]
    writer, is_input = index.producer[root], index.is_input[root]
    writer_code = np.where(writer >= 0, code[writer], np.where(is_input, -1, -2 - tensor))
    reads = np.stack([writer_code, code[reader], tensor])
    reads = reads[:, (writer >= 0) | is_input | (tensor == request.tensor)]  # of the weights, only the requested
    source, target, tensor = np.unique(reads, axis=1)
    is_edge = source != target
    # 3. The visible vertices: all of them, or those within the radius around the middle.
    node = request.node if request.tensor < 0 else writer_of(index, request.tensor)
    middle = int(code[node]) if node >= 0 else None
    if node < 0 <= request.tensor:  # no node writes it
        middle = -1 if index.is_input[index.written_base[request.tensor]] else -2 - request.tensor
    visible = {*code.tolist(), *source.tolist(), *target.tolist()}
    visible.update(() if middle is None else (middle,))  # it may have no edge
    neighbours: defaultdict[int, set[int]] = defaultdict(set)
    if middle is not None and request.radius is not None:
        for one, other in zip(source[is_edge].tolist(), target[is_edge].tolist(), strict=True):
            neighbours[one].add(other)
            neighbours[other].add(one)
        visible = {middle}
        for _ in range(request.radius):
            visible = visible.union(*(neighbours[one] for one in visible))
    # 4. The position of each visible vertex in the result: first the vertices without nodes, then by the first node.
    codes, first, counts = np.unique(code, return_index=True, return_counts=True)
    first_node, members = (dict(zip(codes.tolist(), column.tolist(), strict=True)) for column in (first, counts))
    order = sorted(visible, key=lambda vertex: (first_node.get(vertex, -1), -vertex))
    number = {vertex: k for k, vertex in enumerate(order)}
    is_on_edge = np.zeros(len(index.tensor_ids), np.bool_)
    is_on_edge[tensor[is_edge]] = True
    internal = Counter(source[~is_edge & ~is_on_edge[tensor]].tolist())  # tensors on no edge, by vertex
    vertices = []
    for vertex_code in order:
        place = _place(tree, vertex_code, request.radius is not None)
        hidden = len(neighbours[vertex_code] - number.keys())
        vertices.append(Vertex(*place, members.get(vertex_code, 0), internal[vertex_code], hidden))
    levels = {level for vertex in vertices for level in tree.to_root(vertex.level)}
    edges = _edges(number, np.stack([source, target, tensor])[:, is_edge].T.tolist())
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


@dataclass(frozen=True, eq=False)
class GraphView:
    """The visible part of a graph, and how it was reduced because of its size."""

    collapsed: Collapsed
    opened: frozenset[Path]  # the open levels
    by_level: bool  # whether levels are closed because of ``MAX_NEIGHBOURHOOD_VERTICES``
    radius: int | None  # the radius shown, at most the requested one; ``None``: the whole graph
    rejected_vertices: int  # vertices of the last view that was rejected as over ``MAX_VERTICES``; 0: none


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
