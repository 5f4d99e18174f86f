"""Graphs of any size, made in memory: the same for the same numbers."""

from __future__ import annotations

import random

from tmmu_core.graph.model import Graph, Node, Tensor


def layered(tensors: int, seed: int = 0, reach: int = 200) -> Graph:
    """A chain of ``tensors`` activations in which every third node also reads one of up to ``reach`` nodes before.

    Half of the nodes permit hand-offs. Sizes are 4 to 16,384 bytes.
    """
    rng = random.Random(seed)
    shapes = [(rng.randrange(1, 4096),) for _ in range(997)]
    nodes = []
    for i in range(1, tensors):
        reads = [f"t{i - 1}"]
        if i % 3 == 0:
            reads.append(f"t{max(0, i - rng.randrange(2, reach))}")
        nodes.append(
            Node(
                node_id=f"n{i:07}",
                instr="ADD",
                inputs=tuple(dict.fromkeys(reads)),
                outputs=(f"t{i}",),
                inplace="any" if i % 2 else "none",
            )
        )
    return Graph(
        name=f"layered_{tensors}",
        tensors=(
            Tensor(id="t0", shape=(64,), role="input"),
            *(Tensor(id=f"t{i}", shape=shapes[i % len(shapes)]) for i in range(1, tensors)),
        ),
        nodes=tuple(nodes),
        inputs=("t0",),
        outputs=(f"t{tensors - 1}",),
    )
