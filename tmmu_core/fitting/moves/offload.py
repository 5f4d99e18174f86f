"""Offload moves: copy idle storages to another memory and back.

After the last use before a gap, node ``h@copy_out`` copies ``h`` to ``h@offload`` in the arena ``offload``; before the
next use, ``h@back`` copies it back. The copy serves all later gaps. The cost is the bytes transferred; each move
reports the idle steps.

Recomputation has the same gaps (``recompute/recompute_model.py``), so that both kinds of moves combine in any order. A
storage can be offloaded if no other tensor shares or overwrites it and it is neither persistent nor an output.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tmmu_core.fitting.move import Move, some_names
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute.drop_moves import (
    MOST_SINGLE_MOVES,
    TIGHTENED_GOALS,
    DropStep,
    best_single_steps,
    progress_check,
    scaled,
    steps_through,
)
from tmmu_core.fitting.recompute.live_curve import Choice, Run, run
from tmmu_core.fitting.recompute.min_cut import Boundary, boundary
from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel
from tmmu_core.fitting.recompute.recompute_search import peak_position
from tmmu_core.fitting.recompute.recover_choice import recover_choice
from tmmu_core.planners.problem import Progress

WHY = "the same bytes are copied back before their next read"
LEAST = 4096
"""Smallest storage that is offloaded, in bytes."""
TRIED = 40
"""Maximum number of storages tried one by one at a step."""
KEPT = 400
"""Maximum number of storages tried when unnecessary transfers are removed."""
Over = Callable[[Mapping[str, int]], int]


def single_moves(plan_input: PlanInput) -> Iterator[Move]:
    """Yield one move per storage that is idle at an arena's peak, if its offload lowers live bytes, most bytes first.

    ``Move.bytes`` is the change of live bytes, not of the arena size.
    """
    model, initial = recover_choice(plan_input)
    base = run(model, initial)
    groups = []
    for arena in range(len(model.fixed)):
        at = boundary(model, peak_position(base, arena))
        idle = _idle(model, at, arena, initial)[:MOST_SINGLE_MOVES].tolist()
        groups += [([s], _offload_choice(model, at, s)) for s in idle]
    yield from map(_move, best_single_steps(model, initial, groups, lambda step: step.members[0]))


def lower(plan_input: PlanInput, goal: Capacity, report: Progress | None = None) -> Iterator[tuple[Move, ...]]:
    """Yield lists of moves: first the cheapest whose peak live bytes meet the goal, then lists for tighter goals.

    If no list meets the goal, yield the list with the lowest peak. Each list is complete, and has a lower peak than the
    list before.
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
    in_gap = (at.gap_start >= 0) & (at.gap_start < at.position)
    is_dropped = np.isin(at.gap_start * len(model.size) + np.arange(len(model.size)), choice.drops)
    in_arena = (model.arena == arena) & (model.size >= LEAST)
    storages = at.idle(model.movable & in_arena & in_gap & ~is_dropped)
    gap = at.gap_end[storages] - at.gap_start[storages]
    return storages[np.lexsort((storages, -gap, -model.size[storages]))]


def _offload_choice(model: RecomputeModel, at: Boundary, storage: int) -> Choice:
    choice = Choice.nothing(model).dropping([int(at.gap_start[storage]) * len(model.size) + storage])
    choice.away[storage] = True
    return choice


def _moves(model: RecomputeModel, initial: Choice, choice: Choice) -> tuple[Move, ...]:
    """Return the difference of two choices as moves, one for the storages of each operator."""
    by_operator: dict[str, list[int]] = {}
    for s in _dropped_storages(choice - initial):
        producer = int(model.producer[s])
        by_operator.setdefault("@inputs" if producer < 0 else model.instr(producer), []).append(s)
    groups = []
    for members in by_operator.values():
        away = np.zeros(len(model.size), np.bool_)
        away[members] = True
        groups.append((members, Choice(choice.drops[np.isin(choice.storages(model), members)], away)))
    return tuple(map(_move, steps_through(model, initial, groups)))


def _dropped_storages(drops: Choice) -> list[int]:
    """Return the dropped storages, ascending. A storage is listed once, even if it is offloaded in several gaps."""
    return sorted(set(drops.pairs[1].tolist()))


def _move(step: DropStep) -> Move:
    model, drops = step.model, step.drops
    tensors = tuple(map(model.name_of, _dropped_storages(drops)))
    reader = np.repeat(np.arange(len(model.node_at)), np.diff(model.in_ptr))
    gaps = list(zip(*(column.tolist() for column in drops.pairs), strict=True))
    steps = min((int(reader[model.in_idx == s][reader[model.in_idx == s] > k].min()) - k for k, s in gaps), default=0)
    what = f"offload {some_names(tensors)}, idle for {steps} steps{' and more' if len(tensors) > 1 else ''}"
    nodes = tuple(dict.fromkeys(model.node_id(k) for k, _ in gaps))
    return step.move("offload", what, WHY, tensors, nodes, steps_idle=steps)
