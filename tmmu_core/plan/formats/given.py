"""From lives with places to a finished plan that can be planned anew: what readers of others' plans have in common.

A :class:`Life` is a stretch of bytes that somebody held for a while. :func:`instance_of` makes an instance of many,
with their offsets as the given packing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    last: dict[str, int] = {}
    found = []
    for life in lives:
        name, k = life.id, last.get(life.id, 1) + 1
        while life.id in seen:
            last[name], life.id, k = k, f"{name} #{k}", k + 1
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


@dataclass(frozen=True)
class Lives:
    """The same as columns, for more of them than there is room for as values: a row per life, int64."""

    ids: Sequence[str]
    birth: NDArray[np.int64]
    death: NDArray[np.int64]
    size: NDArray[np.int64]
    offset: NDArray[np.int64]


def instance_of(name: str, lives: Iterable[Life], notes: Sequence[str] = (), *, placed: bool = True) -> PlainInstance:
    """The instance of these lives, one arena, each at its given offset; a problem to plan where none is ``placed``.

    Raises ``UnreadableInput`` where they are more bytes than anything can be.
    """
    rows = sorted(lives, key=Life.key)
    if sum(life.size for life in rows) > LAST_BYTE or any(life.offset + life.size > LAST_BYTE for life in rows):
        raise _too_many()
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


def instance_of_columns(name: str, lives: Lives, notes: Sequence[str] = ()) -> PlainInstance:
    """The instance of lives with places that are columns, in the normative order. Raises as :func:`instance_of`."""
    if sum(lives.size.tolist()) > LAST_BYTE or (lives.offset + lives.size > LAST_BYTE).any():
        raise _too_many()
    order = np.lexsort((-lives.size, lives.birth))
    birth, size = lives.birth[order], lives.size[order]
    begins = np.flatnonzero(np.concatenate(([True], (birth[1:] != birth[:-1]) | (size[1:] != size[:-1]))))
    ends = np.concatenate((begins[1:], [len(order)]))
    for at, end in zip(begins[ends - begins > 1].tolist(), ends[ends - begins > 1].tolist(), strict=True):
        alike = order[at:end].tolist()  # what has its birth and bytes in common stands by the bytes of its name
        order[at:end] = sorted(alike, key=lambda row: lives.ids[row].encode("utf-8", "surrogatepass"))
    problem = Problem(
        arena="arena",
        ids=tuple([lives.ids[row] for row in order.tolist()]),
        birth=lives.birth[order],
        death=lives.death[order],
        size=lives.size[order].astype(np.uint64),
        alignment=np.ones(len(order), np.uint64),
        roles=("activation",) * len(order),
    )
    return PlainInstance(name, problem, Packing(lives.offset[order].astype(np.uint64)), tuple(notes))


def _too_many() -> UnreadableInput:
    return UnreadableInput(f"all lives together are more than {LAST_BYTE} bytes.", hint="Write the plan again.")


def peak_of(lives: Sequence[Life]) -> tuple[int, int]:
    """``(step, bytes)`` of the first step at which most bytes are held; ``(0, 0)`` where nothing lives."""
    columns = ([life.birth for life in lives], [life.death for life in lives], [life.size for life in lives])
    birth, death, size = (np.array(column, np.int64) for column in columns)
    return peak_of_columns(birth, death, size)


def peak_of_columns(birth: NDArray[np.int64], death: NDArray[np.int64], size: NDArray[np.int64]) -> tuple[int, int]:
    """The same of columns."""
    if not len(birth):
        return 0, 0
    times, at = np.unique(np.concatenate((birth, death)), return_inverse=True)
    total = np.zeros(len(times), np.int64)
    np.add.at(total, at, np.concatenate((size, -size)))
    held = np.cumsum(total)
    most = int(held.argmax())
    return int(times[most]), int(held[most])


@dataclass(frozen=True)
class AddressMap:
    """Regions of an address space laid one behind the other: where an address comes to lie. Columns of int64."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    bases: NDArray[np.int64]

    @staticmethod
    def of(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> AddressMap:
        """Of half-open regions ``[start, end)``, those that touch or meet joined."""
        some = ends > starts
        order = np.argsort(starts[some], kind="stable")
        first, last = starts[some][order], np.maximum.accumulate(ends[some][order])
        apart = np.ones(len(first), np.bool_)
        apart[1:] = first[1:] > last[:-1]
        begins = np.flatnonzero(apart)
        starts, ends = first[begins], last[np.concatenate((begins[1:], [len(first)])) - 1] if len(first) else last
        lengths = ends - starts
        return AddressMap(starts, ends, np.cumsum(lengths) - lengths)

    @property
    def size(self) -> int:
        """Bytes of all regions."""
        return int((self.ends - self.starts).sum())

    def offsets(self, addresses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each address, which lies in a region, comes to lie."""
        k = np.searchsorted(self.starts, addresses, side="right") - 1
        return self.bases[k] + addresses - self.starts[k]
