"""Search a component of the conflict graph: targets, restarts, choices of in-place reuse, and the stop rule."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from tmmu_core.planners.bounds import Bound, possible_extent
from tmmu_core.planners.columns import Columns, align_up
from tmmu_core.planners.exact import lns
from tmmu_core.planners.exact.branch_and_bound import FOUND, INFEASIBLE, BranchingOrder, Searcher, luby
from tmmu_core.planners.exact.search_model import Model, greedy_handoffs, possible_handoffs, search_model, units_of
from tmmu_core.planners.problem import UNLIMITED, Meter

FULL_BUDGET_ENTRIES = 20_000  # most entries of a component with the whole budget; one with twice as many gets a quarter
MAX_TABLE_ENTRIES = 20_000_000  # units × (units + sections) beyond which a component is not searched
AT_BOUND, AT_CAPACITY, BETWEEN = KINDS = ("bound", "capacity", "between")
"""Kinds of target: the lower bound, the capacity or goal, a capacity between bound and extent."""
TARGET_EIGHTHS = (3, 4, 5, 6, 7, 7, 7, 7)
"""Targets between bound and extent, in eighths of the gap. After success, the index falls by 2; else it grows by 1."""
MAX_ENUMERATED_HANDOFFS = 5  # with at most this number of in-place reuses, every choice of them is searched
LNS_TURNS = 8  # without a goal, the nodes are split into this many parts, each followed by a large neighbourhood search
MIN_TURN_NODES = 5_000  # minimum nodes of a part; if parts are smaller, these searches run only after the last node
PATIENCE = 1 << 30
"""If the extent is below ``SearchRequest.near``, the search ends when it has found no packing for a number of nodes:
``PATIENCE`` divided by the pairs of neighbours. Example: 2^20 pairs, about 1,000 nodes."""


class ProgressLog:
    """Rows ``[nodes, extent, bound]``: a row whenever the extent falls or the bound rises."""

    def __init__(self, extent: int, bound: int, report: Callable[[int, int], None]) -> None:
        self._report = report
        report(extent, bound)
        self.rows = [[0, extent, bound]]
        self.other_extent = 0  # extent of the components that are not being searched
        self.proven_bound = self.floor = bound
        """Bound of the whole problem; the bound of a component counts only above ``floor``."""

    def record(self, nodes: int, extent: int, bound: int) -> None:
        """Add a row for the component that is being searched, if something changed."""
        row = [max(extent, self.other_extent), max(self.proven_bound, bound if bound > self.floor else 0)]
        if row != self.rows[-1][1:]:
            if self.rows[-1][0] == nodes:
                self.rows.pop()
            self.rows.append([nodes, *row])
            self._report(*row)


@dataclass(frozen=True, eq=False)
class SearchRequest:
    """Limits of a search, and where it reports."""

    goal: int  # extent that is low enough; 0: as low as possible
    budget: int  # nodes
    meter: Meter
    notes: dict[str, Any]
    log: ProgressLog = field(repr=False)
    use_lns: bool = True
    """Whether large neighbourhood search runs between and after the attempts of branch and bound; may take minutes."""
    near: int = 0  # an extent below this is near the bound: :data:`PATIENCE` then limits the search


class _Variant:
    """The model of a choice of in-place reuses, or the relaxation, with its proven bound and branching orders."""

    def __init__(self, model: Model, bound: int) -> None:
        self.model, self.bound, self.searcher = model, align_up(bound, model.grain), Searcher(model)
        self.branching = {kind: BranchingOrder(model, openings=kind != BETWEEN) for kind in KINDS}
        """Kind of target → its branching order."""
        self.target_index = 0  # index into :data:`TARGET_EIGHTHS`

    def extent_of(self, offset: list[int]) -> int:
        """Return the extent of a packing of the units."""
        return max(at + height for at, height in zip(offset, self.model.max_height.tolist(), strict=True))


def search_models(cols: Columns) -> tuple[list[Model], Model | None]:
    """Return a model per consistent choice of reuses, greedy first; of many, only the greedy one and a relaxation."""
    possible, choices, relaxation = possible_handoffs(cols), [greedy_handoffs(cols)], None
    if len(possible) > MAX_ENUMERATED_HANDOFFS:
        relaxation = search_model(cols, handoffs=False)
    else:
        every = (taken for count in range(len(possible), -1, -1) for taken in combinations(possible, count))
        choices += [taken for taken in every if taken != choices[0]]
    consistent = [units for taken in choices if (units := units_of(cols, taken)) is not None]
    return [search_model(cols, units) for units in consistent], relaxation


@dataclass
class Component:
    """A component of the conflict graph: its best packing so far, and the state of its search."""

    indices: list[int]  # its storages, ascending
    cols: Columns
    first_bound: Bound
    extent: int
    offset: list[int]
    floor: int = UNLIMITED  # an extent below the floor of the search does not lower the extent of the whole problem
    is_open: bool = False  # whether more nodes of this search may still lower the extent or raise the bound

    @property
    def bound(self) -> int:
        """Proven bound: the relaxation's if any, else the least of all variants; without variants, ``first_bound``."""
        found = self.variants if self.relaxed is None else [self.relaxed]
        return min((each.bound for each in found), default=self.first_bound.bytes)

    def accept(self, variant: _Variant, offset: list[int]) -> None:
        """Store a packing of smaller extent, given by the offset of each unit."""
        self.extent = variant.extent_of(offset)
        for unit, at in zip(variant.model.members, offset, strict=True):
            for i in unit:
                self.offset[i] = at

    def apply_result(self, variant: _Variant, target: tuple[str, int], outcome: int, offset: list[int] | None) -> None:
        """Update bounds, extents and the next targets by the result of an attempt at ``target`` (kind, capacity)."""
        kind, capacity = target
        if kind == BETWEEN:
            index = variant.target_index
            variant.target_index = max(index - 2, 0) if outcome == FOUND else min(index + 1, len(TARGET_EIGHTHS) - 1)
        if outcome == INFEASIBLE:
            grain = variant.model.grain
            variant.bound = align_up(possible_extent(self.cols, capacity + grain), grain)
        elif offset is not None:
            for branching in variant.branching.values():
                branching.follow_packing(offset)
            if variant is self.relaxed:
                self.relaxed_extent = variant.extent_of(offset)
            else:
                self.accept(variant, offset)

    def open_variants(self, goal: int) -> list[_Variant]:
        """Return the variants that may still lower the extent (to ``goal``, if it is not 0) or raise the bound."""
        if self.extent <= max(self.bound, goal) or self.bound > self.cols.problem.capacity:
            return []
        found = [each for each in self.variants if each.bound < self.extent and (not goal or each.bound <= goal)]
        if self.relaxed is not None and self.relaxed.bound < min(self.relaxed_extent, self.extent):
            found.append(self.relaxed)
        return found

    def improve(self, request: SearchRequest, budget: int, floor: int, proven: int) -> int:
        """Search for an extent below the current one; return the bound proven for the whole problem.

        An incomplete search continues. Otherwise, a new search begins, which need not go below ``floor``.
        """
        if not self.is_open:
            models, relaxation = search_models(self.cols)
            # Extents are multiples of the grain. The largest multiple at or below the floor is low enough.
            low = max(self.first_bound.bytes, floor // models[0].grain * models[0].grain)
            is_small = len(models[0]) * (len(models[0]) + models[0].sections) <= MAX_TABLE_ENTRIES
            self.floor, self.is_open = floor, True
            self.turn = 0  # number of attempts of branch and bound
            self.variants = [_Variant(model, low) for model in models] if is_small else []  # empty: too large to search
            self.relaxed = _Variant(relaxation, low) if is_small and relaxation is not None else None
            self.relaxed_extent = self.extent  # least known extent of the relaxation, which its bound cannot exceed
        request.log.proven_bound = proven
        search(self, request, budget)
        return max(proven, self.bound if self.bound > self.floor else 0)


def search(component: Component, request: SearchRequest, budget: int) -> None:
    """Search until the bound or goal is reached, nodes or patience are spent, or the meter stops the search."""
    goal, meter, notes, log = request.goal, request.meter, request.notes, request.log
    if not component.variants:
        notes["why"] = "too many storages to search: greedy only"
        component.is_open = False
        return
    entries = len(component.variants[0].model.section)
    allowed = min(budget, max(budget * FULL_BUDGET_ENTRIES**2 // entries**2, 1))
    before = notes["nodes"]  # nodes of earlier searches
    log.floor = component.floor
    spent = attempts = 0  # nodes and attempts of this search
    patience = patient_until = PATIENCE // (len(component.variants[0].searcher.tables.neighbour) + 1)
    lns_runs: _LnsRuns | None = None

    def watch(nodes: int) -> bool:
        return meter("exact", before + spent + nodes, before + allowed)

    while not notes.get("interrupted"):
        log.record(before + spent, component.extent, component.bound)
        open_variants = component.open_variants(goal)
        if not open_variants:
            break
        if attempts and not meter("exact", before + spent, before + allowed):
            meter.halt(1)  # keep the results so far; the next attempt ends after one node
        if meter.ended():
            notes["interrupted"] = True
            break
        if request.use_lns and (lns_runs is None or component.bound > lns_runs.low):
            lns_runs = _LnsRuns(component, request, allowed, 0 if lns_runs is None else lns_runs.turns)
        if lns_runs is not None and (run := lns_runs.next_run(spent, allowed)) is not None:
            lns_runs.make(run, before + spent, before + spent + allowed)
            continue
        if spent >= allowed or (component.extent < request.near and spent >= patient_until):
            break
        variant = open_variants[component.turn % len(open_variants)]
        component.turn += 1
        kind, target = _next_target(component, variant, goal)
        left = meter.left(allowed - spent)
        outcome, nodes, offset = variant.branching[kind].attempt(
            variant.searcher, target, left, watch if meter.watched else None
        )
        spent += nodes
        meter.used += nodes
        if variant.searcher.stop[0]:
            meter.halt()
        if meter.ended():  # discard the result: it depends on the time of the stop
            notes["interrupted"] = True
            break
        attempts += 1
        component.apply_result(variant, (kind, target), outcome, offset)
        if outcome == FOUND:
            patient_until = spent + patience
    log.record(before + spent, component.extent, component.bound)
    notes.update(nodes=before + spent, attempts=notes["attempts"] + attempts)
    component.is_open = bool(component.open_variants(goal))


class _LnsRuns:
    """Large neighbourhood search of a component's first variant, if the extent is near its bound or the goal."""

    def __init__(self, component: Component, request: SearchRequest, nodes: int, turns: int) -> None:
        """``nodes``: budget of branch and bound; ``turns``: runs already made between parts of it."""
        self.component, self.request, self.turns = component, request, turns
        model = component.variants[0].model
        self.grain, full = model.grain, lns.FULL_BUDGET_UNITS
        self.normal = nodes * full**2 // max(len(model), full) ** 2  # iterations of a normal run
        self.low = max(component.bound, component.variants[0].bound, request.goal // self.grain * self.grain)
        self.done = 0  # iterations of all runs
        self.schedule: Generator[lns.Run, tuple[int, int], None] | None = None

    @property
    def extent(self) -> int:
        """Extent to improve on."""
        return self.low + self.grain if self.request.goal else self.component.extent

    def next_run(self, spent: int, allowed: int) -> lns.Run | None:
        """Return the run that is due after ``spent`` of the ``allowed`` nodes; ``None`` if none is due."""
        if not lns.applies(self.component.variants[0].model, self.extent, self.low):
            return None
        if spent >= allowed:
            if self.schedule is None:
                self.schedule = lns.run_schedule(self.low, self.grain, self.normal, self.extent)
                self.next_scheduled = next(self.schedule)
            return self.next_scheduled if self.next_scheduled[1] else None
        is_due = self.turns < LNS_TURNS and spent * LNS_TURNS >= allowed * (self.turns + 1)
        if self.request.goal or allowed < MIN_TURN_NODES * LNS_TURNS or not is_due:
            return None
        self.turns += 1
        return self.low, luby(self.turns) * self.normal, self.turns

    def make(self, planned_run: lns.Run, first: int, last: int) -> None:
        """Do a run, and report its progress as a number of nodes between ``first`` and ``last``."""
        variant, meter, notes = self.component.variants[0], self.request.meter, self.request.notes
        capacity, iterations, number = planned_run
        left, planned = meter.left(iterations + 1), lns.PLANNED_RUNS * self.normal

        def watch(done: int) -> bool:
            """Return whether to continue. The node limit is tested here, as ``iterations`` also sets the cooling."""
            nodes = first + (self.done + done) * (last - first) // planned
            return done < left and meter("exact", min(nodes, last), last)

        run = lns.lns_run(variant.model, variant.searcher.tables, number)
        offset = run.run(capacity, iterations, watch if meter.watched or meter.limit is not None else None)
        meter.used += max(run.iterations, 1)
        if run.stop[0] and not meter.ended():
            meter.halt()
        if meter.ended():  # discard the result: it depends on the time of the stop
            notes["interrupted"] = True
            return
        self.done += run.iterations
        notes["turns"] = notes.get("turns", 0) + run.iterations
        if offset is not None:
            self.component.accept(variant, offset)
        if self.schedule is not None:
            self.next_scheduled = self.schedule.send((self.extent, run.fewest_omitted))
        elif run.fewest_omitted > lns.FEW_OMITTED:
            self.turns = LNS_TURNS


def _next_target(component: Component, variant: _Variant, goal: int) -> tuple[str, int]:
    """Return the kind and the capacity of the next attempt: the kind with the fewest nodes so far."""
    grain, capacity = variant.model.grain, component.cols.problem.capacity
    ceiling = min(component.relaxed_extent, component.extent) if variant is component.relaxed else component.extent
    targets: dict[str, int] = {}
    if 0 < goal < ceiling:
        targets[AT_CAPACITY] = goal // grain * grain
    else:
        rounded = align_up(variant.bound, min(component.cols.align))  # easier; at most one alignment above the bound
        targets[AT_BOUND] = rounded if rounded < ceiling else variant.bound
        if variant.bound <= capacity < ceiling:
            targets[AT_CAPACITY] = capacity // grain * grain
        eighths = TARGET_EIGHTHS[variant.target_index]
        between = (variant.bound + (ceiling - variant.bound) * eighths // 8) // grain * grain
        if between > variant.bound:
            targets[BETWEEN] = between
    kind = min(targets, key=lambda kind: variant.branching[kind].spent)
    return kind, targets[kind]
