"""What every operator costs on many shapes: those that fit its formula, and each of them one size off."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.build import graph, node, tensor
from tests.made.saying import Kind, digest
from tmmu_core.graph.flops import FORMULAS, graph_flops, operations
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Tensor

Shape = tuple[int, ...]
Call = tuple[tuple[Shape, ...], tuple[Shape, ...]]

EVERYWHERE = (
    "4x5>4x5  4x5,5>4x5  4x5>4  4x5>.  .>.  4x5,4x5,4x5>4x5  4x5,4x5>4x5,4x5  7x6,3>5,2  0x5>0x5  3,5x2>2  >4  4>"
)
"""Asked of every operator: one operand and several, larger and smaller than the result, of no axes, of no elements."""
PRODUCTS = (
    "2x3,3x5>2x5 7x2x3,3x5>7x2x5 4x2x3,4x3x5>4x2x5 3,3>. 3,3x5>5 2x3,3>2 32x256,32x10>256x10 2x3,5x3>2x5 "
    "2x3,5x3,5>2x5 5,2x3,3x5>2x5 2x5,4x2x3,4x3x5>2x5 4x1,2x2>2x2 2x2,4x1>2x2 5x1,.>5x1 5x1,.>. 2,2x3,3>2 "
    "2x2x3,5x3>4x5 2x0,0x5>2x5 0x3,3x5>0x5 2x3,.>2x5 "
)
CONVOLUTIONS = (
    "1x3x8x8,4x3x3x3>1x4x8x8 1x3x8x8,4x3x3x3,4>1x4x6x6 1x8x8x8,8x1x3x3>1x8x8x8 1x8x8x3,4x3x3x3,4>1x8x8x4 "
    "1x8x8x4,1x3x3x4,4>1x8x8x4 1x4x8x8,4x1x3x3>1x4x8x8 2x8x5x5,8x4x3x3,4>2x4x11x11 1x4x5x5,4x4x3x3>1x4x10x10 "
    "1x3x9,6x3x3>1x6x7 4,3x2x2x5,1x4x4x5>1x8x8x3 2x4x6x6,2x3x8x8,4x3x3x3>2x3x8x8,4x3x3x3,4 "
    "2x4x6x6,2x3x8x8,4x3x3x3>4x3x3x3 1x3x8x8,1,1,4x3x3x3,1,1,1,1>1x4x8x8 1x3x4x4x4,5x3x2x2x2>1x5x3x3x3 "
    "3x8x8,4x3x3x3>1x4x8x8 1x3x8x8,4x3x3x3>4x8x8 2x4x6x6,2x3x8x8,4x3x3x3,4>2x3x8x8,4x3x3x3 8x3x3,3x3>8x3x3 "
    "1x8x8x4,3x3x4>1x8x8x4 "
)
ATTENTION = (
    "2x4x6x8,2x4x10x8,2x4x10x3>2x4x6x3 2x4x6x8,2x4x10x8,2x4x10x3,6x10>2x4x6x3 6x8,10x8,10x8>6x8 "
    "2x6x8,2x10x8,2x10x8>2x6x8 2x4x6x3,2x4x6x8,2x4x10x8,2x4x10x3>2x4x6x8,2x4x10x8,2x4x10x3 "
    "2x4x6x3,2x4x6x8,2x4x10x8,2x4x10x3,2x4x6x3,2x4x6>2x4x6x8 6x8,6x8,10x8,10x8>6x8 "
    "2x6x8,2x6x8,2x10x8,2x10x8>2x6x8 3x2x5,1x16x5,1x16x4,16>3x1x2x4 3x2x5,1x4x5,1x4x4>3x1x2x4 "
    "3x2x5,1x16x5,1x16x4>3x1x2x4 3x2x5,1x12x5,1x12x4>3x1x2x4 3x2x5,2x4x5,2x4x4>3x2x2x4 3x2x5,1x16x5>3x1x2x4 "
)
ASKED = "  ".join((EVERYWHERE, PRODUCTS, CONVOLUTIONS, ATTENTION)).split()


def call_of(text: str) -> Call:
    """``2x3,3x5>2x5`` as the shapes that are read and written; ``.`` has no axes."""
    reads, writes = text.split(">")
    return _shapes(reads), _shapes(writes)


def _shapes(text: str) -> tuple[Shape, ...]:
    return tuple(() if each == "." else tuple(map(int, each.split("x"))) for each in text.split(",") if each)


def one_off(call: Call) -> Iterator[Call]:
    """The call with one size one more, and with its last operand left out."""
    reads, writes = call
    for side in (0, 1):
        for i, shape in enumerate(call[side]):
            for axis, size in enumerate(shape):
                more = (*call[side][:i], (*shape[:axis], size + 1, *shape[axis + 1 :]), *call[side][i + 1 :])
                yield (more, writes) if side == 0 else (reads, more)
    if len(reads) > 1:
        yield reads[:-1], writes


def cost(name: str, call: Call) -> str:
    """``contractions+others``; ``?`` where it is not known."""
    found = operations(name, *call)
    return "?" if found is None else f"{found.contraction}+{found.elementwise}"


def _calls(_: Random, k: int) -> str:
    """The k-th call: what each cost is of how many operators, and which costs each has one size off."""
    text = ASKED[k]
    call, beside = call_of(text), list(one_off(call_of(text)))
    costs = {name: (cost(name, call), tuple(cost(name, each) for each in beside)) for name in FORMULAS}
    by_cost: dict[str, list[str]] = {}
    for name, (own, _) in costs.items():
        by_cost.setdefault(own, []).append(name)
    parts = [
        f"{own} × {len(names)}" if len(names) > 2 else f"{own} {'/'.join(names)}" for own, names in by_cost.items()
    ]
    return f"{text}: {', '.join(sorted(parts))}; {digest(costs)}"


def _names(_: Random, k: int) -> Any:
    """The k-th operator's costs."""
    name = list(FORMULAS)[k]
    return f"{name}: " + " ".join(f"{cost(name, call_of(text))}" for text in EVERYWHERE.split())


def _graph(random: Random, _: int) -> str:
    """A graph of some operators, some of them known, some of them twice."""
    names = ("MatMul", "Relu", "Frobnicate", "conv2d", "Loop.open", "softmax")
    nodes, tensors = [], [tensor("x", 4, role="input")]
    for k in range(random.randrange(1, 9)):
        shape = random.choice(((4, 4), (2, 3)))
        tensors.append(Tensor(f"t{k}", shape))
        reads = " ".join(random.choice(tensors[:-1]).id for _ in range(2))
        nodes.append(node(f"n{k}", reads, f"t{k}", instr=random.choice(names)))
    known = graph_flops(index_graph(graph(tensors, nodes, "x")))
    return (
        f"{known.total} with {known.contraction} of contractions, unknown {dict(known.unknown)} {digest(known.of_node)}"
    )


KINDS = {
    "what a graph costs": Kind(20, _graph),
    "what a call costs by every formula": Kind(len(ASKED), _calls),
    "what an operator costs": Kind(len(FORMULAS), _names),
}
