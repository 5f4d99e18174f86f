"""What if: every single move, ranked by the bytes that it really brings.

The live curve is the filter: a move whose tensors are not there at the fullest step can bring nothing, and what is left
is weighed by what is alive without planning. The most promising are then planned anew, each alone, and ranked by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tmmu_core.fit.alignment import finer
from tmmu_core.fit.answer import ALLOWED
from tmmu_core.fit.applying import applied
from tmmu_core.fit.asking import Candidate, extents_of
from tmmu_core.fit.candidates import BEST_PLANNER, names_of, planner_move
from tmmu_core.fit.inplace import live_in, single_moves
from tmmu_core.fit.moves import KINDS, Kind, Move
from tmmu_core.fit.ordering import order_move
from tmmu_core.fit.proposing import PROPOSING
from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.liveness.model import Liveness
from tmmu_core.planners.problem import Packing, Progress

PLANNED = 8
"""Moves of one kind that are planned for real, at most."""


@dataclass(frozen=True)
class WhatIf:
    """The ranking."""

    moves: tuple[Move, ...]
    """By bytes off the extents, most first; then the cheapest. Those that bring nothing are left out."""
    planned: int
    """How many were planned for real."""
    weighed: int
    """How many there are that the live curve does not rule out."""
    stopped: bool = False


def what_if(
    start: Candidate,
    kinds: Iterable[Kind] = ALLOWED,
    progress: Progress | None = None,
    *,
    most: int = PLANNED,
) -> WhatIf:
    """Rank single moves on ``start``; ``progress`` may stop it, which keeps what was planned by then."""
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
            found = before - sum(extents_of(applied(start.question, (move,)), known).values())
            if found > 0:
                ranked.append(replace(move, bytes=found))
    ranked.sort(key=lambda move: (-move.bytes, *move.cost.key, KINDS.index(move.kind), move.what))
    return WhatIf(tuple(ranked), planned, weighed, stopped)


def _offers(start: Candidate, kind: Kind, progress: Progress | None) -> Iterator[Move]:
    question, solution = start.question, start.solution
    if kind == "planner" and question.planner != BEST_PLANNER:
        yield planner_move(question)
    elif kind == "order":
        # An order that is as low as any move could make it is enough: what is proven is the search's business.
        found = order_move(question, solution, progress, enough=0)
        if found is not None and found.move is not None:
            yield replace(found.move, bytes=found.ordered.tried["given"] - found.ordered.peak)
    elif kind == "alignment":
        yield from finer(question, names_of(solution.plan))
    elif kind == "inplace":
        gains = handed_at_the_peak(solution.liveness)
        for move in single_moves(question, solution):
            if gains.get(move.nodes[0], 0):
                yield replace(move, bytes=gains[move.nodes[0]])
    elif kind in PROPOSING:
        yield from PROPOSING[kind].single(question, solution)


def handed_at_the_peak(liveness: Liveness) -> dict[str, int]:
    """Node that runs at its arena's first fullest step → what that peak falls by where it takes an input's place."""
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
