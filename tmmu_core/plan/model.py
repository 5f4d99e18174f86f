"""The answer as a value: a :class:`Plan` is columns, so that a million rows are cheap.

Every view, file, trace, comparison and check reads this value and nothing else; a plan read back from a file is equal
to the one that was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from tmmu_core.errors import U64_MAX
from tmmu_core.once import cached_property

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]

PLAN_SCHEMA = "tmmu_plan/1"

Places = Literal["slots", "bytes", "sparse"]
"""How a plan's offsets came to be: ``slots`` one behind the other at aligned prefix sums (seed,
``MapToVirtualAddresses_v1``); ``bytes``, storage by storage; ``sparse``, slots at the draft's hashed addresses."""

UNSAID = "places"
"""The key of ``Plan.notes`` under which a reader says how it knows what is placed, where the file did not say it."""

CHANGED = "changed"
"""The key of ``Plan.notes`` under which a reader says what in the file is no longer as it was written."""

UNHELD = "unheld"
"""The key of ``Plan.notes`` under which a reader says that the file holds no hashes of what was written."""

PLACES: tuple[Places, ...] = ("slots", "bytes", "sparse")


INVALID = "invalid"
"""An arena's status in a plan that does not verify."""


@dataclass(frozen=True)
class ArenaSummary:
    """One arena's figures, in bytes and counts (contract §7)."""

    name: str
    capacity_bytes: int
    alignment_bytes: int
    page_size: int
    extent_bytes: int
    committed_bytes: int
    peak_live_bytes: int
    """The most bytes in use together in this plan."""
    slots: int
    max_live: int
    storages: int
    lower_bound_bytes: int | None = None
    """No plan of this problem has a smaller extent: one number, whichever planner ran (contract §11)."""
    proven_bytes: int | None = None
    """What this plan's search proved beyond the bound: again, no plan has a smaller extent. ``None``: nothing more."""
    status: str = "feasible"
    """The certificate: ``optimal`` (the extent is proven the least), ``unproven`` (a search ended before it knew),
    ``feasible`` (a valid plan that claims nothing), or ``invalid`` (a finished plan that does not verify)."""
    witness: tuple[str, ...] = ()
    """The storages, by the ids that name them, that make the lower bound: pairwise in each other's way."""
    witness_step: int = -1
    """The step at which they are held; −1 where time is not the reason, or nothing is told."""

    @property
    def bound_bytes(self) -> int:
        """The lower bound; where none is told, the most bytes in use together."""
        return self.peak_live_bytes if self.lower_bound_bytes is None else self.lower_bound_bytes

    @property
    def over_bound_bytes(self) -> int:
        """How far the extent is over the lower bound. Below 0: the plan is wrong, or its bound is."""
        return self.extent_bytes - self.bound_bytes

    @property
    def gap(self) -> tuple[int, int]:
        """The gap as a fraction: ``(extent − lower bound, lower bound)``, in bytes."""
        return self.over_bound_bytes, self.bound_bytes

    @property
    def open_bytes(self) -> int:
        """By how much a smaller plan may exist, for all that is proven; 0 for an optimal one."""
        least = max(self.bound_bytes, self.proven_bytes or 0)
        return 0 if self.status == "optimal" else max(0, self.extent_bytes - least)

    @property
    def headroom_bytes(self) -> int | None:
        """Capacity − extent; ``None`` where the capacity is unlimited."""
        return None if self.capacity_bytes >= U64_MAX else self.capacity_bytes - self.extent_bytes


@dataclass(frozen=True)
class TensorRow:
    """One row of a plan, for people and small loops; columns are the real thing."""

    tensor_id: str
    arena: str
    logical_slot: int
    offset_bytes: int
    size_bytes: int
    alignment: int
    birth: int
    death: int
    generation: int
    role: str
    dtype: str
    shape: tuple[int, ...]
    alias_group_id: str | None
    base_tensor_uid: str | None


Handoff = tuple[int, str, str]
"""(step, from, to)"""


class Handoffs(Sequence[Handoff]):
    """Hand-offs as columns, read like a tuple of triples: half a million triples would weigh more than the plan."""

    def __init__(self, ids: Sequence[str], rows: I64) -> None:
        """``rows`` (h, 3): step, and the numbers in ``ids`` of giver and taker."""
        self._ids, self._rows = ids, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> Handoff: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Handoff, ...]: ...
    def __getitem__(self, at: int | slice) -> Handoff | tuple[Handoff, ...]:
        if isinstance(at, slice):
            return tuple(Handoffs(self._ids, self._rows[at]))
        step, giver, taker = self._rows[at].tolist()
        return step, self._ids[giver], self._ids[taker]

    def __iter__(self) -> Iterator[Handoff]:
        ids = self._ids
        return ((step, ids[giver], ids[taker]) for step, giver, taker in self._rows.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handoffs | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # equal to tuples, whose hash it has not

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanColumns:
    """What a plan says of tensors: a row each, by tensor id bytes, as columns of length n; and its hand-offs."""

    tensor_ids: tuple[str, ...]
    arena: I32
    """Index into ``arenas``."""
    logical_slot: I64
    offset: U64
    size: U64
    alignment: U64
    birth: I64
    death: I64
    generation: I64
    """The how-manieth tenant of its slot (0-based) its storage is."""
    storage: I64
    """Rows of one storage share a number; numbers are dense, in the order of (arena name, slot, generation)."""
    roles: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    alias_group_ids: tuple[str | None, ...]
    base_tensor_uids: tuple[str | None, ...]
    handoffs: Sequence[Handoff] = ()
    """(step, from, to) as granted and, for planners that place bytes, as used."""
    taken: tuple[bool, ...] = ()
    """Per hand-off, whether ``to`` lies on ``from``'s bytes (contract §11). Where it is not told it is worked out."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan(PlanColumns):
    """Where everything lies: the columns, and what holds of all of them; digests are 32 raw bytes."""

    planner: str
    planner_options: dict[str, Any]
    ir_name: str
    ir_hash: bytes
    mode: str
    preset: str
    places: Places
    """What the maker of the plan placed; decides which rules hold of its offsets."""
    replay_token: bytes
    rank: int
    world_size: int
    shard_spec_hash: bytes
    arena_config_hash: bytes
    execution_order_hash: bytes
    tmmu_plan_hash: bytes
    layout_hash: bytes
    steps: int
    has_inputs_step: bool
    """Whether step 0 is ``@inputs``; then node k of ``execution_order`` runs at step k + 1."""
    execution_order: tuple[str, ...]
    arenas: tuple[ArenaSummary, ...]
    """By name bytes."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Figures of contract §7; ``allocation_time_ns`` among them, never hashed and never compared."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What the planner tells about its run, per arena: scalars, and a ``course`` (``plan.analysis.course``)."""
    own_arenas: bool = False
    """Whether the planner made its arenas itself: neither roles nor the configuration say where a tensor lies."""

    def __post_init__(self) -> None:
        if len(self.taken) != len(self.handoffs):
            object.__setattr__(self, "taken", taken_of(self))

    def __len__(self) -> int:
        return len(self.tensor_ids)

    def remark(self, key: str) -> str:
        """What a reader remarks of the file under one of the keys above; an empty text for nothing.

        Under an arena's name, which may be one of them, stands a mapping.
        """
        remark = self.notes.get(key)
        return remark if isinstance(remark, str) else ""

    @property
    def has_slots(self) -> bool:
        """Whether rows lie in slots; where bytes are placed, ``logical_slot`` only numbers the storages."""
        return self.places != "bytes"

    @cached_property
    def held_until(self) -> I64:
        """Per row, the step after the last one at which its bytes are in use.

        That is its death, but for the giver of a hand-off that is not taken: it is read at the step at which it dies.
        """
        held = self.death.copy()
        for (step, source, _), taken in zip(self.handoffs, self.taken, strict=True):
            row = -1 if taken else self.row_of.get(source, -1)
            if row >= 0:
                held[row] = max(int(held[row]), min(step + 1, self.steps))
        return held

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Tensor id → row."""
        return {tensor_id: row for row, tensor_id in enumerate(self.tensor_ids)}

    @cached_property
    def arena_of(self) -> dict[str, ArenaSummary]:
        """Arena name → its figures."""
        return {arena.name: arena for arena in self.arenas}

    def row(self, i: int) -> TensorRow:
        """Row ``i`` as a value."""
        return TensorRow(
            self.tensor_ids[i],
            self.arenas[self.arena[i]].name,
            int(self.logical_slot[i]),
            int(self.offset[i]),
            int(self.size[i]),
            int(self.alignment[i]),
            int(self.birth[i]),
            int(self.death[i]),
            int(self.generation[i]),
            self.roles[i],
            self.dtypes[i],
            self.shapes[i],
            self.alias_group_ids[i],
            self.base_tensor_uids[i],
        )

    def rows(self) -> Iterator[TensorRow]:
        """All rows, by tensor id bytes."""
        return (self.row(i) for i in range(len(self)))

    def node_at(self, step: int) -> str:
        """The node id run at ``step`` (``@inputs`` for the loading step); ``""`` where the plan has no order."""
        if self.has_inputs_step:
            if step == 0:
                return "@inputs"
            step -= 1
        return self.execution_order[step] if 0 <= step < len(self.execution_order) else ""


def taken_of(plan: Plan) -> tuple[bool, ...]:
    """Per hand-off of ``plan``, whether the taker's storage begins where the giver's does, in the same arena."""
    starts: dict[int, int] = {}
    for storage, offset in zip(plan.storage.tolist(), plan.offset.tolist(), strict=True):
        starts[storage] = min(offset, starts.get(storage, offset))
    flags = []
    for _, source, target in plan.handoffs:
        i, j = plan.row_of.get(source, -1), plan.row_of.get(target, -1)
        here = i >= 0 and j >= 0 and plan.arena[i] == plan.arena[j]
        flags.append(bool(here and starts[int(plan.storage[i])] == starts[int(plan.storage[j])]))
    return tuple(flags)
