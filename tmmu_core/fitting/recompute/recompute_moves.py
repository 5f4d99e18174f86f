"""Recompute moves: single moves, lists of moves for a capacity, and their application."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tmmu_core.fitting.move import Cost, Move
from tmmu_core.fitting.problem.capacity import Capacity
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute.live_curve import Choice, Run, run
from tmmu_core.fitting.recompute.min_cut import boundary
from tmmu_core.fitting.recompute.nested import search_nested
from tmmu_core.fitting.recompute.recompute_model import Mask, RecomputeModel, connected_parts
from tmmu_core.fitting.recompute.recompute_search import Point, Search, choice_of, fullest_arena, peak_position
from tmmu_core.fitting.recompute.recover_choice import recover_choice
from tmmu_core.fitting.recompute.settle import settle
from tmmu_core.fitting.recompute.sweep import cheapest_of, improve, search_sweeps
from tmmu_core.fitting.recompute.write_graph import drops_of, with_drops, write_graph
from tmmu_core.planners.problem import Progress

WHY = "the same operators run again with the same inputs and compute the same values"
SINGLES = 200
"""Maximum number of single moves offered."""
TIGHTENED_GOALS = tuple(
    1_000_000 - less for less in (0, 10, 100, 500, 1_000, 2_000, 4_000, 7_000, 10_000, 20_000, 40_000, 70_000, 100_000)
)
"""Parts per million of the goal, tried in order where planners need more than the live bytes."""
NESTED_UP_TO = 100
"""Number of nodes up to which nested search runs even if a plan fits: it is cheap and may find a lower cost."""
START_TENTHS = (2, 4)
"""Nested search also starts at the cheapest cuts up to this many tenths above the lowest cut."""
REPORT_EVERY = 64
"""Choices between two progress reports."""
MOST_POINTS = 16
"""Maximum number of lists of moves offered if none fits."""


def apply_recompute(plan_input: PlanInput, *moves: Move) -> PlanInput:
    """Apply moves whose ``details`` are ``{"drops": [[tensor, node after which it is dropped], …]}``.

    Nodes are those of the graph without recomputing nodes; ``n0@remat`` means every recomputing run of ``n0``. Raises
    ``InvalidIrShapes`` (reason ``recompute``) for a tensor that cannot be recomputed, or that the node does not access.
    """
    model, choice = recover_choice(plan_input)
    drops = [drop for move in moves for drop in move.details["drops"]]
    return replace(plan_input, graph=write_graph(model, with_drops(model, choice, drops)))


def _model_and_choice(plan_input: PlanInput) -> tuple[RecomputeModel, Choice]:
    """Return the model and the initial choice; offloaded storages cannot be recomputed."""
    model, initial = recover_choice(plan_input)
    return replace(model, droppable=model.droppable & ~initial.away), initial


def _cheapest_point(search: Search, found: Sequence[tuple[Mask, Point]]) -> tuple[Point | None, list[Point]]:
    """Return the cheapest point that meets the goal, and the points from which it was improved."""
    if search.is_small:
        return search.exhausted(), []
    points = [settle(search, found), *search_sweeps(search, [point for _, point in found])]
    if len(search.model.node_at) <= NESTED_UP_TO or cheapest_of(search, points) is None:
        points += _nested_points(search, found)
    return improve(search, points), [each for each in points if each is not None]


def lower(plan_input: PlanInput, goal: Capacity, report: Progress | None = None) -> Iterator[tuple[Move, ...]]:
    """Yield lists of moves: the cheapest that meets the goal by the live curve, then lists for tighter goals.

    If none meets the goal, yield lists down to the lowest one, cheapest first. Each list is complete and lower than the
    one before.
    """
    model, initial = _model_and_choice(plan_input)
    if not model.droppable.any():
        return
    least: Run | None = None
    found = None
    below: list[Point] = []
    for share in TIGHTENED_GOALS:
        search = Search(model, scaled(goal, share), initial, progress_check(report, "recompute"))
        if not search.excess(search.nothing.run):
            continue  # the given graph fits
        if least is not None and not search.excess(least):
            continue  # the last list meets this goal as well
        found = search.climb() if found is None else found
        point, others = _cheapest_point(search, found)
        below = below or others
        if point is None:
            break
        if least is None or point.run.total < least.total:
            least = point.run
            yield moves_of(model, initial, point.choice)
    if least is None and found is not None:
        way = _pareto_points([*(point for _, point in found), *below], run(model, initial).total)
        for point in way:
            yield moves_of(model, initial, point.choice)


def lowest_within(
    plan_input: PlanInput, goal: Capacity, max_flops: int, report: Progress | None = None
) -> tuple[Move, ...] | None:
    """Return the moves with the lowest peak found for at most ``max_flops`` extra FLOPs; ``None`` if none lowers it.

    A bisection over the excess of ``goal``, down to 0.2 % of the peak.
    """
    model, initial = _model_and_choice(plan_input)
    if not model.droppable.any():
        return None
    search = Search(model, goal.over, initial, progress_check(report, "recompute"))
    most = search.nothing.run.flops + max_flops
    found = search.climb()
    best = min((p for _, p in found if p.run.flops <= most), key=lambda p: (search.excess(p.run), p.key))
    tight, loose = 0, search.excess(best.run)
    while 500 * (loose - tight) > best.run.total and search.go_on():
        middle = (tight + loose) // 2

        def over(bytes_of: Mapping[str, int], slack: int = middle) -> int:
            return max(0, goal.over(bytes_of) - slack)

        search.over = over
        points = [best, _cheapest_point(search, found)[0]]
        within = [p for p in points if p is not None and p.run.flops <= most and not search.excess(p.run)]
        if not within:
            tight = middle
            continue
        loose = middle
        best = min(within, key=lambda point: (point.run.total, point.key))
    return None if best is search.nothing else moves_of(model, initial, best.choice)


def _pareto_points(points: Sequence[Point], total: int) -> list[Point]:
    """Return at most ``MOST_POINTS`` points below ``total``, each more expensive and lower than the one before."""
    way: list[Point] = []
    for point in sorted(points, key=lambda point: point.key):
        if point.run.total < total:
            total = point.run.total
            way.append(point)
    if len(way) <= MOST_POINTS:
        return way
    return [way[(k + 1) * len(way) // MOST_POINTS - 1] for k in range(MOST_POINTS)]


def _nested_points(search: Search, found: Sequence[tuple[Mask, Point]]) -> list[Point]:
    """Search nested recomputation from the lowest cut, from cheap cuts near it, and from the empty choice."""
    most = search.excess(search.nothing.run)
    every = sorted((point for _, point in found), key=lambda point: (search.excess(point.run), point.key))
    over = [search.excess(point.run) for point in every]
    starts = [every[0], search.nothing]
    for tenths in START_TENTHS:
        near = bisect_right(over, over[0] + (most - over[0]) * tenths // 10)
        starts.append(min(every[:near], key=lambda point: point.key))
    return search_nested(search, list({id(point): point for point in starts}.values()))


def single_moves(plan_input: PlanInput) -> Iterator[Move]:
    """Yield one move per storage that is idle at the peak, if its recomputation lowers live bytes, most bytes first.

    Moves of all nodes of one operator come first if they save more than the move of one node. ``Move.bytes`` is the
    change of live bytes, not of the arena size.
    """
    model, initial = _model_and_choice(plan_input)
    base = run(model, initial)
    at = boundary(model, peak_position(base, fullest_arena(model, base)))
    idle = at.before[model.droppable[at.before] & at.needed[at.before] & (at.gap_start[at.before] < at.position)]
    makers = model.producer[idle]
    instr = [model.timeline.graph.nodes[int(model.node_at[n])].instr for n in makers.tolist()]
    groups: dict[str, list[int]] = {}
    for n, name in zip(makers.tolist(), instr, strict=True):
        groups.setdefault(name, []).append(n)
    sets = [[n] for n in dict.fromkeys(makers.tolist())]
    sets += [sorted(set(nodes)) for _, nodes in sorted(groups.items()) if len(set(nodes)) > 1]
    weighed: list[tuple[tuple[int, int, int], list[int], Choice, Run]] = []
    for number, nodes in enumerate(sets):
        mask = np.zeros(len(model.node_at), np.bool_)
        mask[nodes] = True
        choice = initial | choice_of(model, at, mask)
        found = run(model, choice)
        if found.valid and found.total < base.total:
            weighed.append(((found.total - base.total, found.flops, number), nodes, choice, found))
    for _, nodes, choice, found in sorted(weighed, key=lambda each: each[0])[:SINGLES]:
        yield _move(model, initial, choice, nodes, (base, found))


def moves_of(model: RecomputeModel, initial: Choice, choice: Choice) -> tuple[Move, ...]:
    """Return the difference of two choices as moves: one per connected part, equal parts together.

    Costs and bytes are relative to the moves before.
    """
    new = choice - initial
    nodes = np.zeros(len(model.node_at), np.bool_)
    nodes[model.producer[new.storages(model)]] = True

    def operator(n: int) -> str:
        return model.timeline.graph.nodes[int(model.node_at[n])].instr

    moves = []
    now, before = initial, run(model, initial)
    alike: dict[tuple[str, ...], list[int]] = {}
    for part in connected_parts(model, nodes):
        alike.setdefault(tuple(map(operator, part.tolist())), []).extend(part.tolist())
    for group in alike.values():
        part = np.array(group, np.int64)
        more = now.dropping(new.drops[np.isin(model.producer[new.storages(model)], part)])
        after = run(model, more)
        moves.append(_move(model, now, more, group, (before, after)))
        now, before = more, after
    return tuple(moves)


def _move(model: RecomputeModel, now: Choice, more: Choice, nodes: list[int], runs: tuple[Run, Run]) -> Move:
    before, after = runs
    new = more - now
    storages = dict.fromkeys(s for n in nodes for s in model.out_idx[model.out_ptr[n] : model.out_ptr[n + 1]].tolist())
    tensors = tuple(model.name_of(s) for s in storages if model.droppable[s])
    operators = Counter(model.timeline.graph.nodes[int(model.node_at[n])].instr for n in nodes)
    named = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in operators.most_common(4))
    rest = ", …" if len(operators) > 4 else ""
    many = f"{tensors[0]!r} and {len(tensors) - 1} more" if len(tensors) > 1 else repr(tensors[0])
    return Move(
        kind="recompute",
        what=f"recompute {many} ({named}{rest})",
        why=WHY,
        tensors=tensors,
        nodes=tuple(map(model.node_id, nodes)),
        cost=Cost(max(0, after.flops - before.flops), 0, max(0, after.extra_steps - before.extra_steps)),
        bytes=before.total - after.total,
        details={"drops": [list(drop) for drop in drops_of(model, new)]},
    )


def scaled(goal: Capacity, share: int) -> Callable[[Mapping[str, int]], int]:
    """Return the function from arena sizes to the bytes over ``share`` millionths of the goal."""
    return lambda bytes_of: goal.over({name: size * 1_000_000 // share for name, size in bytes_of.items()})


def progress_check(report: Progress | None, what: str) -> Callable[[], bool]:
    """Return a function that reports progress from time to time and returns whether to continue."""
    done = 0

    def go_on() -> bool:
        nonlocal done
        done += 1
        return report is None or done % REPORT_EVERY > 0 or report(what, done, 0)

    return go_on
