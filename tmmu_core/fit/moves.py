"""The nouns of fitting: what may be changed, what it costs, and a plan that it led to.

A move is a value. What it does to a question is done by the function that stands beside its kind in
``fit/applying.py``: a graph (its order written out) goes in, a graph goes out, or another planner is asked. Recomputing
and copying nodes are nodes of the native format like any other, so the result is planned, verified, executed, compared
and reported as every graph is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Kind = Literal["planner", "order", "inplace", "alignment", "recompute", "offload", "sizes", "shards"]
KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind != "shards")
"""What may be allowed, in the order in which it is tried: what costs nothing first. A larger mesh is another question
(``fit/mesh.py``), and its answer a move all the same."""

FLOPS_PER_MOVED_BYTE = 10_000
"""What moving a byte is held to cost beside computing: about 300 Tflop/s over a bus of about 30 GB/s."""


@dataclass(frozen=True, order=False)
class Cost:
    """What a plan costs more than the graph as given. All figures are whole numbers ≥ 0."""

    extra_flops: int = 0
    """Floating-point operations that are run again."""
    moved_bytes: int = 0
    """Bytes copied to another memory, and those copied back."""
    extra_steps: int = 0
    """Steps more than the graph as given has."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.extra_flops + other.extra_flops,
            self.moved_bytes + other.moved_bytes,
            self.extra_steps + other.extra_steps,
        )

    @property
    def weight(self) -> int:
        """One number to compare by: operations, a moved byte counted as ``FLOPS_PER_MOVED_BYTE`` of them."""
        return self.extra_flops + FLOPS_PER_MOVED_BYTE * self.moved_bytes

    @property
    def key(self) -> tuple[int, int]:
        """Sort key: the weight, then the steps."""
        return self.weight, self.extra_steps


@dataclass(frozen=True)
class Move:
    """One change, what it costs and why it is allowed."""

    kind: Kind
    what: str
    """For people, without a full stop: ``recompute 'h' (2 nodes) before 'relu_grad'``."""
    why: str = ""
    """Why it changes nothing that is computed."""
    tensors: tuple[str, ...] = ()
    """Ids of the tensors concerned, as the graph as given names them."""
    nodes: tuple[str, ...] = ()
    """Ids of the nodes concerned, likewise."""
    cost: Cost = Cost()
    bytes: int = 0
    """Off the bytes that are held to the capacity, after planning anew, on top of the moves before it; may be < 0."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What is needed to do it again, JSON-ready; the keys are the kind's own."""
