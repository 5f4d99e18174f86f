"""Graphs that branch at random, as the networks that were found by search or drawn at random do.

``randwire``: stages of nodes wired by the Watts–Strogatz model WS(k, p) of networkx, edges from the lower to the higher
number, as Xie and others (2019) draw their networks: a node sums what it reads, and convolves the sum.
``searched``: cells of five blocks, each two operators of two earlier results, what nobody reads concatenated, the next
cell fed by the two before it, as Zoph and others (2018) stack what their search finds. Which results a block reads is
drawn here; theirs are two fixed cells.
"""

from __future__ import annotations

import random

import networkx as nx

from tmmu_core.graph.model import Graph, Node, Tensor

STAGES = ((64, 56), (128, 28), (256, 14))
"""Channels and side of each stage's results, float32."""


class _Net:
    """Nodes and tensors as they are written down."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.tensors = [Tensor("x", (1, 3, 112, 112), role="input")]

    def add(self, node_id: str, instr: str, reads: list[str], shape: tuple[int, int]) -> str:
        channels, side = shape
        name = f"{node_id}:0"
        self.tensors.append(Tensor(name, (1, channels, side, side)))
        self.nodes.append(Node(node_id, instr, tuple(reads), (name,), inplace="none"))
        return name

    def graph(self, name: str, output: str) -> Graph:
        return Graph(tensors=tuple(self.tensors), nodes=tuple(self.nodes), inputs=("x",), outputs=(output,), name=name)


def randwire(seed: int, count: int = 32, neighbours: int = 4, rewired: float = 0.75) -> Graph:
    """Three stages of ``count`` nodes each."""
    net, into = _Net(), "x"
    for stage, shape in enumerate(STAGES):
        wires = nx.connected_watts_strogatz_graph(count, neighbours, rewired, seed=seed + stage)
        results: dict[int, str] = {}
        for k in sorted(wires):
            reads = [results[other] for other in sorted(wires[k]) if other < k] or [into]
            prefix = f"s{stage}n{k:02}"
            total = net.add(f"{prefix}.sum", "Add", reads, shape) if len(reads) > 1 else reads[0]
            results[k] = net.add(f"{prefix}.conv", "Conv", [total], shape)
        last = [results[k] for k in sorted(wires) if all(other < k for other in wires[k])]
        into = net.add(f"s{stage}.mean", "Mean", last, shape)
    return net.graph(f"randwire_{count}_{seed}", into)


def searched(seed: int, cells: int = 9, blocks: int = 5) -> Graph:
    """``cells`` cells in three stages, each fed by the two before it."""
    dice = random.Random(seed)
    net = _Net()
    before, last = "x", "x"
    for cell in range(cells):
        shape = STAGES[cell * len(STAGES) // cells]
        there = [net.add(f"c{cell}.{name}", "Conv", [which], shape) for name, which in (("p", before), ("q", last))]
        read: set[str] = set()
        for block in range(blocks):
            ends = []
            for side in "ab":
                chosen = dice.choice(there)
                read.add(chosen)
                instr = dice.choice(("Conv", "MaxPool", "AveragePool"))
                ends.append(net.add(f"c{cell}b{block}{side}", instr, [chosen], shape))
            there.append(net.add(f"c{cell}b{block}.sum", "Add", ends, shape))
        loose = [name for name in there[2:] if name not in read]
        wide = (shape[0] * len(loose), shape[1])
        before, last = last, net.add(f"c{cell}.out", "Concat", loose, wide)
    return net.graph(f"searched_{cells}_{seed}", last)
