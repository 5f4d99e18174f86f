"""Find boxes in time and bytes that overlap, by a sweep over time. Near-linear in their number.

The sweep keeps the bytes in use as disjoint intervals sorted by start. A box that overlaps one of them is reported and
not added, so that the intervals stay disjoint.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import itemgetter

Box = tuple[int, int, int, int]
"""(first step, step after the last, first byte, byte after the last), half-open."""

CHUNK = 512


class Intervals:
    """Disjoint byte intervals sorted by start, in chunks so that a change moves few of them."""

    def __init__(self) -> None:
        self._chunks: list[list[tuple[int, int, int]]] = [[]]
        """Only the first may be empty."""
        self._firsts: list[int] = [-1]
        """Per chunk, a lower limit of its starts, above all starts of the chunk before. Starts are ≥ 0."""

    def _chunk_of(self, start: int) -> int:
        return bisect_left(self._firsts, start + 1) - 1

    def meeting(self, start: int, end: int) -> list[int]:
        """Return the numbers of the intervals that overlap ``[start, end)``."""
        found: list[int] = []
        c = self._chunk_of(start)
        at = bisect_left(self._chunks[c], start, key=itemgetter(0)) - 1
        if at < 0 and c > 0:
            c -= 1
            at = len(self._chunks[c]) - 1
        at = max(at, 0)
        while c < len(self._chunks):
            chunk = self._chunks[c]
            while at < len(chunk):
                low, high, number = chunk[at]
                if low >= end:
                    return found
                if high > start:
                    found.append(number)
                at += 1
            c, at = c + 1, 0
        return found

    def add(self, start: int, end: int, number: int) -> None:
        """Add an interval that overlaps none."""
        c = self._chunk_of(start)
        chunk = self._chunks[c]
        chunk.insert(bisect_left(chunk, start, key=itemgetter(0)), (start, end, number))
        if len(chunk) > 2 * CHUNK:
            self._chunks[c : c + 1] = [chunk[:CHUNK], chunk[CHUNK:]]
            self._firsts.insert(c + 1, chunk[CHUNK][0])

    def remove(self, start: int, end: int, number: int) -> None:
        """Remove an interval that was added."""
        c = self._chunk_of(start)
        chunk = self._chunks[c]
        at = bisect_left(chunk, (start, end, number))
        assert chunk[at] == (start, end, number), "only intervals that were added are removed"
        del chunk[at]
        if not chunk and c > 0:
            del self._chunks[c], self._firsts[c]


def overlapping(boxes: Sequence[Box]) -> Iterator[tuple[int, int]]:
    """Yield pairs (earlier, later) of boxes that overlap; empty if and only if no two boxes do.

    Not all pairs are found, see the module. Empty boxes are ignored. O(n log n) without overlaps.
    """
    solid = [i for i, (birth, death, start, end) in enumerate(boxes) if birth < death and start < end]
    events = [(boxes[i][1], 0, i) for i in solid] + [(boxes[i][0], 1, i) for i in solid]
    events.sort()  # at one step, ends sort before begins
    in_use = Intervals()
    inside: set[int] = set()
    for _, begins, i in events:
        _, _, start, end = boxes[i]
        if begins:
            met = in_use.meeting(start, end)
            if met:
                for other in met:
                    yield other, i
            else:
                in_use.add(start, end, i)
                inside.add(i)
        elif i in inside:
            in_use.remove(start, end, i)
