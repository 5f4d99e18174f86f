"""The tree of a collapsible graph: phases, then modules, then families of repeated blocks, then nodes.

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
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tmmu_core.graph.index import I64, GraphIndex
from tmmu_core.graph.modules.module_paths import Modules, Path, block_of, families_of, starred

REPEATED = "×"  # prefix of the level of a family, ``×block*``; names of modules do not begin with it
RANGE = "…"  # prefix of the level of a range of nodes, ``…nodes 33–64``
MAX_DIRECT_NODES = 40  # maximum number of nodes directly in one level before they are grouped into ranges
RANGE_SIZE = 32  # maximum number of nodes or inner ranges in one range


@dataclass(frozen=True, eq=False)
class Tree:
    """The levels of a graph, the root first, parents before children."""

    paths: tuple[Path, ...]  # path of each level, with a part for each level of a family or a range
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

    def levels_to_open(self, max_boxes: int) -> frozenset[Path]:
        """Return all levels down to a depth: the greatest depth with at most ``max_boxes`` visible boxes."""
        below: list[list[int]] = [[] for _ in self.paths]
        for level, parent in enumerate(self.parent.tolist()[1:], 1):
            below[parent].append(level)
        direct = np.bincount(self.of_node, minlength=len(below)).tolist()
        boxes, opened, closed = len(below[0]) + direct[0], set[Path](), below[0]
        while closed and (boxes := boxes + sum(len(below[k]) + direct[k] - 1 for k in closed)) <= max_boxes:
            opened |= {self.paths[k] for k in closed}
            closed = [child for k in closed for child in below[k]]
        return frozenset(opened)


def tree_of(index: GraphIndex, modules: Modules, order: Iterable[int]) -> Tree:
    """Return the tree of a graph by modules and phases; ``order``: the node number of each step, or −1."""
    families = families_of(modules.paths)
    phases = [node.phase for node in index.graph.nodes]
    several_phases = len(set(phases)) > 1
    names_below: dict[Path, set[str]] = {}
    for path in modules.paths:
        for depth, part in enumerate(path):
            names_below.setdefault(path[:depth], set()).add(starred(part))
    one_family = {
        path for path, names in names_below.items() if path and len(names) == 1 and (path, *names) in families
    }
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
