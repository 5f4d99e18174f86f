"""``fit``: the cheapest moves after which a plan fits, or the proof that none does, or how far apart the two are.

::

    today's plan ─► planner ─► order ─► in place ─► alignment ─► recompute, offload, both ─► sizes
                    └───────────── cost nothing ─────────────┘    └── cheapest that fits ──┘

Every candidate is a plan made for real; nothing is taken on an estimate. Deterministic unless it is told to stop: then
the best so far is what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from tmmu_core.errors import InvalidIrShapes
from tmmu_core.fit.alignment import finer, finest
from tmmu_core.fit.answer import Allowed, Answer, Fitted
from tmmu_core.fit.applying import applied
from tmmu_core.fit.asking import Candidate, ask, extents, extents_of
from tmmu_core.fit.bisecting import bisected
from tmmu_core.fit.bounds import LowerBound, lower_bound, with_order
from tmmu_core.fit.candidates import BEST_PLANNER, made_of, names_of, pareto, planner_move
from tmmu_core.fit.capacity import Capacity, bounds
from tmmu_core.fit.inplace import all_missing, needed_of
from tmmu_core.fit.moves import FLOPS_PER_MOVED_BYTE, KINDS, Cost, Kind, Move
from tmmu_core.fit.ordering import ENUMERATED_UP_TO, OrderMove, order_move, other_orders
from tmmu_core.fit.proposing import PROPOSING
from tmmu_core.fit.sizes import sized
from tmmu_core.graph.flops import graph_flops
from tmmu_core.planners.problem import Progress

PAID: tuple[Kind, ...] = ("recompute", "offload")
MOST_TRIED = 24
"""Lists of moves of one kind that are planned for real, at most."""
MOST_SINGLY = 40
SINGLY_UP_TO = 400
"""Nodes up to which single moves are strung together where no list of moves fits."""


def fit(
    start: Candidate,
    capacity: Capacity,
    allowed: Allowed | None = None,
    progress: Progress | None = None,
    found: Callable[[Candidate], None] | None = None,
) -> Fitted:
    """Bring ``start`` within ``capacity``.

    ``progress`` is told what is tried and may stop it; ``found`` is given every candidate that is better than those
    before it. Raises ``InvalidIrShapes`` (reason ``fit``) for kinds and arenas that there are not.
    """
    allowed = allowed or Allowed()
    _check(start, capacity, allowed)
    return _Fitting(start, capacity, allowed, _Watch(progress), found).run()


def _check(start: Candidate, capacity: Capacity, allowed: Allowed) -> None:
    unknown = sorted(set(allowed.kinds) - set(KINDS))
    if unknown:
        raise _refused(f"there is no move of kind {unknown[0]!r}.", f"Kinds are: {', '.join(KINDS)}.")
    names = sorted(arena.name for arena in start.plan.arenas)
    for name in sorted(set(capacity.arenas) - set(names)):
        raise _refused(f"there is no arena {name!r} to fit.", f"In use: {', '.join(names) or 'none'}.")
    if capacity.total is None and not capacity.arenas:
        raise _refused("there is no capacity to fit.", "Give a number of bytes, over all arenas or for one.")


def _refused(message: str, hint: str) -> InvalidIrShapes:
    return InvalidIrShapes(message, reason="fit", node_id="", hint=hint)


class _Watch:
    """Who watches, and whether they have seen enough."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.stopped = False

    def __call__(self, what: str, done: int = 0, of: int = 0) -> bool:
        if self.progress is not None and not self.stopped:
            self.stopped = not self.progress(what, done, of)
        return not self.stopped


@dataclass
class _Fitting:
    """One search: candidates seen, the best of them, the bound."""

    start: Candidate
    capacity: Capacity
    allowed: Allowed
    watch: _Watch
    found: Callable[[Candidate], None] | None
    seen: list[Candidate] = field(default_factory=list)
    best: Candidate = field(init=False)
    order: OrderMove | None = None

    def __post_init__(self) -> None:
        self.best = self.start
        self.seen.append(self.start)
        index = self.start.solution.liveness.timeline.index
        self.flops = graph_flops(index).total

    # -- the way through -----------------------------------------------------------------------------------------

    def run(self) -> Fitted:
        bound = self.bound()
        if self.fits(self.start):
            return self.ended("fits", bound)
        if self.capacity.over(bound.bytes_of):
            self.free_planner()
            return self.ended("cannot", bound)
        for step in (self.free_planner, self.free_order, self.free_permissions, self.free_alignment):
            step()
            if self.fits(self.best):
                return self.ended("fits", bound)
            if self.watch.stopped:
                return self.ended("open", bound)
        bound, proven = self.proven(bound)
        if self.capacity.over(bound.bytes_of) or self.beyond(proven):
            return self.ended("cannot", bound, proven)
        self.paid()
        if not self.fits(self.best) and "sizes" in self.allowed.kinds and not self.watch.stopped:
            self.smaller()
        return self.ended("fits" if self.fits(self.best) else "open", bound, proven)

    def bound(self) -> LowerBound:
        """The bound before anything is tried; where sizes may shrink, that of the smallest."""
        start, kinds = self.start, self.allowed.kinds
        if "alignment" in kinds and (least := finest(start.question, names_of(start.plan))) is not None:
            start = made_of(start, (least,))
        if "sizes" in kinds:
            for name, dim in sorted(start.question.graph.dims.items()):
                start = sized(start, name, dim.min)
        # A plan on a coarser grid is one on a finer grid too, and one of larger tensors one of smaller ones: there the
        # packing's own bound holds for all of them, and what a planner comes to there may be above what it does here.
        moved: set[Kind] = set(kinds) - {"sizes", "alignment"}
        if "alignment" in kinds or start is not self.start:
            moved.add("planner")
        return lower_bound(start.question, start.solution, moved)

    def smaller(self) -> None:
        """The largest size of each named dimension, alone, at which the other moves fit; the cheapest of those."""
        others = replace(self.allowed, kinds=self.allowed.kinds - {"sizes"})
        for name, dim in sorted(self.start.question.graph.dims.items()):

            def at(size: int, name: str = name) -> Fitted:
                return fit(sized(self.start, name, size), self.capacity, others, self.watch)

            largest = bisected(dim, at)
            if largest.size is not None:
                self.take(largest.fitted.best)

    def fits(self, candidate: Candidate) -> bool:
        return self.capacity.fits(candidate.plan)

    def beyond(self, proven: int) -> bool:
        return self.capacity.total is not None and proven > self.capacity.total

    def proven(self, bound: LowerBound) -> tuple[LowerBound, int]:
        """The bound raised by what is proven of every order, where orders and permissions are all that may change."""
        kinds = self.allowed.kinds
        if kinds & {"recompute", "offload", "sizes", "alignment"}:
            return bound, 0
        if self.order is None:
            return bound, 0
        return with_order(bound, self.order.needs), self.order.total

    def ended(self, answer: Answer, bound: LowerBound, proven: int = 0) -> Fitted:
        best = self.best
        return Fitted(
            answer,
            self.capacity,
            self.start,
            best,
            bound,
            proven,
            tuple(self.seen),
            self.flops,
            self.watch.stopped,
        )

    # -- moves that cost nothing ---------------------------------------------------------------------------------

    def free_planner(self) -> None:
        if "planner" in self.allowed.kinds and self.start.question.planner != BEST_PLANNER:
            self.watch("planner")
            self.try_moves(self.start, (planner_move(self.start.question),))

    def free_order(self) -> None:
        if "order" not in self.allowed.kinds or not self.watch("order"):
            return
        # Where permissions may be added, an order is judged with all of them: what is proven then holds with them too.
        question = self.start.question
        extra = all_missing(question) if "inplace" in self.allowed.kinds else None
        judged, solution = question, self.start.solution
        if extra is not None:
            judged = applied(question, (extra,))
            solution = ask(judged)
        self.order = order_move(
            judged, solution, self.watch, keep_phases=self.allowed.keep_phases, enough=self.capacity.total
        )
        if self.order is not None and self.order.move is not None:
            self.try_moves(self.start, (self.order.move,))
            if not self.has("order"):
                self.try_moves(self.best, (self.order.move,))
            self.try_planner_on_top(self.order.move)
        if self.order is not None and not self.fits(self.best):
            self.other_orders(self.order)

    def other_orders(self, order: OrderMove) -> None:
        """Where the peaks are within the capacity and the packing is not: orders as low, planned until one fits."""
        limit = self.capacity.total
        if limit is None or order.ordered.peak - order.model.pad * len(order.model.arenas) > limit:
            return
        planner: tuple[Move, ...] = ()
        if "planner" in self.allowed.kinds and self.start.question.planner != BEST_PLANNER:
            planner = (planner_move(self.start.question),)
        for number, move in enumerate(other_orders(order, self.start.solution, limit + order.model.pad)):
            if (number >= MOST_TRIED and len(order.model) > ENUMERATED_UP_TO) or not self.watch("orders", number):
                return
            for moves in ((move,), (move, *planner)):
                if not self.capacity.over(extents_of(applied(self.start.question, moves))):
                    self.try_moves(self.start, moves)
                    return

    def try_planner_on_top(self, move: Move) -> None:
        """The move with another planner, where each alone may bring nothing."""
        if "planner" in self.allowed.kinds and not self.has("planner"):
            ordered = replace(self.start.question, graph=applied(self.start.question, (move,)).graph)
            if ordered.planner != BEST_PLANNER:
                self.try_moves(self.start, (move, planner_move(ordered)))

    def free_permissions(self) -> None:
        if "inplace" not in self.allowed.kinds:
            return
        order = self.order.move if self.order is not None else None
        bases = [self.best]
        if order is not None and not self.has("order"):
            bases.append(made_of(self.best, (order,)))
        for base in bases:
            everything = all_missing(base.question)
            if everything is None or not self.watch("in place"):
                return  # whatever the order, the same are missing
            after = ask(applied(base.question, (everything,)))
            if sum(bounds(after.plan).values()) >= sum(bounds(base.plan).values()):
                continue
            if not self.try_moves(base, (needed_of(base.question, after) or everything,)):
                self.try_moves(base, (everything,))

    def free_alignment(self) -> None:
        """The coarsest of the finer grids that fits, else the finest."""
        if "alignment" not in self.allowed.kinds:
            return
        base = self.best
        for move in finer(base.question, names_of(base.plan)):
            if not self.watch("alignment") or (self.try_moves(base, (move,)) and self.fits(self.best)):
                return

    # -- moves that cost something -------------------------------------------------------------------------------

    def paid(self) -> None:
        base = self.best
        kinds = [kind for kind in PAID if kind in self.allowed.kinds]
        lowest: dict[Kind, Candidate] = {}
        # Whatever is moved away to come within the capacity is at least what today is over it.
        moving = FLOPS_PER_MOVED_BYTE * self.capacity.over(extents(base.plan))
        for kind in kinds:
            if self.fits(self.best) and self.best.cost.weight <= moving:
                return
            lowest[kind] = self.lowered(base, kind)
            if self.watch.stopped:
                return
        if self.fits(self.best) or len(kinds) < 2:
            return
        for first, second in ((kinds[0], kinds[1]), (kinds[1], kinds[0])):
            if lowest[first] is not base and not self.watch.stopped:
                self.lowered(lowest[first], second)
                if self.fits(self.best):
                    return

    def lowered(self, base: Candidate, kind: Kind) -> Candidate:
        """Walk the lists of moves that the kind offers, until one fits; the lowest of them."""
        lowest = base
        offers: Iterator[tuple[Move, ...]] = PROPOSING[kind].lower(
            base.question, base.solution, self.capacity, self.watch
        )
        for number, moves in enumerate(offers):
            if number >= MOST_TRIED or not self.watch(kind, number, MOST_TRIED):
                break
            candidate = self.candidate(base, moves)
            if candidate is None:
                continue
            if candidate.extent_bytes < lowest.extent_bytes:
                lowest = candidate
            if self.fits(candidate):
                return candidate
        if len(base.question.graph.nodes) <= SINGLY_UP_TO:
            alone = self.singly(base, kind)
            if alone.extent_bytes < lowest.extent_bytes:
                lowest = alone
        return lowest

    def singly(self, base: Candidate, kind: Kind) -> Candidate:
        """Single moves one after the other, the most bytes for their cost first, until it fits or none is left."""
        question = base.question
        moves: tuple[Move, ...] = ()
        for number in range(MOST_SINGLY):
            if not self.watch(f"{kind}, one by one", number, MOST_SINGLY):
                break
            offers = [move for move in PROPOSING[kind].single(question, base.solution) if move.bytes > 0]
            if not offers:
                break
            best = min(offers, key=lambda move: (Fraction(move.cost.weight, move.bytes), -move.bytes, move.what))
            question, moves = applied(question, (best,)), (*moves, best)
            if not self.capacity.over(extents_of(question)):
                break
        return (self.candidate(base, moves) if moves else None) or base

    # -- candidates ----------------------------------------------------------------------------------------------

    def try_moves(self, base: Candidate, moves: tuple[Move, ...]) -> bool:
        """Plan ``base`` with ``moves``; whether that is the best so far."""
        candidate = self.candidate(base, moves)
        return candidate is not None and candidate is self.best

    def candidate(self, base: Candidate, moves: tuple[Move, ...]) -> Candidate | None:
        made = made_of(base, moves)
        if self.too_dear(made.cost):
            return None
        self.take(made)
        return made

    def take(self, made: Candidate) -> None:
        """Keep it where it is better than what was seen."""
        self.seen = list(pareto([*self.seen, made]))
        if self.better(made):
            self.best = made
            if self.found is not None:
                self.found(made)

    def has(self, kind: Kind) -> bool:
        """Whether the best so far rests on a move of this kind."""
        return any(move.kind == kind for move in self.best.moves)

    def too_dear(self, cost: Cost) -> bool:
        limit = self.allowed.max_cost
        return limit is not None and 100_000 * cost.extra_flops > limit * self.flops

    def better(self, candidate: Candidate) -> bool:
        over, best_over = (self.capacity.over(extents(c.plan)) for c in (candidate, self.best))
        if over or best_over:
            return (over, candidate.extent_bytes, candidate.key) < (best_over, self.best.extent_bytes, self.best.key)
        return candidate.key < self.best.key
