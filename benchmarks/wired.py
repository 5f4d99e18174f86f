"""Random branching graphs, like networks that were found by architecture search or drawn at random.

``randwire``: stages of nodes that are connected by the Watts–Strogatz model WS(k, p) of networkx, with edges from the
lower to the higher number (Xie and others, 2019). A node adds its inputs and convolves the sum. ``searched``: cells of
five blocks (Zoph and others, 2018). A block has two operators on two earlier results; unread results are concatenated;
a cell reads the two previous cells. The inputs of a block are random here, while the paper has two fixed cells.
"""

import random

import networkx as nx

from tmmu_core.graph.model import Graph, Node, Tensor

STAGES = ((64, 56), (128, 28), (256, 14))
"""Channels and side of the results of each stage, float32."""


class _Net:
    """Builder of the nodes and tensors of a graph."""

    def __init__(self, side: int = 112) -> None:
        self.nodes: list[Node] = []
        self.tensors = [Tensor("x", (1, 3, side, side), role="input")]

    def add(self, node_id: str, instr: str, reads: list[str], shape: tuple[int, int]) -> str:
        channels, side = shape
        name = f"{node_id}:0"
        self.tensors.append(Tensor(name, (1, channels, side, side)))
        self.nodes.append(Node(node_id, instr, tuple(reads), (name,), inplace="none"))
        return name

    def graph(self, name: str, output: str) -> Graph:
        return Graph(tensors=tuple(self.tensors), nodes=tuple(self.nodes), inputs=("x",), outputs=(output,), name=name)


def randwire(seed: int, count: int = 32, neighbours: int = 4, rewired: float = 0.75) -> Graph:
    """Return three stages of ``count`` nodes each."""
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
    """Return ``cells`` cells in three stages; each reads the two previous cells."""
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


NORMAL_A = ("h sep5", "p sep3", "p sep5", "p sep3", "h pool", "p id", "p pool", "p pool", "h sep3", "h id")
REDUCTION_A = ("h sep5", "p sep7", "h pool", "p sep7", "h pool", "p sep5", "0 pool", "1 id", "0 sep3", "h pool")
PNAS_5 = ("p sep5", "p pool", "h sep7", "h pool", "h sep5", "h sep3", "2 sep3", "h pool", "p sep3", "h fit")
"""A cell: five sums of two operators, each on the last result (h), the result before it (p), or an earlier sum."""


class _Cells(_Net):
    """A stack of cells. Normalisations are part of the convolutions, activations are separate nodes."""

    def __init__(self, side: int, channels: int) -> None:
        super().__init__(side)
        shape = (channels, (side - 1) // 2)
        self.before = self.last = (self.add("stem", "Conv", ["x"], shape), shape)

    def apply(self, prefix: str, operator: str, read: str, shapes: tuple[tuple[int, int], tuple[int, int]]) -> str:
        """Add an operator that changes one shape to another; return its result."""
        shape, into = shapes
        if operator == "pool":
            return self.add(f"{prefix}.pool", "MaxPool", [read], into)
        if operator in ("id", "fit"):
            return self.squeezed(prefix, (read, shape), into) if shape != into else read
        for half in "ab":
            read = self.add(f"{prefix}{half}.relu", "Relu", [read], shape)
            read = self.add(f"{prefix}{half}.deep", "Conv", [read], (shape[0], into[1]))
            read = self.add(f"{prefix}{half}.point", "Conv", [read], into)
            shape = into
        return read

    def squeezed(self, prefix: str, result: tuple[str, tuple[int, int]], into: tuple[int, int]) -> str:
        """Add an activation and a pointwise convolution; if the side changes, two strided halves."""
        name, (_, side) = result
        read = self.add(f"{prefix}.relu", "Relu", [name], result[1])
        if side == into[1]:
            return self.add(f"{prefix}.conv", "Conv", [read], into)
        half = (into[0] // 2, into[1])
        halves = [self.add(f"{prefix}.pool{k}", "AveragePool", [read], (result[1][0], into[1])) for k in "01"]
        halves = [self.add(f"{prefix}.conv{k}", "Conv", [each], half) for k, each in zip("01", halves, strict=True)]
        return self.add(f"{prefix}.join", "Concat", halves, into)

    def cell(self, number: int, cell: tuple[str, ...], filters: int, stride: int) -> None:
        """Add a cell; its result becomes the last result."""
        side = self.last[1][1]
        wide, into = (filters, side), (filters, -(-side // stride))
        there = {
            "h": self.squeezed(f"c{number}h", self.last, wide),
            "p": self.squeezed(f"c{number}p", self.before, wide),
        }
        read: set[str] = set()
        for block in range(5):
            ends = []
            for k in range(2):
                source, operator = cell[2 * block + k].split()
                shape = wide if source in "hp" else into
                read.add(source)
                ends.append(self.apply(f"c{number}b{block}{k}", operator, there[source], (shape, into)))
            there[str(block)] = self.add(f"c{number}b{block}.sum", "Add", list(dict.fromkeys(ends)), into)
        loose = [there[str(k)] for k in range(5) if str(k) not in read or cell is PNAS_5]
        loose += [there["p"]] if cell is NORMAL_A else []
        made = (filters * len(loose), into[1])
        self.before, self.last = self.last, (self.add(f"c{number}.out", "Concat", loose, made), made)


def nasnet(large: bool) -> Graph:
    """Return NASNet-A (Zoph and others, 2018): 6 @ 4032 of 331² images, or 4 @ 1056 of 224²."""
    filters, cells, net = (168, 6, _Cells(331, 96)) if large else (44, 4, _Cells(224, 32))
    plan = [(REDUCTION_A, filters // 4), (REDUCTION_A, filters // 2), *[(NORMAL_A, filters)] * cells]
    for scale in (2, 4):
        plan += [(REDUCTION_A, filters * scale), *[(NORMAL_A, filters * scale)] * cells]
    for number, (cell, width) in enumerate(plan):
        net.cell(number, cell, width, 2 if cell is REDUCTION_A else 1)
    return net.graph("NASNet-A large" if large else "NASNet-A mobile", net.last[0])


def pnasnet() -> Graph:
    """Return PNASNet-5 (Liu and others, 2018): 4 @ 216 of 331² images."""
    net = _Cells(331, 96)
    widths = [(54, 2), (108, 2), *[(216, 1)] * 4, (432, 2), *[(432, 1)] * 3, (864, 2), *[(864, 1)] * 3]
    for number, (width, stride) in enumerate(widths):
        net.cell(number, PNAS_5, width, stride)
    return net.graph("PNASNet-5 large", net.last[0])
