"""Read structured packing problems: pools, buffers, placement constraints and reuse penalties (JSON, schema 1).

The format is that of the dsa-solver project: dynamic storage allocation (DSA) with reuse penalties. A pool is an arena.
A buffer is a tensor with the id ``name``, or ``name#id`` for a repeated name. Keys without effect on placement, such as
``metadata``, are ignored; unknown keys are rejected. Objective: fit the capacity, least reuse cost, least extent.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from tmmu_core.base import limits
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.base.strict import register_types
from tmmu_core.formats.allocator_plan import file_name
from tmmu_core.graph.native import document
from tmmu_core.planners.problem import UNLIMITED, PlainInstance, Problem, ReuseTerms

LARGEST = 2**61  # maximum size, offset and step: the sum of two is below 2^64
_Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class _Pair(_Strict):
    first: int
    second: int


class _Separation(_Pair):  # two buffers that must not share a byte, even if they are live at different steps
    reasons: Any = None


class _Penalty(_Pair):
    cost: _Count
    reason: Any = None


class _Interval(_Strict):
    lower: _Count
    upper: _Count


class _AddressRange(_Strict):
    begin: _Count
    end: _Count


class _Pool(_Strict):
    id: int
    name: str
    capacity: Annotated[int, msgspec.Meta(ge=0)] | None = None
    reserved_ranges: list[_AddressRange] = []
    bank_geometry: Any = None


class _Buffer(_Strict):
    id: int
    name: str
    size: _Count
    live_intervals: Annotated[list[_Interval], msgspec.Meta(min_length=1)]
    allowed_pools: list[int]
    alignment: _Count = 1


class _Pin(_Strict):
    buffer: int
    pool: int
    offset: _Count
    exclusive_for_all_time: bool = False  # whether no other buffer of the pool uses these bytes at any step


class _Constraints(_Strict):
    colocations: list[_Pair] = []
    separations: list[_Separation] = []
    temporal_exclusions: list[_Pair] = []
    pinned_allocations: list[_Pin] = []


class _CostModel(_Strict):
    reuse_penalties: list[_Penalty] = []


class _Objective(_Strict):
    terms: list[str] = []
    aggregation: Any = None


class _Problem(_Strict):
    pools: Annotated[list[_Pool], msgspec.Meta(min_length=1)]
    buffers: list[_Buffer]
    constraints: _Constraints = msgspec.field(default_factory=_Constraints)
    cost_model: _CostModel = msgspec.field(default_factory=_CostModel)
    objective: _Objective = msgspec.field(default_factory=_Objective)
    pypto_structure: Any = None


class _Document(_Strict):
    schema_version: Literal[1]
    profile: str
    instance: str
    problem: _Problem
    metadata: Any = None
    relaxed_from: Any = None
    relaxed_features: Any = None


register_types(_Document)


def refusal(data: bytes) -> str:
    """Return why bytes are not a structured problem; ``""`` for one, even if it is damaged."""
    if reason := document.refusal_reason(data):
        return reason
    if b'"schema_version"' in data and b'"profile"' in data and b'"problem"' in data:
        return ""
    return 'it does not have the keys "schema_version", "profile" and "problem"'


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the instance, one problem per pool that has buffers. Raises ``UnreadableInput`` with the place."""
    try:
        whole = document.decode(data, _Document, noun="structured problem")
    except InvalidIrShapes as error:
        hint = error.hint or "The format is version 1 of the dsa-solver project's structured problem."
        raise UnreadableInput(error.message, place=str(error.diagnostics.get("path", "")), hint=hint) from error
    return _InstanceBuilder(whole.problem).instance(whole.instance or file_name(name).removesuffix(".json"))


def _fault(message: str, place: str, hint: str) -> UnreadableInput:
    return UnreadableInput(message, place=f"$.problem.{place}", hint=hint)


def _index_of_id(list_name: str, rows: Sequence[_Pool | _Buffer]) -> dict[int, int]:
    index: dict[int, int] = {}
    for k, row in enumerate(rows):
        if index.setdefault(row.id, k) != k:
            raise _fault(f"the id {row.id} is given twice.", f"{list_name}[{k}].id", "Give each one its own id.")
    return index


class _InstanceBuilder:
    def __init__(self, problem: _Problem) -> None:
        self.problem = problem
        self.pool, self.buffer = _index_of_id("pools", problem.pools), _index_of_id("buffers", problem.buffers)
        repeated = Counter(buffer.name for buffer in problem.buffers)
        self.ids = [f"{b.name}#{b.id}" if repeated[b.name] > 1 else b.name for b in problem.buffers]
        for what, names in (("pools", [pool.name for pool in problem.pools]), ("buffers", self.ids)):
            repeated_name = next((name for name, count in Counter(names).items() if count > 1), None)
            if repeated_name is not None:
                raise _fault(f"two {what} have the name {repeated_name!r}.", what, "Rename one of them.")
        for k, pool in enumerate(problem.pools):
            for r, reserved in enumerate(pool.reserved_ranges):
                if reserved.begin > reserved.end:
                    place = f"pools[{k}].reserved_ranges[{r}]"
                    raise _fault("the reserved range ends before it begins.", place, "Swap begin and end.")
        self.intervals = [sorted([(each.lower, each.upper) for each in b.live_intervals]) for b in problem.buffers]
        for k, (buffer, intervals) in enumerate(zip(problem.buffers, self.intervals, strict=True)):
            place, subject = f"buffers[{k}]", f"buffer {buffer.name!r}"
            if len(buffer.allowed_pools) != 1:
                message = f"{subject} has {len(buffer.allowed_pools)} allowed pools."
                raise _fault(message, f"{place}.allowed_pools", "Choose one pool: placement is planned per pool.")
            if buffer.allowed_pools[0] not in self.pool:
                message = f"{subject} is in the pool {buffer.allowed_pools[0]}, which does not exist."
                raise _fault(message, f"{place}.allowed_pools", "Name the id of a pool.")
            if buffer.alignment < 1 or buffer.alignment & (buffer.alignment - 1):
                message = f"{subject} has the alignment {buffer.alignment}, which is not a power of two."
                raise _fault(message, f"{place}.alignment", "Use 1, 2, 4, 8, ….")
            if any(begin >= end for begin, end in intervals) or any(a[1] > b[0] for a, b in pairwise(intervals)):
                message = f"the live intervals of {subject} are empty or overlap."
                raise _fault(message, f"{place}.live_intervals", "Intervals are half-open, lower < upper.")
        self.pool_of = [self.pool[buffer.allowed_pools[0]] for buffer in problem.buffers]  # pool index

    def _index(self, number: int, place: str) -> int:
        if number not in self.buffer:
            raise _fault(f"there is no buffer {number}.", place, "Name the id of a buffer.")
        return self.buffer[number]

    def _pairs(self, rows: Sequence[_Pair], place: str) -> Iterator[tuple[int, int, int]]:
        """Yield (row, first index, second index). Skip pairs across pools, but reject colocations across pools."""
        for k, row in enumerate(rows):
            one, two = self._index(row.first, f"{place}[{k}].first"), self._index(row.second, f"{place}[{k}].second")
            if one == two:
                raise _fault(f"buffer {row.first} is paired with itself.", f"{place}[{k}]", "Name two buffers.")
            if self.pool_of[one] == self.pool_of[two]:
                yield k, one, two
            elif place.endswith("colocations"):
                message = f"buffers {row.first} and {row.second} are colocated in different pools."
                raise _fault(message, f"{place}[{k}]", "Give both the same pool.")

    def instance(self, name: str) -> PlainInstance:
        lists = self.problem.constraints
        separations, colocations, exclusions = (
            [(a, b) for _, a, b in self._pairs(getattr(lists, name), f"constraints.{name}")]
            for name in ("separations", "colocations", "temporal_exclusions")
        )
        priced = self.problem.cost_model.reuse_penalties
        penalties = [(a, b, priced[k].cost) for k, a, b in self._pairs(priced, "cost_model.reuse_penalties")]
        fixed = [-1] * len(self.ids)
        for k, pin in enumerate(lists.pinned_allocations):
            place = f"constraints.pinned_allocations[{k}]"
            row = self._index(pin.buffer, f"{place}.buffer")
            if self.pool.get(pin.pool) != self.pool_of[row]:
                message = f"buffer {pin.buffer} is pinned in the pool {pin.pool}, which is not its own."
                raise _fault(message, f"{place}.pool", "Pin it in its allowed pool.")
            if fixed[row] not in (-1, pin.offset):
                raise _fault(f"buffer {pin.buffer} is pinned at {fixed[row]} and at {pin.offset}.", place, "Keep one.")
            fixed[row] = pin.offset
            if pin.exclusive_for_all_time:
                in_pool = [other for other, pool in enumerate(self.pool_of) if pool == self.pool_of[row]]
                separations += [(row, other) for other in in_pool if other != row]
            if len(separations) > limits.ceiling(limits.PAIRS):
                error = limits.limit_error(limits.PAIRS, "the problem")
                raise _fault(error.message, place, error.hint)
        terms = ReuseTerms(tuple(colocations), tuple(exclusions), tuple(penalties))
        pools = sorted(set(self.pool_of), key=lambda k: self.problem.pools[k].name.encode())
        if not pools:
            raise _fault("the problem has no buffers.", "buffers", "Add at least one buffer.")
        first, *others = [self._problem(pool, separations, fixed, terms) for pool in pools]
        notes = ("the objective's bank costs are ignored.",) if "bank_cost" in self.problem.objective.terms else ()
        return PlainInstance(name, first, notes=notes, others=tuple(others))

    def _problem(self, pool: int, separations: list[tuple[int, int]], fixed: list[int], terms: ReuseTerms) -> Problem:
        buffers, arena, intervals = self.problem.buffers, self.problem.pools[pool], self.intervals
        rows = [k for k, own_pool in enumerate(self.pool_of) if own_pool == pool]
        rows.sort(key=lambda k: (intervals[k][0][0], -buffers[k].size, self.ids[k].encode()))
        row_of = np.full(len(buffers), -1, np.int64)
        row_of[rows] = np.arange(len(rows))
        gaps = tuple([tuple([(a[1], b[0]) for a, b in pairwise(intervals[k]) if a[1] < b[0]]) for k in rows])
        pairs = [(int(row_of[a]), int(row_of[b])) for a, b in separations if row_of[a] >= 0]
        ranges = tuple(sorted([(r.begin, r.end) for r in arena.reserved_ranges if r.begin < r.end]))
        pool_terms, ids = terms.renumbered(row_of), tuple([self.ids[k] for k in rows])
        birth, death = np.array([(intervals[k][0][0], intervals[k][-1][1]) for k in rows], np.int64).T
        size, alignment = np.array([(buffers[k].size, buffers[k].alignment) for k in rows], np.uint64).T
        return Problem(
            *(arena.name, ids, birth, death, size, alignment),
            capacity=UNLIMITED if arena.capacity is None else min(arena.capacity, UNLIMITED),
            must_not_alias=np.array(pairs, np.int64) if pairs else None,
            fixed=np.array([fixed[k] for k in rows], np.int64) if any(fixed[k] >= 0 for k in rows) else None,
            gaps=gaps if any(gaps) else None,
            reuse=ReuseTerms(pool_terms.colocations, pool_terms.exclusions, pool_terms.penalties, ranges),
        )
