"""A few nodes around one, as a drawing in the DOT language. Names are other people's text and are quoted."""

from __future__ import annotations

from collections.abc import Mapping

from app.charts.base import LINE
from app.say import words
from app.say.markup import PERSISTENT_COLOUR, ROLE_COLOURS
from tmmu_core.graph.index import GraphIndex
from tmmu_core.graph.model import Graph
from tmmu_core.names import visible

MOST_EDGES = 24


def _label(*lines: str) -> str:
    """Lines as a quoted text: a backslash, a quote and an entity in a name are what they look like."""
    plain = (visible(line).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines)
    return '"' + "\\n".join(plain) + '"'


def dot(graph: Graph, index: GraphIndex, node: int, selected: str, place: Mapping[str, str]) -> str:
    """Node ``node``, what it reads and writes, and who makes and reads those. ``place`` says where a tensor lies."""
    lines: list[str] = []
    nodes: dict[int, None] = {node: None}
    drawn: dict[int, None] = {}
    edges: list[tuple[str, str]] = []

    def tensor(i: int) -> str:
        drawn.setdefault(i)
        return f"t{i}"

    for i in dict.fromkeys(index.inputs_of(node).tolist()):
        edges.append((tensor(i), f"n{node}"))
        if index.producer[i] >= 0:
            nodes.setdefault(int(index.producer[i]))
            edges.append((f"n{int(index.producer[i])}", tensor(i)))
    for i in index.outputs_of(node).tolist():
        edges.append((f"n{node}", tensor(i)))
        for reader in dict.fromkeys(index.readers_of(i).tolist()):
            nodes.setdefault(int(reader))
            edges.append((tensor(i), f"n{int(reader)}"))
    left_out = max(0, len(edges) - MOST_EDGES)
    edges = edges[:MOST_EDGES]
    shown = {end for edge in edges for end in edge} | {f"n{node}"}
    for k in nodes:
        if f"n{k}" in shown:
            here = graph.nodes[k]
            called = [words.shortened(text, 26) for text in (here.node_id, here.instr) if text]
            width = 2.4 if k == node else 1
            lines.append(f"n{k} [shape=box label={_label(*called)} penwidth={width}]")
    for i in drawn:
        if f"t{i}" in shown:
            tensor_here = graph.tensors[i]
            colour = ROLE_COLOURS.get(tensor_here.role, PERSISTENT_COLOUR)
            text = [words.shortened(tensor_here.id, 26), words.short_bytes(int(index.nbytes[i]))]
            where = place.get(tensor_here.id, "")
            label = _label(*text, where) if where else _label(*text)
            width = 2.4 if tensor_here.id == selected else 0.6
            lines.append(
                f't{i} [shape=box style="rounded,filled" fillcolor="{colour}" fontcolor=white '
                f"label={label} penwidth={width}]"
            )
    lines += [f"{a} -> {b}" for a, b in dict.fromkeys(edges)]
    if left_out:
        lines.append(f'more [shape=plaintext label="{left_out} more edges left out"]')
    return (
        'digraph { rankdir=TB bgcolor="transparent" nodesep=0.18 ranksep=0.28 '
        f'node [fontname="sans-serif" fontsize=10 margin="0.09,0.05" height=0.3 color="{LINE}" fontcolor="{LINE}"] '
        f'edge [color="{LINE}" arrowsize=0.6] ' + "; ".join(lines) + " }"
    )
