"""Which boxes in time and bytes overlap, near-linear in their number.

A sweep over time keeps the bytes in use as disjoint intervals, sorted by start. In a good plan a new box meets nobody;
asking its two neighbours is then enough. A box that does meet somebody is told and left out, so that the intervals
stay disjoint and the sweep goes on.
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
        """None but the first is ever empty."""
        self._firsts: list[int] = [-1]
        """Of each chunk: no start in it is below, no start before it is not. Starts are 0 or above."""

    def _chunk_of(self, start: int) -> int:
        return bisect_left(self._firsts, start + 1) - 1

    def meeting(self, start: int, end: int) -> list[int]:
        """Numbers of the intervals that share a byte with ``[start, end)``."""
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
        """Take in an interval that meets none."""
        c = self._chunk_of(start)
        chunk = self._chunks[c]
        chunk.insert(bisect_left(chunk, start, key=itemgetter(0)), (start, end, number))
        if len(chunk) > 2 * CHUNK:
            self._chunks[c : c + 1] = [chunk[:CHUNK], chunk[CHUNK:]]
            self._firsts.insert(c + 1, chunk[CHUNK][0])

    def remove(self, start: int, end: int, number: int) -> None:
        """Take it out again."""
        c = self._chunk_of(start)
        chunk = self._chunks[c]
        at = bisect_left(chunk, (start, end, number))
        assert chunk[at] == (start, end, number), "what is removed was added"
        del chunk[at]
        if not chunk and c > 0:
            del self._chunks[c], self._firsts[c]


def overlapping(boxes: Sequence[Box]) -> Iterator[tuple[int, int]]:
    """Pairs (earlier, later) of box numbers that share a byte at a step: none if and only if no two boxes do.

    Boxes without bytes or without steps meet nobody. O(n log n) when there is nothing to tell.
    """
    solid = [i for i, (birth, death, start, end) in enumerate(boxes) if birth < death and start < end]
    events = [(boxes[i][1], 0, i) for i in solid] + [(boxes[i][0], 1, i) for i in solid]
    events.sort()  # at one step what ends comes before what begins
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
