"""A few nodes around one, as a drawing in the DOT language. Names are other people's text and are quoted."""

from __future__ import annotations

from collections.abc import Mapping

from app.charts.base import LINE
from app.say import words
from app.say.markup import PERSISTENT_COLOUR, ROLE_COLOURS
from tmmu_core.graph.index import GraphIndex
from tmmu_core.graph.model import Graph

MOST_EDGES = 24


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


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
            label = f"{words.shortened(here.node_id, 26)}\\n{here.instr}" if here.instr else here.node_id
            width = 2.4 if k == node else 1
            lines.append(
                f"n{k} [shape=box label={_quoted(label).replace(chr(92) * 2 + 'n', chr(92) + 'n')} penwidth={width}]"
            )
    for i in drawn:
        if f"t{i}" in shown:
            tensor_here = graph.tensors[i]
            colour = ROLE_COLOURS.get(tensor_here.role, PERSISTENT_COLOUR)
            text = f"{words.shortened(tensor_here.id, 26)}\\n{words.short_bytes(int(index.nbytes[i]))}"
            where = place.get(tensor_here.id, "")
            label = _quoted(f"{text}\\n{where}" if where else text).replace(chr(92) * 2 + "n", chr(92) + "n")
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
