"""Phases of a timeline as ranges of steps: forward, backward, optimizer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tmmu_core.graph.model import Phase
from tmmu_core.liveness.live_model import Timeline


@dataclass(frozen=True)
class Stretch:
    """Steps ``[start, end)`` that run nodes of one phase."""

    phase: Phase
    start: int
    end: int


def phases_of(timeline: Timeline) -> tuple[Stretch, ...]:
    """Return the ranges, first to last; together they cover all steps. ``@inputs`` belongs to the next step."""
    nodes = timeline.graph.nodes
    return _stretches([nodes[node].phase if node >= 0 else None for node in timeline.node_at.tolist()])


def phases_from_known(steps: int, known: Iterable[tuple[int, Phase | None]]) -> tuple[Stretch, ...]:
    """Return the ranges of ``steps`` steps, given ``(step, phase)`` of some of them.

    A step without a phase belongs to the step before it, the first ones to the first known phase; empty without any.
    """
    by_step = dict(sorted((step, phase) for step, phase in known if phase is not None))
    phases: list[Phase | None] = []
    now = next(iter(by_step.values()), None)
    for step in range(steps if by_step else 0):
        now = by_step.get(step, now)
        phases.append(now)
    return _stretches(phases)


def _stretches(phases: Sequence[Phase | None]) -> tuple[Stretch, ...]:
    found: list[Stretch] = []
    start = 0
    for t, phase in enumerate(phases):
        after = phases[t + 1] if t + 1 < len(phases) else None
        if t + 1 == len(phases) or (phase is not None and after != phase):
            found.append(Stretch(phase or "forward", start, t + 1))
            start = t + 1
    return tuple(found)
