"""Alignment moves: reduce the alignment of the arenas, if the hardware allows it.

If all arenas except ``offload`` have the same alignment, the fitted graph contains it. Otherwise a plan of the graph
needs the alignments from ``--arenas FILE``. An alignment is never smaller than the widest element type of the graph.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tmmu_core.fitting.move import Move
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, extents
from tmmu_core.graph.arenas import as_given, read_arenas
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.model import Arena

WHY = "the live ranges stay the same; the hardware must support this alignment"


def apply_alignment(plan_input: PlanInput, move: Move) -> PlanInput:
    """Apply a move whose ``details`` are ``{"alignment": bytes, "arenas": [name, …]}``."""
    config: dict[str, Any] = dict(as_given(plan_input.arenas or {}))
    before = read_arenas(plan_input.arenas)
    for name in move.details["arenas"]:
        alignment = min(int(move.details["alignment"]), before.get(name, Arena()).alignment_bytes)
        config[name] = {**config.get(name, {}), "alignment_bytes": alignment}
    return replace(plan_input, arenas=config)


def smaller_alignments(base: Candidate) -> Iterator[Move]:
    """Yield a move for every smaller alignment of all arenas except ``offload``, largest alignment first."""
    arenas = sorted(extents(base.plan))
    largest = max((base.plan.arena_of[name].alignment_bytes for name in arenas), default=1)
    widest = max((itemsize(tensor.dtype) for tensor in base.plan_input.graph.tensors), default=1)
    alignment = largest // 2
    while alignment >= widest:
        what = f"align to {alignment} B instead of {largest} B"
        yield Move("alignment", what, WHY, details={"alignment": alignment, "arenas": arenas})
        alignment //= 2
