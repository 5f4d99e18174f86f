"""Segments: split the forward pass so that recomputed storages are read soon after their recomputation.

A cut across the peak (``min_cut.py``) does not count the memory of a long chain that is recomputed at once: in a
recurrent or deep network the first reader needs the whole chain, which then stays live for later readers. Here the
storages that cross the boundary between two segments are kept, and recomputation starts from them (Chen et al. 2016).
Dynamic programming finds the boundaries that keep the fewest bytes, with a limit on the bytes that a segment computes
for the backward pass.
"""

from collections.abc import Iterator

import numpy as np

from tmmu_core.fitting.recompute.min_cut import Boundary
from tmmu_core.fitting.recompute.recompute_model import I64, NEVER, Mask, RecomputeModel

MOST_CUTS = 400
"""Maximum number of positions at which a segment can end; positions that fewer bytes cross have priority."""
SHRINK = (3, 4)  # ratio of successive limits of a segment's bytes: numerator, denominator


def segmentations(model: RecomputeModel, at: Boundary) -> Iterator[Mask]:
    """Yield masks of shape (storages,): the storages kept between segments, for falling limits of a segment's bytes.

    O(cuts · (positions + storages)) once, and O(cuts · (cuts + storages)) per mask.
    """
    late = np.flatnonzero(model.late)
    end = min(at.position, int(late[0]) - 1 if len(late) else at.position)
    in_forward = model.droppable & (model.producer <= end)
    last = np.full(len(model.size), -1, np.int64)
    edges = np.flatnonzero(model.reader <= end)
    last[model.in_idx[edges]] = model.reader[edges]
    crossing = np.flatnonzero(in_forward & (last > model.producer))
    cuts = _cuts(model, crossing, last, end)
    if len(cuts) < 3:
        return
    needed_bytes = np.zeros(end + 2, np.int64)
    needed = np.flatnonzero(in_forward & at.read_later)
    np.add.at(needed_bytes, model.producer[needed] + 1, model.size[needed])
    needed_bytes = np.cumsum(needed_bytes)
    bytes_between = needed_bytes[cuts[None, :] + 1] - needed_bytes[cuts[:, None] + 1]
    kept = _kept_bytes(model, cuts, crossing, last)
    limit, known = int(needed_bytes[-1]), set()
    while limit := limit * SHRINK[0] // SHRINK[1]:
        chosen = _cheapest_boundaries(bytes_between, kept, limit)
        if chosen is None:
            return
        if chosen in known:
            continue
        known.add(chosen)
        mask = np.zeros(len(model.size), np.bool_)
        for p in cuts[list(chosen)].tolist():
            mask[crossing[(model.producer[crossing] <= p) & (last[crossing] > p)]] = True
        yield mask


def _cuts(model: RecomputeModel, crossing: I64, last: I64, end: int) -> I64:
    """Return −1, the positions with a local minimum of the bytes that cross them, and ``end``.

    Of equal neighbours, only the last before a rise is a minimum. Without a rise, as in a chain of equal tensors, all
    positions without a lower neighbour are minima.
    """
    change = np.zeros(end + 2, np.int64)
    np.add.at(change, model.producer[crossing], model.size[crossing])
    np.subtract.at(change, last[crossing], model.size[crossing])
    live = np.cumsum(change)
    inner = np.arange(1, max(1, end))
    inner = inner[(live[inner] <= live[inner - 1]) & (live[inner] <= live[inner + 1])]
    before_rise = inner[live[inner] < live[inner + 1]]
    inner = before_rise if len(before_rise) else inner
    fewest = inner[np.argsort(live[inner], kind="stable")[:MOST_CUTS]]
    return np.concatenate([[-1], np.sort(fewest), [end]]).astype(np.int64)


def _kept_bytes(model: RecomputeModel, cuts: I64, crossing: I64, last: I64) -> I64:
    """Return an array of shape (cuts, cuts): bytes computed between two cuts that cross the second one."""
    found = np.zeros((len(cuts), len(cuts)), np.int64)
    for j, p in enumerate(cuts[1:-1].tolist(), 1):
        over = crossing[(model.producer[crossing] <= p) & (last[crossing] > p)]
        computed = np.zeros(p + 2, np.int64)
        np.add.at(computed, model.producer[over] + 1, model.size[over])
        computed = np.cumsum(computed)
        found[:j, j] = computed[p + 1] - computed[cuts[:j] + 1]
    return found


def _cheapest_boundaries(bytes_between: I64, kept: I64, limit: int) -> tuple[int, ...] | None:
    """Return the indices of the inner cuts that keep the fewest bytes; ``None`` if no choice meets ``limit``."""
    count = len(kept)
    least = np.full(count, NEVER, np.int64)
    least[0] = 0
    chosen: list[tuple[int, ...]] = [()]
    """Cut → the cuts that are chosen up to it."""
    for j in range(1, count):
        total = np.where(bytes_between[:j, j] <= limit, least[:j] + kept[:j, j], NEVER)
        before = int(total.argmin())
        least[j] = min(total[before], NEVER)
        chosen.append((*chosen[before], j))
    return chosen[-1][:-1] if least[-1] < NEVER else None
