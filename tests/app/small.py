"""Small graphs."""

from __future__ import annotations

from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.plans.making.engine import Solution, plan_graph


def chain(n: int = 3, **options: object) -> Solution:
    """``x → h0 → … → h(n−1)``, element-wise, 4 bytes each: every step hands its place on."""
    names = ["x", *(f"h{k}" for k in range(n))]
    return plan_graph(
        Graph(
            name="chain",
            tensors=tuple(Tensor(id=name, shape=(1,), role="input" if name == "x" else "activation") for name in names),
            nodes=tuple(
                Node(node_id=f"n{k}", instr="RELU", inputs=(names[k],), outputs=(names[k + 1],), inplace="any")
                for k in range(n)
            ),
            inputs=("x",),
            outputs=(names[-1],),
        ),
        **options,  # type: ignore[arg-type]
    )
