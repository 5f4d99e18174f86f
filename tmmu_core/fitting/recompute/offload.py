"""Offload moves: copy idle storages to another memory and back.

A *gap* is the time between two uses of a storage ``h``. A move offloads ``h`` in some of its gaps: at the start of the
first gap, node ``h@copy_out`` copies ``h`` to ``h@offload`` in the arena ``offload``; at the end of each gap, a node
``h@back`` (then ``h@back.2``, …) copies it back. The cost of a move is the bytes transferred. Recompute moves and
offload moves combine in any order, because both use the gaps and storages of the recompute model.
"""

from collections.abc import Iterator

import numpy as np

from tmmu_core.fitting.move import Move, some_names
from tmmu_core.fitting.problem.answer import Capacity
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute import drop_moves
from tmmu_core.fitting.recompute.live_curve import Choice, Run, run
from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel
from tmmu_core.fitting.recompute.recompute_search import Boundary, Excess, peak_boundary
from tmmu_core.planners.problem import Progress

WHY = "the same bytes are copied back before their next read"
LEAST_BYTES = 4096  # smallest storage that is offloaded, in bytes
MOST_TRIED = 40  # maximum number of storages tried one by one at a peak
MOST_CANCELLED = 400  # maximum number of storages for which the search tries to cancel the offload


def single_moves(plan_input: PlanInput) -> Iterator[Move]:
    """Yield one move per storage that is idle at an arena's peak and whose offload lowers the sum of peaks."""
    model, initial = drop_moves.recover_choice(plan_input)
    base = run(model, initial)
    groups = []
    for arena in range(len(model.fixed)):
        boundary = peak_boundary(model, base, arena)
        idle = _idle(model, boundary, arena, initial)[: drop_moves.MOST_SINGLE_MOVES].tolist()
        groups += [([s], _offload_choice(model, boundary, s)) for s in idle]
    yield from map(_move, drop_moves.best_added_alone(model, initial, groups, lambda added: added.members[0]))


def lists_of_moves(plan_input: PlanInput, goal: Capacity, report: Progress | None = None) -> Iterator[tuple[Move, ...]]:
    """Yield a list of moves for ``goal`` and each tighter goal (``drop_moves.TIGHTENED_GOALS``) that is met.

    Each list starts from the initial graph, and has a lower sum of peak live bytes than the list before. If ``goal``
    itself is missed, yield the moves found so far, but only if they lower the sum.
    """
    model, initial = drop_moves.recover_choice(plan_input)
    should_continue = drop_moves.progress_check(report, "offload")
    choice, found = initial, run(model, initial)
    total = found.total
    for share in drop_moves.TIGHTENED_GOALS:
        bytes_over = drop_moves.excess_over_share(goal, share)
        # Offload storages that are idle at the peak, until the goal is met or no offload lowers the peak.
        while (excess := _excess(model, found, bytes_over)) and should_continue():
            arenas = np.argsort(-found.peaks, kind="stable").tolist()
            offloads = (_offload(model, choice, found, arena, excess) for arena in arenas)
            lower_peak = next((result for result in offloads if result is not None), None)
            if lower_peak is None:
                break
            choice, found = lower_peak
        if excess:
            if share == drop_moves.TIGHTENED_GOALS[0] and found.total < total:
                yield _moves(model, initial, choice)
            return
        # Keep storages in memory, largest first, if the goal is still met.
        needed, needed_run = choice, found
        offloaded = np.flatnonzero(choice.offloaded & ~initial.offloaded)
        for s in offloaded[np.lexsort((offloaded, -model.size[offloaded]))][:MOST_CANCELLED].tolist():
            drops = (needed - initial).drops
            fewer = needed.without(drops[(drops >= 0) & (drops % len(model.size) == s)])
            fewer.offloaded[s] = False
            after = run(model, fewer)
            if not _excess(model, after, bytes_over):
                needed, needed_run = fewer, after
        if needed_run.total < total:
            total = needed_run.total
            yield _moves(model, initial, needed)


def _excess(model: RecomputeModel, found: Run, bytes_over: Excess) -> int:
    return bytes_over(dict(zip(model.liveness.arenas, found.peaks.tolist(), strict=True)))


def _offload(model: RecomputeModel, choice: Choice, before: Run, arena: int, excess: int) -> tuple[Choice, Run] | None:
    """Offload more, so that an arena has a lower peak or fewer steps at its peak; return the new choice and its run.

    If no storage has ``excess`` bytes, first try the largest storages together. Then try single storages: those with
    at least ``excess`` bytes, smallest first, then all, largest first. Return ``None`` if no attempt succeeds.
    """
    boundary = peak_boundary(model, before, arena)
    idle = _idle(model, boundary, arena, choice)
    peak = before.live[arena].max(initial=0)
    steps_at_peak = (before.live[arena] >= peak).sum()
    is_enough = model.size[idle] >= excess
    if len(idle) and not is_enough.any():
        together = choice
        count = int(np.searchsorted(np.cumsum(model.size[idle]), excess)) + 1
        for s in idle[:count].tolist():
            together = together | _offload_choice(model, boundary, s)
        after = run(model, together)
        if after.live[arena].max() < peak:
            return together, after
    for s in [*idle[is_enough][::-1].tolist(), *idle.tolist()][:MOST_TRIED]:
        more = choice | _offload_choice(model, boundary, s)
        after = run(model, more)
        if after.peaks[arena] <= before.peaks[arena] and (after.live[arena] >= peak).sum() < steps_at_peak:
            return more, after
    return None


def _idle(model: RecomputeModel, boundary: Boundary, arena: int, choice: Choice) -> I64:
    """Return an arena's storages that can be offloaded across the boundary (``LEAST_BYTES`` or more), largest first."""
    in_gap = (boundary.gap_start >= 0) & (boundary.gap_start < boundary.position)
    is_dropped = np.isin(boundary.gap_start * len(model.size) + np.arange(len(model.size)), choice.drops)
    in_arena = (model.arena == arena) & (model.size >= LEAST_BYTES)
    storages = boundary.idle(model.movable & in_arena & in_gap & ~is_dropped)
    gap = boundary.gap_end[storages] - boundary.gap_start[storages]
    return storages[np.lexsort((storages, -gap, -model.size[storages]))]


def _offload_choice(model: RecomputeModel, boundary: Boundary, storage: int) -> Choice:
    choice = Choice.nothing(model).dropping([int(boundary.gap_start[storage]) * len(model.size) + storage])
    choice.offloaded[storage] = True
    return choice


def _moves(model: RecomputeModel, initial: Choice, choice: Choice) -> tuple[Move, ...]:
    """Return the offloads that ``choice`` adds to ``initial``, as one move per operator that produces the storages."""
    by_operator: dict[str, list[int]] = {}
    for s in sorted(set((choice - initial).pairs[1].tolist())):
        producer = int(model.producer[s])
        by_operator.setdefault("@inputs" if producer < 0 else model.instr(producer), []).append(s)
    groups = []
    for members in by_operator.values():
        is_offloaded = np.zeros(len(model.size), np.bool_)
        is_offloaded[members] = True
        groups.append((members, Choice(choice.drops[np.isin(choice.storages(model), members)], is_offloaded)))
    return tuple(map(_move, drop_moves.added_in_turn(model, initial, groups)))


def _move(added: drop_moves.AddedDrops) -> Move:
    model, drops = added.model, added.drops
    gaps = list(zip(*(column.tolist() for column in drops.pairs), strict=True))
    tensors = tuple(map(model.name_of, sorted({s for _, s in gaps})))
    idle = min(int(model.reader[(model.in_idx == s) & (model.reader > k)].min()) - k - 1 for k, s in gaps)
    what = f"offload {some_names(tensors)}, idle for {'at least ' * (len(gaps) > 1)}{idle:,} step" + "s" * (idle > 1)
    nodes = tuple(dict.fromkeys(model.node_id(k) for k, _ in gaps))
    return added.move("offload", what, WHY, tensors, nodes, steps_idle=idle)
