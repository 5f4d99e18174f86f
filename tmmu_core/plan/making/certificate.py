"""The certificate on every plan: how low any plan could be, who makes it so, and what is claimed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tmmu_core.plan import metrics
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.problem import Packing, Problem

DEAR_BOUNDS_UP_TO = 100_000
"""Storages up to which every bound is tried; above, max live bytes alone, in one linear pass."""


@dataclass(frozen=True)
class Certificate:
    """One arena's. ``lower_bound`` in bytes; ``witness`` names storages, ``step`` when they are held (−1: any)."""

    lower_bound: int
    status: str
    witness: tuple[str, ...]
    step: int


def certify(problem: Problem, packing: Packing, extent: int, steps: int) -> Certificate:
    """The best lower bound known for ``problem``, and what ``extent`` (bytes) is next to it."""
    bound, witness, step = _bound(problem, packing.slot is not None, steps)
    if (packing.lower_bound or 0) > bound:
        # The planner proved more than any set of storages alive together shows: there is no witness to name.
        bound, witness, step = packing.lower_bound or 0, (), -1
    if packing.optimal or extent <= bound:
        return Certificate(bound, "optimal", witness, step)
    return Certificate(bound, "unproven" if packing.stopped else "feasible", witness, step)


def _bound(problem: Problem, has_slots: bool, steps: int) -> tuple[int, tuple[str, ...], int]:
    if len(problem) <= DEAR_BOUNDS_UP_TO:
        # A slot is a whole buffer: there a larger output may take over its input's place, so hand-offs bind nothing.
        best = lower_bound(replace(problem, handoff_from=None) if has_slots else problem)
        return best.bytes, tuple([problem.ids[i] for i in best.witness]), best.step
    curve = metrics.live_bytes_of(problem.birth, problem.death, problem.size, steps)
    step, most = metrics.peak_of(curve)
    alive = np.flatnonzero((problem.birth <= step) & (problem.death > step))
    return most, tuple([problem.ids[i] for i in alive.tolist()]), step
