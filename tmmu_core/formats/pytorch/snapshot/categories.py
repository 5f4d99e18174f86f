"""Category of each allocation: parameter, gradient, optimizer state, activation or other.

The stack decides where it can. Lifetimes decide for user code without a phase, and for the backward pass, whose threads
have no Python stack. Allocations from before the trace, whose stack is not recorded, are compared with the sizes of the
gradients.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tmmu_core.formats.pytorch.snapshot.snapshot_device import I64, Device
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import (
    BACKWARD,
    FORWARD,
    INIT,
    NO_PHASE,
    NO_STACK,
    OPTIMIZER,
    PARAMETER,
    STATE,
    WORKSPACE,
    ZERO_GRAD,
)
from tmmu_core.plans.model import CATEGORIES

PARAMETERS, GRADIENTS, STATES, ACTIVATIONS, OTHERS = range(len(CATEGORIES))
_BY_STACK = {
    NO_STACK: OTHERS,
    NO_PHASE: OTHERS,
    FORWARD: ACTIVATIONS,
    BACKWARD: GRADIENTS,
    OPTIMIZER: OTHERS,
    STATE: STATES,
    PARAMETER: PARAMETERS,
    INIT: PARAMETERS,
    ZERO_GRAD: OTHERS,
    WORKSPACE: OTHERS,
}
"""Code of a stack → category; the codes are 0, 1, …"""
_PHASES = {FORWARD: FORWARD, BACKWARD: BACKWARD, OPTIMIZER: OPTIMIZER, STATE: OPTIMIZER, PARAMETER: PARAMETER}


@dataclass(frozen=True)
class Categories:
    """Columns of length n."""

    code: I64
    """Index into ``CATEGORIES``."""
    phase: I64
    """Code of the phase in which it began (``FORWARD``, ``BACKWARD``, ``OPTIMIZER``, ``PARAMETER``), −1 for unknown."""


def categorise(found: Device, phases: Sequence[int]) -> Categories:
    """Return the categories of allocations; ``phases`` are the codes of the stacks. O(n log n)."""
    stack, freed_by = (np.array(phases, np.int64)[rows] for rows in (found.stack, found.free_stack))
    is_threaded = bool((stack[~found.is_before] > NO_PHASE).any())
    # Autograd's threads run no Python code: without C++ frames their allocations have no stack at all.
    by_thread = is_threaded & (stack == NO_STACK) & ~found.is_before
    stack = np.where(by_thread, BACKWARD, stack)
    code = np.array([_BY_STACK[k] for k in range(len(_BY_STACK))], np.int64)[stack]
    lives = _Lives(found, stack, freed_by)

    code[(stack == OPTIMIZER) & lives.outlasts_phase] = STATES
    code[np.isin(stack, (PARAMETER, INIT)) & ~lives.outlasts_phase] = OTHERS
    plain = (stack == NO_PHASE) & ~found.is_before
    code[plain & ((lives.began == FORWARD) | (lives.ends_in_backward & (lives.began != BACKWARD)))] = ACTIVATIONS
    unknown = found.is_before & (stack == NO_STACK)
    code[unknown & lives.ends_in_backward] = ACTIVATIONS
    code[unknown & (freed_by == ZERO_GRAD)] = GRADIENTS
    gradients = _most_together(found, lives.is_gradient & lives.outlasts_allocations)
    if gradients or not lives.is_gradient.any():
        for at in (unknown & lives.never_freed, plain & lives.never_freed & (lives.began == -1)):
            _by_size(found, at, gradients, code)
    return Categories(code, lives.began)


class _Lives:
    """Phases at which allocations begin and end."""

    def __init__(self, found: Device, stack: I64, freed_by: I64) -> None:
        own = np.array([_PHASES.get(code, -1) for code in range(len(_BY_STACK))], np.int64)[stack]
        knows = np.flatnonzero((own >= 0) & ~found.is_before)
        order = knows[np.argsort(found.birth[knows], kind="stable")]
        self._steps, phases = found.birth[order], own[order]
        groups = np.cumsum(np.concatenate(([0], phases[1:] != phases[:-1]))) if len(order) else order
        self.began = self._at(phases, found.birth)
        self.never_freed = found.death >= found.steps
        can_end_in_backward = ~self.never_freed & ((found.free_stack == 0) | (freed_by == BACKWARD))
        self.ends_in_backward = can_end_in_backward & (self._at(phases, found.death) == BACKWARD)
        self.is_gradient = (own == BACKWARD) & ~found.is_before

        group = self._at(groups, found.birth)
        self.outlasts_phase = self.never_freed | (self._at(groups, found.death - 1) > group)
        last = np.searchsorted(groups, group, side="right") - 1
        self.outlasts_allocations = found.death > (self._steps[last] if len(order) else 0)
        """Whether an allocation is freed after the last allocation of its phase."""

    def _at(self, values: I64, steps: I64) -> I64:
        """Return the values at steps; −1 before the first."""
        at = np.searchsorted(self._steps, steps, side="right") - 1
        return np.where(at >= 0, values[np.maximum(at, 0)], -1) if len(values) else np.full(len(steps), -1, np.int64)


def _by_size(found: Device, rows: NDArray[np.bool_], gradients: Counter[int], code: I64) -> None:
    """Set the categories of allocations that are never freed: as many parameters of a size as there are gradients.

    The others of that size, or of twice that (a float32 state of a 16-bit parameter), are optimizer state. Parameters
    are allocated before their state, so they have the lower addresses. Without gradients all are parameters.
    """
    taken: Counter[int] = Counter()
    at = np.flatnonzero(rows)
    for row in at[np.argsort(found.address[at])].tolist():
        size = int(found.size[row])
        taken[size] += 1
        if not gradients or taken[size] <= gradients[size]:
            code[row] = PARAMETERS
        elif gradients[size] or (size % 2 == 0 and gradients[size // 2]):
            code[row] = STATES


def _most_together(found: Device, rows: NDArray[np.bool_]) -> Counter[int]:
    """Return the most allocations of one size that live at one step, by size."""
    columns = (column[rows].tolist() for column in (found.birth, found.death, found.size))
    events = [
        event for birth, death, size in zip(*columns, strict=True) for event in ((birth, 1, size), (death, -1, size))
    ]
    now: Counter[int] = Counter()
    most: Counter[int] = Counter()
    for _, change, size in sorted(events):
        now[size] += change
        most[size] = max(most[size], now[size])
    return most
