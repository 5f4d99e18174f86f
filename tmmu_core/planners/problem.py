"""Types that all planners use: the packing problem, the packing, checked options, and a meter of search nodes.

A planner does not see the graph. A :class:`Problem` has the half-open lifetimes, sizes and alignments of the storages
of one arena; a :class:`Packing` has their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base import strict
from tmmu_core.base.errors import AllocationOverflow, InvalidIrShapes
from tmmu_core.graph.model import StorageOrigin

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]

UNLIMITED = 2**64 - 1  # capacity of an arena without a limit

Progress = Callable[[str, int, int], bool]
"""``progress(what, done, of)``, called by long planners (``of`` is 0 if unknown). If it returns ``False``, the planner
stops and returns its best result."""
Pairs = tuple[tuple[int, int], ...]
GIVEN = "given"  # planner name of a plan whose offsets are read from a file
NODE_LIMIT = "max_nodes"  # name of the planner option that limits the nodes of all arenas of a plan together


@dataclass(frozen=True, eq=False)
class ReuseTerms:
    """Constraints and costs of sharing bytes, by storage index (contract §12, "Reuse costs")."""

    colocations: Pairs = ()  # pairs that must have the same offset
    exclusions: Pairs = ()  # pairs that may share bytes although their live ranges overlap, because no run uses both
    penalties: tuple[tuple[int, int, int], ...] = ()
    """``(i, j, cost)``: the cost is paid once if the byte ranges of i and j overlap."""
    reserved: Pairs = ()  # byte ranges ``(begin, end)`` of the arena in which no storage may lie

    def renumbered(self, number: I64) -> ReuseTerms:
        """Return the terms with index ``number[i]`` in place of i; drop the terms of storages with the number −1."""
        new, changes = number.tolist(), dict[str, Any]()
        for name in ("colocations", "exclusions", "penalties"):
            kept = [row for row in getattr(self, name) if new[row[0]] >= 0 <= new[row[1]]]
            changes[name] = tuple([(new[i], new[j], *cost) for i, j, *cost in kept])
        return replace(self, **changes)


@dataclass(frozen=True, eq=False)
class Problem:
    """One arena to pack: n storages as columns in normative order (birth, −bytes, id bytes).

    Two storages conflict, and must not share a byte, if their live ranges (``[birth, death)`` without the gaps)
    overlap, or if ``must_not_alias`` contains the pair. In-place reuse (hand-off, contract §1): ``handoff_from[j] ==
    i`` means that the step ``birth[j]`` writes j and reads i, although ``death[i] == birth[j]``. Storage j may lie at
    exactly i's offset; at any other offset the two conflict. Planners with slots need not check this: storages of one
    slot have the same offset, and slots share no byte.
    """

    arena: str
    ids: tuple[str, ...]
    birth: I64  # first step, included
    death: I64  # step after the last live step; above the birth
    size: U64  # bytes; may be 0
    alignment: U64  # bytes, powers of two, at least the arena's alignment
    capacity: int = UNLIMITED  # bytes
    arena_alignment: int = 1  # bytes; minimum alignment of a slot
    handoff_from: I64 | None = None  # Per storage, the storage that it may reuse in place, or −1. ``None``: none.
    must_not_alias: I64 | None = None  # Shape (m, 2), index pairs. ``None``: none.
    fixed: I64 | None = None  # Per storage, a fixed offset, or −1. ``None``: none.
    gaps: tuple[tuple[tuple[int, int], ...], ...] | None = None
    """Per storage, half-open ranges of steps inside its lifetime at which it takes no bytes. ``None``: none."""
    roles: tuple[str, ...] = ()  # tensor role per storage; empty if unknown
    reuse: ReuseTerms | None = None  # Constraints and costs that only the planner ``reuse`` observes. ``None``: none.
    page_size: int = 0  # bytes; 0: no pages

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def fixed_count(self) -> int:
        """Number of storages with a fixed offset."""
        return 0 if self.fixed is None else int((self.fixed >= 0).sum())

    def subproblem(self, indices: I64) -> Problem:
        """Return the problem of the storages ``indices`` (ascending). Relations to other storages are dropped."""
        if len(indices) == len(self):
            return self
        number = np.full(len(self) + 1, -1, np.int64)  # the last row is for the index −1
        number[indices] = np.arange(len(indices))
        rows = indices.tolist()
        changes: dict[str, Any] = {name: getattr(self, name)[rows] for name in ("birth", "death", "size", "alignment")}
        if self.handoff_from is not None:
            changes["handoff_from"] = number[self.handoff_from[indices]]
        if self.must_not_alias is not None:
            pairs = number[self.must_not_alias].reshape(-1, 2)
            changes["must_not_alias"] = pairs[(pairs >= 0).all(axis=1)]
        if self.fixed is not None:
            changes["fixed"] = self.fixed[indices]
        for name in ("gaps", "roles"):
            if column := getattr(self, name):
                changes[name] = tuple([column[i] for i in rows])
        if self.reuse is not None:
            changes["reuse"] = self.reuse.renumbered(number)
        return replace(self, ids=tuple([self.ids[i] for i in rows]), **changes)

    def overflow(self, what: str, offset: int, size: int, **fields: Any) -> AllocationOverflow:
        """Return the error for ``what``, of ``size`` bytes at ``offset``, which ends past 2^64 − 1."""
        alignment = int(self.alignment.max(initial=1))
        hint = "Split the arena, or make its storages smaller."
        if alignment > self.size.max(initial=0):
            hint = f"Lower the alignment of {alignment:,} B: it is larger than every storage."
        message = f"{what} of arena {self.arena!r} would end at byte {offset + size:,}, past 2^64 − 1."
        return AllocationOverflow(message, arena=self.arena, offset=offset, size=size, hint=hint, **fields)

    @property
    def assumptions(self) -> str:
        """Assumptions of a lower bound or a proof, as text: ``at alignment 64 B with the 2 given offsets``."""
        given = f" with the {count:,} given offset{'s' * (count > 1)}" if (count := self.fixed_count) else ""
        return alignment_text(self.alignment) + given


def alignment_text(alignment: NDArray[Any]) -> str:
    """Return the alignments of buffers in bytes as text: ``at alignment 64 B`` or ``at alignments of 4 to 64 B``."""
    lowest, highest = int(alignment.min(initial=UNLIMITED)), int(alignment.max(initial=1))
    return f"at alignment {highest:,} B" if lowest >= highest else f"at alignments of {lowest:,} to {highest:,} B"


@dataclass(frozen=True, eq=False)
class Packing:
    """Result of a planner for one arena; the columns are in the order of the problem's storages."""

    offset: U64
    slot: I64 | None = None
    """Logical slot per storage. ``None`` without slots: storages are numbered later by (offset, birth, id)."""
    lower_bound: int | None = None
    """Lower bound of the extent in bytes, proven by the planner; ``None`` if it computes none."""
    optimal: bool = False  # whether the planner proved that no packing has a smaller extent
    stopped: bool = False  # whether ``progress`` or a budget ended the search early
    cost_bound: int | None = None
    """Proven lower bound of the reuse cost; ``None`` for planners that ignore reuse costs."""
    cost_witness: tuple[tuple[str, ...], ...] | None = None  # groups of storages, by id, that prove ``cost_bound``
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Deterministic facts about the run: scalars (nodes, order, fit …), and the progress of a search (``course``)."""


def packing_extent(offset: U64, size: U64) -> int:
    """Return the highest end of a storage that has bytes; 0 if none has."""
    return int((offset + size).max(where=size > 0, initial=0))


def without_empty(problem: Problem) -> tuple[Problem, I64]:
    """Return the problem of the storages that have bytes, and their indices. Storages without bytes never conflict."""
    indices = np.flatnonzero(problem.size > 0)
    return problem.subproblem(indices), indices


def live_parts(problem: Problem) -> tuple[I64, I64, I64]:
    """Return ``(first, begin, end)`` of the live parts (between gaps); storage i has rows ``first[i]:first[i + 1]``."""
    n = len(problem)
    birth, death = problem.birth.astype(np.int64), problem.death.astype(np.int64)
    if problem.gaps is None or not any(problem.gaps):
        return np.arange(n + 1, dtype=np.int64), birth, death
    first, lo, hi = [0], [], []
    for i, gaps in enumerate(problem.gaps):
        at, end = int(birth[i]), int(death[i])
        for begin, stop in [*sorted(gaps), (end, end)]:
            if at < min(begin, end):
                lo.append(at)
                hi.append(min(begin, end))
            at = max(at, stop)
        first.append(len(lo))
    return tuple(np.asarray(column, dtype=np.int64) for column in (first, lo, hi))  # type: ignore[return-value]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Recorded:
    """Data of a recorded allocator besides the live ranges of its buffers. Readers define subclasses."""

    categories: tuple[str, ...]  # category per storage (contract §12, "Snapshots")
    reserved_peak_bytes: int | None
    """Maximum number of bytes that the allocator reserved; ``None`` if it was not recorded."""


@dataclass(frozen=True, eq=False, repr=False)
class PlainInstance:
    """Packing problems without a graph, with their packing if the file gives every offset."""

    name: str
    problem: Problem
    packing: Packing | None = None
    notes: tuple[str, ...] = ()  # remarks of the reader for the user
    origins: Mapping[str, StorageOrigin] = field(default_factory=dict)
    """Storage id → its producer, if the file names it. Neither the plan nor its hashes depend on it."""
    recorded: Recorded | None = None  # data of the allocator, if the file is a snapshot
    others: tuple[Problem, ...] = ()
    """Further arenas with separate ids. The offsets in ``packing`` are in the order of :attr:`problems`."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of all arenas, sorted by arena name."""
        return tuple(sorted((self.problem, *self.others), key=lambda problem: problem.arena.encode()))

    def __repr__(self) -> str:
        placed = ", with offsets" if self.packing is not None else ""
        return f"<PlainInstance {self.name[:60]!r}: {len(self.problem):,} buffers{placed}>"


def option_error(message: str, hint: str) -> InvalidIrShapes:
    """Return the error for an invalid planner option (reason ``planner_option``)."""
    return InvalidIrShapes(message, reason="planner_option", node_id="", hint=hint)


def choice_option(options: Mapping[str, Any], name: str, default: str, known: Sequence[str]) -> str:
    """Return a named choice from planner options. Raises InvalidIrShapes (``planner_option``) for an unknown one."""
    value = options.get(name, default)
    if value not in known:
        raise _bad_option(name, value, strict.closest_hint(strict.shown(value), known))
    return str(value)


def count_option(options: Mapping[str, Any], name: str, default: int) -> int:
    """Return an integer ≥ 0 from planner options (text is parsed). Raises InvalidIrShapes (``planner_option``)."""
    value = options.get(name, default)
    try:
        return strict.whole_number(str(value))
    except ValueError:
        raise _bad_option(name, value, "Write a whole number, 0 or more, within 64 bits.") from None


def flag_option(options: Mapping[str, Any], name: str, default: bool) -> bool:
    """Return a Boolean from planner options (text is parsed; ``None``: default). Raises InvalidIrShapes."""
    value = options.get(name)
    if value is None:
        return default
    if str(value).lower() not in ("true", "false"):
        raise _bad_option(name, value, strict.closest_hint(str(value), ("true", "false")))
    return str(value).lower() == "true"


def _bad_option(name: str, value: Any, hint: str) -> InvalidIrShapes:
    return option_error(f"the planner option {name}={strict.shown(value)} is not valid.", hint)


class Meter:
    """Number of nodes that the searches of one plan used, and the limit at which they stop.

    A branch of a tree search, an iteration of a local search and a greedy run count as one node each. If a user stops
    the search, :attr:`limit` becomes the count at which it ends. With this limit, every machine gives the same result.
    """

    def __init__(self, progress: Progress | None, limit: int | None) -> None:
        self.limit, self.used, self.halted = limit, 0, False
        self.watched = progress is not None  # whether there is a ``progress`` that may stop the search
        self._progress = progress
        self._best: dict[str, tuple[int, int]] = {}  # arena → least extent and greatest bound so far

    @classmethod
    def of(cls, progress: Progress | None, options: Mapping[str, Any]) -> Meter:
        """Return ``progress`` if it is a meter, else a new meter with the limit in the option ``max_nodes``."""
        if isinstance(progress, Meter):
            return progress
        return cls(progress, None if options.get(NODE_LIMIT) is None else count_option(options, NODE_LIMIT, 0))

    def ended(self) -> bool:
        """Return whether the nodes used have reached the limit."""
        return self.limit is not None and self.used >= self.limit

    def left(self, most: int) -> int:
        """Return how many more nodes may be used, at most ``most``."""
        return most if self.limit is None else max(0, min(most, self.limit - self.used))

    def __call__(self, what: str, done: int, of: int) -> bool:
        """Report progress; return whether the search may go on."""
        return self._progress is None or self._progress(what, done, of)

    def improved(self, arena: str, extent: int, bound: int) -> None:
        """Call ``progress.improved(arena, nodes, extent, bound)``, if it exists, at first and when either improves."""
        if (report := getattr(self._progress, "improved", None)) is not None:
            before = self._best.get(arena, (extent, bound))
            best = min(extent, before[0]), max(bound, before[1])
            if self._best.get(arena) != best:
                self._best[arena] = best
                report(arena, self.used, *best)

    def count_run(self, what: str, done: int, of: int, best: tuple[str, int, int]) -> bool:
        """Count a node, and report progress and ``best`` (arena, extent, bound); return whether the search must end."""
        self.improved(*best)
        self.used += 1
        if not self(what, done, of):
            self.halt()
        return self.ended()

    def halt(self, more: int = 0) -> None:
        """Record that a user stopped the search, and lower the limit so that at most ``more`` nodes follow."""
        self.halted = True
        self.limit = self.left(more) + self.used

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that repeat this run: ``options``, with ``max_nodes`` if a user stopped the run."""
        return {**options, NODE_LIMIT: self.limit} if self.halted else dict(options)
