"""From lives with places to a finished plan that can be planned anew: what readers of others' plans have in common.

A :class:`Life` is a stretch of bytes that somebody held for a while. :func:`instance_of` makes an instance of many,
with their offsets as the given packing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tmmu_core.errors import UnreadableInput
from tmmu_core.graph import document
from tmmu_core.planners.problem import Packing, PlainInstance, Problem

LAST_BYTE = 2**62
"""No byte and no step of a plan is past this."""


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


def apart(lives: Iterable[Life]) -> list[Life]:
    """The lives under names of their own: one that comes again gets a number."""
    seen: set[str] = set()
    found = []
    for life in lives:
        name, k = life.id, 2
        while life.id in seen:
            life.id, k = f"{name} #{k}", k + 1
        seen.add(life.id)
        found.append(life)
    return found


def is_log(data: bytes) -> bool:
    """Whether these bytes are text for people: no document, and no protobuf (whose models begin with byte 8)."""
    return b"\0" not in data[:1024] and not document.kind(data) and data[:1] != b"\x08"


def stem_of(name: str) -> str:
    """A file's name without its folder and its ending, so that a plan is called the same wherever its file lies."""
    stem = name.replace("\\", "/").rpartition("/")[2].removesuffix(".gz")
    return stem.rpartition(".")[0] or stem


def instance_of(name: str, lives: Iterable[Life], notes: Sequence[str] = (), *, placed: bool = True) -> PlainInstance:
    """The instance of these lives, one arena, each at its given offset; a problem to plan where none is ``placed``.

    Raises ``UnreadableInput`` where they are more bytes than anything can be.
    """
    rows = sorted(lives, key=Life.key)
    if sum(life.size for life in rows) > LAST_BYTE or any(life.offset + life.size > LAST_BYTE for life in rows):
        raise UnreadableInput(f"all lives together are more than {LAST_BYTE} bytes.", hint="Write the plan again.")
    problem = Problem(
        arena="arena",
        ids=tuple([life.id for life in rows]),
        birth=np.array([life.birth for life in rows], np.int64),
        death=np.array([life.death for life in rows], np.int64),
        size=np.array([life.size for life in rows], np.uint64),
        alignment=np.array([life.alignment for life in rows], np.uint64),
        roles=tuple([life.role for life in rows]),
    )
    packing = Packing(np.array([life.offset for life in rows], np.uint64)) if placed else None
    return PlainInstance(name, problem, packing, tuple(notes))


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
