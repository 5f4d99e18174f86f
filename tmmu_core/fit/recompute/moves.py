"""Recomputation as moves: single ones for what-if, lists of them for a capacity, and what a move does to a question."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tmmu_core.fit.asking import Question
from tmmu_core.fit.moves import Cost, Move
from tmmu_core.fit.recompute.cut import boundary
from tmmu_core.fit.recompute.deeper import deepened
from tmmu_core.fit.recompute.model import Mask, RecomputeModel, connected_parts
from tmmu_core.fit.recompute.search import Point, Search, choice_of, fullest_arena, peak_position
from tmmu_core.fit.recompute.simulate import Choice, Run, run
from tmmu_core.fit.recompute.unwrite import unwritten
from tmmu_core.fit.recompute.write import drops_of, with_drops, written
from tmmu_core.planners.problem import Progress

WHY = "the same operators run again on the same operands: every value read is the one that was read before"
SINGLES = 200
"""So many single moves are offered at most."""
TIGHTER = tuple(
    1_000_000 - less for less in (0, 10, 100, 500, 1_000, 2_000, 4_000, 7_000, 10_000, 20_000, 40_000, 70_000, 100_000)
)
"""Millionths of what there is, tried one after the other where a planner needs more than what is alive."""
ABOVE_THE_LOWEST = (2, 4)
"""Cuts below which it goes on: the cheapest by so many tenths of the way from the lowest to nothing dropped."""
ASKED_EVERY = 64
"""Whoever watches is asked whether to go on once in so many choices."""
ON_THE_WAY = 16
"""Where no list of moves fits, so many are offered at most, the lowest among them."""


class Goal(Protocol):
    """What there is: ``fit.capacity.Capacity`` is one."""

    def over(self, bytes_of: Mapping[str, int]) -> int:
        """By how many bytes arenas of these sizes are over it; 0 where they fit."""
        ...


@dataclass(frozen=True)
class Bytes:
    """A goal over all arenas together."""

    total: int

    def over(self, bytes_of: Mapping[str, int]) -> int:
        """Sum less total, not below 0."""
        return max(0, sum(bytes_of.values()) - self.total)


def apply_recompute(question: Question, *moves: Move) -> Question:
    """Each move's ``details``: ``{"drops": [[tensor, the node after which it is dropped], …]}``.

    A node is one of the graph without its recomputing nodes; ``n0@remat`` stands for every further run of ``n0``.
    Raises ``InvalidIrShapes`` (reason ``recompute``) for a tensor that cannot be made again, or that a node does not
    touch.
    """
    model, choice = unwritten(question)
    drops = [drop for move in moves for drop in move.details["drops"]]
    return replace(question, graph=written(model, with_drops(model, choice, drops)))


def _problem(question: Question) -> tuple[RecomputeModel, Choice]:
    """The question's numbers and what is dropped already. What leaves for another memory comes back from there in
    every gap, so it cannot be made again in one of them.
    """
    model, begun = unwritten(question)
    return replace(model, droppable=model.droppable & ~begun.away), begun


def recompute_to(question: Question, capacity: int, report: Progress | None = None) -> tuple[Move, ...] | None:
    """The cheapest moves found after which the arenas' peaks together are within ``capacity`` bytes; ``None``: none."""
    model, begun = _problem(question)
    search = Search(model, Bytes(capacity).over, begun, go_on_of(report, "recompute"))
    found = search.climb()
    point = search.cheapest(found)
    if point is None:
        point = _cheapest_of(search, _below(search, found))
    return None if point is None else moves_of(model, begun, point.choice)


def lower(
    question: Question, solution: object, goal: Goal, report: Progress | None = None
) -> Iterator[tuple[Move, ...]]:
    """Lists of moves: the cheapest that fits the goal by what is alive, then ever tighter ones, for planners that need
    more than that. Where none fits, the way down to the lowest that is found, cheapest first.

    ``solution`` is not needed: what is alive follows from the question. Each list is complete and lower than the one
    before it.
    """
    model, begun = _problem(question)
    if not model.droppable.any():
        return
    least: Run | None = None
    found = None
    below: list[Point] = []
    for share in TIGHTER:
        search = Search(model, scaled(goal, share), begun, go_on_of(report, "recompute"))
        if not search.excess(search.nothing.run):
            continue  # fits as it is
        found = search.climb() if found is None else found
        point = search.cheapest(found)
        if point is None:
            below = below or _below(search, found)
            point = _cheapest_of(search, below)
        if point is None:
            break
        if least is None or point.run.total < least.total:
            least = point.run
            yield moves_of(model, begun, point.choice)
    if least is None and found is not None:
        way = _way_down([*(point for _, point in found), *below], run(model, begun).total)
        for point in way:
            yield moves_of(model, begun, point.choice)


def _way_down(points: Sequence[Point], total: int) -> list[Point]:
    """From below ``total`` to the lowest, each dearer and lower than the one before; at most ``ON_THE_WAY`` of them."""
    way: list[Point] = []
    for point in sorted(points, key=lambda point: point.key):
        if point.run.total < total:
            total = point.run.total
            way.append(point)
    if len(way) <= ON_THE_WAY:
        return way
    return [way[(k + 1) * len(way) // ON_THE_WAY - 1] for k in range(ON_THE_WAY)]


def _below(search: Search, found: Sequence[tuple[Mask, Point]]) -> list[Point]:
    """From what cuts found, further down: from the lowest, from the cheapest little above it, and from nothing dropped.

    A cut that is low all over drops much that only a few steps ask for; from a cheaper one, less is dropped for them.
    """
    points = sorted((point for _, point in found), key=lambda point: (search.excess(point.run), point.key))
    over = [search.excess(point.run) for point in points]
    most = search.excess(search.nothing.run)
    starts = [points[0]]
    for tenths in ABOVE_THE_LOWEST:
        near = bisect_right(over, over[0] + (most - over[0]) * tenths // 10)
        starts.append(min(points[:near], key=lambda point: point.key))
    return deepened(search, list({id(point): point for point in (*starts, search.nothing)}.values()))


def _cheapest_of(search: Search, points: Sequence[Point]) -> Point | None:
    fitting = [point for point in points if not search.excess(point.run)]
    return min(fitting, key=lambda point: point.key, default=None)


def single_moves(question: Question, solution: object) -> Iterator[Move]:
    """Every storage that lies idle at the fullest step and whose being made again lowers it, most bytes first; before
    them all of one operator together, where that brings more than one of them does.

    ``bytes`` is what the live curve says; planning anew says it exactly.
    """
    model, begun = _problem(question)
    base = run(model, begun)
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
        choice = begun | choice_of(model, at, mask)
        found = run(model, choice)
        if found.valid and found.total < base.total:
            weighed.append(((found.total - base.total, found.flops, number), nodes, choice, found))
    for _, nodes, choice, found in sorted(weighed, key=lambda each: each[0])[:SINGLES]:
        yield _move(model, begun, choice, nodes, (base, found))


def moves_of(model: RecomputeModel, begun: Choice, choice: Choice) -> tuple[Move, ...]:
    """From one choice to a larger one: a move for each connected part, parts of the same operators together.

    Costs and bytes are on top of the moves before.
    """
    new = choice - begun
    edges = np.flatnonzero(new.used | new.again)
    dropped = np.unique(np.concatenate([model.in_idx[edges], model.out_idx[np.flatnonzero(new.born)]]))
    nodes = np.zeros(len(model.node_at), np.bool_)
    nodes[model.producer[dropped]] = True

    def operator(n: int) -> str:
        return model.timeline.graph.nodes[int(model.node_at[n])].instr

    moves = []
    now, before = begun, run(model, begun)
    alike: dict[tuple[str, ...], list[int]] = {}
    for part in connected_parts(model, nodes):
        alike.setdefault(tuple(map(operator, part.tolist())), []).extend(part.tolist())
    for group in alike.values():
        part = np.array(group, np.int64)
        inside = np.isin(model.producer, part)
        more = Choice(
            now.used | (new.used & inside[model.in_idx]),
            now.born | (new.born & inside[model.out_idx]),
            now.again | (new.again & inside[model.in_idx]),
            now.away,
        )
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


def scaled(goal: Goal, share: int) -> Callable[[Mapping[str, int]], int]:
    """The goal with ``share`` millionths of its bytes: what is asked of it is that much larger."""
    return lambda bytes_of: goal.over({name: size * 1_000_000 // share for name, size in bytes_of.items()})


def go_on_of(report: Progress | None, what: str) -> Callable[[], bool]:
    """Asks ``report`` now and then whether to go on."""
    done = 0

    def go_on() -> bool:
        nonlocal done
        done += 1
        return report is None or done % ASKED_EVERY > 0 or report(what, done, 0)

    return go_on
