"""``exact``: branch and bound that minimises, any time, with a proof where it gets that far.

The compiled search (:mod:`.kernel`, after MiniMalloc, ASPLOS '23) answers one question: does everything fit below a
capacity? It is asked often and shortly, under orders that learn from their failures (:mod:`.steering`), in turn at the
lower bound itself and at capacities closely and well below the best so far. Found: the extent falls. Exhausted: the
bound rises above that capacity. Where they meet the packing is optimal.

Budgeted by nodes, never by the clock; draws are raw Philox numbers: the same budget gives the same packing anywhere.
A node costs O(entries) in the worst case, some ten microseconds on the six MiniMalloc instances.

What never meets is packed apart (:mod:`.apart`), so that one part's luck is not the other's; where few cross a moment,
its two sides are also tried one after the other (:mod:`.across`).

Hand-offs: each may be taken (both storages are one unit) or not (the two conflict). All that can be are taken first;
up to :data:`ALL_CHOICES` of them every choice is searched; beyond, a relaxation in which those pairs are free to
overlap raises the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from tmmu_core.errors import ArenaTooSmall
from tmmu_core.planners.bounds import Bound, bound_of, reachable
from tmmu_core.planners.columns import Columns, columns, count_option, extent_of, finished, flag_option
from tmmu_core.planners.exact.apart import apart, part
from tmmu_core.planners.exact.model import Model, build, chains, handoffs, take_all
from tmmu_core.planners.exact.steering import Steering
from tmmu_core.planners.portfolio import Best, best_greedy
from tmmu_core.planners.problem import I64, UNLIMITED, Packing, Problem, Progress

if TYPE_CHECKING:
    from tmmu_core.planners.exact.across import Across
    from tmmu_core.planners.exact.run import Searcher

DEFAULT_BUDGET = 600_000
"""Nodes, for models of up to :data:`FULL_SPEED` entries; of twice the entries a quarter of them."""
FULL_SPEED = 20_000
"""Beyond, a node costs ever more: each failure walks the raises so far, and there are more raises by each storage."""
LARGEST = 20_000_000
"""``Model.work`` beyond which no search is tried."""
AT_BOUND, AT_CAPACITY, BETWEEN, ACROSS = KINDS = ("bound", "capacity", "between", "across")
STEPS = (3, 4, 5, 6, 7, 7, 7, 7)
"""Where to aim, in eighths of the way from the bound to the best: two back after success, one on after failure."""
COURSE = "course"
"""The note that tells ``[nodes, extent, bound]`` whenever the extent fell or the bound rose."""
ALL_CHOICES = 5
"""Hand-offs up to which every choice of them is searched."""


def exact(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """The least packing that the budget finds, the bound it proves, and whether the two meet.

    Options: ``budget`` (nodes); ``minimise``: with a capacity the search ends as soon as everything fits, unless this
    is true; without one it is. ``progress`` may stop the search at any moment, by ``False`` or by raising. Raises
    ArenaTooSmall, with ``proven`` in its diagnostics, when nothing fits the problem's capacity whatever the budget;
    AllocationOverflow past 2^64 − 1.
    """
    cols = columns(problem)
    return searched(cols, bound_of(cols), None, options, progress)


def searched(
    cols: Columns, bound: Bound, start: Best | None, options: Mapping[str, Any], progress: Progress | None
) -> Packing:
    """The same, of a problem squeezed, with its bound and perhaps the best of all greedy runs, where they are known."""
    problem = cols.problem
    budget = count_option(options, "budget", DEFAULT_BUDGET)
    minimise = flag_option(options, "minimise", problem.capacity == UNLIMITED)
    goal = 0 if minimise else problem.capacity
    bound = replace(bound, bytes=reachable(cols, bound.bytes))
    _refuse_if_proven(problem, bound.bytes, bound.max_live)
    start = start or best_greedy(cols, bound, goal=goal)
    offset, lower, stopped = list(start.offset), bound.bytes, False
    notes: dict[str, Any] = {"start": f"{start.order}/{start.fit}", "nodes": 0, "attempts": 0}
    course = _Course(start.extent, lower)
    if start.extent > max(lower, goal) and not cols.small:
        notes["why"] = "sizes beyond 2^62: greedy only"
    elif start.extent > max(lower, goal) and budget:
        lower, stopped = _in_parts(cols, bound, offset, _Asked(goal, budget, progress, notes, course))
        notes[COURSE] = course.moments
    _refuse_if_proven(problem, lower, bound.max_live)
    return Packing(
        finished(cols, offset),
        lower_bound=lower,
        optimal=extent_of(cols, offset) == lower,
        stopped=stopped,
        notes=notes,
    )


class _Course:
    """How low the least packing is and how high the bound, after so many nodes: a row when one of the two moves."""

    def __init__(self, extent: int, bound: int) -> None:
        self.moments = [[0, extent, bound]]
        self.elsewhere = 0
        """Extent of the parts that are not being searched."""
        self.proven = self.floor = bound
        """The bound of the whole; a part's own one says more only where it is above the floor."""

    def tell(self, nodes: int, extent: int, bound: int) -> None:
        """Of the part that is being searched."""
        now = [max(extent, self.elsewhere), max(self.proven, bound if bound > self.floor else 0)]
        if now != self.moments[-1][1:]:
            if self.moments[-1][0] == nodes:
                self.moments.pop()
            self.moments.append([nodes, *now])


@dataclass(frozen=True, eq=False)
class _Asked:
    """What a run may do, and where it tells what it does."""

    goal: int
    """The extent that is low enough."""
    budget: int
    """Nodes."""
    progress: Progress | None
    notes: dict[str, Any]
    course: _Course = field(repr=False)


def _in_parts(cols: Columns, whole: Bound, offset: list[int], asked: _Asked) -> tuple[int, bool]:
    """Lower what can be lowered of ``offset``, part by part; the bound proven, and whether something was left open.

    The part that needs most comes first. A part is left alone as soon as it is no higher than what another one needs.
    Each may spend its share; what is left over in the end is for the highest of them, where it was left open.
    """
    goal, notes, course = asked.goal, asked.notes, asked.course
    parts = _parts(cols, whole)
    lower = floor = whole.bytes
    if len(parts) > 1:
        notes["parts"] = len(parts)
    extents = [extent_of(own, [offset[i] for i in indices.tolist()]) for indices, own, _ in parts]
    hunts: dict[int, _Hunt] = {}
    for k, (indices, own, bound) in enumerate(parts):
        extent, mine = extents[k], [offset[i] for i in indices.tolist()]
        course.elsewhere = max(extents[:k] + extents[k + 1 :], default=0)
        if extent > max(floor, goal) and len(parts) > 1:
            alone = best_greedy(own, bound)
            if alone.extent < extent:
                extent, mine = alone.extent, list(alone.offset)
        if extent > max(floor, goal) and not notes.get("told_to_stop"):
            hunt = _hunt(own, bound.bytes, floor, (extent, mine))
            hunts[k] = hunt
            course.proven = lower
            _search(hunt, replace(asked, budget=(asked.budget - int(notes["nodes"])) // (len(parts) - k)))
            lower = max(lower, hunt.proven())
            extent, mine = hunt.extent, hunt.offset
        extents[k] = extent
        for i, at in zip(indices.tolist(), mine, strict=True):
            offset[i] = at
        floor = max(floor, extent)
    while len(parts) > 1 and int(notes["nodes"]) < asked.budget and not notes.get("told_to_stop"):
        top = max(extents)
        floor = max(lower, *(extent for extent in (0, *extents) if extent < top))
        # A part that was low enough is taken up again when the others have come lower.
        highest = [k for k, extent in enumerate(extents) if extent == top]
        k = next((k for k in highest if k not in hunts or hunts[k].is_open or hunts[k].floor > floor), -1)
        if k < 0 or top <= max(floor, goal):
            break
        indices, own, bound = parts[k]
        if k not in hunts or not hunts[k].is_open:
            hunts[k] = _hunt(own, bound.bytes, floor, (top, [offset[i] for i in indices.tolist()]))
        course.elsewhere, course.proven = max(extents[:k] + extents[k + 1 :]), lower
        _search(hunts[k], replace(asked, budget=asked.budget - int(notes["nodes"])))
        lower, extents[k] = max(lower, hunts[k].proven()), hunts[k].extent
        for i, at in zip(indices.tolist(), hunts[k].offset, strict=True):
            offset[i] = at
    return lower, max(extents) > max(lower, goal) and any(hunt.is_open for hunt in hunts.values())


def _parts(cols: Columns, whole: Bound) -> list[tuple[I64, Columns, Bound]]:
    """Storages that conflict with no others, with their own columns and bound; what needs most bytes comes first."""
    found = apart(cols)
    if len(found) == 1:
        return [(found[0], cols, whole)]
    parts = []
    for indices in found:
        own = columns(part(cols.problem, indices))
        bound = bound_of(own)
        parts.append((indices, own, replace(bound, bytes=reachable(own, bound.bytes))))
    return sorted(parts, key=lambda one: (-one[2].bytes, int(one[0][0])))


Answer = tuple[int, int, list[int] | None, bool]
"""The verdict, nodes, the offset per unit where one was found, and whether ``watch`` said stop."""


@dataclass
class _Variant:
    """One choice of hand-offs: what is proven of it, and how it is searched."""

    model: Model
    bound: int
    searcher: Searcher
    steering: dict[str, Steering]
    """What was learnt about each kind of target."""
    spent: dict[str, int]
    """Nodes given to each kind of target."""
    boldness: int = 0
    """Index into :data:`STEPS`."""
    across: Across | None = None
    """Where few cross a moment."""

    def kinds(self, kind: str) -> tuple[str, ...]:
        """A kind, and the other way to ask for the same where few cross a moment."""
        return (kind,) if self.across is None else (ACROSS, kind)

    def ask(self, kind: str, target: int, budget: int, watch: Callable[[int], bool] | None) -> Answer:
        """One attempt, and what it teaches."""
        from tmmu_core.planners.exact.kernel import FOUND

        if kind == ACROSS and self.across is not None:
            verdict, nodes, offset = self.across.ask(target, budget, watch)
            stopped = self.across.stopped
        else:
            tried = self.steering[kind].attempt(target)
            verdict, nodes, offset = self.searcher.ask(target, tried.rank, min(tried.nodes, budget), watch=watch)
            stopped = bool(self.searcher.stop[0])
            if not stopped:
                self.steering[kind].learn(tried, self.searcher.fails, verdict == FOUND)
        self.spent[kind] += max(nodes, 1)
        return verdict, max(nodes, 1), offset, stopped


def _models(cols: Columns) -> tuple[list[Model], Model | None]:
    """Every choice of hand-offs to search, the fullest first; and the relaxation if those are not all."""
    possible = handoffs(cols)
    chosen = [take_all(cols)]
    if len(possible) <= ALL_CHOICES:
        for count in range(len(possible), -1, -1):
            chosen += [taken for taken in combinations(possible, count) if taken != chosen[0]]
    models = []
    for taken in chosen:
        units = chains(cols, taken)
        if units is not None:
            models.append(build(cols, units))
    if len(possible) <= ALL_CHOICES:
        return models, None
    alone = tuple((i,) for i in range(len(cols)))
    return models, build(cols, alone, pairs=False)


@dataclass
class _Hunt:
    """A part on the way down, to be gone on with."""

    cols: Columns
    bound: int
    floor: int
    """What another part needs anyway: down to there it goes, and a bound says something only above it."""
    extent: int
    offset: list[int]
    variants: list[_Variant]
    """Empty where there is too much of it to search."""
    relaxed: _Variant | None
    overlap: int
    """The least extent known of the relaxation: above it, it proves nothing."""
    turn: int = 0
    is_open: bool = True
    """Whether there is something left to ask."""

    def proven(self) -> int:
        """The bound where it is one."""
        return self.bound if self.bound > self.floor else 0


def _hunt(cols: Columns, bound: int, floor: int, best: tuple[int, list[int]]) -> _Hunt:
    """The search for an extent below ``best`` (with its offsets), which is above the floor."""
    from tmmu_core.planners.exact.across import Across, cuts

    models, relaxation = _models(cols)
    # No extent lies between the last multiple of the grain and the floor: there the floor is reached already.
    low = max(bound, floor // models[0].grain * models[0].grain)
    if models[0].work > LARGEST:
        return _Hunt(cols, low, floor, *best, [], None, best[0])
    variants = [_variant(model, low) for model in models]
    if len(variants) == 1 and (at := cuts(cols)):
        variants[0].across = Across(cols, at)
    relaxed = _variant(relaxation, low) if relaxation is not None else None
    return _Hunt(cols, low, floor, *best, variants, relaxed, best[0])


def _search(hunt: _Hunt, asked: _Asked) -> None:
    """Attempt after attempt until the bound or the goal is met, the nodes are spent, or ``progress`` says stop."""
    from tmmu_core.planners.exact.kernel import FOUND, INFEASIBLE

    goal, progress, notes, course = asked.goal, asked.progress, asked.notes, asked.course
    variants, relaxed = hunt.variants, hunt.relaxed
    if not variants:
        notes["why"] = "too many storages to search: greedy only"
        hunt.is_open = False
        return
    grain = variants[0].model.grain
    entries = max(len(variants[0].model.section), 1)
    allowed = asked.budget if entries <= FULL_SPEED else max(asked.budget * FULL_SPEED**2 // entries**2, 1)
    before = int(notes["nodes"])
    course.floor = hunt.floor
    spent = attempt = 0
    while spent < allowed:
        proven = min(variant.bound for variant in variants)
        hunt.bound = max(hunt.bound, min(hunt.extent, max(proven, relaxed.bound if relaxed is not None else 0)))
        course.tell(before + spent, hunt.extent, hunt.bound)
        if hunt.extent <= max(hunt.bound, goal) or hunt.bound > hunt.cols.problem.capacity:
            break
        if progress is not None and attempt and not progress("exact", before + spent, before + allowed):
            notes["told_to_stop"] = True
            break
        open_ones = [v for v in variants if v.bound < hunt.extent and (not goal or v.bound <= goal)]
        if relaxed is not None and relaxed.bound < min(hunt.overlap, hunt.extent):
            open_ones.append(relaxed)
        if not open_ones:
            break
        variant = open_ones[hunt.turn % len(open_ones)]
        hunt.turn += 1
        ceiling = min(hunt.overlap, hunt.extent) if variant is relaxed else hunt.extent
        if goal and variant.bound <= goal < ceiling:
            target = max(goal // grain * grain, variant.bound)
            kind = min(variant.kinds(AT_CAPACITY), key=lambda kind: variant.spent[kind])
        else:
            kind, target = _aim(variant, ceiling, grain, hunt.cols.problem.capacity)
        watch = None if progress is None else _watch(progress, before + spent, before + allowed)
        verdict, nodes, offset, halted = variant.ask(kind, target, allowed - spent, watch)
        spent += nodes
        if halted:
            notes["told_to_stop"] = True
            break
        if kind == BETWEEN:
            variant.boldness = max(variant.boldness - 2, 0) if verdict == FOUND else min(variant.boldness + 1, 7)
        attempt += 1
        if verdict == INFEASIBLE:
            variant.bound = max(variant.bound, align_up_any(reachable(hunt.cols, target + grain), grain))
        elif verdict == FOUND and offset is not None:
            extent = max(at + high for at, high in zip(offset, variant.searcher.tall, strict=True))
            for steering in variant.steering.values():
                steering.guide(offset)
            if variant is relaxed:
                hunt.overlap = min(hunt.overlap, extent)
            elif extent < hunt.extent:
                hunt.extent = extent
                for unit, at in zip(variant.model.members, offset, strict=True):
                    for i in unit:
                        hunt.offset[i] = at
    proven = max(min(variant.bound for variant in variants), relaxed.bound if relaxed is not None else 0)
    hunt.bound = max(hunt.bound, min(hunt.extent, proven))
    if min(variant.bound for variant in variants) > hunt.cols.problem.capacity:
        hunt.bound = max(hunt.bound, hunt.cols.problem.capacity + 1)
    course.tell(before + spent, hunt.extent, hunt.bound)
    notes.update(nodes=before + spent, attempts=notes["attempts"] + attempt)
    hunt.is_open = spent > 0 and max(hunt.bound, goal) < hunt.extent


def _watch(progress: Progress, before: int, allowed: int) -> Callable[[int], bool]:
    return lambda nodes: progress("exact", before + nodes, allowed)


def _variant(model: Model, bound: int) -> _Variant:
    from tmmu_core.planners.exact.run import Searcher

    steering = {kind: Steering(model, openings=kind != BETWEEN) for kind in KINDS if kind != ACROSS}
    return _Variant(model, align_up_any(bound, model.grain), Searcher(model), steering, dict.fromkeys(KINDS, 0))


def _aim(variant: _Variant, ceiling: int, grain: int, capacity: int) -> tuple[str, int]:
    """What to ask for next, and of which kind it is: the kind that had the fewest nodes, for the three bear each other.

    At the bound itself; at the capacity, where the best is over it; one part or another of the way between.
    """
    targets = {AT_BOUND: variant.bound}
    if variant.bound <= capacity < ceiling:
        targets[AT_CAPACITY] = max(capacity // grain * grain, variant.bound)
    if variant.across is not None:
        targets[ACROSS] = variant.bound
    between = (variant.bound + (ceiling - variant.bound) * STEPS[variant.boldness] // 8) // grain * grain
    between = max(variant.bound, min(between, ceiling - grain))
    if between > variant.bound:
        targets[BETWEEN] = between
    kind = min(targets, key=lambda kind: variant.spent[kind])
    return kind, targets[kind]


def align_up_any(at: int, grain: int) -> int:
    """The next multiple of any number."""
    return -(-at // grain) * grain


def _refuse_if_proven(problem: Problem, bound: int, max_live: int) -> None:
    if bound <= problem.capacity:
        return
    raise ArenaTooSmall(
        f"nothing fits arena {problem.arena!r}: every packing takes at least {bound} bytes, "
        f"its capacity is {problem.capacity}. This is proven.",
        hint="Raise the capacity, shorten lives or make storages smaller.",
        arena=problem.arena,
        capacity=problem.capacity,
        required=bound,
        lower_bound=bound,
        peak_live_bytes=max_live,
        proven=True,
    )
