"""Idle time: steps at which storages are live but not used.

A storage is *used* at a step whose node writes or reads one of its tensors; ``@inputs`` uses the graph inputs.
"""

from dataclasses import dataclass

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
    storages = liveness.storages
    count, birth, death = len(storages), storages.birth, storages.death
    timeline, index = liveness.timeline, liveness.timeline.index
    nodes = np.arange(len(index.node_ids), dtype=np.int64)
    readers, writers = np.repeat(nodes, np.diff(index.in_ptr)), np.repeat(nodes, np.diff(index.out_ptr))
    loaded = np.flatnonzero(index.is_input) if timeline.has_inputs_step else np.zeros(0, np.int64)
    owner = liveness.storage_of[np.concatenate([index.in_idx, index.out_idx, loaded])]
    step = np.concatenate([timeline.step_of[readers], timeline.step_of[writers], np.zeros(len(loaded), np.int64)])
    owner, step = owner[owner >= 0], step[owner >= 0]
    is_live = (birth[owner] <= step) & (step < death[owner])
    owner, step = np.unique(np.stack([owner[is_live], step[is_live]], axis=1), axis=0).T
    used = np.bincount(owner, minlength=count)
    # The idle ranges of a storage lie between two uses. Its birth − 1 and its death count as uses here.
    numbers = np.arange(count)
    storage = np.concatenate([numbers, owner, numbers])
    use = np.concatenate([birth - 1, step, death])
    order = np.lexsort((use, storage))
    storage, use = storage[order], use[order]
    same = storage[1:] == storage[:-1]
    gap_from, gap_to, storage = use[:-1][same] + 1, use[1:][same], storage[:-1][same]
    longest_first = np.lexsort((gap_from, gap_from - gap_to, storage))
    longest = longest_first[np.searchsorted(storage[longest_first], numbers)]
    gap_from, gap_to = gap_from[longest], gap_to[longest]
    is_always_used = gap_from >= gap_to
    ends = np.cumsum(used)
    last_use, previous_use = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    last_use[used > 0] = step[ends[used > 0] - 1]
    previous_use[used > 1] = step[ends[used > 1] - 2]
    return Idle(
        live=death - birth,
        idle=death - birth - used,
        gap_from=np.where(is_always_used, death, gap_from),
        gap_to=np.where(is_always_used, death, gap_to),
        last_use=last_use,
        previous_use=previous_use,
    )
