"""Compute the figures and the certificate (lower bound, optimality) of an arena; check capacity and budget."""

from collections.abc import Sequence
from typing import Any

from tmmu_core.base.errors import U64_MAX, AllocationFailure, AllocationOverflow, ArenaTooSmall
from tmmu_core.graph.model import ONE_MEMORY
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.problem import Packing, Problem, packing_extent
from tmmu_core.plans.figures import metrics
from tmmu_core.plans.figures.live_bytes import peak_and_count
from tmmu_core.plans.making.plan_rows import PackedArena
from tmmu_core.plans.model import FEASIBLE, INVALID, OPTIMAL, UNPROVEN, ArenaSummary

ALTERNATIVE = "portfolio"  # planner that ``check_capacity`` tries, to recommend it if its plan fits
ALTERNATIVE_UP_TO = 20_000  # maximum number of storages for which :data:`ALTERNATIVE` runs


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
    """Check the sums over all arenas (contract §4).

    Raises ``AllocationFailure`` if the sum of the extents exceeds ``budget`` (the quota in bytes), and
    ``AllocationOverflow`` if the sum of the committed bytes (the extents in whole pages) exceeds 2^64 − 1.
    """
    needed, committed = (sum(getattr(a, name) for a in summaries) for name in ("extent_bytes", "committed_bytes"))
    if budget is not None and needed > budget:
        largest = max(summaries, key=lambda summary: (summary.extent_bytes, summary.name))
        what = f"the plan needs {needed:,} B over all arenas, but the quota (--budget) is {budget:,} B"
        hint = f"The largest arena is {largest.name!r} with {largest.extent_bytes:,} B. "
        hint += f"tmmu fit FILE --capacity {budget} searches for a graph that fits."
        diagnostics: dict[str, Any] = {
            "peak_required_bytes": needed,
            "memory_bytes_budget": budget,
            "allocation_failures": 1,
        }
        raise AllocationFailure(f"{what}; nothing was committed.", arena=largest.name, hint=hint, **diagnostics)
    if committed > U64_MAX:
        largest = max(summaries, key=lambda summary: (summary.committed_bytes, summary.name))
        message, size = f"the plan needs {committed:,} B over all arenas, past 2^64 − 1.", largest.committed_bytes
        hint = f"The largest arena is {largest.name!r} with {size:,} B. Check the shapes of its tensors."
        raise AllocationOverflow(message, arena=largest.name, offset=committed - size, size=size, hint=hint)
