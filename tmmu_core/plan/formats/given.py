"""From lives with places to a finished plan that can be planned anew: what readers of others' plans have in common.

A :class:`Life` is a stretch of bytes that somebody held for a while. :func:`instance_of` makes an instance of many,
with their offsets as the given packing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tmmu_core.planners.problem import Packing, PlainInstance, Problem


@dataclass(slots=True)
class Life:
    """One stretch of bytes while it was held: ``[birth, death)`` in steps, ``[offset, offset + size)`` in bytes."""

    id: str
    birth: int
    death: int
    size: int
    offset: int
    role: str = "activation"
    alignment: int = 1

    def key(self) -> tuple[int, int, bytes]:
        """The normative order: birth, −bytes, id bytes."""
        return self.birth, -self.size, self.id.encode("utf-8", "surrogatepass")


def instance_of(name: str, lives: Iterable[Life], told: Sequence[str] = ()) -> PlainInstance:
    """The instance of these lives, one arena, each at its given offset."""
    rows = sorted(lives, key=Life.key)
    problem = Problem(
        arena="arena",
        ids=tuple([life.id for life in rows]),
        birth=np.array([life.birth for life in rows], np.int64),
        death=np.array([life.death for life in rows], np.int64),
        size=np.array([life.size for life in rows], np.uint64),
        alignment=np.array([life.alignment for life in rows], np.uint64),
        roles=tuple([life.role for life in rows]),
    )
    return PlainInstance(name, problem, Packing(np.array([life.offset for life in rows], np.uint64)), tuple(told))


def peak_of(lives: Sequence[Life]) -> tuple[int, int]:
    """``(step, bytes)`` of the first step at which most bytes are held; ``(0, 0)`` where nothing lives."""
    if not lives:
        return 0, 0
    steps = np.array([life.birth for life in lives] + [life.death for life in lives], np.int64)
    change = np.array([life.size for life in lives] + [-life.size for life in lives], np.int64)
    times, at = np.unique(steps, return_inverse=True)
    total = np.zeros(len(times), np.int64)
    np.add.at(total, at, change)
    held = np.cumsum(total)
    most = int(held.argmax())
    return int(times[most]), int(held[most])


@dataclass(frozen=True)
class AddressMap:
    """Regions of an address space laid one behind the other: where an address comes to lie."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    bases: tuple[int, ...]

    @staticmethod
    def of(regions: Iterable[tuple[int, int]]) -> AddressMap:
        """Of half-open regions ``(start, end)``, those that touch or meet joined."""
        joined: list[list[int]] = []
        for start, end in sorted(regions):
            if joined and start <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], end)
            elif end > start:
                joined.append([start, end])
        bases, at = [], 0
        for start, end in joined:
            bases.append(at)
            at += end - start
        return AddressMap(tuple([s for s, _ in joined]), tuple([e for _, e in joined]), tuple(bases))

    @property
    def size(self) -> int:
        """Bytes of all regions."""
        return self.bases[-1] + self.ends[-1] - self.starts[-1] if self.starts else 0

    def offset(self, address: int) -> int:
        """Where ``address``, which lies in a region, comes to lie."""
        k = bisect_right(self.starts, address) - 1
        return self.bases[k] + address - self.starts[k]
