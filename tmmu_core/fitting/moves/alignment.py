"""Alignment moves: place tensors at smaller alignments, where the hardware allows it.

The fitted graph contains the alignment if all arenas have the same one; otherwise repeat it with ``--arenas FILE``. An
alignment is never smaller than the widest element type of the graph.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tmmu_core.fitting.move import Move
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.graph.arenas import as_given, read_arenas
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.model import Arena

WHY = "the live ranges stay the same; the hardware must support this alignment"


def apply_alignment(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"alignment": bytes, "arenas": [name, …]}``."""
    grid, names = int(move.details["alignment"]), move.details["arenas"]
    config: dict[str, Any] = {name: dict(given) for name, given in as_given(plan_input.arenas or {}).items()}
    now = read_arenas(plan_input.arenas)
    for name in names:
        config[name] = {**config.get(name, {}), "alignment_bytes": min(grid, now.get(name, Arena()).alignment_bytes)}
    return replace(plan_input, arenas=config)


def finer_alignments(plan_input: PlanInput, arenas: tuple[str, ...]) -> Iterator[Move]:
    """Yield every smaller alignment for ``arenas``, largest first."""
    config = read_arenas(plan_input.arenas)
    coarsest = max((config.get(name, Arena()).alignment_bytes for name in arenas), default=1)
    least = widest(plan_input)
    grid = coarsest // 2
    while grid >= least:
        yield Move(
            "alignment",
            f"align to {grid} B instead of {coarsest} B",
            WHY,
            details={"alignment": grid, "arenas": list(arenas)},
        )
        grid //= 2


def finest_alignment(plan_input: PlanInput, arenas: tuple[str, ...]) -> Move | None:
    """Return the move to the smallest alignment; ``None`` if there is none."""
    return next(iter(reversed(tuple(finer_alignments(plan_input, arenas)))), None)


def widest(plan_input: PlanInput) -> int:
    """Return the size of the widest element type of the graph, in bytes."""
    most = max((itemsize(tensor.dtype) for tensor in plan_input.graph.tensors), default=1)
    return 1 << (most - 1).bit_length()
