"""The reference simulator (seed 0.F, VII.C): the contract in plain Python, clause by clause.

::

    run_of      what runs when                      contract §1, §2    (runs)
    lives_of    what lives when, what shares bytes  contract §1, §3    (lives)
    slots       the lowest free slot at each birth  seed §5, §6
    addresses   aligned prefix sums over the slots  seed §5
    tables      rows, tables, hashes                contract §6, §9

No numpy, no heap of free slots, no cleverness: it looks at every slot for every storage. Its result must equal
that of the planner ``slots``, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmmu_core.base.errors import U64_MAX, AllocationFailure, AllocationOverflow, ArenaTooSmall, InvalidIrShapes
from tmmu_core.graph.arenas import read_arenas
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.model import MODES, PRESETS, Arena, Graph, Mode, Preset
from tmmu_core.judge.canonical_hashes import (
    AddressRow,
    SlotRow,
    arena_config_object,
    hash_of,
    ir_hash,
    layout_hash,
    plan_hash,
    token_from_seed,
)
from tmmu_core.judge.reference.liveness import Lives, lives_of
from tmmu_core.judge.reference.liveness.ref_handoffs import Handoff
from tmmu_core.judge.reference.liveness.ref_storages import Storage
from tmmu_core.judge.reference.schedule import Run, run_of
from tmmu_core.plans.model import ArenaSummary, TensorRow

Arenas = Mapping[str, Arena | Mapping[str, Any]]


@dataclass(frozen=True)
class Slot:
    """One logical slot with its tenants, first to last."""

    arena: str
    number: int
    tenants: tuple[Storage, ...]
    size: int
    """Bytes of its backing: the largest tenant's, at least 1."""
    alignment: int
    offset: int


@dataclass(frozen=True)
class SimulatedPlan:
    """The plan that the planner ``slots`` must produce, field by field."""

    lives: Lives
    steps: int
    has_inputs_step: bool
    execution_order: tuple[str, ...]
    rows: tuple[TensorRow, ...]
    """By tensor id bytes."""
    arenas: tuple[ArenaSummary, ...]
    handoffs: tuple[Handoff, ...]
    taken: tuple[bool, ...]
    """Per in-place reuse, whether both storages have the same slot."""
    slots: tuple[Slot, ...]
    """By (arena, number)."""
    slot_assignment_table: tuple[SlotRow, ...]
    logical_address_table: tuple[AddressRow, ...]
    replay_token: bytes
    ir_hash: bytes
    arena_config_hash: bytes
    execution_order_hash: bytes
    shard_spec_hash: bytes
    tmmu_plan_hash: bytes
    layout_hash: bytes
    header: tuple[Any, ...]
    """The values in the plan hash besides the tables."""

    def bound_to(self, token: bytes) -> bytes:
        """Return the plan hash under another replay token, on which the layout does not depend."""
        return plan_hash(list(self.header), token, self.slot_assignment_table, self.logical_address_table)

    def waste(self, arena: str, step: int) -> dict[str, int]:
        """Return the accounts of the waste ledger at one step."""
        extent = next(figures.extent_bytes for figures in self.arenas if figures.name == arena)
        still_read = frozenset(
            self.lives.storage_of[giver]
            for (at, giver, _), taken in zip(self.handoffs, self.taken, strict=True)
            if at == step and not taken
        )
        return waste_at([slot for slot in self.slots if slot.arena == arena], extent, step, still_read)


@dataclass(frozen=True, kw_only=True)
class SimulationRequest:
    """The planning request, without the graph."""

    mode: Mode
    preset: Preset
    arenas: Arenas | None = None
    """The configuration as given."""
    order: Sequence[str] | None = None
    dims: Mapping[str, int] | None = None
    token: bytes | None = None
    """The 32-byte replay token; that of seed 0 where none is given."""
    rank: int = 0
    world_size: int = 1
    shard_spec: Mapping[str, Any] | None = None
    budget: int | None = None
    """The quota in bytes."""


def simulate(graph: Graph, request: SimulationRequest) -> SimulatedPlan:
    """Plan ``graph`` as the contract defines it, in quadratic time. Raises the contract's errors."""
    if request.mode not in MODES or request.preset not in PRESETS:
        raise InvalidIrShapes(f"no mode {request.mode} or preset {request.preset}.", reason="unknown_mode")
    config = read_arenas(request.arenas)

    # 1. live_ranges ← AnalyzeLiveness(ir_dag, execution_order, mode)
    run = run_of(graph, request.mode, request.preset, request.order, request.dims)
    lives = lives_of(run, config)

    # 2.–3. per arena: slots, then addresses
    used = {storage.arena for storage in lives.storages.values()}
    tenants: dict[str, list[Storage]] = {name: [] for name in sorted(used | set(config), key=str.encode)}
    for storage in sorted(lives.storages.values(), key=lambda storage: storage.sort_key):
        tenants[storage.arena].append(storage)
    arenas = {name: config.get(name, Arena()) for name in tenants}
    slots_of = {name: addresses(name, arenas[name], assign_slots(own, lives.apart)) for name, own in tenants.items()}
    slots = [slot for own in slots_of.values() for slot in own]

    # contract §11: in-place reuse is taken where both have one slot; else the input keeps its bytes while it is read
    slot_of = {tenant.name: slot for slot in slots for tenant in slot.tenants}
    taken = tuple(slot_of[lives.storage_of[x]] is slot_of[lives.storage_of[y]] for _, x, y in lives.handoffs)
    held = {name: storage.death for name, storage in lives.storages.items()}
    held |= {lives.storage_of[x]: k + 1 for (k, x, _), on in zip(lives.handoffs, taken, strict=True) if not on}
    figures = [figures_of(name, arena, slots_of[name], tenants[name], held, run.end) for name, arena in arenas.items()]
    check_limits(figures, request.budget)

    # 4. tensor_map: tensors, not nodes, by id
    rows = rows_of(run, lives, slots, config)
    slot_rows = tuple((row.tensor_id, row.arena, row.logical_slot) for row in rows)
    by_place = sorted(slots, key=lambda slot: (slot.arena.encode(), slot.number))
    address_rows = tuple((slot.arena, slot.number, slot.offset) for slot in by_place)

    # contract §6
    token = token_from_seed(0) if request.token is None else request.token
    hashes = [ir_hash(graph), hash_of(arena_config_object(request.arenas)), hash_of(list(run.order))]
    of_shards = hash_of(dict(request.shard_spec or {}))
    header = [hashes[0], request.mode, hashes[1], hashes[2], request.rank, request.world_size, of_shards]
    return SimulatedPlan(
        lives=lives,
        steps=run.steps,
        has_inputs_step=run.has_inputs_step,
        execution_order=run.order,
        rows=rows,
        arenas=tuple(figures),
        handoffs=lives.handoffs,
        taken=taken,
        slots=tuple(by_place),
        slot_assignment_table=slot_rows,
        logical_address_table=address_rows,
        replay_token=token,
        ir_hash=hashes[0],
        arena_config_hash=hashes[1],
        execution_order_hash=hashes[2],
        shard_spec_hash=of_shards,
        tmmu_plan_hash=plan_hash(header, token, slot_rows, address_rows),
        layout_hash=layout_hash(slot_rows, address_rows),
        header=tuple(header),
    )


# --- AssignLogicalSlots_v1 ---------------------------------------------------------------------------------------


def assign_slots(storages: Iterable[Storage], apart: frozenset[tuple[str, str]]) -> list[list[Storage]]:
    """Return the storages per slot; ``storages`` in the normative order.

    Each storage gets the lowest free slot that never held a storage which must not alias it (contract §3).
    """
    slots: list[list[Storage]] = []
    for storage in storages:
        for tenants in slots:
            ended = tenants[-1].death <= storage.birth  # earlier storages of the slot ended before
            if ended and not (apart and any((tenant.name, storage.name) in apart for tenant in tenants)):
                tenants.append(storage)
                break
        else:
            slots.append([storage])
    return slots


# --- MapToVirtualAddresses_v1 ------------------------------------------------------------------------------------


def align_up(value: int, alignment: int) -> int:
    """Return the next multiple of ``alignment``."""
    return -(-value // alignment) * alignment


def addresses(name: str, arena: Arena, tenants_of: Sequence[Sequence[Storage]]) -> list[Slot]:
    """Place slots: ``offset_0 = 0``, ``offset_{k+1} = align_up(offset_k + slot_size_k, align_{k+1})``."""
    slots: list[Slot] = []
    end = 0
    for number, tenants in enumerate(tenants_of):
        size = max(1, *(tenant.size for tenant in tenants))
        alignment = max(arena.alignment_bytes, *(tenant.alignment for tenant in tenants))
        offset = align_up(end, alignment)
        end = offset + size
        if end > U64_MAX:
            raise AllocationOverflow(f"{name}: slot {number} ends at {end}.", arena=name, offset=offset, size=size)
        slots.append(Slot(name, number, tuple(tenants), size, alignment, offset))
    return slots


# --- figures (contract §7) ---------------------------------------------------------------------------------------


def figures_of(
    name: str, arena: Arena, slots: Sequence[Slot], storages: Sequence[Storage], held: Mapping[str, int], steps: int
) -> ArenaSummary:
    """Return an arena's figures, without a certificate; ``held`` is the step after the last use of each storage."""
    extent = slots[-1].offset + slots[-1].size if slots else 0
    committed = align_up(extent, arena.page_size) if arena.page_size else extent
    born: list[list[Storage]] = [[] for _ in range(steps)]
    gone: list[list[Storage]] = [[] for _ in range(steps + 1)]
    for storage in storages:
        born[storage.birth].append(storage)
        gone[held[storage.name]].append(storage)
    live = count = peak = most = 0
    for step in range(steps):
        live += sum(s.size for s in born[step]) - sum(s.size for s in gone[step])
        count += len(born[step]) - len(gone[step])
        peak, most = max(peak, live), max(most, count)
    if max(committed, peak) > U64_MAX:
        raise AllocationOverflow(f"{name}: {max(committed, peak)} bytes.", arena=name, offset=0, size=extent)
    return ArenaSummary(
        name=name,
        capacity_bytes=arena.capacity_bytes,
        alignment_bytes=arena.alignment_bytes,
        page_size=arena.page_size,
        extent_bytes=extent,
        committed_bytes=committed,
        peak_live_bytes=peak,
        slots=len(slots),
        max_live=most,
        storages=len(storages),
    )


def check_limits(arenas: Sequence[ArenaSummary], budget: int | None) -> None:
    """Raise for an extent over the capacity, and for sums over the budget or past 2^64 − 1 (§4)."""
    for arena in arenas:
        extent, capacity = arena.extent_bytes, arena.capacity_bytes
        if extent > capacity:
            raise ArenaTooSmall(f"{arena.name} needs {extent}.", arena=arena.name, capacity=capacity, required=extent)
    needed = sum(arena.extent_bytes for arena in arenas)
    if budget is not None and needed > budget:
        raise AllocationFailure(f"{needed} bytes are over the budget.", arena="", peak_required_bytes=needed)
    committed = sum(arena.committed_bytes for arena in arenas)
    if committed > U64_MAX:
        last = max(arenas, key=lambda arena: (arena.committed_bytes, arena.name))
        before, size = committed - last.committed_bytes, last.committed_bytes
        raise AllocationOverflow(f"all arenas need {committed} bytes.", arena=last.name, offset=before, size=size)


def waste_at(slots: Sequence[Slot], extent: int, step: int, still_read: frozenset[str]) -> dict[str, int]:
    """Return the accounts of the waste ledger at one step (§7); they sum to the extent.

    An alignment gap is the padding of an occupied slot above the occupied slot below it; other free bytes below the
    highest occupied slot are holes. ``still_read`` names the storages that end at the step by an in-place reuse that
    is not taken: their slots are occupied.
    """
    ledger = dict.fromkeys(("live", "alignment_gaps", "slot_rounding", "holes", "tail"), 0)
    top = 0
    for slot in slots:
        tenant = next((s for s in slot.tenants if s.birth <= step < s.death or s.name in still_read), None)
        if tenant is None:
            continue
        ledger["live"] += tenant.size
        ledger["slot_rounding"] += slot.size - tenant.size
        gap = align_up(top, slot.alignment) - top
        ledger["alignment_gaps"] += gap
        ledger["holes"] += slot.offset - top - gap
        top = slot.offset + slot.size
    ledger["tail"] = extent - top
    return ledger


# --- rows (contract §9) ------------------------------------------------------------------------------------------


def rows_of(run: Run, lives: Lives, slots: Iterable[Slot], config: Mapping[str, Arena]) -> tuple[TensorRow, ...]:
    """Return one row per planned tensor, sorted by id bytes."""
    place = {tenant.name: (slot, generation) for slot in slots for generation, tenant in enumerate(slot.tenants)}
    rows = []
    for name in sorted(lives.birth, key=str.encode):
        tensor, inside = run.tensors[name], lives.offset[name]
        slot, generation = place[lives.storage_of[name]]
        floor = config.get(slot.arena, Arena()).alignment_bytes
        if inside or tensor.view is not None:
            # Inside a storage the alignment is the element size, limited by that of the storage's start.
            of_start = max(floor, lives.storages[lives.storage_of[name]].alignment)
            floor = min(itemsize(tensor.dtype), of_start)
        rows.append(
            TensorRow(
                tensor_id=name,
                arena=slot.arena,
                logical_slot=slot.number,
                offset_bytes=slot.offset + inside,
                size_bytes=run.sizes.row_bytes[name],
                alignment=max(floor, tensor.alignment or 1),
                birth=lives.birth[name],
                death=lives.death[name],
                generation=generation,
                role=tensor.role,
                dtype=tensor.dtype,
                shape=run.sizes.shape[name],
                alias_group_id=tensor.alias_group_id,
                base_tensor_uid=tensor.view.base_tensor_uid if tensor.view else None,
            )
        )
    return tuple(rows)
