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
    last: I64  # last step that uses the storage; −1: none
    before: I64  # last step before ``last`` that uses the storage; −1: none


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
    # With sentinels before the birth and at the death, idle ranges lie between neighbours.
    every = np.arange(count)
    storage = np.concatenate([every, owner, every])
    when = np.concatenate([birth - 1, step, death])
    by = np.lexsort((when, storage))
    storage, when = storage[by], when[by]
    same = storage[1:] == storage[:-1]
    left, right, of = when[:-1][same] + 1, when[1:][same], storage[:-1][same]
    longest = np.lexsort((left, left - right, of))
    first = np.searchsorted(of[longest], every)
    gap_from, gap_to = left[longest][first], right[longest][first]
    is_always_used = gap_from >= gap_to
    ends = np.cumsum(used)
    last, before = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    last[used > 0] = step[ends[used > 0] - 1]
    before[used > 1] = step[ends[used > 1] - 2]
    return Idle(
        live=death - birth,
        idle=death - birth - used,
        gap_from=np.where(is_always_used, death, gap_from),
        gap_to=np.where(is_always_used, death, gap_to),
        last=last,
        before=before,
    )
