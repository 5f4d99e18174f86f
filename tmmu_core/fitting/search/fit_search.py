"""Find the cheapest moves (changes of graph or settings) that make a plan fit, or prove that no plan fits.

::

    initial plan ─► planner ─► order ─► in place ─► alignment ─► recompute, offload, both ─► sizes
                    └────────── no extra cost ─────────────┘    └── cheapest that fits ──┘

The planner packs every candidate; no size is estimated. The search is deterministic. If stopped, it returns the best
candidate so far.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from tmmu_core.base import strict
from tmmu_core.base.errors import ContractError, InvalidIrShapes
from tmmu_core.fitting.move import FLOPS_PER_MOVED_BYTE, KINDS, Cost, Kind, Move, total_cost
from tmmu_core.fitting.moves.alignment import finer_alignments
from tmmu_core.fitting.moves.delay import delay_moves
from tmmu_core.fitting.moves.reordering import ENUMERATED_UP_TO, OrderMove, order_move, other_orders
from tmmu_core.fitting.moves.sizes import bisect_size, with_size
from tmmu_core.fitting.order.order_search import Watch
from tmmu_core.fitting.problem.answer import Allowed, Answer, Fitted
from tmmu_core.fitting.problem.capacity import Capacity, bounds
from tmmu_core.fitting.problem.in_place import missing_permissions, needed_permissions
from tmmu_core.fitting.problem.lower_bounds import LowerBound, lower_bound, with_order
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, extents, extents_of, solve_input
from tmmu_core.fitting.search.candidates import (
    BEST_PLANNER,
    apply_moves,
    names_of,
    pareto,
    plan_moves,
    planner_move,
    proposing,
)
from tmmu_core.fitting.unknown import UnknownOperator, unknown_operators
from tmmu_core.graph.flops import graph_flops
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.engine import Solution

COSTLY: tuple[Kind, ...] = ("recompute", "offload")
MOST_TRIED = 24
"""Maximum number of move lists, or of orders, that are planned for one kind of move."""
CHEAP_PART = 100
"""The search ends at a plan that fits if its cost is at most ``1 / CHEAP_PART`` of the graph's FLOPs."""
SMALL_PART = 100
"""A move is removed if it saves less than ``1 / SMALL_PART`` of the excess bytes and the plan fits without it."""
MOST_DELAYS = 4
"""Maximum number of execution orders that compute a tensor after the peak instead of before it."""
MOST_SINGLE_MOVES = 40
SINGLE_MOVES_UP_TO = 400
"""Maximum number of nodes of a graph for which single moves are combined greedily if no move list fits."""


def fit(
    start: Candidate,
    capacity: Capacity,
    allowed: Allowed | None = None,
    progress: Progress | None = None,
    found: Callable[[Candidate], None] | None = None,
) -> Fitted:
    """Search for the cheapest plan of ``start`` within ``capacity``.

    ``progress`` reports each trial and can stop the search; ``found`` receives every improved candidate. Raises
    ``InvalidIrShapes`` (reason ``fit``) for unknown kinds and arenas.
    """
    allowed = allowed or Allowed()
    _check(start, capacity, allowed)
    return _FitSearch(start, capacity, allowed, Watch(progress), found).run()


def _check(start: Candidate, capacity: Capacity, allowed: Allowed) -> None:
    unknown = sorted(set(allowed.kinds) - set(KINDS))
    if unknown:
        raise _rejected(f"unknown kind of move {unknown[0]!r}.", strict.closest_hint(unknown[0], KINDS))
    names = sorted(arena.name for arena in start.plan.arenas)
    for name in sorted(set(capacity.arenas) - set(names)):
        raise _rejected(f"unknown arena {name!r} in the capacity.", strict.closest_hint(name, names))
    if capacity.total is None and not capacity.arenas:
        raise _rejected("no capacity is set.", "Set the bytes of all arenas together, or of one arena.")


def _rejected(message: str, hint: str) -> InvalidIrShapes:
    return InvalidIrShapes(message, reason="fit", node_id="", hint=hint)


@dataclass
class _FitSearch:
    """One search: candidates so far, the best one, and the order search."""

    start: Candidate
    capacity: Capacity
    allowed: Allowed
    watch: Watch
    found: Callable[[Candidate], None] | None
    seen: list[Candidate] = field(default_factory=list)
    best: Candidate = field(init=False)
    order: OrderMove | None = None
    best_in_initial_order: Candidate = field(init=False)
    """The best candidate that keeps the execution order of the start and costs nothing."""

    def __post_init__(self) -> None:
        self.best = self.best_in_initial_order = self.start
        self.seen.append(self.start)
        self.flops = graph_flops(self.start.solution.liveness.timeline.index).total
        planner = self.start.plan_input.planner
        is_open = "planner" in self.allowed.kinds and planner != BEST_PLANNER
        self.planner_moves = (planner_move(planner),) if is_open else ()
        """The move to ``BEST_PLANNER``; empty if it is not allowed, or if the start already uses this planner."""

    # -- the search -----------------------------------------------------------------------------------------

    def run(self) -> Fitted:
        bound = self.bound()
        if self.fits(self.start):
            return self.result_of("fits", bound)
        impossible = self.capacity.over(bound.bytes_of) > 0
        if impossible and self.allowed.max_cost is None:
            self.change_planner()
            return self.result_of("cannot", bound)
        for step in (self.change_planner, self.change_order, self.add_permissions, self.lower_alignment):
            step()
            if self.fits(self.best):
                return self.result_of("fits", bound)
            if self.watch.stopped:
                return self.result_of("cannot" if impossible else "open", bound)
        bound, proven = self.final_bound(bound)
        total = self.capacity.total
        impossible = self.capacity.over(bound.bytes_of) > 0 or (total is not None and proven > total)
        if impossible and self.allowed.max_cost is None:
            return self.result_of("cannot", bound, proven)
        self.recompute_and_offload()
        if not self.fits(self.best) and "sizes" in self.allowed.kinds and not self.watch.stopped:
            self.try_smaller_sizes()
        return self.result_of("fits" if self.fits(self.best) else "cannot" if impossible else "open", bound, proven)

    def bound(self) -> LowerBound:
        """Return the initial lower bound; if sizes can shrink, the bound at the smallest sizes."""
        start, kinds = self.start, self.allowed.kinds
        if "alignment" in kinds:
            start = plan_moves(start, tuple(finer_alignments(start.plan_input, names_of(start.plan)))[-1:])
        if "sizes" in kinds:
            for name, dim in sorted(start.plan_input.graph.dims.items()):
                start = with_size(start, name, dim.min)
        # With smaller alignments or sizes, another planner may reach a smaller extent. The bound of the packing holds
        # for all planners; the extent of one planner is no bound.
        of_bound: set[Kind] = set(kinds) - {"sizes", "alignment"}
        if "alignment" in kinds or start is not self.start:
            of_bound.add("planner")
        return lower_bound(start.plan_input, start.solution, of_bound)

    def try_smaller_sizes(self) -> None:
        """For each dimension alone, find the largest size at which the other moves make the plan fit."""
        others = replace(self.allowed, kinds=self.allowed.kinds - {"sizes"})
        for name, dim in sorted(self.start.plan_input.graph.dims.items()):

            def at(size: int, name: str = name) -> Fitted:
                return fit(with_size(self.start, name, size), self.capacity, others, self.watch)

            largest = bisect_size(dim, at)
            if largest.size is not None:
                self.take(largest.fitted.best)

    def fits(self, candidate: Candidate) -> bool:
        return self.capacity.fits(candidate.plan)

    def final_bound(self, bound: LowerBound) -> tuple[LowerBound, int]:
        """Return the bound that counts storages no move drops, and the lower bound over all orders (0 if unknown)."""
        kinds = self.allowed.kinds
        if kinds & {"sizes", "alignment"}:
            return bound, 0
        if kinds & {"recompute", "offload"}:
            from tmmu_core.fitting.recompute.recompute_bound import always_live

            start = self.start
            return lower_bound(start.plan_input, start.solution, kinds, always_live(start, self.allowed)), 0
        if self.order is None:
            return bound, 0
        return with_order(bound, self.order.needs), self.order.total

    def result_of(self, answer: Answer, bound: LowerBound, proven: int = 0) -> Fitted:
        if answer == "fits":
            self.leave_out_small_moves()
        return Fitted(
            answer,
            self.capacity,
            self.start,
            self.best,
            bound,
            proven,
            tuple(self.seen),
            self.flops,
            self.watch.stopped,
            self.limiting_operators(answer),
            self.allowed,
        )

    def leave_out_small_moves(self) -> None:
        """Remove moves that save less than 1 % of the excess, if the plan still fits without them.

        A move that other moves depend on cannot be removed.
        """
        needed, first = self.capacity.over(extents(self.start.plan)), len(self.start.moves)
        for move in sorted(self.best.moves[first:], key=lambda each: each.bytes):
            moves = self.best.moves[first:]
            if SMALL_PART * move.bytes >= needed or len(moves) == 1:
                break
            try:
                candidate = plan_moves(self.start, tuple(each for each in moves if each.what != move.what))
            except ContractError:
                continue
            if self.fits(candidate):
                self.best = candidate

    def limiting_operators(self, answer: Answer) -> tuple[UnknownOperator, ...]:
        """Return the operators whose properties are unknown, if knowing them could improve the answer."""
        if (answer == "fits" and not self.best.cost.weight) or (answer == "cannot" and self.order is None):
            return ()
        return unknown_operators(self.start.solution.liveness.timeline, self.allowed.kinds)

    # -- moves without cost ---------------------------------------------------------------------------------

    def change_planner(self) -> None:
        if self.planner_moves:
            self.watch("planner")
            self.try_moves(self.start, self.planner_moves)
        self.best_in_initial_order = self.best

    def change_order(self) -> None:
        if "order" not in self.allowed.kinds or not self.watch("order"):
            return
        # Search the order with all in-place reuses allowed: its lower bound then also holds after in-place moves.
        plan_input, solution = self.start.plan_input, self.start.solution
        extra = missing_permissions(plan_input) if "inplace" in self.allowed.kinds else None
        if extra is not None:
            plan_input = apply_moves(plan_input, (extra,))
            solution = solve_input(plan_input)
        self.order = self.lower_order(plan_input, solution)
        if self.order is not None and self.order.move is not None:
            self.try_moves(self.start, (self.order.move,))
            if not self.has("order"):
                self.try_moves(self.best, (self.order.move,))
            if self.planner_moves and not self.has("planner"):
                self.try_moves(self.start, (self.order.move, *self.planner_moves))
        if self.order is not None and not self.fits(self.best):
            self.other_orders(self.order)

    def lower_order(self, plan_input: PlanInput, solution: Solution) -> OrderMove | None:
        phases, limit = self.allowed.keep_phases, self.capacity.total
        return order_move(plan_input, solution, self.watch, keep_phases=phases, enough=limit)

    def other_orders(self, order: OrderMove) -> None:
        """Plan orders with equally low peaks until one packs within the capacity."""
        limit = self.capacity.total
        if limit is None or order.ordered.peak - order.model.pad * len(order.model.arenas) > limit:
            return
        for number, move in enumerate(other_orders(order, self.start.solution, limit + order.model.pad)):
            if (number >= MOST_TRIED and len(order.model) > ENUMERATED_UP_TO) or not self.watch("orders", number):
                return
            for moves in ((move,), (move, *self.planner_moves)):
                if not self.capacity.over(extents_of(apply_moves(self.start.plan_input, moves))):
                    self.try_moves(self.start, moves)
                    return

    def add_permissions(self) -> None:
        if "inplace" not in self.allowed.kinds:
            return
        order = self.order.move if self.order is not None else None
        bases = [self.best]
        if order is not None and not self.has("order"):
            bases.append(plan_moves(self.best, (order,)))
        for base in bases:
            everything = missing_permissions(base.plan_input)
            if everything is None or not self.watch("in place"):
                return  # missing permissions are the same in every order
            after = solve_input(apply_moves(base.plan_input, (everything,)))
            if sum(bounds(after.plan).values()) >= sum(bounds(base.plan).values()):
                continue
            if not self.try_moves(base, (needed_permissions(base.plan_input, after) or everything,)):
                self.try_moves(base, (everything,))

    def lower_alignment(self) -> None:
        """Try smaller alignments, the largest first, until the plan fits."""
        if "alignment" not in self.allowed.kinds:
            return
        base = self.best
        for move in finer_alignments(base.plan_input, names_of(base.plan)):
            if not self.watch("alignment") or (self.try_moves(base, (move,)) and self.fits(self.best)):
                return

    # -- moves that cost -------------------------------------------------------------------------------

    def recompute_and_offload(self) -> None:
        """Apply recompute and offload to the best candidate so far, then in the initial order, then in new orders."""
        free = self.best
        lowest = self.lowest_from(free)
        if self.watch.stopped or (self.fits(self.best) and self.best.cost.weight * CHEAP_PART <= self.flops):
            return
        if any(move.kind == "order" for move in free.moves):
            lowest = min(lowest, self.lowest_from(self.best_in_initial_order), key=lambda each: each.extent_bytes)
        if self.fits(self.best) or "order" not in self.allowed.kinds or not self.watch("order"):
            return
        # Alternate order search and recomputation as long as the extent falls.
        while not self.fits(self.best) and not self.watch.stopped:
            found = self.lower_order(lowest.plan_input, lowest.solution)
            ordered = None if found is None or found.move is None else self.candidate(lowest, (found.move,))
            if ordered is None or ordered.extent_bytes >= lowest.extent_bytes:
                break
            lowest = self.lowest_from(ordered)
        self.try_delays(lowest)

    def try_delays(self, lowest: Candidate) -> None:
        """Try orders that compute a tensor after the peak, each combined with recompute and offload."""
        step, over = int(self.capacity.live(lowest.plan).argmax()), self.capacity.over(extents(lowest.plan))
        base = self.best_in_initial_order
        if base.plan_input.planner != BEST_PLANNER:
            base = plan_moves(base, self.planner_moves)
        moves = delay_moves(base, lowest, step, over, keep_phases=self.allowed.keep_phases)
        for number, move in enumerate(moves):
            if number >= MOST_DELAYS or self.fits(self.best) or not self.watch("delay", number, MOST_DELAYS):
                break
            self.lowest_from(plan_moves(base, (move,)))

    def lowest_from(self, base: Candidate) -> Candidate:
        """Recompute, offload, and combine both; return the lowest candidate."""
        kinds = [kind for kind in COSTLY if kind in self.allowed.kinds]
        lowest: dict[Kind, Candidate] = {}
        # Offload must transfer at least the excess over the capacity.
        least_cost = FLOPS_PER_MOVED_BYTE * self.capacity.over(extents(base.plan))
        for kind in kinds:
            if kind == "offload" and self.fits(self.best) and self.best.cost.weight <= least_cost:
                break
            lowest[kind] = self.try_kind(base, kind)
            if self.watch.stopped:
                break
        found = min((base, *lowest.values()), key=lambda each: each.extent_bytes)
        if self.fits(self.best) or len(lowest) < 2:
            return found
        for first, second in ((kinds[0], kinds[1]), (kinds[1], kinds[0])):
            if lowest[first] is not base and not self.watch.stopped:
                found = min(found, self.try_kind(lowest[first], second), key=lambda each: each.extent_bytes)
                if self.fits(self.best):
                    break
        return found

    def try_kind(self, base: Candidate, kind: Kind) -> Candidate:
        """Plan lists of moves of a kind until one fits. Return it, or the lowest candidate within the allowed cost."""
        lowest, is_small = base, len(base.plan_input.graph.nodes) <= SINGLE_MOVES_UP_TO
        fitting: Candidate | None = None
        for number, moves in enumerate(self.move_lists(base, kind)):
            if number >= MOST_TRIED or not self.watch(kind, number, MOST_TRIED):
                break
            candidate = self.candidate(base, moves)
            if candidate is None:
                break
            if candidate.extent_bytes < lowest.extent_bytes:
                lowest = candidate
            if self.fits(candidate):
                fitting = candidate if fitting is None else min(fitting, candidate, key=lambda each: each.key)
                if not number or not is_small:  # later lists have lower targets; only a missed target makes one cheaper
                    break
        if fitting is not None:
            return fitting
        if is_small:
            alone = self.combine_single_moves(base, kind)
            if alone.extent_bytes < lowest.extent_bytes:
                lowest = alone
        return lowest

    def move_lists(self, base: Candidate, kind: Kind) -> Iterator[tuple[Move, ...]]:
        """Yield the move lists of a kind; if one exceeds the cost limit, yield the lowest peak within the limit."""
        for moves in proposing(kind).lower(base.plan_input, self.capacity, self.watch):
            if self.exceeds_cost(total_cost((*base.moves, *moves))):
                break
            yield moves
        else:
            return
        from tmmu_core.fitting.recompute.recompute_moves import lowest_within

        assert self.allowed.max_cost is not None
        left = self.allowed.max_cost * self.flops // 100_000 - base.cost.extra_flops
        lowest = lowest_within(base.plan_input, self.capacity, left, self.watch)
        if lowest is not None:
            yield lowest

    def combine_single_moves(self, base: Candidate, kind: Kind) -> Candidate:
        """Add single moves within the cost, best ratio of bytes to cost first, until the plan fits."""
        plan_input = base.plan_input
        moves: tuple[Move, ...] = ()
        for number in range(MOST_SINGLE_MOVES):
            if not self.watch(f"{kind}, one by one", number, MOST_SINGLE_MOVES):
                break
            move_lists = [
                move
                for move in proposing(kind).single_moves(plan_input)
                if move.bytes > 0 and not self.exceeds_cost(total_cost((*base.moves, *moves, move)))
            ]
            if not move_lists:
                break
            best = min(move_lists, key=lambda move: (Fraction(move.cost.weight, move.bytes), -move.bytes, move.what))
            plan_input, moves = apply_moves(plan_input, (best,)), (*moves, best)
            if not self.capacity.over(extents_of(plan_input)):
                break
        return (self.candidate(base, moves) if moves else None) or base

    # -- candidates ----------------------------------------------------------------------------------------------

    def try_moves(self, base: Candidate, moves: tuple[Move, ...]) -> bool:
        """Plan ``base`` with ``moves``; return whether the result is the best so far."""
        candidate = self.candidate(base, moves)
        return candidate is not None and candidate is self.best

    def candidate(self, base: Candidate, moves: tuple[Move, ...]) -> Candidate | None:
        if self.exceeds_cost(total_cost((*base.moves, *moves))):
            return None
        candidate = plan_moves(base, moves)
        self.take(candidate)
        return candidate

    def take(self, candidate: Candidate) -> None:
        """Record a candidate, and keep it as the best if it is better."""
        self.seen = list(pareto([*self.seen, candidate]))
        if self.is_better(candidate):
            self.best = candidate
            if self.found is not None:
                self.found(candidate)

    def has(self, kind: Kind) -> bool:
        """Return whether the best candidate uses a move of this kind."""
        return any(move.kind == kind for move in self.best.moves)

    def exceeds_cost(self, cost: Cost) -> bool:
        limit = self.allowed.max_cost
        return limit is not None and 100_000 * cost.extra_flops > limit * self.flops

    def is_better(self, candidate: Candidate) -> bool:
        over, best_over = (self.capacity.over(extents(c.plan)) for c in (candidate, self.best))
        if over or best_over:
            return (over, candidate.extent_bytes, candidate.key) < (best_over, self.best.extent_bytes, self.best.key)
        return candidate.key < self.best.key
