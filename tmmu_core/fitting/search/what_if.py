"""Rank single moves by the bytes that each saves.

The live curve filters moves that cannot lower the peak and sorts the other moves; the best of each kind are then
planned, each alone, and ranked by their result.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tmmu_core.fitting.move import KINDS, Kind, Move
from tmmu_core.fitting.moves.alignment import finer_alignments
from tmmu_core.fitting.moves.reordering import order_move
from tmmu_core.fitting.problem.answer import ALLOWED
from tmmu_core.fitting.problem.in_place import live_in, single_moves
from tmmu_core.fitting.problem.planner_calls import Candidate, extents_of
from tmmu_core.fitting.search.candidates import (
    BEST_PLANNER,
    PROPOSING,
    apply_moves,
    names_of,
    planner_move,
    proposing,
)
from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.liveness.live_model import Liveness
from tmmu_core.planners.problem import Packing, Progress

PLANNED = 8
"""Maximum number of moves of one kind that are planned."""


@dataclass(frozen=True)
class WhatIf:
    """The ranking."""

    moves: tuple[Move, ...]
    """Sorted by saved bytes, then by cost; moves that save nothing are omitted."""
    planned: int
    """Number of moves that were planned."""
    weighed: int
    """Number of moves that passed the filter."""
    stopped: bool = False


def what_if(
    start: Candidate,
    kinds: Iterable[Kind] = ALLOWED,
    progress: Progress | None = None,
    *,
    most: int = PLANNED,
) -> WhatIf:
    """Rank single moves on ``start``. ``progress`` can stop the search; results so far are kept."""
    chosen = frozenset(kinds)
    ranked: list[Move] = []
    known: dict[bytes, Packing] = {}
    weighed = planned = 0
    stopped = False
    before = start.extent_bytes
    for kind in (kind for kind in KINDS if kind in chosen):
        offers = sorted(enumerate(_offers(start, kind, progress)), key=lambda each: (-each[1].bytes, each[0]))
        weighed += len(offers)
        for number, (_, move) in enumerate(offers[:most]):
            if stopped or (progress is not None and not progress(f"what if: {kind}", number, min(most, len(offers)))):
                stopped = True
                break
            planned += 1
            found = before - sum(extents_of(apply_moves(start.plan_input, (move,)), known).values())
            if found > 0:
                ranked.append(replace(move, bytes=found))
    ranked.sort(key=lambda move: (-move.bytes, *move.cost.key, KINDS.index(move.kind), move.what))
    return WhatIf(tuple(ranked), planned, weighed, stopped)


def _offers(start: Candidate, kind: Kind, progress: Progress | None) -> Iterator[Move]:
    plan_input, solution = start.plan_input, start.solution
    if kind == "planner" and plan_input.planner != BEST_PLANNER:
        yield planner_move(plan_input.planner)
    elif kind == "order":
        # Skip the proof of optimality: any lower order is a result.
        found = order_move(plan_input, solution, progress, enough=0)
        if found is not None and found.move is not None:
            yield replace(found.move, bytes=found.ordered.tried["given"] - found.ordered.peak)
    elif kind == "alignment":
        yield from finer_alignments(plan_input, names_of(solution.plan))
    elif kind == "inplace":
        gains = in_place_gains_at_peak(solution.liveness)
        for move in single_moves(plan_input):
            if gains.get(move.nodes[0], 0):
                yield replace(move, bytes=gains[move.nodes[0]])
    elif kind in PROPOSING:
        yield from proposing(kind).single_moves(plan_input)


def in_place_gains_at_peak(liveness: Liveness) -> dict[str, int]:
    """Return node → bytes by which its arena's first peak falls if its output reuses an input in place."""
    index, storages = liveness.timeline.index, liveness.storages
    found: dict[str, int] = {}
    if not liveness.timeline.steps:
        return found
    for arena in np.unique(storages.arena).tolist():
        if liveness.arenas[arena] == OFFLOAD_ARENA:
            continue
        live = live_in(liveness, arena)
        step = live.index(max(live))
        node = int(liveness.timeline.node_at[step])
        rest = max([0, *live[:step], *live[step + 1 :]])
        if node >= 0:
            reads = {int(liveness.storage_of[x]) for x in index.inputs_of(node)}
            here = {s for s in reads if s >= 0 and storages.arena[s] == arena}
            given = max((int(storages.size[s]) for s in here if storages.death[s] == step + 1), default=0)
            found[index.node_ids[node]] = min(given, live[step] - rest)
    return found
