"""The plan as an immutable value: one row per tensor, stored as columns."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]

PLAN_SCHEMA = "tmmu_plan/1"

Count = Annotated[int, msgspec.Meta(ge=0)]
Count63 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Whole numbers of a plan file: up to 64 bits (which msgspec does not check on reading), and up to 63 bits."""

Places = Literal["slots", "bytes", "sparse"]
"""How offsets are set. ``slots``: aligned prefix sums of the slot sizes (``MapToVirtualAddresses_v1``); ``bytes``: an
offset per storage; ``sparse``: hashed addresses of slots, as in the superseded draft."""

# Keys of ``Plan.notes`` whose values are texts.
PLACES_DERIVED = "places"  # how the reader derived the :data:`Places` of a file that does not state it
CHANGED = "changed"  # the parts of the file that changed after it was written
NO_CONTENT_HASH = "unheld"  # the file has no content hash
ASSUMED = "assumed"  # the dynamic sizes that the plan assumes
UNPLANNED = "unplanned"  # the parts of the graph whose memory is not in the plan
GIVEN_OFFSETS = "given_offsets"  # the number of offsets that the input fixes, on which bounds and proofs depend
READ = "read"  # the remarks of the reader of a finished plan or an instance
REMARKS = (PLACES_DERIVED, CHANGED, NO_CONTENT_HASH, ASSUMED, UNPLANNED, GIVEN_OFFSETS, READ)

PLACES: tuple[Places, ...] = get_args(Places)

PART = "@part"
"""Separator of tensor id and part number in the row ids of live parts: ``x``, ``x@part1``, ``x@part2``, …"""

Category = Literal["parameter", "gradient", "optimizer_state", "activation", "other"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
"""Purposes of the buffers in an allocator snapshot."""

OPTIMAL, FEASIBLE, UNPROVEN = "optimal", "feasible", "unproven"
CLAIMED, INVALID, INCOMPLETE = "claimed", "invalid", "incomplete"
STATUSES = (OPTIMAL, FEASIBLE, UNPROVEN, CLAIMED, INVALID, INCOMPLETE)
"""Certificates: see :attr:`ArenaSummary.status`."""


@dataclass(frozen=True)
class ArenaSummary:
    """One arena's figures, in bytes and counts (contract §7); in a plan file, the value at the arena's name."""

    name: str = field(default="", kw_only=True)
    capacity_bytes: int
    alignment_bytes: int
    page_size: int
    extent_bytes: int
    committed_bytes: int
    peak_live_bytes: int
    """Maximum number of bytes in use at one step."""
    slots: int
    max_live: int
    storages: int = 0
    lower_bound_bytes: int | None = None
    """Lower bound of the extent of every plan of any planner (contract §11); ``None``: not stated by the file."""
    proven_bytes: int | None = None
    """Better lower bound, proven by the search or claimed by a file (status ``claimed``); ``None``: none."""
    status: str = FEASIBLE
    """Optimality: ``optimal`` (proven minimal), ``unproven`` (the search limit was reached), ``feasible`` (valid,
    without a proof), ``claimed`` (a finished plan claims a bound that cannot be recomputed), ``incomplete`` (a part of
    the graph is not planned and needs more memory), or ``invalid`` (a finished plan that does not verify)."""
    witness: tuple[str, ...] = ()
    """Names of the storages that prove the lower bound: they conflict pairwise."""
    witness_step: int = -1
    """Step at which the witness is live; −1 if unknown or independent of time."""
    reuse_cost: int | None = None
    """Sum of the penalties whose pairs share bytes; ``None`` without reuse terms (:class:`Constraints`)."""
    reuse_cost_lower_bound: int | None = None
    """No plan within the capacity has a smaller cost."""
    reuse_cost_witness: tuple[tuple[str, ...], ...] | None = None
    """Groups of tensors: the bounds of the groups, plus the penalties of colocated pairs, are the lower bound."""

    @property
    def bound_bytes(self) -> int:
        """The lower bound; without one, the most bytes in use at one step."""
        return self.peak_live_bytes if self.lower_bound_bytes is None else self.lower_bound_bytes

    @property
    def over_bound_bytes(self) -> int:
        """Extent − lower bound; negative if the plan or its bound is wrong."""
        return self.extent_bytes - self.bound_bytes

    @property
    def gap(self) -> tuple[int, int]:
        """The gap as a fraction: ``(extent − lower bound, lower bound)``, in bytes."""
        return self.over_bound_bytes, self.bound_bytes

    @property
    def stated_bound_bytes(self) -> int:
        """The largest lower bound that the plan states, proven or claimed. For an optimal plan, its extent."""
        least = max(self.bound_bytes, self.proven_bytes or 0)
        return max(least, self.extent_bytes) if self.status == OPTIMAL else least

    @property
    def open_bytes(self) -> int:
        """Maximum number of bytes that another plan could save; 0 for an optimal one."""
        return max(0, self.extent_bytes - (self.bound_bytes if self.status == CLAIMED else self.stated_bound_bytes))

    @property
    def headroom_bytes(self) -> int | None:
        """Capacity − extent; ``None`` if the capacity is unlimited."""
        return None if self.capacity_bytes >= U64_MAX else self.capacity_bytes - self.extent_bytes


@dataclass(frozen=True)
class TensorRow:
    """One tensor of a plan. Sizes and offsets in bytes, births and deaths in steps."""

    tensor_id: str
    arena: str
    logical_slot: Count63
    offset_bytes: Count
    size_bytes: Count
    alignment: Annotated[int, msgspec.Meta(ge=1)]
    birth: Count63
    death: Count63
    generation: Count63
    role: str = "activation"
    dtype: str = ""
    shape: tuple[Count, ...] = ()
    alias_group_id: str | None = None
    base_tensor_uid: str | None = None
    category: Category | None = None
    """Category of the tensor in a plan from an allocator's snapshot; absent in other plan files."""


class Constraints(msgspec.Struct, frozen=True, omit_defaults=True):
    """Constraints and costs of a placement beyond live ranges, by tensor id (contract §12, "Reuse costs").

    A tensor with gaps has one row per live part. Its id here refers to all these rows. A tensor of zero bytes shares no
    byte, so only colocations and its pinned offset apply to it.
    """

    separations: tuple[tuple[str, str], ...] = ()
    """Pairs that share no byte at any step."""
    colocations: tuple[tuple[str, str], ...] = ()
    """Pairs at one offset."""
    exclusions: tuple[tuple[str, str], ...] = ()
    """Pairs that may share bytes although their live ranges overlap, because no run uses both."""
    pinned: dict[str, int] = {}
    """Tensor → its offset."""
    reserved: dict[str, tuple[tuple[int, int], ...]] = {}
    """Arena → reserved byte ranges ``[begin, end)``."""
    reuse_penalties: tuple[tuple[str, str, int], ...] = ()
    """``[first, second, cost]``: the cost is paid once if the byte ranges of the two overlap."""


_COLUMNS = (
    *("tensor_ids", "arena", "logical_slot", "offset", "size", "alignment", "birth", "death", "generation"),
    *("roles", "dtypes", "shapes", "alias_group_ids", "base_tensor_uids", "categories"),
)
COLUMN_OF = dict(zip(TensorRow.__annotations__, _COLUMNS, strict=True))
"""Field of :class:`TensorRow` → its column in :class:`Plan`, in the order of the fields."""

Handoff = tuple[int, str, str]
"""In-place reuse: (step, input, output)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """A plan: its rows as columns, sorted by tensor id bytes, and fields of the whole plan. Hashes have 32 bytes."""

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
    """Position of the storage in its slot, from 0."""
    storage: I64
    """Rows of one storage share a number; numbers are dense, in the order of (arena name, slot, generation)."""
    roles: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    alias_group_ids: tuple[str | None, ...]
    base_tensor_uids: tuple[str | None, ...]
    handoffs: tuple[Handoff, ...] = ()
    """In-place reuses: the possible ones, or only the used ones if the planner places bytes."""
    taken: tuple[bool, ...] = ()
    """Per in-place reuse, whether the output uses the input's bytes (contract §11); computed if not given."""
    categories: tuple[str, ...] = ()
    """One of :data:`CATEGORIES` per row in the plan of an allocator's snapshot, else empty."""

    planner: str
    planner_options: dict[str, Any]
    ir_name: str
    ir_hash: bytes
    mode: str
    preset: str
    places: Places
    """Unit of placement (bytes, slots or hashed slots), which selects the rules for offsets."""
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
    """Summaries of all arenas, sorted by name bytes."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Figures of contract §7; ``allocation_time_ns`` is never hashed and never compared."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Arena → its planner's notes; key of :data:`REMARKS` → text; ``addressing`` → kind and bits of the hashes."""
    own_arenas: bool = False
    """Whether the planner defined the arenas itself, as ``helia`` does (``role@memory``)."""
    constraints: Constraints | None = None
    """Constraints and costs beyond live ranges; ``None``: none."""

    def __post_init__(self) -> None:
        if len(self.taken) != len(self.handoffs):
            # The output uses the input's bytes if the storages of both have one arena and one offset.
            start = np.full(len(self), U64_MAX, np.uint64)
            np.minimum.at(start, self.storage, self.offset)
            places = list(zip(self.arena.tolist(), start[self.storage].tolist(), strict=True))
            rows = ((self.row_of.get(source, -1), self.row_of.get(target, -1)) for _, source, target in self.handoffs)
            taken = tuple([min(pair) >= 0 and places[pair[0]] == places[pair[1]] for pair in rows])
            object.__setattr__(self, "taken", taken)

    def __len__(self) -> int:
        return len(self.tensor_ids)

    def arena_notes(self, arena: str) -> dict[str, Any]:
        """Return the notes of an arena's planner; empty without any. A remark under the arena's name is ignored."""
        notes = self.notes.get(arena)
        return notes if isinstance(notes, dict) else {}

    def remark(self, key: str) -> str:
        """Return the text under a key of :data:`REMARKS`; empty without one, or if an arena's notes have this key."""
        remark = self.notes.get(key)
        return remark if isinstance(remark, str) else ""

    @property
    def incomplete(self) -> tuple[str, ...]:
        """The arenas whose figures omit a part of the graph."""
        return tuple([arena.name for arena in self.arenas if arena.status == INCOMPLETE])

    @property
    def end(self) -> int:
        """The death of a tensor that is live in all steps: the number of steps, or 1 for a plan without steps."""
        return max(self.steps, 1)

    @property
    def is_invalid(self) -> bool:
        """Whether the plan was read from a file and does not verify."""
        return any(arena.status == INVALID for arena in self.arenas)

    @property
    def has_slots(self) -> bool:
        """Whether the planner fills slots. If it places bytes, ``logical_slot`` only numbers the storages."""
        return self.places != "bytes"

    @cached_property
    def held_until(self) -> I64:
        """Per row, the step after the last use of its bytes: its death, + 1 if it is the input of a reuse not taken."""
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

    def columns(self) -> dict[str, Any]:
        """Return field of :class:`TensorRow` → column; no category if the plan has none."""
        return {key: getattr(self, name) for key, name in COLUMN_OF.items() if key != "category" or self.categories}

    def row(self, i: int) -> TensorRow:
        """Return row ``i`` as a value."""
        return TensorRow(*next(self.row_values(slice(i, i + 1))))

    def rows(self) -> Iterator[TensorRow]:
        """Return all rows, by tensor id bytes."""
        return (TensorRow(*values) for values in self.row_values())

    def row_values(self, rows: slice = slice(None)) -> Iterator[tuple[Any, ...]]:
        """Yield the field values of each row, in the order of :class:`TensorRow`; no category if the plan has none."""
        columns = [column[rows] for column in self.columns().values()]
        lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns]
        lists[1] = [self.arenas[number].name for number in lists[1]]
        return zip(*lists, strict=True)

    def node_at(self, step: int) -> str:
        """Return the id of the node at ``step`` (``@inputs`` for the loading step); ``""`` if no node is known."""
        if self.has_inputs_step:
            if step == 0:
                return "@inputs"
            step -= 1
        return self.execution_order[step] if 0 <= step < len(self.execution_order) else ""


def group_numbers(*columns: NDArray[Any]) -> tuple[I64, int]:
    """Return ``(number per row, count)``: equal rows share a number; numbers are dense, in ascending order of rows."""
    order = np.lexsort(columns[::-1])
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = np.logical_or.reduce([column[order][1:] != column[order][:-1] for column in columns])
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_new) - 1
    return number, int(is_new.sum())


def rows_of_parts(plan: Plan, tensor_id: str) -> list[int]:
    """Return the rows of a tensor: one row, one row per live part, or none for an unknown tensor."""
    rows, part = [], tensor_id
    while part in plan.row_of:
        rows.append(plan.row_of[part])
        part = f"{tensor_id}{PART}{len(rows)}"
    return rows
