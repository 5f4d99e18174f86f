"""The one place where fitting asks for a plan.

A :class:`Question` is a graph that stands for itself: its order, its backward pass and its sizes are written out, so
that planning it needs no mode, no preset and no flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tmmu_core.fit.moves import Cost, Move
from tmmu_core.graph.model import OFFLOAD_ARENA, Arena, Graph
from tmmu_core.plan.making.engine import Solution, plan_graph
from tmmu_core.plan.model import Plan


@dataclass(frozen=True, eq=False)
class Question:
    """What is planned: a graph written out, and how."""

    graph: Graph
    """With an ``execution_order``; mode and preset are the ones that it has by default."""
    planner: str = "slots"
    options: Mapping[str, Any] = field(default_factory=dict)
    arenas: Mapping[str, Arena | Mapping[str, Any]] | None = None
    """As given; capacities are held against the answer, not asked of the planner."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan that moves led to."""

    question: Question
    moves: tuple[Move, ...]
    """In the order in which they were made."""
    solution: Solution

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        return self.solution.plan

    @property
    def cost(self) -> Cost:
        """What all its moves cost."""
        return sum((move.cost for move in self.moves), Cost())

    @property
    def extent_bytes(self) -> int:
        """Bytes over all arenas of this memory."""
        return sum(arena.extent_bytes for arena in self.plan.arenas if arena.name != OFFLOAD_ARENA)


def ask(question: Question) -> Solution:
    """Plan it. Raises ``ContractError`` as the engine does."""
    return plan_graph(
        question.graph,
        planner=question.planner,
        options=question.options,
        arenas=_unlimited(question.arenas),
    )


def _unlimited(arenas: Mapping[str, Arena | Mapping[str, Any]] | None) -> dict[str, Any] | None:
    """The configuration without its capacities: a plan that is over them is an answer too."""
    if arenas is None:
        return None
    return {
        name: {
            "alignment_bytes": arena.alignment_bytes if isinstance(arena, Arena) else arena.get("alignment_bytes", 128),
            "page_size": arena.page_size if isinstance(arena, Arena) else arena.get("page_size", 0),
        }
        for name, arena in arenas.items()
    }
