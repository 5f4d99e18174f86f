"""Candidates of a fit: apply moves to a plan input, plan the result, and bisect sizes.

Applying a move reads only its ``kind`` and ``details``. Nodes that a move adds are part of the ``execution_order``.

A smaller alignment needs the support of the hardware. If all arenas except ``offload`` have the same alignment, the
fitted graph contains it. Otherwise a plan of the graph needs the alignments from ``--arenas FILE``.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from msgspec.structs import replace as replace_fields

from tmmu_core.base.errors import InvalidIrShapes, source_of_errors
from tmmu_core.fitting.move import Kind, Move
from tmmu_core.fitting.problem.answer import Fitted
from tmmu_core.fitting.problem.in_place import permitted_pairs
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, extents, solve_input
from tmmu_core.fitting.recompute import offload, recompute_moves
from tmmu_core.fitting.recompute.drop_moves import apply_drops
from tmmu_core.graph.checks import arena_fields, assumed_at, dimension_hint, read_arenas
from tmmu_core.graph.dtypes import itemsize
from tmmu_core.graph.model import Arena, Dim
from tmmu_core.graph.sharding.shard_spec import read_spec
from tmmu_core.graph.sharding.splits import local_graph_of, shard

BEST_PLANNER = "auto"
COSTLY: dict[Kind, Any] = {"recompute": recompute_moves, "offload": offload}
"""Kind of moves that cost compute or transfers → its module.

* ``single_moves(plan_input)`` yields moves that each lower the sum of the arenas' peak live bytes, without planning.
  ``Move.bytes`` is this reduction of live bytes; arenas can shrink by less. The largest reduction is first.
* ``lists_of_moves(plan_input, capacity, report)`` yields alternative lists of moves, each for ``plan_input`` itself,
  cheapest first. Each list has a lower peak than the list before.
"""
ALIGNMENT_WHY = "the live ranges stay the same; the hardware must support this alignment"


def _apply(plan_input: PlanInput, move: Move) -> PlanInput:
    """Return the plan input after one move whose kind is not in ``COSTLY``. Comments show ``details`` of each kind."""
    graph, details = plan_input.graph, move.details
    match move.kind:
        case "planner":  # {"planner": NAME, "options": {…}}
            return replace(plan_input, planner=details["planner"], options=dict(details.get("options", {})))
        case "order":  # {"order": [node id, …]}, all nodes of the graph
            graph = replace_fields(graph, execution_order=tuple(details["order"]))
        case "inplace":  # {"pairs": [[node id, [[input, output], …]], …]}
            added = {node_id: tuple((i, o) for i, o in pairs) for node_id, pairs in details["pairs"]}
            nodes = list(graph.nodes)
            for k, node in enumerate(nodes):
                if node.node_id in added:
                    nodes[k] = replace_fields(node, inplace=(*permitted_pairs(node), *added[node.node_id]))
            graph = replace_fields(graph, nodes=tuple(nodes))
        case "sizes":  # {"dims": {name: size}}: the upper bounds of dimensions
            bounds = {n: Dim(min(dim_bounds(plan_input, n).min, size), size) for n, size in details["dims"].items()}
            graph = replace_fields(graph, dims=graph.dims | bounds, assumed=assumed_at(graph, details["dims"]))
        case "alignment":  # {"alignment": bytes, "arenas": [name, …]}
            config: dict[str, Any] = dict(arena_fields(plan_input.arenas or {}))
            before = read_arenas(plan_input.arenas)
            for name in details["arenas"]:
                alignment = min(int(details["alignment"]), before.get(name, Arena()).alignment_bytes)
                config[name] = {**config.get(name, {}), "alignment_bytes": alignment}
            return replace(plan_input, arenas=config)
        case "shards":  # {"spec": {…}, "rank": rank}: the share of a rank; default: 0
            graph = local_graph_of(shard(graph, read_spec(details["spec"])), details.get("rank", 0))
    return replace(plan_input, graph=graph)


def apply_moves(plan_input: PlanInput, moves: Iterable[Move]) -> PlanInput:
    """Return the plan input after ``moves``, applied in order."""
    for kind, of_kind in groupby(moves, key=lambda move: move.kind):
        if kind in COSTLY:  # together, because each application writes the whole graph
            plan_input = apply_drops(plan_input, kind, of_kind)
        else:
            for move in of_kind:
                plan_input = _apply(plan_input, move)
    return plan_input


def plan_moves(base: Candidate, moves: tuple[Move, ...]) -> Candidate:
    """Return the plan of ``base`` after ``moves``. ``bytes`` of the last move: the saving minus all other ``bytes``."""
    if not moves:
        return base
    plan_input = apply_moves(base.plan_input, moves)
    solution = solve_input(plan_input)
    *earlier, last = moves
    saved = base.extent_bytes - sum(extents(solution.plan).values())
    last = replace(last, bytes=saved - sum(move.bytes for move in earlier))
    return Candidate(plan_input, (*base.moves, *earlier, last), solution)


def with_size(start: Candidate, name: str, size: int) -> Candidate:
    """Return the plan at another upper bound of a dimension. Raises ``InvalidIrShapes`` for an unknown dimension."""
    if dim_bounds(start.plan_input, name).max == size:
        return start
    why = "the same computation on smaller tensors, such as a smaller batch"
    with source_of_errors(f"{start.plan.ir_name or 'the graph'} at {name} = {size}"):
        return plan_moves(start, (Move("sizes", f"{name} = {size}", why, details={"dims": {name: size}}),))


def planner_moves(planner: str) -> tuple[Move, ...]:
    """Return the move from ``planner`` to the best planner; no move if ``planner`` is the best."""
    what = f"pack with {BEST_PLANNER!r} instead of {planner!r}"
    move = Move("planner", what, "the execution order does not change", details={"planner": BEST_PLANNER})
    return () if planner == BEST_PLANNER else (move,)


def smaller_alignments(base: Candidate) -> Iterator[Move]:
    """Yield a move for every smaller alignment of the arenas, down to the widest element type, largest first."""
    arenas = sorted(extents(base.plan))
    largest = max((base.plan.arena_of[name].alignment_bytes for name in arenas), default=1)
    widest = max((itemsize(tensor.dtype) for tensor in base.plan_input.graph.tensors), default=1)
    alignment = largest // 2
    while alignment >= widest:
        what = f"align to {alignment} B instead of {largest} B"
        yield Move("alignment", what, ALIGNMENT_WHY, details={"alignment": alignment, "arenas": arenas})
        alignment //= 2


def pareto(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the candidates that no other one dominates in cost and bytes, by rising cost."""
    found: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: c.key):
        if not found or candidate.extent_bytes < found[-1].extent_bytes:
            found.append(candidate)
    return tuple(found)


def dim_bounds(plan_input: PlanInput, name: str) -> Dim:
    """Return the bounds of a dimension. Raises ``InvalidIrShapes`` (``unknown_dimension``)."""
    dims = plan_input.graph.dims
    if name not in dims:
        message, hint = f"the graph has no dimension {name!r}.", dimension_hint(name, dims)
        raise InvalidIrShapes(message, reason="unknown_dimension", node_id="", hint=hint)
    return dims[name]


@dataclass(frozen=True, eq=False)
class FittedSize:
    """The result of a search for a size."""

    size: int | None  # ``None`` if no size fits
    fitted: Fitted  # the fit at ``size``; if no size fits, the fit that needs the least memory


def bisect_size(
    bounds: Dim, fit_at: Callable[[int], Fitted], is_excluded: Callable[[int], bool] | None = None
) -> FittedSize:
    """Return the largest size within ``bounds`` that fits. Memory must grow with the size.

    ``is_excluded`` proves quickly that a size does not fit. ``fit_at`` runs about log₂ (max − min) times, but only
    once if the largest size that is not excluded fits. If a fit is stopped, return the largest size that fits so far.
    """
    if is_excluded is not None:
        count = bisect_left(range(bounds.min + 1, bounds.max + 1), True, key=is_excluded)
        bounds = Dim(bounds.min, bounds.min + count)
    last = fit_at(bounds.max)
    if last.answer == "fits":
        return FittedSize(bounds.max, last)
    best = last if bounds.min == bounds.max else fit_at(bounds.min)
    if best.answer != "fits":
        return FittedSize(None, best)
    low, high = bounds.min, bounds.max
    while high - low > 1 and not last.stopped:
        middle = (low + high) // 2
        last = fit_at(middle)
        if last.answer == "fits":
            low, best = middle, last
        else:
            high = middle
    return FittedSize(low, replace(best, stopped=last.stopped))
