"""The answer as a value: a :class:`Plan` is columns, so that a million rows are cheap.

Every view, file, trace, comparison and check reads this value and nothing else; a plan read back from a file is equal
to the one that was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]

PLAN_SCHEMA = "tmmu_plan/1"

Places = Literal["slots", "bytes", "sparse"]
"""How a plan's offsets came to be: ``slots`` one behind the other at aligned prefix sums (seed,
``MapToVirtualAddresses_v1``); ``bytes``, storage by storage; ``sparse``, slots at the draft's hashed addresses."""

UNSAID = "places"
"""The key of ``Plan.notes`` under which a reader says how it knows what is placed, where the file did not say it."""

PLACES: tuple[Places, ...] = ("slots", "bytes", "sparse")


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
    """The lower bound: the most bytes alive together."""
    slots: int
    max_live: int
    storages: int
    lower_bound_bytes: int | None = None
    """No plan of this problem has a smaller extent: proven, and never below ``peak_live_bytes`` of the best ranges."""
    status: str = "feasible"
    """The certificate: ``optimal`` (the extent is proven the least), ``unproven`` (a search ended before it knew),
    ``feasible`` (a valid plan that claims nothing), or ``invalid`` (a finished plan that does not verify)."""
    witness: tuple[str, ...] = ()
    """The storages, by the ids that name them, that make the lower bound: pairwise in each other's way."""
    witness_step: int = -1
    """The step at which they are held; −1 where time is not the reason, or nothing is told."""


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


@dataclass(frozen=True, eq=False)
class Plan:
    """Where everything lies. Rows (columns of length n) come by tensor id bytes; digests are 32 raw bytes."""

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

    handoffs: tuple[tuple[int, str, str], ...] = ()
    """(step, from, to) as granted and, for planners that place bytes, as used."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Figures of contract §7; ``allocation_time_ns`` among them, never hashed and never compared."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What the planner tells about its run: scalars per arena."""
    own_arenas: bool = False
    """Whether the planner made its arenas itself: neither roles nor the configuration say where a tensor lies."""

    def __len__(self) -> int:
        return len(self.tensor_ids)

    @property
    def has_slots(self) -> bool:
        """Whether rows lie in slots; where bytes are placed, ``logical_slot`` only numbers the storages."""
        return self.places != "bytes"

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
