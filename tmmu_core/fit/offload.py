"""Copying to another memory what is idle: the moves of kind ``offload``.

Behind its last use before a gap a node ``h@copy_out`` copies ``h`` to ``h@offload``, which lies in the arena
``offload``; just before the next use ``h@back`` copies it back, under that name. The copy that lies there serves every
later gap. The price is the bytes moved; how many steps there are to move them in is told with each move.

A gap is a gap of recomputation (``recompute/model.py``), where a storage comes back instead of being made again; so
both kinds of moves go together in any order. May be moved: what no other tensor shares or writes over and is neither
persistent nor an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tmmu_core.fit.asking import Question
from tmmu_core.fit.moves import Cost, Move
from tmmu_core.fit.recompute.cut import Boundary, boundary
from tmmu_core.fit.recompute.model import I64, RecomputeModel
from tmmu_core.fit.recompute.moves import SINGLES, TIGHTER, Goal, go_on_of, scaled
from tmmu_core.fit.recompute.search import peak_position
from tmmu_core.fit.recompute.simulate import Choice, Run, run
from tmmu_core.fit.recompute.unwrite import unwritten
from tmmu_core.fit.recompute.write import drops_of, with_drops, written
from tmmu_core.planners.problem import Progress

WHY = "the same bytes come back before they are read"
LEAST = 4096
"""Bytes below which a copy is not worth its node."""
TRIED = 40
"""Storages tried one by one at a step, at most."""
KEPT = 400
"""Storages of which it is asked whether they may stay, at most."""
Over = Callable[[Mapping[str, int]], int]


def apply_offload(question: Question, *moves: Move) -> Question:
    """Each move's ``details``: ``{"drops": [[tensor, the node after which it leaves], …]}``.

    Raises ``InvalidIrShapes`` (reason ``recompute``) for a tensor that cannot be moved, or that a node does not touch.
    """
    model, choice = unwritten(question)
    drops = [drop for move in moves for drop in move.details["drops"]]
    return replace(question, graph=written(model, with_drops(model, choice, drops, away=True)))


def single_moves(question: Question, solution: object) -> Iterator[Move]:
    """Every storage that lies idle at the fullest step of an arena and whose leaving lowers it, most bytes first.

    ``bytes`` is what the live curve says; planning anew says it exactly. ``solution`` is not needed.
    """
    model, begun = unwritten(question)
    base = run(model, begun)
    weighed: list[tuple[tuple[int, int], Choice, Run]] = []
    for arena in range(len(model.fixed)):
        at = boundary(model, peak_position(base, arena))
        for s in _idle(model, at, arena, begun)[:SINGLES].tolist():
            choice = begun | _leaving(model, at, s)
            found = run(model, choice)
            if found.valid and found.total < base.total:
                weighed.append(((found.total - base.total, s), choice, found))
    for _, choice, found in sorted(weighed, key=lambda each: each[0])[:SINGLES]:
        yield _move(model, begun, choice, (base, found))


def lower(
    question: Question, solution: object, goal: Goal, report: Progress | None = None
) -> Iterator[tuple[Move, ...]]:
    """Lists of moves: the fewest bytes moved that fit the goal by what is alive, then ever tighter ones; where nothing
    does, the way down to the lowest that is found. Each list is complete and lower than the one before it.
    """
    model, begun = unwritten(question)
    base = run(model, begun)
    go_on = go_on_of(report, "offload")
    choice, found = begun, base
    total = base.total
    for share in TIGHTER:
        over = scaled(goal, share)
        choice, found = _down(model, choice, over, go_on)
        if not _excess(model, found, over):
            lean, leaner = _leaner(model, begun, choice, over)
            if leaner.total < total:
                total = leaner.total
                yield _moves(model, begun, lean)
            continue
        if share == TIGHTER[0] and found.total < total:
            yield _moves(model, begun, choice)
        return


def _excess(model: RecomputeModel, found: Run, over: Over) -> int:
    return over(dict(zip(model.liveness.arenas, found.peaks.tolist(), strict=True)))


def _down(model: RecomputeModel, choice: Choice, over: Over, go_on: Callable[[], bool]) -> tuple[Choice, Run]:
    """One storage after the other leaves at the fullest step, until all fits or nothing helps any more."""
    found = run(model, choice)
    while (missing := _excess(model, found, over)) and go_on():
        better: tuple[Choice, Run] | None = None
        for arena in np.argsort(-found.peaks, kind="stable").tolist():
            better = _one_less(model, choice, found, (arena, missing))
            if better is not None:
                break
        if better is None:
            break
        choice, found = better
    return choice, found


def _one_less(model: RecomputeModel, choice: Choice, found: Run, need: tuple[int, int]) -> tuple[Choice, Run] | None:
    """What leaves next: the smallest that is enough, else the largest; many at once where none of them is."""
    arena, missing = need
    at = boundary(model, peak_position(found, arena))
    idle = _idle(model, at, arena, choice)
    if not len(idle):
        return None
    enough = idle[model.size[idle] >= missing]
    if len(enough):
        order = [*enough[::-1].tolist(), *idle.tolist()]
    else:
        several = choice
        upto = int(np.searchsorted(np.cumsum(model.size[idle]), missing)) + 1
        for s in idle[:upto].tolist():
            several = several | _leaving(model, at, s)
        after = run(model, several)
        if after.valid and after.live[arena].max() < found.live[arena].max():
            return several, after
        order = idle.tolist()
    for s in order[:TRIED]:
        more = choice | _leaving(model, at, s)
        after = run(model, more)
        if after.valid and after.peaks[arena] <= found.peaks[arena] and _lower(after, found, arena):
            return more, after
    return None


def _lower(after: Run, found: Run, arena: int) -> bool:
    """Whether the arena's peak is lower, or is reached at fewer steps."""
    peak = found.live[arena].max()
    return bool(after.live[arena].max() < peak or (after.live[arena] >= peak).sum() < (found.live[arena] >= peak).sum())


def _leaner(model: RecomputeModel, begun: Choice, choice: Choice, over: Over) -> tuple[Choice, Run]:
    """What need not leave stays, largest first."""
    found = run(model, choice)
    gone = np.flatnonzero(choice.away & ~begun.away)
    for s in gone[np.lexsort((gone, -model.size[gone]))][:KEPT].tolist():
        fewer = choice.copy()
        fewer.away[s] = False
        fewer.used[(model.in_idx == s) & ~begun.used] = False
        fewer.born[(model.out_idx == s) & ~begun.born] = False
        after = run(model, fewer)
        if after.valid and not _excess(model, after, over):
            choice, found = fewer, after
    return choice, found


def _idle(model: RecomputeModel, at: Boundary, arena: int, choice: Choice) -> I64:
    """Storages of an arena that lie idle across the boundary and may leave, largest first, long gaps before short."""
    there = at.before[
        model.movable[at.before]
        & at.needed[at.before]
        & (model.arena[at.before] == arena)
        & (at.gap_start[at.before] >= 0)
        & (at.gap_start[at.before] < at.position)
        & (model.size[at.before] >= LEAST)
        & ~_dropped(choice, at)[at.before]
    ]
    gap = at.gap_end[there] - at.gap_start[there]
    return there[np.lexsort((there, -gap, -model.size[there]))]


def _dropped(choice: Choice, at: Boundary) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Shape (storages,): dropped in its gap across the boundary already."""
    gone = np.zeros(len(at.gap), np.bool_)
    used = np.flatnonzero(at.gap >= 0)
    gone[used] = choice.used[at.gap[used]]
    born = at.before[(at.gap[at.before] < 0) & (at.gap_start[at.before] >= 0)]
    gone[born] = choice.born[-1 - at.gap[born]]
    return gone


def _leaving(model: RecomputeModel, at: Boundary, storage: int) -> Choice:
    choice = Choice.nothing(model)
    gap = int(at.gap[storage])
    if gap >= 0:
        choice.used[gap] = True
    else:
        choice.born[-1 - gap] = True
    choice.away[storage] = True
    return choice


def _moves(model: RecomputeModel, begun: Choice, choice: Choice) -> tuple[Move, ...]:
    """From one choice to a larger one: a move for the storages of each operator."""
    groups: dict[str, list[int]] = {}
    for s in _dropped_in(model, choice - begun):
        groups.setdefault(_maker(model, s), []).append(s)
    moves = []
    now, before = begun, run(model, begun)
    for members in groups.values():
        reads, makes = np.isin(model.in_idx, members), np.isin(model.out_idx, members)
        more = now.copy()
        more.used[reads] |= choice.used[reads]
        more.born[makes] |= choice.born[makes]
        more.away[members] = True
        after = run(model, more)
        moves.append(_move(model, now, more, (before, after)))
        now, before = more, after
    return tuple(moves)


def _dropped_in(model: RecomputeModel, new: Choice) -> list[int]:
    """Storages that leave in some gap, ascending: one that has left in another gap already leaves again."""
    return sorted({*model.in_idx[new.used].tolist(), *model.out_idx[new.born].tolist()})


def _maker(model: RecomputeModel, storage: int) -> str:
    at = int(model.producer[storage])
    return "@inputs" if at < 0 else model.timeline.graph.nodes[int(model.node_at[at])].instr


def _move(model: RecomputeModel, now: Choice, more: Choice, runs: tuple[Run, Run]) -> Move:
    before, after = runs
    new = more - now
    tensors = tuple(map(model.name_of, _dropped_in(model, new)))
    edges = np.flatnonzero(new.used)
    reader = np.repeat(np.arange(len(model.node_at)), np.diff(model.in_ptr))
    maker = np.repeat(np.arange(len(model.node_at)), np.diff(model.out_ptr))
    leaves = [(int(model.in_idx[e]), int(reader[e])) for e in edges.tolist()]
    leaves += [(int(model.out_idx[o]), int(maker[o])) for o in np.flatnonzero(new.born).tolist()]
    steps = min((int(reader[model.in_idx == s][reader[model.in_idx == s] > k].min()) - k for s, k in leaves), default=0)
    many = f"{tensors[0]!r} and {len(tensors) - 1} more" if len(tensors) > 1 else repr(tensors[0])
    return Move(
        kind="offload",
        what=f"offload {many}, idle for {steps} steps{' and more' if len(tensors) > 1 else ''}",
        why=WHY,
        tensors=tensors,
        nodes=tuple(dict.fromkeys(model.node_id(k) for _, k in leaves)),
        cost=Cost(
            max(0, after.flops - before.flops),
            after.moved - before.moved,
            max(0, after.extra_steps - before.extra_steps),
        ),
        bytes=before.total - after.total,
        details={"drops": [list(drop) for drop in drops_of(model, new)], "steps_idle": steps},
    )
