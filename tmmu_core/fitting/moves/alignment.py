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
    widest = max((itemsize(tensor.dtype) for tensor in plan_input.graph.tensors), default=1)
    least = 1 << (widest - 1).bit_length()
    grid = coarsest // 2
    while grid >= least:
        what = f"align to {grid} B instead of {coarsest} B"
        yield Move("alignment", what, WHY, details={"alignment": grid, "arenas": list(arenas)})
        grid //= 2
