"""Overviews of possible changes: single moves ranked by the bytes that they save, and the curve of bytes against cost.

``what_if`` plans, for each kind, the moves that save the most live bytes at the peak, each move alone. It ranks the
planned moves by the bytes by which they reduce the sum of the arenas' extents. ``curve`` returns plans, from the
initial plan towards the lower bound.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tmmu_core.fitting.move import KINDS, Kind, Move
from tmmu_core.fitting.order.order_search import Watch, order_move
from tmmu_core.fitting.problem.answer import DEFAULT_KINDS, Allowed, Capacity
from tmmu_core.fitting.problem.in_place import live_bytes_in, missing_permissions
from tmmu_core.fitting.problem.lower_bounds import lower_bound
from tmmu_core.fitting.problem.planner_calls import Candidate, extents_of
from tmmu_core.fitting.search.candidates import COSTLY, apply_moves, pareto, planner_moves, smaller_alignments
from tmmu_core.fitting.search.fit_search import fit, reachable_bound, smallest_of
from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.planners.problem import Progress

MOST_PLANNED = 8  # maximum number of moves of one kind that are planned
POINTS = 8  # number of capacities tried, from the smallest plan without cost down to the lower bound


@dataclass(frozen=True)
class WhatIf:
    """The ranked moves, and how many moves were considered."""

    moves: tuple[Move, ...]  # sorted by saved bytes, then by cost; moves that save nothing are omitted
    planned: int  # number of moves that were planned
    possible: int  # number of moves, planned or not
    stopped: bool = False


def what_if(start: Candidate, kinds: Iterable[Kind] = DEFAULT_KINDS, progress: Progress | None = None) -> WhatIf:
    """Rank moves, each applied alone to ``start``; ``sizes`` has none. ``progress`` can stop the search early."""
    watch = Watch(progress)
    ranked: list[Move] = []
    possible = planned = 0
    for kind in sorted({*kinds}, key=KINDS.index):
        moves = sorted(_single_moves(start, kind, watch), key=lambda move: -move.bytes)
        possible += len(moves)
        for number, move in enumerate(moves[:MOST_PLANNED]):
            if not watch(f"what if: {kind}", number, min(MOST_PLANNED, len(moves))):
                break
            planned += 1
            extent = sum(extents_of(apply_moves(start.plan_input, (move,))).values())
            if extent < start.extent_bytes:
                ranked.append(replace(move, bytes=start.extent_bytes - extent))
        if watch.stopped:
            break
    ranked.sort(key=lambda move: (-move.bytes, *move.cost.key, KINDS.index(move.kind), move.what))
    return WhatIf(tuple(ranked), planned, possible, watch.stopped)


def _single_moves(start: Candidate, kind: Kind, watch: Watch) -> Iterator[Move]:
    plan_input, liveness = start.plan_input, start.liveness
    if kind == "planner":
        yield from planner_moves(plan_input.planner)
    elif kind == "order":
        # Goal 0 skips beam search and the proof: any order with a lower peak is a result.
        order = order_move(start, watch, goal=0)
        if order is not None and order.move is not None:
            yield replace(order.move, bytes=order.ordered.tried["given"] - order.ordered.peak)
    elif kind == "alignment":
        yield from smaller_alignments(start)
    elif kind == "inplace":
        index, storages, timeline = liveness.timeline.index, liveness.storages, liveness.timeline
        saved: dict[str, int] = {}  # node at the first peak of an arena → bytes that in-place reuse at this node saves
        for arena in np.unique(storages.arena).tolist() if timeline.steps else ():
            live = live_bytes_in(liveness, arena)
            step = live.index(max(live))
            node = int(timeline.node_at[step])
            if node < 0 or liveness.arenas[arena] == OFFLOAD_ARENA:
                continue
            second_peak = max([0, *live[:step], *live[step + 1 :]])
            inputs = liveness.storage_of[index.inputs_of(node)]
            inputs = inputs[inputs >= 0]
            inputs = inputs[(storages.arena[inputs] == arena) & (storages.death[inputs] == step + 1)]
            saved[index.node_ids[node]] = min(int(storages.size[inputs].max(initial=0)), live[step] - second_peak)
        for node_id in sorted(saved, key=index.node_of.__getitem__):
            move = missing_permissions(plan_input, {node_id}) if saved[node_id] else None
            if move is not None:
                yield replace(move, bytes=saved[node_id])
    elif kind in COSTLY:
        yield from COSTLY[kind].single_moves(plan_input)


def curve(
    start: Candidate, allowed: Allowed | None = None, progress: Progress | None = None, points: int = POINTS
) -> tuple[Candidate, ...]:
    """Return plans by rising cost, each smaller than all cheaper ones; if stopped, return the plans found so far."""
    allowed = allowed or Allowed()
    with_cost = replace(allowed, kinds=allowed.kinds & COSTLY.keys())
    without_cost = replace(allowed, kinds=allowed.kinds - with_cost.kinds)
    # With the lower bound as capacity, the search tries all moves. With less, a proof that nothing fits would end it.
    bound = reachable_bound(start, without_cost.kinds - {"sizes"} | {"planner"}).bytes
    fitted = fit(start, Capacity(bound), without_cost, progress)
    plans = fitted.curve
    if not with_cost.kinds or fitted.stopped:
        return plans
    base = smallest_of(candidate for candidate in plans if not candidate.cost.weight)
    bound = lower_bound(base, with_cost.kinds).bytes
    for k in range(1, points + 1):
        target = base.extent_bytes - (base.extent_bytes - bound) * k // points
        fitted = fit(base, Capacity(target), with_cost, progress)
        plans = pareto([*plans, *fitted.curve])
        if fitted.stopped:
            break
    return plans
