"""Plan a graph (``PlanMemory_v2``): index, timeline, liveness, a problem per arena, planner, rows, hashes."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from tmmu_core.base.errors import U64_MAX, AllocationFailure, ArenaTooSmall, ContractError
from tmmu_core.graph.checks import arena_fields, assumed_text, read_arenas, refuse_unknown_arenas
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.model import DEFAULT_ARENAS, Arena, ArenaConfig, Graph
from tmmu_core.graph.native.document import paused_gc
from tmmu_core.liveness.analyse import analyse, arena_of_tensor, storage_writers
from tmmu_core.liveness.timeline import Liveness, Timeline
from tmmu_core.planners import planner_named
from tmmu_core.planners.helia import READ_ONLY_ROLES, Facts, Memory, place, read_platform
from tmmu_core.planners.problem import Meter, Packing, Problem, Progress, option_error
from tmmu_core.plans import canonical
from tmmu_core.plans.figures import metrics
from tmmu_core.plans.making import plan_rows
from tmmu_core.plans.making.request import PlanRequest, refuse_invalid_token, timeline_of
from tmmu_core.plans.making.sparse_addresses import with_sparse_addresses
from tmmu_core.plans.model import ASSUMED, INCOMPLETE, READ, UNPLANNED, Plan

NAMED_PARTS = 8  # maximum number of unplanned parts that are listed by name; further parts are counted


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan, its graph and the liveness of the graph."""

    graph: Graph
    liveness: Liveness
    plan: Plan

    @cached_property
    def operators(self) -> list[str]:
        """Per row of the plan, the operator of the node that writes it; ``""`` if no node does."""
        index, nodes = self.liveness.timeline.index, self.liveness.timeline.graph.nodes
        producers = [int(index.producer[index.tensor_of[name]]) for name in self.plan.tensor_ids]
        return [nodes[node].instr if node >= 0 else "" for node in producers]

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """The problem of each arena; empty if the planner defines the arenas itself."""
        if self.plan.own_arenas:
            return ()
        config = {a.name: Arena(a.capacity_bytes, a.alignment_bytes, a.page_size) for a in self.plan.arenas}
        return tuple(plan_rows.arena_problems(analyse(self.liveness.timeline, config), config))


def plan_graph(
    graph: Graph, *, ir_hash: bytes | None = None, progress: Progress | None = None, **fields: Any
) -> Solution:
    """Return the result of :func:`solve` for a request with these fields."""
    return solve(graph, PlanRequest(**fields), ir_hash=ir_hash, progress=progress)


def solve(
    graph: Graph,
    request: PlanRequest,
    *,
    ir_hash: bytes | None = None,
    progress: Progress | None = None,
    over_limits: bool = False,
) -> Solution:
    """Plan ``graph`` without sharding it: shard spec and rank change only the hash.

    ``ir_hash``: the hash of the graph, if known. ``over_limits``: also return a plan that exceeds a capacity or the
    budget. Such a plan has the capacities and the hash of ``request.arenas``, so that the verifier reports the excess.
    The other arena options of the request are ignored (:func:`.request.with_arena_settings`).
    Raises a ``ContractError`` with every field of its record filled: ``InvalidIrShapes``, ``LivenessCycle``,
    ``AlignmentViolation``, ``AllocationOverflow``, ``ArenaTooSmall``, ``AllocationFailure``, ``AddressCollision``.
    """
    try:
        explicit = request.with_defaults(graph)
        refuse_invalid_token(explicit)
        try:
            return _planned(graph, explicit, ir_hash, progress)
        except (ArenaTooSmall, AllocationFailure):
            if not over_limits:
                raise
            return _planned(graph, explicit, ir_hash, progress, over_limits=True)
    except ContractError as error:
        error.fill(replay_token=request.replay_token.hex(), rank=request.rank)
        if isinstance(error, ArenaTooSmall) and error.is_undeclared:
            # The required size is the extent of the undeclared arena in a plan without limits.
            undeclared = str(error.diagnostics["arena"])
            used = {tensor.arena for tensor in graph.tensors if tensor.arena}
            used -= {"optimizer_state"}  # declaring it would move the tensors of the role optimizer_state to it
            arenas = {name: {} for name in sorted({*used, *DEFAULT_ARENAS, undeclared})} | arena_fields(request.arenas)
            with suppress(ContractError):
                declared = request.with_defaults(graph).but(arenas=arenas)
                summaries = _planned(graph, declared, ir_hash, None, over_limits=True).plan.arenas
                of_arena = [a for a in summaries if a.name == undeclared or a.name.endswith(f"@{undeclared}")]
                error.diagnostics["required"] = sum(a.extent_bytes for a in of_arena)
        tensor = error.diagnostics.get("tensor")
        if "arena" in error.required_diagnostics and isinstance(tensor, str):
            arena = arena_of_tensor(graph, tensor, request.arenas or {})
            if arena is not None:
                error.fill(arena=arena)
        if "ir_hash" in error.required_diagnostics:
            with suppress(ContractError):
                ir_hash = ir_hash or canonical.ir_hash(graph)
            error.fill(ir_hash=ir_hash.hex() if ir_hash else "unknown")
        raise


def _planned(
    graph: Graph, request: PlanRequest, ir_hash: bytes | None, progress: Progress | None, *, over_limits: bool = False
) -> Solution:
    started = time.perf_counter_ns()
    planner = planner_named(request.planner or "")
    if request.addressing != "offsets" and not planner.has_slots:
        message = f"planner {planner.name!r} has no slots, so there is no slot number to hash."
        raise option_error(message, "Use --planner slots, or omit --addressing.")
    config = read_arenas(request.arenas)
    with paused_gc():
        timeline = timeline_of(graph, request)
    options = planner.checked_options(request.options)
    meter = Meter.of(progress, options)
    if planner.defines_arenas:
        liveness, problems, packings = spread_over_memories(timeline, options, config)
    else:
        with paused_gc():
            liveness = analyse(timeline, config)
            refuse_unknown_arenas(config, timeline.graph)
            problems = plan_rows.arena_problems(liveness, config)
        to_pack = [replace(problem, capacity=U64_MAX) if over_limits else problem for problem in problems]
        packings = [planner.pack(problem, options, meter) for problem in to_pack]
    packed = tuple(map(plan_rows.packed_arena, problems, packings))
    liveness, slot, offset = plan_rows.placed_storages(liveness, packed)

    summaries = [plan_rows.summarise(arena, timeline.steps) for arena in packed]
    for problem, summary in zip(problems, summaries, strict=True) if not over_limits else ():
        plan_rows.check_capacity(problem, summary)
    plan_rows.check_totals(summaries, None if over_limits else request.budget)

    remarks = remarks_on(graph, request.dims)
    if UNPLANNED in remarks:
        summaries = [replace(summary, status=INCOMPLETE) for summary in summaries]
    notes = {problem.arena: dict(packing.notes) for problem, packing in zip(problems, packings, strict=True)}
    with paused_gc():
        plan = plan_rows.assemble(
            packed,
            summaries,
            started,
            **plan_rows.plan_columns(liveness, slot, offset, summaries, own_arenas=planner.defines_arenas),
            retained=metrics.activation_retention(liveness),
            planner=planner.name,
            planner_options=meter.options(request.options),
            ir_name=graph.name,
            ir_hash=ir_hash or canonical.ir_hash(graph),
            mode=request.mode,
            preset=request.preset,
            places="slots" if planner.has_slots else "bytes",
            own_arenas=planner.defines_arenas,
            replay_token=request.replay_token,
            rank=request.rank,
            world_size=request.world_size or 1,
            shard_spec_hash=canonical.shard_spec_hash(request.shard_spec),
            arena_config_hash=canonical.arena_config_hash(arena_fields(request.arenas)),
            execution_order_hash=canonical.execution_order_hash(timeline.order),
            steps=timeline.steps,
            has_inputs_step=timeline.has_inputs_step,
            execution_order=timeline.order,
            notes=remarks | {arena: note for arena, note in notes.items() if note},
        )
    if request.addressing != "offsets":
        plan = with_sparse_addresses(plan)
    return Solution(graph, liveness, plan)


def remarks_on(graph: Graph, dims: Mapping[str, int]) -> dict[str, str]:
    """Return the remarks on a graph by key of ``Plan.notes``: assumed sizes, reader's notes, unplanned parts."""
    parts = [f"{node.node_id} ({', '.join(node.unplanned)})" for node in graph.nodes if node.unplanned]
    more = f" and {len(parts) - NAMED_PARTS:,} more" if len(parts) > NAMED_PARTS else ""
    found = {
        ASSUMED: assumed_text(graph, dims),
        READ: " ".join(graph.notes),
        UNPLANNED: f"parts that are not planned: {', '.join(parts[:NAMED_PARTS])}{more}" if parts else "",
    }
    return {key: text for key, text in found.items() if text}


def spread_over_memories(
    timeline: Timeline, options: Mapping[str, Any], config: ArenaConfig
) -> tuple[Liveness, list[Problem], list[Packing]]:
    """Return ``(liveness, problems, packings)`` with one arena ``role@memory`` for each role in a memory (region).

    The memories are those of ``options``, else the arenas of the configuration, else one unlimited memory. A tensor
    whose ``arena`` is a memory is placed there.
    Raises ``InvalidIrShapes`` if both define memories, ``ArenaTooSmall`` (capacity 0) for a tensor whose ``arena`` is
    neither a memory nor a default arena, and the errors of ``read_platform`` and ``helia.place``.
    """
    if options.get("memories") is not None and config:
        message = "planner 'helia' reads the memories from its option or from the arena configuration, not from both."
        raise option_error(message, "Give alignments and sizes in the option: arena_alignment, max_size.")
    if config:
        sizes = {name: None if a.capacity_bytes == U64_MAX else a.capacity_bytes for name, a in config.items()}
        memories = [Memory(name, sizes[name], arena_alignment=a.alignment_bytes) for name, a in config.items()]
        options = {**options, "memories": msgspec.to_builtins(memories)}
    platform = read_platform(options)
    memory = {m.name: m for m in platform.memories}
    with_reuse = analyse(timeline, dict.fromkeys([*memory, *DEFAULT_ARENAS], Arena()))
    # Exported C code declares a storage with the plan's alignment, which must suffice for the widest element.
    widths = np.array([itemsize(tensor.dtype) for tensor in timeline.graph.tensors], np.uint64)
    members = np.flatnonzero(with_reuse.storage_of >= 0)
    alignment = with_reuse.storages.alignment.copy()
    np.maximum.at(alignment, with_reuse.storage_of[members], widths[members])
    with_reuse = replace(with_reuse, storages=replace(with_reuse.storages, alignment=alignment))
    liveness = plan_rows.without_handoffs(with_reuse)
    in_one_arena = replace(liveness.storages, arena=np.zeros(len(alignment), np.int32))
    all_storages = replace(liveness, arenas=("all",), storages=in_one_arena)
    (problem,) = plan_rows.arena_problems(all_storages, {"all": Arena(alignment_bytes=1)})
    regions = place(problem, _facts(liveness, memory), platform)
    by_name = sorted(enumerate(regions), key=lambda item: item[1].name)
    arena_of, region_config, packings = np.zeros(len(problem), np.int32), ArenaConfig(), list[Packing]()
    for number, (region_id, region) in enumerate(by_name):
        arena_of[list(region.offset)] = number
        offsets = [offset for _, offset in sorted(region.offset.items())]
        region_memory, fields = memory[region.memory], ("role", "memory", "source_memory", "alignment", "is_staged")
        notes = {"region_id": region_id, **{field: getattr(region, field) for field in fields}}
        notes |= {"writable": region_memory.writable, "origin": region_memory.origin}
        notes |= {"source_origin": memory[region.source_memory].origin}
        notes |= {"said_by": region.decided_by, "spills": region.spills}
        packings.append(Packing(np.array(offsets, np.uint64), notes=notes))
        capacity = U64_MAX if region_memory.max_size is None else region_memory.max_size
        alignment_bytes = max(platform.min_alignment, region_memory.arena_alignment or 1)
        region_config[region.name] = Arena(capacity, alignment_bytes, config.get(region.memory, Arena()).page_size)
    # helia does not reuse in place, but another planner could, inside a region. So the lower bounds permit it.
    in_regions = replace(with_reuse.storages, arena=arena_of)
    with_reuse = replace(with_reuse, arenas=tuple(region_config), storages=in_regions)
    liveness = plan_rows.without_handoffs(with_reuse, across_arenas=True)
    return liveness, plan_rows.arena_problems(liveness, region_config), packings


def _facts(liveness: Liveness, memory: Mapping[str, Memory]) -> list[Facts]:
    """Return the facts of each storage. Roles: ``constant`` (persistent, read-only), ``persistent``, ``scratch``."""
    index, tensors = liveness.timeline.index, liveness.timeline.graph.tensors
    written = {storage for storage, nodes in storage_writers(liveness).items() if nodes}
    pairs = zip(tensors, liveness.storage_of.tolist(), index.base.tolist(), strict=True)
    written.update(storage for tensor, storage, base in pairs if tensor.role not in READ_ONLY_ROLES and base < 0)
    facts = []
    for k, (head, persistent) in enumerate(zip(liveness.storages.head, liveness.storages.persistent, strict=True)):
        producer = int(index.producer[head])
        operator = liveness.timeline.graph.nodes[producer].instr if producer >= 0 else ""
        role = "scratch" if not persistent else "persistent" if k in written else "constant"
        arena = tensors[head].arena
        facts.append(Facts(role, operator, itemsize(tensors[head].dtype), arena if arena in memory else None))
    return facts
