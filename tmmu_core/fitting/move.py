"""The value types of fitting: kinds of moves, their costs, and moves.

A move changes a plan input (graph, planner, arenas); ``search/candidates.py`` applies it. The nodes that it adds are
ordinary nodes of the native format, so the fitted graph is planned, verified, run and compared like any graph.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import msgspec

from tmmu_core.base.strict import register_types

Kind = Literal["planner", "order", "inplace", "alignment", "recompute", "offload", "sizes", "shards"]
KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind != "shards")
"""Kinds that ``Allowed`` accepts, in search order. Only ``search/size_search.py`` makes ``shards`` moves."""

FLOPS_PER_MOVED_BYTE = 10_000  # cost of a transferred byte in FLOPs: 300 TFLOP/s divided by 30 GB/s (PCIe)


@dataclass(frozen=True)
class Cost:
    """Extra cost of a plan compared with the initial graph; each figure is a whole number ≥ 0."""

    extra_flops: int = 0  # recomputed floating-point operations
    moved_bytes: int = 0  # bytes copied to the arena ``offload`` and back
    extra_steps: int = 0  # steps in addition to those of the initial graph

    @property
    def weight(self) -> int:
        """Total cost in FLOPs: recomputation, and ``FLOPS_PER_MOVED_BYTE`` for each transferred byte."""
        return self.extra_flops + FLOPS_PER_MOVED_BYTE * self.moved_bytes

    @property
    def key(self) -> tuple[int, int]:
        """Sort key: weight, then steps."""
        return self.weight, self.extra_steps


@dataclass(frozen=True)
class Move:
    """One change to a plan input, with its cost and the reason why it is valid."""

    kind: Kind
    what: str  # description for users, without a full stop: ``recompute 'h' (2 nodes) before 'relu_grad'``
    why: str = ""  # why the move is valid
    tensors: tuple[str, ...] = ()  # ids of the affected tensors, as in the initial graph
    nodes: tuple[str, ...] = ()  # ids of the affected nodes, as in the initial graph
    cost: Cost = Cost()
    bytes: int = 0
    """Bytes that the move saves in addition to the moves before it; can be negative. If moves are planned together,
    only their sum is measured: all moves but the last keep their estimates, and the last gets the sum minus these."""
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON-ready parameters; the keys depend on the kind


register_types(Move)


def some_names(names: tuple[str, ...]) -> str:
    """Return the first name and the number of other names: ``'h' and 2 more``."""
    return f"{names[0]!r} and {len(names) - 1} more" if len(names) > 1 else repr(names[0])


def total_cost(moves: Iterable[Move]) -> Cost:
    """Return the sum of the moves' costs."""
    costs = [move.cost for move in moves]
    return Cost(sum(c.extra_flops for c in costs), sum(c.moved_bytes for c in costs), sum(c.extra_steps for c in costs))


def recipe(moves: tuple[Move, ...], ir_hash: bytes) -> dict[str, Any]:
    """Return the moves of a plan as JSON-ready values; ``ir_hash`` identifies their graph."""
    return {"schema": "tmmu_recipe/1", "ir_hash": ir_hash.hex(), "moves": [msgspec.to_builtins(move) for move in moves]}
