"""A part on its way down: its choices of hand-offs, where the next attempt aims, and when the search of it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

from tmmu_core.planners.bounds import reachable
from tmmu_core.planners.columns import Columns
from tmmu_core.planners.exact.model import Model, build, chains, handoffs, take_all
from tmmu_core.planners.exact.steering import Steering
from tmmu_core.planners.problem import Progress

if TYPE_CHECKING:
    from tmmu_core.planners.exact.across import Across
    from tmmu_core.planners.exact.run import Searcher

FULL_SPEED = 20_000
"""Beyond, a node costs ever more: each failure walks the raises so far, and there are more raises by each storage."""
LARGEST = 20_000_000
"""``Model.work`` beyond which no search is tried."""
AT_BOUND, AT_CAPACITY, BETWEEN, ACROSS = KINDS = ("bound", "capacity", "between", "across")
STEPS = (3, 4, 5, 6, 7, 7, 7, 7)
"""Where to aim, in eighths of the way from the bound to the best: two back after success, one on after failure."""
ALL_CHOICES = 5
"""Hand-offs up to which every choice of them is searched."""


class Course:
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
class Asked:
    """What a run may do, and where it tells what it does."""

    goal: int
    """The extent that is low enough."""
    budget: int
    """Nodes."""
    progress: Progress | None
    notes: dict[str, Any]
    course: Course = field(repr=False)
    rebuilds: bool = True
    """Whether what the nodes leave open is gone on with, which may take minutes (:mod:`.rebuild`)."""


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

        if kind == ACROSS:
            assert self.across is not None
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


def models_of(cols: Columns) -> tuple[list[Model], Model | None]:
    """Every choice of hand-offs to search, the fullest first; and the relaxation if those are not all."""
    possible, most = handoffs(cols), take_all(cols)
    if len(possible) > ALL_CHOICES:
        alone = build(cols, tuple((i,) for i in range(len(cols))), pairs=False)
        return _models(cols, [most]), alone
    choices = [taken for count in range(len(possible), -1, -1) for taken in combinations(possible, count)]
    return _models(cols, [most, *(taken for taken in choices if taken != most)]), None


def _models(cols: Columns, choices: list[tuple[tuple[int, int], ...]]) -> list[Model]:
    """Of each choice of hand-offs that can be."""
    found = (chains(cols, taken) for taken in choices)
    return [build(cols, units) for units in found if units is not None]


@dataclass
class Hunt:
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
    turn: int = 0
    is_open: bool = True
    """Whether there is something left to ask."""

    def __post_init__(self) -> None:
        self.overlap = self.extent
        """The least extent known of the relaxation: above it, it proves nothing."""

    def take(self, variant: _Variant, offset: list[int], extent: int) -> None:
        """A lower packing: the offset of each unit."""
        self.extent = extent
        for unit, at in zip(variant.model.members, offset, strict=True):
            for i in unit:
                self.offset[i] = at

    def raise_bound(self) -> None:
        """To what no choice of hand-offs comes below: the least of all choices, or what relaxes them where those are
        too many; one of them alone says nothing of the others."""
        self.bound = min(each.bound for each in ((self.relaxed,) if self.relaxed is not None else self.variants))

    def left_to_ask(self, goal: int) -> list[_Variant]:
        """Whatever may still lower the extent to ``goal`` or less, or raise the bound; nothing once one of them says
        enough."""
        if self.extent <= max(self.bound, goal) or self.bound > self.cols.problem.capacity:
            return []
        left = [each for each in self.variants if each.bound < self.extent and (not goal or each.bound <= goal)]
        if self.relaxed is not None and self.relaxed.bound < min(self.overlap, self.extent):
            left.append(self.relaxed)
        return left

    def proven(self) -> int:
        """The bound where it is one."""
        return self.bound if self.bound > self.floor else 0


def hunt_for(cols: Columns, bound: int, floor: int, best: tuple[int, list[int]]) -> Hunt:
    """The search for an extent below ``best`` (with its offsets), which is above the floor."""
    from tmmu_core.planners.exact.across import Across, cuts

    models, relaxation = models_of(cols)
    # No extent lies between the last multiple of the grain and the floor: there the floor is reached already.
    low = max(bound, floor // models[0].grain * models[0].grain)
    if models[0].work > LARGEST:
        return Hunt(cols, low, floor, *best, [], None)
    variants = [_variant(model, low) for model in models]
    if at := cuts(cols):  # none where there is a hand-off, and so a choice
        variants[0].across = Across(cols, at)
    relaxed = _variant(relaxation, low) if relaxation is not None else None
    return Hunt(cols, low, floor, *best, variants, relaxed)


def search(hunt: Hunt, asked: Asked) -> None:
    """Attempt after attempt until the bound or the goal is met, the nodes are spent, or ``progress`` says stop."""
    from tmmu_core.planners.exact.kernel import FOUND, INFEASIBLE

    goal, progress, notes, course = asked.goal, asked.progress, asked.notes, asked.course
    variants, relaxed = hunt.variants, hunt.relaxed
    if not variants:
        notes["why"] = "too many storages to search: greedy only"
        hunt.is_open = False
        return
    grain = variants[0].model.grain
    entries = len(variants[0].model.section)
    allowed = min(asked.budget, max(asked.budget * FULL_SPEED**2 // entries**2, 1))
    before = int(notes["nodes"])
    course.floor = hunt.floor
    spent = attempt = 0
    while spent < allowed:
        hunt.raise_bound()
        course.tell(before + spent, hunt.extent, hunt.bound)
        left = hunt.left_to_ask(goal)
        if not left:
            break
        if progress is not None and attempt and not progress("exact", before + spent, before + allowed):
            notes["told_to_stop"] = True
            break
        variant = left[hunt.turn % len(left)]
        hunt.turn += 1
        ceiling = min(hunt.overlap, hunt.extent) if variant is relaxed else hunt.extent
        if 0 < goal < ceiling:
            target = goal // grain * grain
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
            variant.bound = align_up_any(reachable(hunt.cols, target + grain), grain)
        elif offset is not None:
            extent = max(at + high for at, high in zip(offset, variant.searcher.tall, strict=True))
            for steering in variant.steering.values():
                steering.guide(offset)
            if variant is relaxed:
                hunt.overlap = extent
            else:
                hunt.take(variant, offset, extent)
    hunt.raise_bound()
    if asked.rebuilds and spent >= allowed and hunt.left_to_ask(goal):
        _rebuilt(hunt, asked, before + spent, allowed)
    course.tell(before + spent, hunt.extent, hunt.bound)
    notes.update(nodes=before + spent, attempts=notes["attempts"] + attempt)
    hunt.is_open = bool(hunt.left_to_ask(goal))


def _rebuilt(hunt: Hunt, asked: Asked, before: int, allowed: int) -> None:
    """Where the nodes are spent and the bound, or the goal, is near: its first model, torn down and put up again."""
    from tmmu_core.planners.exact.rebuild import LONG_RUNS, Aims, is_for, rebuild_of, turns_for

    variant, notes = hunt.variants[0], asked.notes
    grain = variant.model.grain
    low = max(hunt.bound, variant.bound, asked.goal // grain * grain)
    # With a goal nothing above it is an answer, however far the extent is.
    if not is_for(variant.model, low + grain if asked.goal else hunt.extent, low):
        return
    aims, runs, taken, fewest = Aims(low, grain, turns_for(variant.model, allowed)), 0, 0, -1
    while hunt.extent > max(low, asked.goal) and not notes.get("told_to_stop"):
        capacity, turns = aims.next(low + grain if asked.goal else hunt.extent, fewest)
        if not turns:
            break
        runs += 1
        # Long ones by numbers of their own: they do not hang on how many others went before.
        site = rebuild_of(variant.model, variant.searcher.shape, aims.long or LONG_RUNS + runs)
        watch = None
        if asked.progress is not None:
            # As many nodes again are told as the budget has, whatever runs there will be.
            share = (before + min(taken * allowed // aims.most, allowed), allowed, aims.most)
            watch = _watch_turns(asked.progress, share)
        offset = site.run(capacity, turns, watch)
        fewest, taken = site.fewest, taken + site.turns
        if site.stop[0]:
            notes["told_to_stop"] = True
        if offset is not None:
            hunt.take(variant, offset, max(at + high for at, high in zip(offset, variant.searcher.tall, strict=True)))
    notes["turns"] = notes.get("turns", 0) + taken


def _watch_turns(progress: Progress, share: tuple[int, int, int]) -> Callable[[int], bool]:
    begun, nodes, most = share
    return lambda turns: progress("exact", min(begun + turns * nodes // most, begun + nodes), begun + nodes)


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
        targets[AT_CAPACITY] = capacity // grain * grain
    if variant.across is not None:
        targets[ACROSS] = variant.bound
    between = (variant.bound + (ceiling - variant.bound) * STEPS[variant.boldness] // 8) // grain * grain
    if between > variant.bound:
        targets[BETWEEN] = between
    kind = min(targets, key=lambda kind: variant.spent[kind])
    return kind, targets[kind]


def align_up_any(at: int, grain: int) -> int:
    """The next multiple of any number."""
    return -(-at // grain) * grain
