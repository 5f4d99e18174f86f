"""Find the cheapest moves (changes of graph or settings) that make a plan fit, or prove that no plan fits.

::

    initial plan ─► planner ─► order ─► in place ─► alignment ─► recompute, offload ─► sizes
                    └────────── no extra cost ─────────────┘    └ cheapest that fits ┘

A *candidate* is the plan after a list of moves. Each step proposes lists of moves for an earlier candidate. Each list
is planned, so no size is an estimate. The *best* candidate is the cheapest that fits; if none fits, it is the candidate
that exceeds the capacity least. While none fits, order search and recomputation alternate, from the *smallest* one
(least extent). The search is deterministic. If stopped, it returns the best candidate so far.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tmmu_core.base import strict
from tmmu_core.base.errors import ContractError, InvalidIrShapes
from tmmu_core.fitting.move import FLOPS_PER_MOVED_BYTE, KINDS, Kind, Move, total_cost
from tmmu_core.fitting.order.order_search import OrderMove, Watch, order_move
from tmmu_core.fitting.problem.answer import Allowed, Answer, Capacity, Fitted, unknown_operators
from tmmu_core.fitting.problem.in_place import missing_permissions, needed_permissions
from tmmu_core.fitting.problem.lower_bounds import LowerBound, lower_bound, with_order
from tmmu_core.fitting.problem.planner_calls import Candidate, bounds, extents
from tmmu_core.fitting.recompute.recompute_bound import always_live, output_bounds
from tmmu_core.fitting.recompute.recompute_moves import lowest_within
from tmmu_core.fitting.recompute.schedule import MOST_WORK, schedule_move
from tmmu_core.fitting.search import candidates
from tmmu_core.graph.flops import total_flops
from tmmu_core.graph.model import OFFLOAD_ARENA
from tmmu_core.planners.problem import Progress

MOST_LISTS = 16  # maximum number of lists of moves of one kind, the total in progress reports
CHEAP_DIVISOR = 100  # the search ends at a fit that costs at most 1 / CHEAP_DIVISOR of the graph's FLOPs
SMALL_DIVISOR = 100  # a move that saves less than 1 / SMALL_DIVISOR of the excess is removed if the others fit
Found = Callable[[Candidate], None] | None  # receives every improved candidate
ROUNDS = 6  # maximum number of limits that ``try_lower_schedules`` tries


def fit(
    start: Candidate,
    capacity: Capacity,
    allowed: Allowed | None = None,
    progress: Progress | None = None,
    found: Found = None,
    *,
    smallest: bool = False,
) -> Fitted:
    """Search for the cheapest plan of ``start`` within ``capacity``.

    ``progress`` reports each trial and can stop the search; ``found`` receives every improved candidate. ``smallest``:
    if no plan found fits, a second search looks for the smallest plan; it may fit after all. With a maximum cost, the
    first search does this. Raises ``InvalidIrShapes`` (``fit``) for unknown kinds and arenas, the arena
    ``offload``, and an empty capacity.
    """
    allowed = allowed or Allowed()
    unknown_kinds = sorted(set(allowed.kinds) - set(KINDS))
    if unknown_kinds:
        hint = strict.closest_hint(unknown_kinds[0], KINDS)
        raise _rejected(f"unknown kind of move {unknown_kinds[0]!r}.", hint)
    names = sorted(extents(start.plan))
    for name in sorted(map(str, set(capacity.arenas) - set(names))):
        what = "is memory of another device" if name == OFFLOAD_ARENA else "is unknown"
        raise _rejected(f"the capacity names arena {name!r}, which {what}.", strict.closest_hint(name, names))
    if capacity.total is None and not capacity.arenas:
        raise _rejected("no capacity is set.", "Set the bytes of all arenas together, or of one arena.")
    search = _FitSearch(start, capacity, allowed, Watch(progress), found)
    search.search()
    # Knowing all operators could change the result, except a fit without cost and a proof without the order search.
    fits = search.fits(search.best)
    is_final = not search.best.cost.weight if fits else (search.is_impossible and search.order is None)
    unknown = () if is_final else unknown_operators(start.liveness.timeline, allowed.kinds)
    if smallest:
        search.search_smallest()
    if search.fits(search.best):
        search.remove_small_moves()
    answer: Answer = "fits" if search.fits(search.best) else "cannot" if search.is_impossible else "open"
    plans_and_bounds = start, search.best, search.bound, search.total_bound, search.curve
    return Fitted(answer, capacity, *plans_and_bounds, search.flops, search.watch.stopped, unknown, allowed)


def _rejected(message: str, hint: str) -> InvalidIrShapes:
    return InvalidIrShapes(message, reason="fit", node_id="", hint=hint)


def smallest_of(found: Iterable[Candidate]) -> Candidate:
    """Return the candidate with the least extent; of equal candidates, the first."""
    return min(found, key=lambda candidate: candidate.extent_bytes)


def reachable_bound(start: Candidate, kinds: frozenset[Kind]) -> LowerBound:
    """Return the lower bound of all plans that moves of ``kinds`` can reach; with ``sizes``, at the smallest sizes."""
    initial = start
    if "alignment" in kinds:
        start = candidates.plan_moves(start, tuple(candidates.smaller_alignments(start))[-1:])
    if "sizes" in kinds:
        for name, dim in sorted(start.plan_input.graph.dims.items()):
            start = candidates.with_size(start, name, dim.min)
    # Without kinds, ``lower_bound`` returns extents. They are no bound: at a larger alignment or size, the planner can
    # need fewer bytes. With the kind "planner", the bound holds for every packing.
    bound_kinds: set[Kind] = set(kinds) - {"sizes", "alignment"}
    if "alignment" in kinds or start is not initial:
        bound_kinds.add("planner")
    return lower_bound(start, bound_kinds)


class _FitSearch:
    def __init__(self, start: Candidate, capacity: Capacity, allowed: Allowed, watch: Watch, found: Found) -> None:
        self.start, self.capacity, self.allowed = start, capacity, allowed
        self.watch, self.on_improvement = watch, found
        self.goal = capacity  # what a plan must fit: the capacity, or the lower bound in ``search_smallest``
        self.best = self.best_in_initial_order = start  # the second: with at most a planner move
        self.curve: tuple[Candidate, ...] = (start,)  # candidates that no other dominates in cost and bytes
        self.order: OrderMove | None = None  # the result of the order search
        self.flops = total_flops(start.liveness.timeline.index)
        self.bound = reachable_bound(start, allowed.kinds)
        self.total_bound = 0  # lower bound of all arenas together, over all orders; 0 if unknown; may exceed ``bound``
        self.planner_moves = candidates.planner_moves(start.plan_input.planner) if "planner" in allowed.kinds else ()

    def search(self) -> None:
        """Try the kinds of moves, those without cost first, until a plan fits, none can fit, or the search is stopped.

        With a maximum cost, the search continues after a proof, to show how small a plan can be at this cost.
        """
        if self.fits(self.start):
            return
        can_stop_at_proof = self.allowed.max_cost is None
        if self.is_impossible and can_stop_at_proof:
            self.try_planner()
            return
        for step in (self.try_planner, self.try_order, self.try_in_place, self.try_alignments):
            step()
            if self.fits(self.best) or self.watch.stopped:
                return
        kinds = self.allowed.kinds
        if kinds & set(candidates.COSTLY) and not kinds & {"sizes", "alignment"}:  # count bytes that no move drops
            bound = lower_bound(self.start, kinds, always_live(self.start, self.allowed))
            self.bound = with_order(bound, output_bounds(self.start, self.allowed))
        elif self.order is not None and not kinds & {"sizes", "alignment"}:
            self.bound, self.total_bound = with_order(self.bound, self.order.arena_bounds), self.order.total_bound
        if self.is_impossible and can_stop_at_proof:
            return
        self.try_recompute_and_offload(self.best)
        if self.goal is self.capacity and not self.fits(self.best) and not self.watch.stopped:
            self.try_schedules()
        self.try_smaller_sizes()

    def search_smallest(self) -> None:
        """If no plan fits, search for the smallest one. The goal is the lower bound, whatever the capacity."""
        if self.fits(self.best) or self.watch.stopped or self.allowed.max_cost is not None:
            return  # with a maximum cost, the first search has tried all moves
        below_all = Capacity(None if self.capacity.total is None else -1, dict.fromkeys(self.capacity.arenas, -1))
        lowest = _FitSearch(self.start, below_all, self.allowed, self.watch, self.record)
        while lowest.is_impossible and not self.watch.stopped:
            total = None if below_all.total is None else max(lowest.bound.bytes, lowest.total_bound)
            lowest.goal = Capacity(total, {name: lowest.bound.bytes_of.get(name, 0) for name in below_all.arenas})
            lowest.search()
        lowest.try_lower_schedules()
        self.bound = max(self.bound, lowest.bound, key=lambda bound: bound.bytes)
        self.total_bound = max(self.total_bound, lowest.total_bound)

    @property
    def is_impossible(self) -> bool:
        total = self.goal.total
        return self.goal.over(self.bound.bytes_of) > 0 or (total is not None and self.total_bound > total)

    def fits(self, candidate: Candidate) -> bool:
        return not self.goal.over(extents(candidate.plan))

    def remove_small_moves(self) -> None:
        """Remove moves that save less than 1 % of the excess, if the plan still fits without them.

        Try to remove all of them, then the smaller half, and so on; after a removal, repeat this with the moves left.
        A move that other moves need cannot be removed.
        """
        excess, moves = self.capacity.over(extents(self.start.plan)), self.best.moves[len(self.start.moves) :]
        small = [m.what for m in sorted(moves, key=lambda m: m.bytes) if SMALL_DIVISOR * m.bytes < excess]
        count = min(len(small), len(moves) - 1)
        while count > 0:
            with suppress(ContractError):
                candidate = candidates.plan_moves(self.start, tuple(m for m in moves if m.what not in small[:count]))
                if self.fits(candidate):
                    self.record(candidate)
                    self.best = candidate
                    self.remove_small_moves()  # of the moves that are left
                    return
            count //= 2

    def try_planner(self) -> None:
        if self.planner_moves:
            self.watch("planner")
            self.try_moves(self.start, self.planner_moves)
        if self.order is None:
            self.best_in_initial_order = self.best

    def try_order(self) -> None:
        if "order" not in self.allowed.kinds or not self.watch("order"):
            return
        # Search the order with all in-place reuses allowed: its lower bound then also holds after in-place moves.
        if self.order is None:  # only once, although ``search_smallest`` repeats this step
            extra = missing_permissions(self.start.plan_input) if "inplace" in self.allowed.kinds else None
            self.order = self.best_order(self.start if extra is None else candidates.plan_moves(self.start, (extra,)))
        if self.order is not None and self.order.move is not None:
            self.try_moves(self.start, (self.order.move,))
            if not self.best.has("order"):
                self.try_moves(self.best, (self.order.move,))
            if self.planner_moves and not self.best.has("planner"):
                self.try_moves(self.start, (self.order.move, *self.planner_moves))

    def best_order(self, base: Candidate) -> OrderMove | None:
        return order_move(base, self.watch, keep_phases=self.allowed.keep_phases, goal=self.goal.total)

    def try_in_place(self) -> None:
        """Try the missing permissions of in-place reuse, in the best order and in the order with the lowest peak."""
        if "inplace" not in self.allowed.kinds:
            return
        bases = [self.best_planned(self.best)]
        if self.order is not None and self.order.move is not None and not self.best.has("order"):
            bases.append(candidates.plan_moves(self.best, (self.order.move,)))
        for base in bases:
            permissions = missing_permissions(base.plan_input)
            if permissions is None or not self.watch("in place"):
                return  # missing permissions are the same in every order
            after = candidates.plan_moves(base, (permissions,))
            if sum(bounds(after.plan).values()) >= sum(bounds(base.plan).values()):
                continue
            if not self.try_moves(base, (needed_permissions(base.plan_input, after.liveness) or permissions,)):
                self.try_moves(base, (permissions,))

    def try_alignments(self) -> None:
        if "alignment" not in self.allowed.kinds:
            return
        base = self.best_planned(self.best)
        for move in candidates.smaller_alignments(base):
            if not self.watch("alignment") or (self.try_moves(base, (move,)) and self.fits(self.best)):
                return

    def try_recompute_and_offload(self, base: Candidate) -> None:
        """Recompute and offload in the order of ``base``, then in the initial order, then in new orders."""
        base = self.best_planned(base)
        smallest = self.recompute_or_offload(base)
        if self.watch.stopped or (self.fits(self.best) and self.best.cost.weight * CHEAP_DIVISOR <= self.flops):
            return
        if base.has("order"):
            smallest = smallest_of((smallest, self.recompute_or_offload(self.best_planned(self.best_in_initial_order))))
        if self.fits(self.best) or "order" not in self.allowed.kinds or not self.watch("order"):
            return
        # Alternate order search and recomputation as long as the extent falls.
        while not self.fits(self.best) and not self.watch.stopped:
            order = self.best_order(smallest)
            ordered = None if order is None or order.move is None else self.planned(smallest, (order.move,))
            if ordered is None or ordered.extent_bytes >= smallest.extent_bytes:
                break
            smallest = self.recompute_or_offload(ordered)

    def try_schedules(self) -> None:
        """Try schedules (order and recomputation) within ``total``; lower the limit while plans exceed ``total``."""
        limit = total = self.capacity.total or 0
        last, decrease = None, 0
        while limit > 0:
            candidate = self.scheduled(limit)
            over = 0 if candidate is None else self.capacity.over(extents(candidate.plan))
            if candidate is None or not 0 < over < total // 10:
                break
            decrease = 2 * decrease if candidate.moves == last else over  # lower faster if the schedule did not change
            last, limit = candidate.moves, limit - decrease

    def try_lower_schedules(self) -> None:
        """Try schedules below the best extent: halfway to the goal as long as this succeeds, then 0.1 % below."""
        is_halfway = True
        for _ in range(ROUNDS if self.capacity.total is not None else 0):
            extent = self.best.extent_bytes
            halfway = (extent + self.goal.limit_bytes) // 2
            self.scheduled(halfway if is_halfway else extent - 1 - extent // 1000, MOST_WORK // 3)
            is_lower = self.best.extent_bytes < extent
            if not (is_halfway or is_lower) or not self.capacity.over(extents(self.best.plan)):
                break
            is_halfway &= is_lower

    def scheduled(self, limit: int, most_work: int = MOST_WORK) -> Candidate | None:
        """Plan an order and recomputation with at most ``limit`` live bytes; ``None`` if none is found or allowed."""
        if "recompute" not in self.allowed.kinds or not self.watch("schedule"):
            return None
        base = self.best_planned(self.best_in_initial_order)
        move = schedule_move(base.plan_input, limit, self.watch, most_work)
        return None if move is None else self.planned(base, (move,))

    def recompute_or_offload(self, base: Candidate) -> Candidate:
        """Recompute, then offload if this can be cheaper, until a list of moves fits; return the smallest candidate."""
        smallest = base
        # Offload transfers at least the excess over the goal, so it costs at least this.
        least_cost = FLOPS_PER_MOVED_BYTE * self.goal.over(extents(base.plan))
        for kind in (kind for kind in candidates.COSTLY if kind in self.allowed.kinds):
            is_cheap = self.fits(self.best) and self.best.cost.weight <= least_cost
            if self.watch.stopped or (kind == "offload" and is_cheap):
                break
            for number, moves in enumerate(self.lists_of_moves(base, kind)):
                candidate = self.planned(base, moves) if self.watch(kind, number, MOST_LISTS) else None
                if candidate is None:
                    break
                smallest = smallest_of((smallest, candidate))
                if self.fits(candidate):
                    break
        return smallest

    def lists_of_moves(self, base: Candidate, kind: Kind) -> Iterator[tuple[Move, ...]]:
        """Yield lists of moves of a kind within the maximum cost, each with a lower peak than the list before.

        If a list exceeds the maximum cost, yield instead the list with the lowest peak within this cost, and stop. In
        the search for the smallest plan, recomputation yields only the list with the lowest peak at any cost.
        """
        if self.goal is not self.capacity and kind == "recompute":
            if lowest := lowest_within(base.plan_input, self.goal, None, self.watch):
                yield lowest
            return
        for moves in candidates.COSTLY[kind].lists_of_moves(base.plan_input, self.goal, self.watch):
            if self.exceeds_cost((*base.moves, *moves)):
                assert self.allowed.max_cost is not None
                flops_left = self.allowed.max_cost * self.flops // 100_000 - base.cost.extra_flops
                if lowest := lowest_within(base.plan_input, self.goal, flops_left, self.watch):
                    yield lowest
                return
            yield moves

    def try_smaller_sizes(self) -> None:
        """For each dimension alone, find the largest size at which the other moves make the plan fit."""
        if self.fits(self.best) or "sizes" not in self.allowed.kinds or self.watch.stopped:
            return
        others = replace(self.allowed, kinds=self.allowed.kinds - {"sizes"})
        for name, dim in sorted(self.start.plan_input.graph.dims.items()):

            def fit_at(size: int, name: str = name) -> Fitted:
                return fit(candidates.with_size(self.start, name, size), self.goal, others, self.watch)

            largest = candidates.bisect_size(dim, fit_at)
            if largest.size is not None:
                self.record(largest.fitted.best)

    def try_moves(self, base: Candidate, moves: tuple[Move, ...]) -> bool:
        """Plan ``base`` with ``moves``; return whether the result is the best candidate so far."""
        candidate = self.planned(base, moves)
        return candidate is not None and candidate is self.best

    def best_planned(self, candidate: Candidate) -> Candidate:
        """Return ``candidate`` planned with the best planner if this is allowed and not larger, else ``candidate``.

        Equal size is enough: a planner that saves nothing now can use the bytes that later moves free.
        """
        moves = () if candidate.has("planner") else self.planner_moves
        other = candidates.plan_moves(candidate, moves)
        return other if other.extent_bytes <= candidate.extent_bytes else candidate

    def planned(self, base: Candidate, moves: tuple[Move, ...]) -> Candidate | None:
        """Plan ``base`` with ``moves`` and record the result; return ``None`` above the maximum cost."""
        if self.exceeds_cost((*base.moves, *moves)):
            return None
        candidate = candidates.plan_moves(base, moves)
        self.record(candidate)
        return candidate

    def record(self, candidate: Candidate) -> None:
        self.curve = candidates.pareto([*self.curve, candidate])

        def rank(candidate: Candidate) -> tuple[Any, ...]:
            over = self.capacity.over(extents(candidate.plan))
            return over, candidate.extent_bytes if over else 0, candidate.key

        if rank(candidate) < rank(self.best):
            self.best = candidate
            if self.on_improvement is not None:
                self.on_improvement(candidate)

    def exceeds_cost(self, moves: Iterable[Move]) -> bool:
        limit = self.allowed.max_cost
        return limit is not None and 100_000 * total_cost(moves).extra_flops > limit * self.flops
