"""What takes most of a search where nothing is compiled, once more: by numpy and by lists, the same answers.

As Python the loops of :mod:`.kernel`, :mod:`.propagate` and :mod:`.tables` look at one number at a time.
"""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np

from tmmu_core.planners.problem import I64

FAR = 2**62


def lowest(low: I64, waits: I64, rank: I64) -> int:
    """Of those that wait the one that can start lowest, of equals the first by rank; −1 where nobody waits."""
    waiting = np.flatnonzero(waits)
    if not len(waiting):
        return -1
    starts = low[waiting]
    first = waiting[starts == starts.min()]
    return int(first[rank[first].argmin()])


def two_lowest(at: I64) -> tuple[int, int]:
    """Places of the lowest value and of the lowest of the others, the first of equals; −1 where there is none."""
    if len(at) < 2:
        return len(at) - 1, -1
    first = int(at.argmin())
    others = at.copy()
    others[first] = FAR
    return first, int(others.argmin())


def who_meets(sections: I64, entry_of: I64, owners: I64, first: I64) -> tuple[I64, I64]:
    """Per unit, ragged, the others of its sections, in the order in which they are come upon.

    ``sections`` by entry; ``owners`` by section, whose rows begin at ``first``.
    """
    bounds, by_section = first.tolist(), owners.tolist()
    members = [by_section[a:b] for a, b in pairwise(bounds)]
    ends, entries = entry_of.tolist(), sections.tolist()
    begin, rows = [0], list[int]()
    for u in range(len(ends) - 1):
        met = dict.fromkeys(chain.from_iterable(members[s] for s in entries[ends[u] : ends[u + 1]]))
        met.pop(u, None)
        rows += met
        begin.append(len(rows))
    return np.array(begin, np.int64), np.array(rows, np.int64)
