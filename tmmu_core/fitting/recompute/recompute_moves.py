"""Recompute moves: single moves, and lists of moves for a capacity.

A *drop* frees a storage after a use; the storage is recomputed before its next use. A *point* is a choice of drops with
its simulation. A *cut* is a point from a minimum cut (``recompute_search.py``); other searches start from cuts.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tmmu_core.fitting.move import Move, some_names
from tmmu_core.fitting.problem.answer import Capacity
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute import drop_moves
from tmmu_core.fitting.recompute.live_curve import MOST_FLOPS, Choice, Run, run
from tmmu_core.fitting.recompute.recompute_model import I64, RecomputeModel, connected_parts
from tmmu_core.fitting.recompute.recompute_search import Point, Search, arena_to_reduce, choice_of, peak_boundary
from tmmu_core.fitting.recompute.sweep import improve, search_nested, search_sweeps, without_unneeded_drops
from tmmu_core.planners.problem import Progress

WHY = "the same operators run again with the same inputs"
NESTED_UP_TO = 100  # with at most this number of nodes, nested search always runs, because it is fast
NESTED_DIVISOR = 4  # with more nodes, it runs if no fit costs at most 1 / NESTED_DIVISOR of the graph's FLOPs
START_TENTHS = (2, 4)
"""Nested search starts at the initial point, at the cut with the least excess, and at the cheapest cut in each of two
groups: cuts whose excess is in the lowest 20 % of the range, and in the lowest 40 %."""
MOST_STARTS = 6  # sweeps for a tighter goal start from at most this number of results for earlier goals
MOST_POINTS = 16  # maximum number of lists of moves if none fits


def _model_and_choice(plan_input: PlanInput) -> tuple[RecomputeModel, Choice]:
    """Return the model and the initial choice; the model excludes offloaded storages from recomputation."""
    model, initial = drop_moves.recover_choice(plan_input)
    return replace(model, droppable=model.droppable & ~initial.offloaded), initial


def _cheapest_point(search: Search, cuts: Sequence[Point]) -> tuple[Point | None, list[Point]]:
    """Return the cheapest point that meets the goal, or ``None``, and all points found before :func:`.improve`."""
    points = [*_between_cuts(search, cuts), *search_sweeps(search, cuts)]
    found, total = next(iter(search.fitting(points)), None), search.model.flops
    if len(search.model.node_at) <= NESTED_UP_TO or found is None or found.run.flops * NESTED_DIVISOR > total:
        initial_excess = search.excess(search.initial_point.run)
        cuts = sorted(cuts, key=lambda point: (search.excess(point.run), point.key))
        excess = [search.excess(point.run) for point in cuts]
        starts = [cuts[0], search.initial_point]
        for tenths in START_TENTHS:
            near_count = bisect_right(excess, excess[0] + (initial_excess - excess[0]) * tenths // 10)
            starts.append(min(cuts[:near_count], key=lambda point: point.key))
        points += search_nested(search, list({id(point): point for point in starts}.values()))
    return improve(search, points), points


def _between_cuts(search: Search, cuts: Sequence[Point]) -> list[Point]:
    """Return a list with the cheapest cut that fits, or a cheaper point between it and another cut; empty if none fits.

    Two successive cuts can differ by many equal layers. A point between them recomputes only as many layers as needed.
    """
    found = search.fitting(cuts)[:1]
    for cheaper_cut in [cut for cut in cuts if found and cut.run.flops < found[0].run.flops]:
        added = found[0].choice - cheaper_cut.choice
        drops = added.drops[np.argsort(search.model.producer[added.storages(search.model)], kind="stable")]

        def with_first_drops(count: int, choice: Choice = cheaper_cut.choice, drops: I64 = drops) -> Point:
            return search.simulate(choice.dropping(drops[:count]))

        least = bisect_left(range(len(drops)), True, key=lambda count: not search.excess(with_first_drops(count).run))
        found.append(with_first_drops(least))
    return without_unneeded_drops(search, found, 1)


def lists_of_moves(plan_input: PlanInput, goal: Capacity, report: Progress | None = None) -> Iterator[tuple[Move, ...]]:
    """Yield the cheapest list of moves found for ``goal``, then for tighter goals (``drop_moves.TIGHTENED_GOALS``).

    If no list meets any goal, yield lists by rising cost, down to the lowest peak. Each list applies to ``plan_input``
    itself, and has a lower peak than the list before.
    """
    model, initial = _model_and_choice(plan_input)
    if not model.droppable.any():
        return
    lowest: Run | None = None
    cuts = None
    known: dict[tuple[int, int, int], Point] = {}  # sort key → point that met a goal
    points_over_goal: list[Point] = []
    for share in drop_moves.TIGHTENED_GOALS:
        bytes_over = drop_moves.excess_over_share(goal, share)
        search = Search(model, bytes_over, initial, drop_moves.progress_check(report, "recompute"))
        if not search.excess(search.initial_point.run):
            continue  # the initial graph fits
        if lowest is not None and not search.excess(lowest):
            continue  # the last list meets this goal as well
        cuts = search.cuts() if cuts is None else cuts
        point, others = None, list[Point]()
        if known:
            starts = [known[key] for key in sorted(known)]
            point = improve(search, [*starts, *search_sweeps(search, starts[:MOST_STARTS])])
        if point is None:
            point, others = _cheapest_point(search, cuts)
        if point is None:
            points_over_goal = [*cuts, *others]
            break
        known |= {found.key: found for found in (*others, point) if not search.excess(found.run)}
        if lowest is None or point.run.total < lowest.total:
            lowest = point.run
            yield _moves_of(model, initial, point.choice)
    if lowest is None:
        total, found = run(model, initial).total, list[Point]()  # by rising cost and falling peak
        for point in sorted(points_over_goal, key=lambda point: point.key):
            if point.run.total < total:
                total = point.run.total
                found.append(point)
        count = min(MOST_POINTS, len(found))
        for k in range(count):
            yield _moves_of(model, initial, found[(k + 1) * len(found) // count - 1].choice)


def lowest_within(
    plan_input: PlanInput, goal: Capacity, max_flops: int | None = None, report: Progress | None = None
) -> tuple[Move, ...] | None:
    """Return the moves with the lowest peak found for at most ``max_flops`` extra FLOPs; ``None`` if there are none.

    Bisection finds the least excess over ``goal``, to one byte or 0.2 % of the sum of peaks. Without ``max_flops``, a
    step of the bisection only runs sweeps, and the number of simulations is limited.
    """
    model, initial = _model_and_choice(plan_input)
    if not model.droppable.any():
        return None
    search = Search(model, goal.over, initial, drop_moves.progress_check(report, "recompute"))
    flops_limit = MOST_FLOPS if max_flops is None else search.initial_point.run.flops + max_flops
    cuts = points = search.cuts()

    def rank(point: Point) -> tuple[int, tuple[int, int, int]]:
        return goal.over(search.peaks(point.run)), point.key

    if max_flops is None:
        points = [*cuts, *_cheapest_point(search, cuts)[1]]
        should_continue, last_simulation = search.should_continue, search.simulations + 2 * search.most_simulations
        search.should_continue = lambda: search.simulations < last_simulation and should_continue()
    best = min((point for point in points if point.run.flops <= flops_limit), key=rank)
    too_tight, reachable = -1, rank(best)[0]
    while reachable - too_tight > max(1, best.run.total // 500) and search.should_continue():
        permitted = (too_tight + reachable) // 2

        def over(bytes_of: Mapping[str, int], slack: int = permitted) -> int:
            return max(0, goal.over(bytes_of) - slack)

        search.over = over
        if max_flops is None:
            points = search_sweeps(search, [best, search.initial_point])
        else:
            points = [point for point in [_cheapest_point(search, cuts)[0]] if point is not None]
        best = min([best, *(point for point in points if point.run.flops <= flops_limit)], key=rank)
        reachable = rank(best)[0]
        if reachable > permitted:
            too_tight = permitted
    return None if best is search.initial_point else _moves_of(model, initial, best.choice)


def single_moves(plan_input: PlanInput) -> Iterator[Move]:
    """Yield moves that recompute results idle at the peak, of a node or of all nodes of an operator, and save bytes."""
    model, initial = _model_and_choice(plan_input)
    base = run(model, initial)
    at = peak_boundary(model, base, arena_to_reduce(model, base))
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
    yield from map(_move, drop_moves.best_added_alone(model, initial, groups, lambda added: added.new_run.flops))


def _moves_of(model: RecomputeModel, initial: Choice, choice: Choice) -> tuple[Move, ...]:
    """Return the drops that ``choice`` adds as moves: one for all connected parts that have the same operators."""
    new = choice - initial
    producers = model.producer[new.storages(model)]
    nodes = np.zeros(len(model.node_at), np.bool_)
    nodes[producers] = True
    nodes_by_operators: dict[tuple[str, ...], list[int]] = {}
    for part in connected_parts(model, nodes):
        nodes_by_operators.setdefault(tuple(map(model.instr, part.tolist())), []).extend(part.tolist())
    nothing = Choice.nothing(model)
    groups = [(group, nothing.dropping(new.drops[np.isin(producers, group)])) for group in nodes_by_operators.values()]
    return tuple(map(_move, drop_moves.added_in_turn(model, initial, groups)))


def _move(added: drop_moves.AddedDrops) -> Move:
    model, nodes = added.model, added.members
    storages = dict.fromkeys(s for n in nodes for s in model.out_idx[model.out_ptr[n] : model.out_ptr[n + 1]].tolist())
    tensors = tuple(model.name_of(s) for s in storages if model.droppable[s])
    operators = Counter(map(model.instr, nodes))
    listed = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in operators.most_common(4))
    what = f"recompute {some_names(tensors)} (nodes: {listed}{', …' if len(operators) > 4 else ''})"
    return added.move("recompute", what, WHY, tensors, tuple(map(model.node_id, nodes)))
