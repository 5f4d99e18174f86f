"""The phases of a timeline as stretches of steps: forward, backward, optimizer."""

from __future__ import annotations

from dataclasses import dataclass

from tmmu_core.graph.model import Phase
from tmmu_core.liveness.model import Timeline


@dataclass(frozen=True)
class Stretch:
    """Steps ``[start, end)`` that run nodes of one phase."""

    phase: Phase
    start: int
    end: int


def phases_of(timeline: Timeline) -> tuple[Stretch, ...]:
    """The stretches, first to last; together they are all steps. ``@inputs`` goes with the step behind it."""
    nodes = timeline.graph.nodes
    phases = [nodes[node].phase if node >= 0 else None for node in timeline.node_at.tolist()]
    found: list[Stretch] = []
    start = 0
    for t, phase in enumerate(phases):
        after = phases[t + 1] if t + 1 < len(phases) else None
        if t + 1 == len(phases) or (phase is not None and after != phase):
            found.append(Stretch(phase or "forward", start, t + 1))
            start = t + 1
    return tuple(found)
