"""Recompute moves: single moves, and lists of moves for a capacity."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tmmu_core.fitting.move import Move, some_names
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute.drop_moves import (
    TIGHTENED_GOALS,
    DropStep,
    best_single_steps,
    progress_check,
    scaled,
    steps_through,
)
from tmmu_core.fitting.recompute.live_curve import Choice, Run, run
from tmmu_core.fitting.recompute.min_cut import boundary
from tmmu_core.fitting.recompute.nested import search_nested
from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel, connected_parts
from tmmu_core.fitting.recompute.recompute_search import Point, Search, choice_of, fullest_arena, peak_position
from tmmu_core.fitting.recompute.recover_choice import recover_choice
from tmmu_core.fitting.recompute.sweep import cheapest_of, improve, search_sweeps, trimmed
from tmmu_core.planners.problem import Progress

WHY = "the same operators run again with the same inputs and compute the same values"
NESTED_UP_TO = 100
"""Number of nodes up to which nested search runs even if a plan fits: it is fast and may find a lower cost."""
NESTED_DIVISOR = 4
"""Nested search also runs if all plans that fit need more than ``1 / NESTED_DIVISOR`` of the graph's FLOPs."""
START_TENTHS = (2, 4)
"""Nested search also starts at the cheapest cut whose excess is at most this many tenths of the way from the least
excess of a cut to the initial excess.
"""
MOST_STARTS = 6  # maximum number of points of earlier goals from which a tighter goal is reached
MOST_POINTS = 16  # maximum number of lists of moves if none fits


def _model_and_choice(plan_input: PlanInput) -> tuple[RecomputeModel, Choice]:
    """Return the model and the initial choice; the model excludes offloaded storages from recomputation."""
    model, initial = recover_choice(plan_input)
    return replace(model, droppable=model.droppable & ~initial.away), initial


def _cheapest_point(search: Search, cuts: Sequence[Point]) -> tuple[Point | None, list[Point]]:
    """Return the cheapest point that meets the goal, or ``None``; and the points from which it was improved."""
    if search.is_small:
        points = search.all_points()
        return cheapest_of(search, points), points
    points = [*_between_cuts(search, cuts), *search_sweeps(search, cuts)]
    found, total = cheapest_of(search, points), search.model.flops
    if len(search.model.node_at) <= NESTED_UP_TO or found is None or found.run.flops * NESTED_DIVISOR > total:
        points += _nested_points(search, cuts)
    return improve(search, points), points


def _between_cuts(search: Search, cuts: Sequence[Point]) -> list[Point]:
    """Return the cheapest point between the cheapest cut that fits and a cheaper cut, as a list; empty if no cut fits.

    Equal layers join a cut at the same price. Points between two cuts recompute only the first of these layers.
    """
    fitting = cheapest_of(search, cuts)
    found = [] if fitting is None else [fitting]
    for less in cuts:
        if fitting is None or less.run.flops >= fitting.run.flops:
            continue
        added = fitting.choice - less.choice
        drops = added.drops[np.argsort(search.model.producer[added.storages(search.model)], kind="stable")]

        def first(count: int, choice: Choice = less.choice, drops: I64 = drops) -> Point:
            return search.simulate(choice.dropping(drops[:count]))

        found.append(first(bisect_left(range(len(drops)), True, key=lambda count: not search.excess(first(count).run))))
    return trimmed(search, [point for point in found if point.run.valid], 1)


def lower(
    plan_input: PlanInput, goal: Capacity, report: Progress | None = None, shares: Iterable[int] = TIGHTENED_GOALS
) -> Iterator[tuple[Move, ...]]:
    """Yield lists of moves: the cheapest whose live bytes meet the goal, then lists for ``shares`` of it.

    If no list meets the goal, yield lists by rising cost, down to the lowest peak. Each list is complete, and has a
    lower peak than the list before.
    """
    model, initial = _model_and_choice(plan_input)
    if not model.droppable.any():
        return
    lowest: Run | None = None
    cuts = None
    known: dict[tuple[int, int, int], Point] = {}
    """The points that met a goal."""
    without_fit: list[Point] = []
    for share in shares:
        search = Search(model, scaled(goal, share), initial, progress_check(report, "recompute"))
        if not search.excess(search.initial_point.run):
            continue  # the initial graph fits
        if lowest is not None and not search.excess(lowest):
            continue  # the last list meets this goal as well
        cuts = search.cuts() if cuts is None else cuts
        point, others = None, list[Point]()
        if known and not search.is_small:
            starts = [known[key] for key in sorted(known)]
            point = improve(search, [*starts, *search_sweeps(search, starts[:MOST_STARTS])])
        if point is None:
            point, others = _cheapest_point(search, cuts)
        if point is None:
            without_fit = [*cuts, *others]
            break
        known |= {each.key: each for each in (*others, point) if not search.excess(each.run)}
        if lowest is None or point.run.total < lowest.total:
            lowest = point.run
            yield _moves_of(model, initial, point.choice)
    if lowest is None:
        for point in _pareto_points(without_fit, run(model, initial).total):
            yield _moves_of(model, initial, point.choice)


def lowest_within(
    plan_input: PlanInput, goal: Capacity, max_flops: int, report: Progress | None = None
) -> tuple[Move, ...] | None:
    """Return the moves with the lowest peak found for at most ``max_flops`` extra FLOPs; ``None`` if none lowers it.

    Bisection over the excess over ``goal``, to 0.2 % of the sum of peaks, at least to one byte.
    """
    model, initial = _model_and_choice(plan_input)
    if not model.droppable.any():
        return None
    search = Search(model, goal.over, initial, progress_check(report, "recompute"))
    most = search.initial_point.run.flops + max_flops
    cuts = search.cuts()
    best = min((p for p in cuts if p.run.flops <= most), key=lambda p: (search.excess(p.run), p.key))
    tight, loose = -1, search.excess(best.run)
    while loose - tight > max(1, best.run.total // 500) and search.should_continue():
        middle = (tight + loose) // 2

        def over(bytes_of: Mapping[str, int], slack: int = middle) -> int:
            return max(0, goal.over(bytes_of) - slack)

        search.over = over
        points = [best, _cheapest_point(search, cuts)[0]]
        within = [p for p in points if p is not None and p.run.flops <= most and not search.excess(p.run)]
        if not within:
            tight = middle
            continue
        loose = middle
        best = min(within, key=lambda point: (point.run.total, point.key))
    return None if best is search.initial_point else _moves_of(model, initial, best.choice)


def _pareto_points(points: Sequence[Point], total: int) -> list[Point]:
    """Return at most ``MOST_POINTS`` points below ``total`` bytes, by rising cost and falling peak."""
    found: list[Point] = []
    for point in sorted(points, key=lambda point: point.key):
        if point.run.total < total:
            total = point.run.total
            found.append(point)
    count = min(MOST_POINTS, len(found))
    return [found[(k + 1) * len(found) // count - 1] for k in range(count)]


def _nested_points(search: Search, cuts: Sequence[Point]) -> list[Point]:
    """Search nested recomputation from the cut with the least excess, from cheap cuts near it, and from no drops."""
    initial_excess = search.excess(search.initial_point.run)
    points = sorted(cuts, key=lambda point: (search.excess(point.run), point.key))
    excess = [search.excess(point.run) for point in points]
    starts = [points[0], search.initial_point]
    for tenths in START_TENTHS:
        near = bisect_right(excess, excess[0] + (initial_excess - excess[0]) * tenths // 10)
        starts.append(min(points[:near], key=lambda point: point.key))
    return search_nested(search, list({id(point): point for point in starts}.values()))


def single_moves(plan_input: PlanInput) -> Iterator[Move]:
    """Yield a move per node that computed storages idle at the peak, and per operator with several such nodes.

    Only moves that lower the sum of the arenas' peak live bytes, most bytes first. ``Move.bytes`` is this reduction,
    not that of the arena size.
    """
    model, initial = _model_and_choice(plan_input)
    base = run(model, initial)
    at = boundary(model, peak_position(base, fullest_arena(model, base)))
    producers = model.producer[at.idle(model.droppable & (at.gap_start < at.position))].tolist()
    by_operator: dict[str, set[int]] = {}
    for n in producers:
        by_operator.setdefault(model.instr(n), set()).add(n)
    several = [sorted(nodes) for _, nodes in sorted(by_operator.items()) if len(nodes) > 1]
    groups = []
    for nodes in [*([n] for n in dict.fromkeys(producers)), *several]:
        mask = np.zeros(len(model.node_at), np.bool_)
        mask[nodes] = True
        groups.append((nodes, choice_of(model, at, mask)))
    yield from map(_move, best_single_steps(model, initial, groups, lambda step: step.new_run.flops))


def _moves_of(model: RecomputeModel, initial: Choice, choice: Choice) -> tuple[Move, ...]:
    """Return the difference of two choices as moves: one per connected part, parts with equal operators together.

    Costs and bytes are relative to the moves before.
    """
    new = choice - initial
    producers = model.producer[new.storages(model)]
    nodes = np.zeros(len(model.node_at), np.bool_)
    nodes[producers] = True
    alike: dict[tuple[str, ...], list[int]] = {}
    for part in connected_parts(model, nodes):
        alike.setdefault(tuple(map(model.instr, part.tolist())), []).extend(part.tolist())
    nothing = Choice.nothing(model)
    groups = [(group, nothing.dropping(new.drops[np.isin(producers, group)])) for group in alike.values()]
    return tuple(map(_move, steps_through(model, initial, groups)))


def _move(step: DropStep) -> Move:
    model, nodes = step.model, step.members
    storages = dict.fromkeys(s for n in nodes for s in model.out_idx[model.out_ptr[n] : model.out_ptr[n + 1]].tolist())
    tensors = tuple(model.name_of(s) for s in storages if model.droppable[s])
    operators = Counter(map(model.instr, nodes))
    listed = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in operators.most_common(4))
    what = f"recompute {some_names(tensors)} ({listed}{', …' if len(operators) > 4 else ''})"
    return step.move("recompute", what, WHY, tensors, tuple(map(model.node_id, nodes)))
