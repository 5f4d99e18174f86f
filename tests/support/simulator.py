"""The reference simulator (seed 0.F, VII.C): slots and addresses in plain Python, and golden equivalence (VIII.C).

Steps and live ranges are those of the judge's reference. The simulator looks at every slot for every storage; its
placement must equal that of the planner ``slots``, bit for bit. The verifier checks all other columns and figures.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tmmu_core.base.errors import U64_MAX, AllocationFailure, AllocationOverflow, ArenaTooSmall, ContractError
from tmmu_core.graph.checks import read_arenas
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.model import Arena, Graph, Mode, Preset
from tmmu_core.judge.canonical_hashes import ir_hash, layout_hash
from tmmu_core.judge.reference.liveness import ReferenceLiveness, Storage, reference_liveness
from tmmu_core.judge.reference.schedule import run_of
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.canonical import token_from_seed
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan

ROW_FIELDS = ("arena", "logical_slot", "generation", "offset_bytes", "alignment", "birth", "death")
Row = tuple[str, int, int, int, int, int, int]


@dataclass(frozen=True)
class SimulatedPlan:
    """The placement that the planner ``slots`` must produce."""

    liveness: ReferenceLiveness
    rows: dict[str, Row]
    """Tensor → its row, the fields of :data:`ROW_FIELDS`."""
    taken: tuple[bool, ...]
    """Per in-place reuse, whether both storages have the same slot."""
    layout_hash: bytes


@dataclass(frozen=True)
class Slot:
    """One logical slot."""

    number: int
    offset: int
    size: int
    tenants: Sequence[Storage]


def simulate(
    graph: Graph,
    *,
    mode: Mode = "inference",
    preset: Preset = "inference",
    arenas: Mapping[str, Any] | None = None,
    order: Sequence[str] | None = None,
    dims: Mapping[str, int] | None = None,
    budget: int | None = None,
    **_: object,
) -> SimulatedPlan:
    """Plan ``graph`` as the contract defines it, in quadratic time. Raises the contract's errors."""
    config = read_arenas(arenas)
    liveness = reference_liveness(run_of(graph, mode, preset, order, dims), config)
    tenants: dict[str, list[Storage]] = {name: [] for name in config}
    index = liveness.run.index
    nbytes = dict(zip(index.tensor_ids, index.nbytes.tolist(), strict=True))
    for storage in sorted(liveness.storages.values(), key=lambda s: (liveness.birth[s.name], -nbytes[s.name], s.name)):
        tenants.setdefault(storage.arena, []).append(storage)
    extents: dict[str, tuple[int, int]] = {}
    place: dict[str, tuple[str, Slot, int]] = {}
    for name in sorted(tenants):
        arena = config.get(name, Arena())
        slots = slots_at_prefix_sums(name, arena, assign_slots(tenants[name], liveness.must_not_alias))
        extent = slots[-1].offset + slots[-1].size if slots else 0
        extents[name] = extent, -(-extent // (arena.page_size or 1)) * (arena.page_size or 1)
        place |= {s.name: (name, slot, at) for slot in slots for at, s in enumerate(slot.tenants)}
    check_limits(extents, config, budget)
    rows = {name: row_of(liveness, name, place[liveness.storage_of[name]], config) for name in sorted(liveness.birth)}
    ir_hash(graph)  # a graph without a hash is refused
    addresses = sorted({(arena, slot.number, slot.offset) for arena, slot, _ in place.values()})
    return SimulatedPlan(
        liveness,
        rows,
        tuple(place[liveness.storage_of[x]][1] is place[liveness.storage_of[y]][1] for _, x, y in liveness.handoffs),
        layout_hash([(name, row[0], row[1]) for name, row in rows.items()], addresses),
    )


def assign_slots(storages: Iterable[Storage], apart: frozenset[tuple[str, str]]) -> list[list[Storage]]:
    """Each storage, in the normative order, gets the lowest free slot that never held one it must not alias."""
    slots: list[list[Storage]] = []
    for storage in storages:
        for tenants in slots:
            if tenants[-1].death <= storage.birth and not any((t.name, storage.name) in apart for t in tenants):
                tenants.append(storage)
                break
        else:
            slots.append([storage])
    return slots


def slots_at_prefix_sums(name: str, arena: Arena, tenants_of: Sequence[Sequence[Storage]]) -> list[Slot]:
    """Place slots: ``offset_0 = 0``, ``offset_{k+1} = align_up(offset_k + slot_size_k, align_{k+1})``."""
    slots: list[Slot] = []
    end = 0
    for number, tenants in enumerate(tenants_of):
        alignment = max(arena.alignment_bytes, *(tenant.alignment for tenant in tenants))
        offset = -(-end // alignment) * alignment
        slots.append(Slot(number, offset, max(1, *(tenant.size for tenant in tenants)), tenants))
        end = offset + slots[-1].size
        if end > U64_MAX:
            raise AllocationOverflow(f"{name} ends at {end}.", arena=name, offset=offset, size=slots[-1].size)
    return slots


def check_limits(extents: Mapping[str, tuple[int, int]], config: Mapping[str, Arena], budget: int | None) -> None:
    """Raise for an extent over the capacity, and for sums over the budget or past 2^64 − 1 (§4)."""
    if max((committed for _, committed in extents.values()), default=0) > U64_MAX:
        raise AllocationOverflow("an arena is past 2^64 − 1.", arena="", offset=0, size=0)
    for name, (extent, _) in extents.items():
        capacity = config.get(name, Arena()).capacity_bytes
        if extent > capacity:
            raise ArenaTooSmall(f"{name} needs {extent}.", arena=name, capacity=capacity, required=extent)
    needed = sum(extent for extent, _ in extents.values())
    if budget is not None and needed > budget:
        raise AllocationFailure(f"{needed} bytes are over the budget.", arena="", peak_required_bytes=needed)
    if sum(committed for _, committed in extents.values()) > U64_MAX:
        raise AllocationOverflow("all arenas are past 2^64 − 1.", arena="", offset=0, size=0)


def row_of(liveness: ReferenceLiveness, name: str, place: tuple[str, Slot, int], config: Mapping[str, Arena]) -> Row:
    """Return the row of a tensor (§9)."""
    arena, slot, generation = place
    tensor, inside = liveness.run.tensors[name], liveness.offset[name]
    floor = config.get(arena, Arena()).alignment_bytes
    if inside or tensor.view is not None:
        # Inside a storage the alignment is the element size, limited by that of the storage's start.
        floor = min(itemsize(tensor.dtype), max(floor, liveness.storages[liveness.storage_of[name]].alignment))
    alignment = max(floor, tensor.alignment or 1)
    return arena, slot.number, generation, slot.offset + inside, alignment, liveness.birth[name], liveness.death[name]


# --- equivalence -------------------------------------------------------------------------------------------------


def differences(plan: Plan, reference: SimulatedPlan) -> Iterator[str]:
    """Yield a text for each difference between a plan of the planner ``slots`` and the simulator."""
    run = reference.liveness.run
    mine: dict[str, object] = {
        "order": (plan.steps, plan.has_inputs_step, plan.execution_order),
        "handoffs": sorted(zip(plan.handoffs, plan.taken, strict=True)),
        "storages": {frozenset(plan.tensor_ids[i] for i in (plan.storage == k).nonzero()[0]) for k in plan.storage},
        "layout": plan.layout_hash.hex(),
    }
    theirs: dict[str, object] = {
        "order": (run.steps, run.has_inputs_step, tuple(node.node_id for node in run.nodes)),
        "handoffs": sorted(zip(reference.liveness.handoffs, reference.taken, strict=True)),
        "storages": set(map(frozenset, reference.liveness.members.values())),
        "layout": reference.layout_hash.hex(),
    }
    mine |= {row.tensor_id: tuple(getattr(row, field) for field in ROW_FIELDS) for row in plan.rows()}
    theirs |= reference.rows
    for what in {**mine, **theirs}:
        if mine.get(what) != theirs.get(what):
            yield f"{what}: the plan has {mine.get(what)}, the simulator {theirs.get(what)}"


def disagreement(graph: Graph, mode: Mode, preset: Preset, seeds: Iterable[int] = range(10)) -> str | None:
    """Return the first difference of the plans of ``graph``, or ``None``. The token changes no layout."""
    try:
        reference = simulate(graph, mode=mode, preset=preset)
    except ContractError as refusal:
        try:
            plan_graph(graph, mode=mode, preset=preset)
        except ContractError as mine:
            return None if mine.code_id == refusal.code_id else f"refused with {mine.code_id}, not {refusal.code_id}"
        return f"the planner plans what the simulator refuses: {refusal}"
    hashes = set()
    for seed in seeds:
        plan = plan_graph(graph, mode=mode, preset=preset, seed=seed).plan
        found = [*differences(plan, reference), *verify_plan(plan, graph).errors]
        if found or plan.replay_token != token_from_seed(seed):
            return f"seed {seed}: {found}"
        hashes.add(plan.tmmu_plan_hash)
    return None if len(hashes) == len(list(seeds)) else "two seeds have one plan hash"
