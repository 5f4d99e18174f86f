"""What every planner takes and gives: a packing problem and a packing, as columns.

A planner never sees a graph. It sees storages as half-open ranges in time, sizes and alignments, one
:class:`Problem` per arena, and answers with one offset per storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.graph.model import Made

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

UNLIMITED = 2**64 - 1

Progress = Callable[[str, int, int], bool]
"""``progress(what, done, of) -> go_on``: told now and then by long planners (``of`` 0 when unknown); a planner that is
answered ``False`` stops and gives the best it has."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One arena to pack: n storages, columns in the normative order (birth, −bytes, id bytes).

    Two storages conflict, and must not share a byte, when their live parts meet in time (``[birth, death)`` less their
    gaps) or when they are in ``must_not_alias``. One exception and one addition, both for hand-offs (contract §1):
    where ``handoff_from[j] == i``, storage i was read for the last time by the step that writes j
    (``death[i] == birth[j]``), and j may lie exactly at i's offset, be it larger or smaller; anywhere else the two
    conflict. A planner that assigns slots keeps to it by itself: two slots share no byte, and one slot is one offset.
    """

    arena: str
    ids: tuple[str, ...]
    birth: I64
    """First step, included."""
    death: I64
    """Step after the last one."""
    size: U64
    """Bytes. 0 is allowed: it takes no byte where bytes are placed, and a slot of 1 byte where slots are."""
    alignment: U64
    """Bytes, powers of two, the arena's floor already applied."""
    capacity: int = UNLIMITED
    arena_alignment: int = 1
    handoff_from: I64 | None = None
    """Per storage, the index of the one whose place it may take at its birth, or −1. ``None``: none at all."""
    must_not_alias: I64 | None = None
    """Shape (m, 2), index pairs. ``None``: none."""
    fixed: I64 | None = None
    """Per storage, the offset it must have, or −1. ``None``: all free."""
    gaps: tuple[tuple[tuple[int, int], ...], ...] | None = None
    """Per storage, half-open ranges inside its life in which it holds no bytes. ``None``: no gaps."""
    roles: tuple[str, ...] = ()
    """Per storage, its role; empty where the problem came without a graph."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Packing:
    """Where the storages of one arena lie. Columns parallel the problem's."""

    offset: U64
    slot: I64 | None = None
    """Logical slot per storage; ``None`` for planners without slots (numbered later by (offset, birth, id))."""
    lower_bound: int | None = None
    """Proven by the planner, in bytes, where it knows a better one than max live bytes."""
    optimal: bool = False
    """Proven by the planner: no packing has a smaller extent."""
    stopped: bool = False
    """Whether a progress callback or a budget ended the search early."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the planner tells about its run, deterministic: scalars (nodes, restarts, order and fit chosen …) and, of a
    search that can be stopped at any time, its ``course``."""


def without_empty(problem: Problem) -> tuple[Problem, I64]:
    """``(problem, kept)``: the storages that have bytes, and which they are (shape (m,), ascending).

    Who has none is in nobody's way and lies at offset 0 (contract §11: a zero-byte tensor takes no byte).
    """
    kept = np.flatnonzero(problem.size > 0)
    if len(kept) == len(problem):
        return problem, kept
    place = np.full(len(problem) + 1, -1, np.int64)  # the last one is nobody's: −1 stays −1
    place[kept] = np.arange(len(kept))
    pairs = None if problem.must_not_alias is None else place[problem.must_not_alias].reshape(-1, 2)
    rest = replace(
        problem,
        ids=tuple([problem.ids[i] for i in kept.tolist()]),
        birth=problem.birth[kept],
        death=problem.death[kept],
        size=problem.size[kept],
        alignment=problem.alignment[kept],
        handoff_from=None if problem.handoff_from is None else place[problem.handoff_from[kept]],
        must_not_alias=None if pairs is None else pairs[(pairs >= 0).all(axis=1)],
        fixed=None if problem.fixed is None else problem.fixed[kept],
        gaps=None if problem.gaps is None else tuple([problem.gaps[i] for i in kept.tolist()]),
        roles=tuple([problem.roles[i] for i in kept.tolist()]) if problem.roles else (),
    )
    return rest, kept


GIVEN = "given"
"""The planner's name in a plan whose offsets came with the instance."""


@dataclass(frozen=True, eq=False, repr=False)
class PlainInstance:
    """A packing problem without a graph, and its finished plan where the file gave every offset."""

    name: str
    problem: Problem
    packing: Packing | None = None
    notes: tuple[str, ...] = ()
    """What the reader has to say about the file."""
    made: Mapping[str, Made] = field(default_factory=dict)
    """By storage who made it, where the file says so; planned or hashed it is not."""

    def __repr__(self) -> str:
        placed = ", with offsets" if self.packing is not None else ""
        return f"<PlainInstance {self.name[:60]!r}: {len(self.problem):,} buffers{placed}>"


ArenaPlanner = Callable[[Problem, Mapping[str, Any], Progress | None], Packing]
"""A planner that packs one arena at a time: ``(problem, options, progress) -> packing``. Raises ``ArenaTooSmall`` only
when it has *proven* that nothing fits; otherwise it gives its best and the caller compares it with the capacity."""
