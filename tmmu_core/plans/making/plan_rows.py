"""Convert the liveness of a graph to a packing problem per arena, and packings to rows, figures and certificates."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base import limits
from tmmu_core.base.errors import U64_MAX, AllocationFailure, AllocationOverflow, ArenaTooSmall
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.index import names_of
from tmmu_core.graph.model import ONE_MEMORY, ROLES, Arena
from tmmu_core.liveness.analyse import bytes_of_tensors
from tmmu_core.liveness.timeline import I32, I64, U64, Liveness
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.problem import Packing, Problem, live_parts, packing_extent
from tmmu_core.planners.slots import slot_sizes
from tmmu_core.plans import canonical
from tmmu_core.plans.figures import metrics
from tmmu_core.plans.figures.live_bytes import peak_and_count, peak_of_ranges
from tmmu_core.plans.model import FEASIBLE, INVALID, OPTIMAL, UNPROVEN, ArenaSummary, Plan, group_numbers

ALTERNATIVE = "portfolio"  # planner that ``check_capacity`` tries, to recommend it if its plan fits
ALTERNATIVE_UP_TO = 20_000  # maximum number of storages for which :data:`ALTERNATIVE` runs


def arena_problems(liveness: Liveness, config: Mapping[str, Arena]) -> list[Problem]:
    """Return one problem per arena, its storages in normative order. Raises ``UnreadableInput`` for too many arenas."""
    if len(liveness.arenas) > limits.ceiling(limits.ARENAS):  # the cost is arenas × storages
        raise limits.limit_error(limits.ARENAS, "the graph", liveness.timeline.graph.name)
    storages = liveness.storages
    index = liveness.timeline.index
    ids, role = index.tensor_ids, index.role
    position = np.zeros(len(storages), np.int64)  # position among the storages of the arena
    problems = []
    for number, name in enumerate(liveness.arenas):
        arena = config.get(name, Arena())
        rows = np.flatnonzero(storages.arena == number)
        position[rows] = np.arange(len(rows))
        heads = storages.head[rows]
        source = storages.handoff_from[rows]
        # Input and output of an in-place reuse are in one arena (contract §1), so ``position`` of the input is set.
        handoff = np.where(source >= 0, position[source], -1)
        pairs = storages.must_not_alias
        is_in_arena = (storages.arena[pairs] == number).all(axis=1)
        problems.append(
            Problem(
                arena=name,
                ids=ids if np.array_equal(heads, np.arange(len(ids))) else names_of(ids, heads),
                birth=storages.birth[rows],
                death=storages.death[rows],
                size=storages.size[rows],
                alignment=np.maximum(storages.alignment[rows], np.uint64(arena.alignment_bytes)),
                capacity=arena.capacity_bytes,
                arena_alignment=arena.alignment_bytes,
                handoff_from=handoff if (handoff >= 0).any() else None,
                must_not_alias=position[pairs[is_in_arena]] if is_in_arena.any() else None,
                roles=names_of(ROLES, role[heads]),
                page_size=arena.page_size,
            )
        )
    return problems


@dataclass(frozen=True, eq=False)
class PackedArena:
    """A planner's packing of one arena, with slots, extent and the possible in-place reuses."""

    problem: Problem
    packing: Packing
    slot: I64  # per storage, its slot; for planners without slots, its position by (offset, birth, id) (contract §9)
    extent: int  # highest end of a slot (without slots: of a storage); for a snapshot at least the reserved bytes
    held_until: I64  # per storage, its death; for the input of an in-place reuse that is not taken, one step more
    handoffs: I64  # shape (h, 2): input and output storage of each possible in-place reuse
    taken: NDArray[np.bool_]  # per in-place reuse, whether its two storages share an offset

    @property
    def live_parts(self) -> tuple[I64, I64, U64]:
        """Birth, death and bytes of every live part; a storage without gaps has one."""
        first, begin, end = live_parts(replace(self.problem, death=self.held_until))
        return begin, end, np.repeat(self.problem.size, np.diff(first))


def packed_arena(problem: Problem, packing: Packing) -> PackedArena:
    """Return a packing with its slots, its extent, and the possible in-place reuses (contract §1, §11)."""
    if packing.slot is not None:
        slot, sizes = packing.slot, slot_sizes(problem, packing.slot)[0][packing.slot]
    else:
        first, begin, _ = live_parts(problem)
        birth, is_live = problem.birth.copy(), np.diff(first) > 0
        birth[is_live] = begin[first[:-1][is_live]]  # of the first live part
        by_id = np.array(sorted(range(len(problem)), key=problem.ids.__getitem__), np.int64)
        slot, sizes = np.empty(len(problem), np.int64), problem.size
        slot[by_id[np.lexsort((birth[by_id], packing.offset[by_id]))]] = np.arange(len(problem))
    extent = packing_extent(packing.offset, sizes)
    handoffs = np.zeros((0, 2), np.int64)
    if problem.handoff_from is not None:
        targets = np.flatnonzero(problem.handoff_from >= 0)
        handoffs = np.stack([problem.handoff_from[targets], targets], axis=1)
    taken = packing.offset[handoffs[:, 0]] == packing.offset[handoffs[:, 1]]
    held_until = problem.death.copy()
    held_until[handoffs[~taken, 0]] += 1
    return PackedArena(problem, packing, slot, extent, held_until, handoffs, taken)


def placed_storages(liveness: Liveness, arenas: Sequence[PackedArena]) -> tuple[Liveness, I64, U64]:
    """Return ``(liveness, slot, offset)``: the liveness after placement, and slot and offset per storage."""
    slot, offset = np.zeros(len(liveness.storages), np.int64), np.zeros(len(liveness.storages), np.uint64)
    unused = [np.zeros(0, np.int64)]
    for number, packed in enumerate(arenas):
        rows = np.flatnonzero(liveness.storages.arena == number)
        slot[rows], offset[rows] = packed.slot, packed.packing.offset
        # A planner with slots frees the input before it places the output. All in-place reuses remain, even if the
        # output gets another slot. Without slots, a reuse remains if input and output have the same offset.
        if packed.packing.slot is None:
            unused.append(rows[packed.handoffs[~packed.taken, 1]])
    remaining = _without_reuse_by(liveness, np.concatenate(unused))
    source, target = (remaining.storage_of[remaining.handoffs[:, k]] for k in (1, 2))
    return replace(remaining, taken=offset[source] == offset[target]), slot, offset


def without_handoffs(liveness: Liveness, *, across_arenas: bool = False) -> Liveness:
    """Return the liveness without in-place reuse; with ``across_arenas``, only reuse between arenas is removed."""
    storages = liveness.storages
    targets = np.flatnonzero(storages.handoff_from >= 0)
    if across_arenas:
        targets = targets[storages.arena[targets] != storages.arena[storages.handoff_from[targets]]]
    return _without_reuse_by(liveness, targets)


def _without_reuse_by(liveness: Liveness, targets: I64) -> Liveness:
    """Return the liveness without the in-place reuse by ``targets``: at that step, input and output are both live."""
    if not len(targets):
        return liveness
    storages, handoffs = liveness.storages, liveness.handoffs
    is_kept = ~np.isin(liveness.storage_of[handoffs[:, 2]], targets)
    death, storage_death, handoff_from = liveness.death.copy(), storages.death.copy(), storages.handoff_from.copy()
    death[handoffs[~is_kept, 1]] += 1
    storage_death[handoff_from[targets]] += 1
    handoff_from[targets] = -1
    storages = replace(storages, death=storage_death, handoff_from=handoff_from)
    return replace(liveness, death=death, storages=storages, handoffs=handoffs[is_kept], taken=liveness.taken[is_kept])


def plan_columns(
    liveness: Liveness, slot: I64, offset: U64, arenas: Sequence[ArenaSummary], *, own_arenas: bool
) -> dict[str, Any]:
    """Return the columns of :class:`Plan`, sorted by tensor id (bytes); ``slot`` and ``offset`` are per storage."""
    index, graph, storages = liveness.timeline.index, liveness.timeline.graph, liveness.storages
    ids = index.tensor_ids
    planned = np.flatnonzero(liveness.birth >= 0)
    rows = planned[np.argsort(index.id_rank[planned])]
    del planned  # this process reaches its peak memory in this function
    alignment = _alignments(liveness, rows, arenas, own_arenas)
    storage = liveness.storage_of[rows]
    number, generation = storage_numbers(storages.arena, slot, storages.birth)
    number, generation = number[storage], generation[storage]
    alias_groups: list[str | None] = [None] * len(rows)
    bases = alias_groups.copy()
    for row in np.flatnonzero(np.isin(rows, index.annotated)).tolist():
        tensor = graph.tensors[rows[row]]
        alias_groups[row], bases[row] = tensor.alias_group_id, tensor.view and tensor.view.base_tensor_uid
    return {
        "tensor_ids": names_of(ids, rows),
        "arena": storages.arena[storage],
        "logical_slot": slot[storage],
        "offset": offset[storage] + liveness.offset_in_storage[rows],
        "size": bytes_of_tensors(liveness.timeline)[rows],
        "alignment": alignment,
        "birth": liveness.birth[rows],
        "death": liveness.death[rows],
        "generation": generation,
        "storage": number,
        "roles": names_of(ROLES, index.role[rows]),
        "dtypes": tuple([index.graph.tensors[i].dtype for i in rows.tolist()]),
        "shapes": tuple([index.shapes[i] for i in rows.tolist()]),
        "alias_group_ids": tuple(alias_groups),
        "base_tensor_uids": tuple(bases),
        "handoffs": tuple([(step, ids[source], ids[target]) for step, source, target in liveness.handoffs.tolist()]),
        "taken": tuple(liveness.taken.tolist()),
    }


def storage_numbers(arena: I32, slot: I64, birth: I64) -> tuple[I64, I64]:
    """Return (number, generation) of each storage: its rank by (arena, slot, birth), and its rank in its slot."""
    order = np.lexsort((birth, slot, arena))
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    slot_number, _ = group_numbers(arena, slot)
    return number, number - np.searchsorted(slot_number[order], slot_number)


def _alignments(liveness: Liveness, rows: I64, arenas: Sequence[ArenaSummary], own_arenas: bool) -> U64:
    """Return each offset's alignment: the arena's (inside a storage: the element size), or a larger declared one."""
    tensors, index = liveness.timeline.graph.tensors, liveness.timeline.index
    arena_alignment = np.array([arena.alignment_bytes for arena in arenas], np.uint64)
    storage = liveness.storage_of[rows]
    alignment = arena_alignment[liveness.storages.arena[storage]]
    if own_arenas:  # ``helia`` sets the alignment of each storage, which the configuration does not contain
        alignment = np.maximum(alignment, liveness.storages.alignment[storage])
    start_alignment = np.maximum(alignment, liveness.storages.alignment[storage])
    # For a view, or a tensor past the start of its storage: the element size, or the storage's alignment if smaller.
    is_inside = (index.base[rows] >= 0) | (liveness.offset_in_storage[rows] > 0)
    for row in np.flatnonzero(is_inside).tolist():
        alignment[row] = min(itemsize(tensors[rows[row]].dtype), int(start_alignment[row]))
    for row in np.flatnonzero(np.isin(rows, index.annotated)).tolist():
        declared = tensors[rows[row]].alignment
        if declared is not None:
            alignment[row] = max(declared, int(alignment[row]))
    return alignment


def assemble(
    arenas: Sequence[PackedArena],
    summaries: Sequence[ArenaSummary],
    started: int,
    *,
    retained: tuple[int, int] = (0, 0),
    reserved_peak_bytes: int | None = None,
    **fields: Any,
) -> Plan:
    """Return a plan with hashes and metrics. ``started``: clock at the start, in ns; ``retained``: for the metrics."""
    peak = (0, 0)
    if arenas:
        birth, death, size = map(np.concatenate, zip(*(packed.live_parts for packed in arenas), strict=True))
        peak = peak_of_ranges(birth, death, size, fields["steps"])
    totals = metrics.totals_of(summaries, peak, reserved_peak_bytes)
    spent = time.perf_counter_ns() - started
    figures = metrics.plan_metrics(summaries, totals, retained=retained, allocation_time_ns=spent)
    plan = Plan(tmmu_plan_hash=b"", layout_hash=b"", arenas=tuple(summaries), metrics=figures, **fields)
    return canonical.with_hashes(plan)


def summarise(packed: PackedArena, steps: int) -> ArenaSummary:
    """Return the figures and the certificate of a packed arena in a timeline of ``steps`` steps."""
    problem, packing, extent, live_parts = packed.problem, packed.packing, packed.extent, packed.live_parts
    peak_live, max_live = peak_and_count(*live_parts, steps)
    cost, bound = reuse_cost(problem, packing), lower_bound(problem)
    proven = max(bound.bytes, packing.lower_bound or 0)  # a search may prove more than the bounds of the problem
    is_cheapest = (cost or 0) <= (packing.cost_bound or 0)
    if extent < proven:
        status = INVALID
    elif (packing.optimal or extent == proven) and is_cheapest:
        status = OPTIMAL
    else:
        status = UNPROVEN if packing.stopped else FEASIBLE
    return ArenaSummary(
        name=problem.arena,
        capacity_bytes=problem.capacity,
        alignment_bytes=problem.arena_alignment,
        page_size=problem.page_size,
        extent_bytes=extent,
        committed_bytes=metrics.committed_bytes(extent, problem.page_size, arena=problem.arena),
        peak_live_bytes=peak_live,
        slots=int(packed.slot.max(initial=-1)) + 1,
        max_live=max_live,
        storages=len(live_parts[0]),
        lower_bound_bytes=bound.bytes,
        proven_bytes=proven if proven > bound.bytes else None,
        status=status,
        witness=tuple([problem.ids[i] for i in bound.witness]),
        witness_step=bound.step,
        reuse_cost=cost,
        reuse_cost_lower_bound=None if cost is None else packing.cost_bound or 0,
        reuse_cost_witness=packing.cost_witness,
    )


def reuse_cost(problem: Problem, packing: Packing) -> int | None:
    """Return the sum of the penalties whose two storages share bytes; ``None`` for a problem without reuse terms."""
    if problem.reuse is None:
        return None
    begin, end = packing.offset.tolist(), (packing.offset + problem.size).tolist()
    return sum(c for i, j, c in problem.reuse.penalties if max(begin[i], begin[j]) < min(end[i], end[j]))


def check_capacity(problem: Problem, summary: ArenaSummary, *, of_graph: bool = True) -> None:
    """Raise ``ArenaTooSmall`` if the extent exceeds the capacity. ``of_graph``: add the advice for a graph.

    ``diagnostics["another_planner_would_fit"]`` is ``"no"`` if the lower bound is over the capacity,
    ``"portfolio"`` if that planner was tried and its plan fits, else ``"unknown"``.
    """
    if summary.extent_bytes <= summary.capacity_bytes:
        return
    bound = max(summary.bound_bytes, summary.proven_bytes or 0)
    planner = "exact" if problem.reuse is None else "reuse"
    other, hint = "unknown", f"The lower bound is {bound:,} B, so another plan may fit: try --planner {planner}."
    if bound > summary.capacity_bytes:
        other = "no"
        hint = f"No plan fits: at least {bound:,} B are needed {problem.assumptions} (proven). Raise the capacity"
        if of_graph:
            hint += ", or use tmmu fit: it reorders nodes, recomputes, offloads or shrinks a dimension."
        else:
            hint += ", shorten live ranges or make buffers smaller."
    elif problem.reuse is None and len(problem) <= ALTERNATIVE_UP_TO:
        packing = ARENA_PLANNERS[ALTERNATIVE].pack(problem, {}, None)
        if packing_extent(packing.offset, problem.size) <= summary.capacity_bytes:
            other, hint = ALTERNATIVE, f"It fits with --planner {ALTERNATIVE}."
    limit = "the memory limit (--capacity)" if summary.name == ONE_MEMORY else f"the capacity of arena {summary.name!r}"
    message = f"{limit} is {summary.capacity_bytes:,} B, the plan needs {summary.extent_bytes:,} B."
    diagnostics: dict[str, Any] = {name: getattr(summary, name) for name in ("peak_live_bytes", "alignment_bytes")}
    diagnostics |= {"capacity": summary.capacity_bytes, "required": summary.extent_bytes}
    diagnostics |= {"another_planner_would_fit": other, "proven": other == "no"}
    raise ArenaTooSmall(message, arena=summary.name, hint=hint, **diagnostics)


def check_totals(summaries: Sequence[ArenaSummary], budget: int | None) -> None:
    """Raise ``AllocationFailure`` for a total over ``budget`` (contract §4), ``AllocationOverflow`` past 2^64 − 1."""
    needed, committed = (sum(getattr(a, name) for a in summaries) for name in ("extent_bytes", "committed_bytes"))
    if budget is not None and needed > budget:
        largest = max(summaries, key=lambda summary: (summary.extent_bytes, summary.name))
        what = f"the plan needs {needed:,} B over all arenas, but the quota (--budget) is {budget:,} B"
        hint = f"The largest arena is {largest.name!r} with {largest.extent_bytes:,} B. "
        hint += f"tmmu fit FILE --capacity {budget} searches for a graph that fits."
        diagnostics: dict[str, Any] = {"peak_required_bytes": needed, "memory_bytes_budget": budget}
        diagnostics["allocation_failures"] = 1
        raise AllocationFailure(f"{what}; nothing was committed.", arena=largest.name, hint=hint, **diagnostics)
    if committed > U64_MAX:
        largest = max(summaries, key=lambda summary: (summary.committed_bytes, summary.name))
        message, size = f"the plan needs {committed:,} B over all arenas, past 2^64 − 1.", largest.committed_bytes
        hint = f"The largest arena is {largest.name!r} with {size:,} B. Check the shapes of its tensors."
        raise AllocationOverflow(message, arena=largest.name, offset=committed - size, size=size, hint=hint)
