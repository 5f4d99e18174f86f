"""Idle time: steps at which storages are live but not used.

A storage is *used* at a step whose node writes or reads one of its tensors; ``@inputs`` uses the graph inputs.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tmmu_core.liveness.live_model import I64, Liveness


@dataclass(frozen=True, eq=False)
class Idle:
    """Columns, one row per storage of a :class:`Liveness`. Values are steps; ranges are half-open."""

    live: I64  # number of steps from birth to death
    idle: I64  # number of these steps that do not use the storage
    gap_from: I64  # first step of the longest idle range (the first of equal ones); the death if there is none
    gap_to: I64  # step after that idle range
    last_use: I64  # last step that uses the storage; −1: none
    previous_use: I64  # last step before ``last_use`` that uses the storage; −1: none


def idle_of(liveness: Liveness) -> Idle:
    """Return the idle steps of every storage. O(operands · log operands)."""
    timeline, index = liveness.timeline, liveness.timeline.index
    birth, death = liveness.storages.birth.tolist(), liveness.storages.death.tolist()
    loaded = np.flatnonzero(index.is_input)
    owner = liveness.storage_of[np.concatenate([index.in_idx, index.out_idx, loaded])]
    read_at, written_at = (np.repeat(timeline.step_of, np.diff(ptr)) for ptr in (index.in_ptr, index.out_ptr))
    step = np.concatenate([read_at, written_at, np.zeros(len(loaded), np.int64)])
    uses: list[list[int]] = [[] for _ in birth]  # per storage, the steps that use it, ascending
    for storage, at in np.unique(np.stack([owner, step], axis=1), axis=0).tolist():
        if storage >= 0 and birth[storage] <= at < death[storage]:
            uses[storage].append(at)
    rows = []
    for first, end, used in zip(birth, death, uses, strict=True):
        # The idle ranges lie between two uses. The death, and the step before the birth, count as uses here.
        gaps = [(after + 1, until) for after, until in pairwise((first - 1, *used, end))]
        gap_from, gap_to = max(gaps, key=lambda gap: gap[1] - gap[0])
        if gap_from == gap_to:
            gap_from = gap_to = end
        previous_use, last_use = (-1, -1, *used)[-2:]
        rows.append((end - first, end - first - len(used), gap_from, gap_to, last_use, previous_use))
    return Idle(*np.array(rows, np.int64).reshape(-1, 6).T)
