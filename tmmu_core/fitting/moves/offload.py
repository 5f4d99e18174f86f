"""Offload moves: copy idle storages to another memory and back.

After the last use before a gap, node ``h@copy_out`` copies ``h`` to ``h@offload`` in the arena ``offload``; before the
next use, ``h@back`` copies it back. The copy serves all later gaps. The cost is the bytes transferred; each move
reports the idle steps.

Recomputation has the same gaps (``recompute/recompute_model.py``), so that both kinds of moves combine in any order. A
storage can be offloaded if no other tensor shares or overwrites it and it is neither persistent nor an output.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tmmu_core.fitting.move import Cost, Move
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute.live_curve import Choice, Run, run
from tmmu_core.fitting.recompute.min_cut import Boundary, boundary
from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel
from tmmu_core.fitting.recompute.recompute_moves import SINGLES, TIGHTENED_GOALS, progress_check, scaled
from tmmu_core.fitting.recompute.recompute_search import peak_position
from tmmu_core.fitting.recompute.recover_choice import recover_choice
from tmmu_core.fitting.recompute.write_graph import drops_of, with_drops, write_graph
from tmmu_core.planners.problem import Progress

WHY = "the same bytes are copied back before their next read"
LEAST = 4096
"""Smallest storage that is offloaded, in bytes."""
TRIED = 40
"""Maximum number of storages tried one by one at a step."""
KEPT = 400
"""Maximum number of storages tried when unnecessary transfers are removed."""
Over = Callable[[Mapping[str, int]], int]


def apply_offload(plan_input: PlanInput, *moves: Move) -> PlanInput:
    """Apply moves whose ``details`` are ``{"drops": [[tensor, node after which it is offloaded], …]}``.

    Raises ``InvalidIrShapes`` (reason ``recompute``) for a tensor that cannot be moved, or that the node does not
    access.
    """
    model, choice = recover_choice(plan_input)
    drops = [drop for move in moves for drop in move.details["drops"]]
    return replace(plan_input, graph=write_graph(model, with_drops(model, choice, drops, away=True)))


def single_moves(plan_input: PlanInput) -> Iterator[Move]:
    """Yield one move per storage that is idle at an arena's peak, if its offload lowers live bytes, most bytes first.

    ``Move.bytes`` is the change of live bytes, not of the arena size.
    """
    model, initial = recover_choice(plan_input)
    base = run(model, initial)
    weighed: list[tuple[tuple[int, int], Choice, Run]] = []
    for arena in range(len(model.fixed)):
        at = boundary(model, peak_position(base, arena))
        for s in _idle(model, at, arena, initial)[:SINGLES].tolist():
            choice = initial | _offload_choice(model, at, s)
            found = run(model, choice)
            if found.valid and found.total < base.total:
                weighed.append(((found.total - base.total, s), choice, found))
    for _, choice, found in sorted(weighed, key=lambda each: each[0])[:SINGLES]:
        yield _move(model, initial, choice, (base, found))


def lower(plan_input: PlanInput, goal: Capacity, report: Progress | None = None) -> Iterator[tuple[Move, ...]]:
    """Yield lists of moves: first the cheapest whose peak live bytes meet the goal, then lists for tighter goals.

    If none meets the goal, yield the list with the lowest peak. Each list replaces the one before and has a lower peak.
    """
    model, initial = recover_choice(plan_input)
    base = run(model, initial)
    go_on = progress_check(report, "offload")
    choice, found = initial, base
    total = base.total
    for share in TIGHTENED_GOALS:
        over = scaled(goal, share)
        choice, found = _offload_until(model, choice, over, go_on)
        if not _excess(model, found, over):
            lean, leaner = _cancel_unneeded(model, initial, choice, over)
            if leaner.total < total:
                total = leaner.total
                yield _moves(model, initial, lean)
            continue
        if share == TIGHTENED_GOALS[0] and found.total < total:
            yield _moves(model, initial, choice)
        return


def _excess(model: RecomputeModel, found: Run, over: Over) -> int:
    return over(dict(zip(model.liveness.arenas, found.peaks.tolist(), strict=True)))


def _offload_until(model: RecomputeModel, choice: Choice, over: Over, go_on: Callable[[], bool]) -> tuple[Choice, Run]:
    """Offload one storage after the other at the peak, until the goal is met or no storage lowers the peak."""
    found = run(model, choice)
    while (missing := _excess(model, found, over)) and go_on():
        better: tuple[Choice, Run] | None = None
        for arena in np.argsort(-found.peaks, kind="stable").tolist():
            better = _offload_next(model, choice, found, (arena, missing))
            if better is not None:
                break
        if better is None:
            break
        choice, found = better
    return choice, found


def _offload_next(
    model: RecomputeModel, choice: Choice, found: Run, need: tuple[int, int]
) -> tuple[Choice, Run] | None:
    """Offload the smallest storage that suffices, else several together, else the largest that helps."""
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
            several = several | _offload_choice(model, at, s)
        after = run(model, several)
        if after.valid and after.live[arena].max() < found.live[arena].max():
            return several, after
        order = idle.tolist()
    for s in order[:TRIED]:
        more = choice | _offload_choice(model, at, s)
        after = run(model, more)
        if not after.valid or after.peaks[arena] > found.peaks[arena]:
            continue
        at_peak = [(run.live[arena] >= found.live[arena].max()).sum() for run in (found, after)]
        if at_peak[1] < at_peak[0]:  # a lower peak, or fewer steps at it
            return more, after
    return None


def _cancel_unneeded(model: RecomputeModel, initial: Choice, choice: Choice, over: Over) -> tuple[Choice, Run]:
    """Cancel offloads that the goal does not need, largest storage first."""
    found = run(model, choice)
    offloaded = np.flatnonzero(choice.away & ~initial.away)
    for s in offloaded[np.lexsort((offloaded, -model.size[offloaded]))][:KEPT].tolist():
        fewer = choice.keeping([d for d in (choice - initial).drops.tolist() if d >= 0 and d % len(model.size) == s])
        fewer.away[s] = False
        after = run(model, fewer)
        if after.valid and not _excess(model, after, over):
            choice, found = fewer, after
    return choice, found


def _idle(model: RecomputeModel, at: Boundary, arena: int, choice: Choice) -> I64:
    """Return idle storages of an arena at the boundary that can be offloaded, largest first, longest gap first."""
    storages = at.before[
        model.movable[at.before]
        & at.needed[at.before]
        & (model.arena[at.before] == arena)
        & (at.gap_start[at.before] >= 0)
        & (at.gap_start[at.before] < at.position)
        & (model.size[at.before] >= LEAST)
        & ~np.isin(at.gap_start[at.before] * len(model.size) + at.before, choice.drops)
    ]
    gap = at.gap_end[storages] - at.gap_start[storages]
    return storages[np.lexsort((storages, -gap, -model.size[storages]))]


def _offload_choice(model: RecomputeModel, at: Boundary, storage: int) -> Choice:
    choice = Choice.nothing(model).dropping([int(at.gap_start[storage]) * len(model.size) + storage])
    choice.away[storage] = True
    return choice


def _moves(model: RecomputeModel, initial: Choice, choice: Choice) -> tuple[Move, ...]:
    """Return the difference of two choices as moves, one for the storages of each operator."""
    groups: dict[str, list[int]] = {}
    for s in _dropped_storages(choice - initial):
        at = int(model.producer[s])
        maker = "@inputs" if at < 0 else model.timeline.graph.nodes[int(model.node_at[at])].instr
        groups.setdefault(maker, []).append(s)
    moves = []
    now, before = initial, run(model, initial)
    for members in groups.values():
        more = now.dropping(choice.drops[np.isin(choice.storages(model), members)])
        more.away[members] = True
        after = run(model, more)
        moves.append(_move(model, now, more, (before, after)))
        now, before = more, after
    return tuple(moves)


def _dropped_storages(new: Choice) -> list[int]:
    """Return the dropped storages, ascending. A storage is listed once, even if it is offloaded in several gaps."""
    return sorted(set(new.pairs[1].tolist()))


def _move(model: RecomputeModel, now: Choice, more: Choice, runs: tuple[Run, Run]) -> Move:
    before, after = runs
    new = more - now
    tensors = tuple(map(model.name_of, _dropped_storages(new)))
    reader = np.repeat(np.arange(len(model.node_at)), np.diff(model.in_ptr))
    leaves = list(zip(new.pairs[1].tolist(), new.pairs[0].tolist(), strict=True))
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
