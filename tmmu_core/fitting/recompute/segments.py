"""Segments: split the forward pass so that recomputed storages are read soon after their recomputation.

A cut across the peak (``min_cut.py``) does not count the memory of a long chain that is recomputed at once: in a
recurrent or deep network the first reader needs the whole chain, which then stays live for later readers. Here the
storages that cross the boundary between two segments are kept, and recomputation starts from them (Chen et al. 2016).
Dynamic programming finds the boundaries that keep the fewest bytes. The bytes that a segment recomputes are limited.
"""

from collections.abc import Iterator

import numpy as np

from tmmu_core.fitting.recompute.min_cut import Boundary
from tmmu_core.fitting.recompute.recompute_model import I64, NEVER, Mask, RecomputeModel

MOST_CUTS = 400  # maximum number of positions where a segment can end: those that the fewest bytes cross
LIMIT_RATIO = (3, 4)  # ratio of each limit of a segment's bytes to the limit before: numerator, denominator


def segmentations(model: RecomputeModel, at: Boundary) -> Iterator[Mask]:
    """Yield masks of shape (storages,): the storages kept between segments, for falling limits of a segment's bytes.

    O(cuts · (positions + storages)) once, and O(cuts · (cuts + storages)) per mask.
    """
    after_forward = np.flatnonzero(model.is_after_forward)
    forward_end = min(at.position, int(after_forward[0]) - 1 if len(after_forward) else at.position)
    in_forward = model.droppable & (model.producer <= forward_end)
    last = np.full(len(model.size), -1, np.int64)
    edges = np.flatnonzero(model.reader <= forward_end)
    last[model.in_idx[edges]] = model.reader[edges]
    crossing = np.flatnonzero(in_forward & (last > model.producer))
    cuts = _cuts(model, crossing, last, forward_end)
    if len(cuts) < 3:
        return
    bytes_before = np.zeros(forward_end + 2, np.int64)
    needed = np.flatnonzero(in_forward & at.read_later)
    np.add.at(bytes_before, model.producer[needed] + 1, model.size[needed])
    bytes_before = np.cumsum(bytes_before)
    bytes_between = bytes_before[cuts[None, :] + 1] - bytes_before[cuts[:, None] + 1]
    kept = _kept_bytes(model, cuts, crossing, last)
    limit, known = int(bytes_before[-1]), set()
    while limit := limit * LIMIT_RATIO[0] // LIMIT_RATIO[1]:
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

    In a run of equal values, only the last before a rise is a minimum. If there is no rise, as in a chain of equal
    tensors, all positions without a lower neighbour are minima.
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
    """Return an array of shape (cuts, cuts): bytes that are computed between two cuts and cross the second."""
    found = np.zeros((len(cuts), len(cuts)), np.int64)
    for j, p in enumerate(cuts[1:-1].tolist(), 1):
        crossing_cut = crossing[(model.producer[crossing] <= p) & (last[crossing] > p)]
        computed = np.zeros(p + 2, np.int64)
        np.add.at(computed, model.producer[crossing_cut] + 1, model.size[crossing_cut])
        computed = np.cumsum(computed)
        found[:j, j] = computed[p + 1] - computed[cuts[:j] + 1]
    return found


def _cheapest_boundaries(bytes_between: I64, kept: I64, limit: int) -> tuple[int, ...] | None:
    """Return the indices of the inner cuts that keep the fewest bytes; ``None`` if no choice meets ``limit``."""
    count = len(kept)
    least = np.full(count, NEVER, np.int64)
    least[0] = 0
    chosen: list[tuple[int, ...]] = [()]  # cut → the best inner cuts for the segments up to this cut, with this cut
    for j in range(1, count):
        total = np.where(bytes_between[:j, j] <= limit, least[:j] + kept[:j, j], NEVER)
        previous = int(total.argmin())
        least[j] = min(total[previous], NEVER)
        chosen.append((*chosen[previous], j))
    return chosen[-1][:-1] if least[-1] < NEVER else None
