"""Category of each allocation: parameter, gradient, optimizer state, activation or other, and how certain it is.

The stack decides where it can (``certain``). Lifetimes decide for user code without a phase, and for the backward pass,
whose threads have no Python stack (``likely``). Allocations from before the trace, whose stack is not recorded, are
compared with the sizes of the gradients (``guess``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
PARAMETERS, GRADIENTS, STATES, ACTIVATIONS, OTHERS = range(len(CATEGORIES))
GUESS, LIKELY, CERTAIN = range(3)
CERTAINTIES = ("guess", "likely", "certain")
_BY_STACK = {
    FORWARD: (ACTIVATIONS, CERTAIN),
    BACKWARD: (GRADIENTS, CERTAIN),
    OPTIMIZER: (OTHERS, LIKELY),
    STATE: (STATES, CERTAIN),
    PARAMETER: (PARAMETERS, CERTAIN),
    INIT: (PARAMETERS, LIKELY),
    WORKSPACE: (OTHERS, CERTAIN),
    NO_PHASE: (OTHERS, LIKELY),
    NO_STACK: (OTHERS, GUESS),
    ZERO_GRAD: (OTHERS, LIKELY),
}
_PHASES = {FORWARD: FORWARD, BACKWARD: BACKWARD, OPTIMIZER: OPTIMIZER, STATE: OPTIMIZER, PARAMETER: PARAMETER}


@dataclass(frozen=True)
class Allocations:
    """Allocations as columns of length n, and the stacks' phase codes."""

    birth: I64
    death: I64
    size: I64
    stack: I64
    """Row of the allocating stack; 0: not recorded."""
    free_stack: I64
    """Row of the freeing stack; 0: not recorded or not freed."""
    address: I64
    is_before: NDArray[np.bool_]
    """Whether it began before the trace."""
    steps: int
    phases: Sequence[int]
    """Phase code per stack."""


@dataclass(frozen=True)
class Categories:
    """Columns of length n."""

    code: U8
    """Index into ``CATEGORIES``."""
    certainty: U8
    """Index into :data:`CERTAINTIES`."""
    phase: I64
    """Code of the phase in which it began (``FORWARD``, ``BACKWARD``, ``OPTIMIZER``, ``PARAMETER``), −1 for unknown."""


def categorise(found: Allocations) -> Categories:
    """Return the categories of allocations. O(n log n)."""
    stack = np.array(found.phases, np.int64)[found.stack]
    is_threaded = bool((stack[~found.is_before] > NO_PHASE).any())
    # Autograd's threads run no Python code: without C++ frames their allocations have no stack at all.
    by_thread = is_threaded & (stack == NO_STACK) & ~found.is_before
    stack = np.where(by_thread, BACKWARD, stack)
    code, certainty = (np.array([_BY_STACK[k][at] for k in range(len(_BY_STACK))], np.uint8)[stack] for at in (0, 1))
    certainty[by_thread] = LIKELY
    lives = _Lives(found, stack)

    lasts = lives.outlasts_phase
    code[(stack == OPTIMIZER) & lasts] = STATES
    code[np.isin(stack, (PARAMETER, INIT)) & ~lasts] = OTHERS
    plain = (stack == NO_PHASE) & ~found.is_before
    code[plain & ((lives.began == FORWARD) | (lives.ends_in_backward & (lives.began != BACKWARD)))] = ACTIVATIONS
    unknown = found.is_before & (stack == NO_STACK)
    _before_trace(found, unknown, lives, code, certainty)
    _by_size(found, plain & lives.never_freed & (lives.began == -1), code, certainty, lives)
    return Categories(code, certainty, lives.began)


class _Lives:
    """Phases at which allocations begin and end."""

    def __init__(self, found: Allocations, stack: I64) -> None:
        phase_of = np.full(len(_BY_STACK), -1, np.int64)
        phase_of[list(_PHASES)] = list(_PHASES.values())
        own = phase_of[stack]
        knows = np.flatnonzero((own >= 0) & ~found.is_before)
        order = knows[np.argsort(found.birth[knows], kind="stable")]
        self._steps, self._phases = found.birth[order], own[order]
        self._groups = np.cumsum(np.concatenate(([0], self._phases[1:] != self._phases[:-1]))) if len(order) else order
        self.began = self._at(self._phases, found.birth)
        self.never_freed = found.death >= found.steps
        self._death = found.death
        freed_by = np.array(found.phases, np.int64)[found.free_stack]
        self._can_end_in_backward = ~self.never_freed & ((found.free_stack == 0) | (freed_by == BACKWARD))
        self.is_gradient = (own == BACKWARD) & ~found.is_before

        group = self._at(self._groups, found.birth)
        self.outlasts_phase = self.never_freed | (self._at(self._groups, found.death - 1) > group)
        last = np.searchsorted(self._groups, group, side="right") - 1
        self.outlasts_allocations = found.death > (self._steps[last] if len(order) else 0)
        """Whether an allocation is freed after the last allocation of its phase."""

    def _at(self, values: I64, steps: I64) -> I64:
        """Return the values at steps; −1 before the first."""
        at = np.searchsorted(self._steps, steps, side="right") - 1
        return np.where(at >= 0, values[np.maximum(at, 0)], -1) if len(values) else np.full(len(steps), -1, np.int64)

    @property
    def ends_in_backward(self) -> NDArray[np.bool_]:
        """Whether an allocation is freed during the backward pass."""
        return self._can_end_in_backward & (self._at(self._phases, self._death) == BACKWARD)


def _before_trace(found: Allocations, rows: NDArray[np.bool_], lives: _Lives, code: U8, certainty: U8) -> None:
    """Set the categories of allocations without stack from before the trace."""
    freed_by = np.array(found.phases, np.int64)[found.free_stack]
    code[rows & lives.ends_in_backward] = ACTIVATIONS
    certainty[rows & lives.ends_in_backward] = LIKELY
    code[rows & (freed_by == ZERO_GRAD)] = GRADIENTS
    certainty[rows & (freed_by == ZERO_GRAD)] = LIKELY
    _by_size(found, rows & lives.never_freed, code, certainty, lives)


def _by_size(found: Allocations, rows: NDArray[np.bool_], code: U8, certainty: U8, lives: _Lives) -> None:
    """Set the categories of allocations that are never freed: as many parameters of a size as there are gradients.

    The others of that size, or of twice that (a float32 state of a 16-bit parameter), are optimizer state. Parameters
    are allocated before their state, so they have the lower addresses. Without gradients all are parameters.
    """
    kept = lives.is_gradient & lives.outlasts_allocations
    gradients = _most_together(found, kept)
    if not gradients and lives.is_gradient.any():
        return
    taken: Counter[int] = Counter()
    at = np.flatnonzero(rows)
    for row in at[np.argsort(found.address[at])].tolist():
        size = int(found.size[row])
        taken[size] += 1
        if not gradients or taken[size] <= gradients[size]:
            code[row] = PARAMETERS
        elif gradients[size] or (size % 2 == 0 and gradients[size // 2]):
            code[row] = STATES
        certainty[row] = GUESS


def _most_together(found: Allocations, rows: NDArray[np.bool_]) -> Counter[int]:
    """Return the most allocations of one size that live at one step, by size."""
    at = np.flatnonzero(rows)
    events = sorted(
        [(int(found.death[k]), -1, int(found.size[k])) for k in at.tolist()]
        + [(int(found.birth[k]), 1, int(found.size[k])) for k in at.tolist()]
    )
    now: Counter[int] = Counter()
    most: Counter[int] = Counter()
    for _, change, size in events:
        now[size] += change
        most[size] = max(most[size], now[size])
    return most
