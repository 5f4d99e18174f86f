"""The certificate on every plan: how low any plan could be, who makes it so, and what is claimed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tmmu_core.plan.figures.live import peak_together
from tmmu_core.plan.model import INVALID
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.problem import Packing, Problem

DEAR_BOUNDS_UP_TO = 100_000
"""Storages up to which every bound is tried; above, max live bytes alone, in one linear pass."""


@dataclass(frozen=True)
class Certificate:
    """One arena's.

    ``lower_bound`` (bytes) is the problem's, whichever planner ran; ``witness`` names the storages that make it,
    ``step`` when they are held (−1: any). ``proven`` (bytes) is what a search proved beyond it, else the same.
    """

    lower_bound: int
    proven: int
    status: str
    witness: tuple[str, ...]
    step: int


def certify(problem: Problem, packing: Packing, extent: int, steps: int) -> Certificate:
    """The lower bound of ``problem``, what its planner proved beyond it, and how ``extent`` (bytes) stands to them."""
    bound, witness, step = _bound(problem, steps)
    proven = max(bound, packing.lower_bound or 0)
    otherwise = "unproven" if packing.stopped else "feasible"
    status = "optimal" if packing.optimal or extent == proven else otherwise
    if extent < proven:  # that alone proves that it is no plan of this problem
        status = INVALID
    return Certificate(bound, proven, status, witness, step)


def _bound(problem: Problem, steps: int) -> tuple[int, tuple[str, ...], int]:
    if len(problem) <= DEAR_BOUNDS_UP_TO:
        best = lower_bound(problem)
        return best.bytes, tuple([problem.ids[i] for i in best.witness]), best.step
    step, most = peak_together(problem.birth, problem.death, problem.size, steps)
    alive = np.flatnonzero((problem.birth <= step) & (problem.death > step))
    return most, tuple([problem.ids[i] for i in alive.tolist()]), step
