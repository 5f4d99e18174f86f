"""Read structured packing problems: pools, buffers, placement constraints and reuse penalties (JSON, schema 1).

The format is that of the dsa-solver project (DSA with reuse penalties). A pool is an arena. A buffer is a tensor with
the id ``name``, or ``name#id`` for a repeated name. ``pypto_structure``, ``metadata``, reasons and bank geometry are
ignored, unknown keys are rejected. The objective is that of the contract: fit the capacity, least reuse cost, least
extent.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.base.struct_types import register_types
from tmmu_core.formats.allocator_plan import file_name
from tmmu_core.graph.native import document
from tmmu_core.planners.problem import UNLIMITED, PlainInstance, Problem, ReuseTerms

LARGEST = 2**61
"""Maximum size, offset and step: the sum of two is below 2^64."""
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]


class Pair(msgspec.Struct, forbid_unknown_fields=True):
    """Two buffers, by id."""

    first: int
    second: int


class Separation(Pair):
    """Two buffers without a common byte, also if they are live at different steps."""

    reasons: Any = None


class Penalty(Pair):
    """A reuse penalty."""

    cost: Count
    reason: Any = None


class Interval(msgspec.Struct, forbid_unknown_fields=True):
    """A live range ``[lower, upper)``."""

    lower: Count
    upper: Count


class AddressRange(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes ``[begin, end)``."""

    begin: Count
    end: Count


class Pool(msgspec.Struct, forbid_unknown_fields=True):
    """A pool, which is read as an arena."""

    id: int
    name: str
    capacity: Annotated[int, msgspec.Meta(ge=0)] | None = None
    reserved_ranges: list[AddressRange] = []
    bank_geometry: Any = None


class Buffer(msgspec.Struct, forbid_unknown_fields=True):
    """A buffer, which is read as a tensor."""

    id: int
    name: str
    size: Count
    live_intervals: Annotated[list[Interval], msgspec.Meta(min_length=1)]
    allowed_pools: list[int]
    alignment: Count = 1


class Pin(msgspec.Struct, forbid_unknown_fields=True):
    """A fixed offset; ``exclusive_for_all_time``: no other buffer of the pool uses these bytes at any step."""

    buffer: int
    pool: int
    offset: Count
    exclusive_for_all_time: bool = False


class ConstraintLists(msgspec.Struct, forbid_unknown_fields=True):
    """The constraints of a problem."""

    colocations: list[Pair] = []
    separations: list[Separation] = []
    temporal_exclusions: list[Pair] = []
    pinned_allocations: list[Pin] = []


class CostModel(msgspec.Struct, forbid_unknown_fields=True):
    """The costs of a problem."""

    reuse_penalties: list[Penalty] = []


class Objective(msgspec.Struct, forbid_unknown_fields=True):
    """The objective of the file, of which only the bank costs are examined."""

    terms: list[str] = []
    aggregation: Any = None


class ProblemDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The problem of the document."""

    pools: Annotated[list[Pool], msgspec.Meta(min_length=1)]
    buffers: list[Buffer]
    constraints: ConstraintLists = msgspec.field(default_factory=ConstraintLists)
    cost_model: CostModel = msgspec.field(default_factory=CostModel)
    objective: Objective = msgspec.field(default_factory=Objective)
    pypto_structure: Any = None


class StructuredProblem(msgspec.Struct, forbid_unknown_fields=True):
    """The whole document."""

    schema_version: Literal[1]
    profile: str
    instance: str
    problem: ProblemDocument
    metadata: Any = None
    relaxed_from: Any = None
    relaxed_features: Any = None


register_types(StructuredProblem)


def refuses(data: bytes) -> str:
    """Return why bytes are not a structured problem; ``""`` for one, even if it is damaged."""
    if reason := document.refusal_reason(data):
        return reason
    if b'"schema_version"' in data and b'"profile"' in data and b'"problem"' in data:
        return ""
    return 'it does not have the keys "schema_version", "profile" and "problem"'


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the instance, one problem per pool that has buffers. Raises ``UnreadableInput`` with the place."""
    try:
        whole = document.decode(data, StructuredProblem, name, noun="structured problem")
    except InvalidIrShapes as error:
        raise UnreadableInput(
            error.message,
            source=name,
            place=str(error.diagnostics.get("path", "")),
            hint=error.hint or "The format is version 1 of the dsa-solver project's structured problem.",
        ) from error
    return _Reading(whole.problem, name).instance(whole.instance or file_name(name).removesuffix(".json"))


class _Reading:
    """One document, checked, and converted pool by pool."""

    def __init__(self, problem: ProblemDocument, source: str) -> None:
        self.problem, self.source = problem, source
        self.pool = self._numbered("pools", problem.pools)
        self.buffer = self._numbered("buffers", problem.buffers)
        repeated = Counter(buffer.name for buffer in problem.buffers)
        self.ids = [f"{b.name}#{b.id}" if repeated[b.name] > 1 else b.name for b in problem.buffers]
        for what, names in (("pools", [pool.name for pool in problem.pools]), ("buffers", self.ids)):
            again = next((name for name, count in Counter(names).items() if count > 1), None)
            if again is not None:
                raise self._fault(f"two {what} have the name {again!r}.", f"$.problem.{what}", "Rename one of them.")
        for k, pool in enumerate(problem.pools):
            for r, reserved in enumerate(pool.reserved_ranges):
                if reserved.begin > reserved.end:
                    place = f"$.problem.pools[{k}].reserved_ranges[{r}]"
                    raise self._fault("the reserved range ends before it begins.", place, "Swap begin and end.")
        self.lives = [sorted([(each.lower, each.upper) for each in b.live_intervals]) for b in problem.buffers]
        self.home = [self._home(k, buffer) for k, buffer in enumerate(problem.buffers)]
        """Index of the pool of each buffer."""

    def _fault(self, message: str, place: str, hint: str) -> UnreadableInput:
        return UnreadableInput(message, source=self.source, place=place, hint=hint)

    def _numbered(self, what: str, rows: Sequence[Pool | Buffer]) -> dict[int, int]:
        number: dict[int, int] = {}
        for k, row in enumerate(rows):
            if number.setdefault(row.id, k) != k:
                place = f"$.problem.{what}[{k}].id"
                raise self._fault(f"the id {row.id} is given twice.", place, "Give each one its own id.")
        return number

    def _home(self, k: int, buffer: Buffer) -> int:
        """Return the index of the buffer's pool, after checks of its fields."""
        place = f"$.problem.buffers[{k}]"
        if len(buffer.allowed_pools) != 1:
            message = f"buffer {buffer.name!r} may lie in {len(buffer.allowed_pools)} pools."
            raise self._fault(message, f"{place}.allowed_pools", "Choose one pool: placement is planned per pool.")
        if buffer.allowed_pools[0] not in self.pool:
            message = f"buffer {buffer.name!r} is in the pool {buffer.allowed_pools[0]}, which does not exist."
            raise self._fault(message, f"{place}.allowed_pools", "Name the id of a pool.")
        if buffer.alignment < 1 or buffer.alignment & (buffer.alignment - 1):
            message = f"buffer {buffer.name!r} has the alignment {buffer.alignment}, which is not a power of two."
            raise self._fault(message, f"{place}.alignment", "Use 1, 2, 4, 8, ….")
        lives = self.lives[k]
        if any(begin >= end for begin, end in lives) or any(a[1] > b[0] for a, b in pairwise(lives)):
            message = f"the live intervals of buffer {buffer.name!r} are empty or overlap."
            raise self._fault(message, f"{place}.live_intervals", "Intervals are half-open, lower < upper.")
        return self.pool[buffer.allowed_pools[0]]

    def _index(self, number: int, place: str) -> int:
        if number not in self.buffer:
            raise self._fault(f"there is no buffer {number}.", place, "Name the id of a buffer.")
        return self.buffer[number]

    def _pairs(self, rows: Sequence[Pair], place: str) -> Iterator[tuple[int, int, int]]:
        """Yield (row, index of first buffer, index of second) for pairs within one pool."""
        for k, row in enumerate(rows):
            one, two = self._index(row.first, f"{place}[{k}].first"), self._index(row.second, f"{place}[{k}].second")
            if one == two:
                raise self._fault(f"buffer {row.first} is paired with itself.", f"{place}[{k}]", "Name two buffers.")
            if self.home[one] == self.home[two]:
                yield k, one, two
            elif place.endswith("colocations"):
                message = f"buffers {row.first} and {row.second} are colocated in different pools."
                raise self._fault(message, f"{place}[{k}]", "Give both the same pool.")

    def instance(self, name: str) -> PlainInstance:
        """Return the instance."""
        limits, lists = "$.problem.constraints", self.problem.constraints
        apart, together, excluded = (
            [(a, b) for _, a, b in self._pairs(getattr(lists, name), f"{limits}.{name}")]
            for name in ("separations", "colocations", "temporal_exclusions")
        )
        paid = self.problem.cost_model.reuse_penalties
        penalties = [(a, b, paid[k].cost) for k, a, b in self._pairs(paid, "$.problem.cost_model.reuse_penalties")]
        fixed = [-1] * len(self.ids)
        for k, pin in enumerate(lists.pinned_allocations):
            place = f"{limits}.pinned_allocations[{k}]"
            at = self._index(pin.buffer, f"{place}.buffer")
            if self.pool.get(pin.pool) != self.home[at]:
                message = f"buffer {pin.buffer} is pinned in the pool {pin.pool}, which is not its own."
                raise self._fault(message, f"{place}.pool", "Pin it in its allowed pool.")
            if fixed[at] not in (-1, pin.offset):
                message = f"buffer {pin.buffer} is pinned at {fixed[at]} and at {pin.offset}."
                raise self._fault(message, place, "Keep one of the two.")
            fixed[at] = pin.offset
            if pin.exclusive_for_all_time:
                apart += [(at, k) for k, home in enumerate(self.home) if home == self.home[at] and k != at]
        problems = [
            self._problem(k, apart, fixed, ReuseTerms(tuple(together), tuple(excluded), tuple(penalties)))
            for k in sorted(set(self.home), key=lambda k: self.problem.pools[k].name.encode())
        ]
        if not problems:
            raise self._fault("the problem has no buffers.", "$.problem.buffers", "Add at least one buffer.")
        has_banks = "bank_cost" in self.problem.objective.terms
        notes = ("the objective's bank costs are ignored.",) if has_banks else ()
        return PlainInstance(name, problems[0], notes=notes, others=tuple(problems[1:]))

    def _problem(self, pool: int, apart: list[tuple[int, int]], fixed: list[int], terms: ReuseTerms) -> Problem:
        buffers, arena, lives = self.problem.buffers, self.problem.pools[pool], self.lives
        rows = [k for k, home in enumerate(self.home) if home == pool]
        rows.sort(key=lambda k: (lives[k][0][0], -buffers[k].size, self.ids[k].encode()))
        number = np.full(len(buffers), -1, np.int64)
        number[rows] = np.arange(len(rows))
        gaps = tuple([tuple([(a[1], b[0]) for a, b in pairwise(lives[k]) if a[1] < b[0]]) for k in rows])
        pairs = [(int(number[a]), int(number[b])) for a, b in apart if number[a] >= 0]
        ranges = tuple(sorted([(r.begin, r.end) for r in arena.reserved_ranges if r.begin < r.end]))
        own = terms.renumbered(number)
        return Problem(
            arena=arena.name,
            ids=tuple([self.ids[k] for k in rows]),
            birth=np.array([lives[k][0][0] for k in rows], np.int64),
            death=np.array([lives[k][-1][1] for k in rows], np.int64),
            size=np.array([buffers[k].size for k in rows], np.uint64),
            alignment=np.array([buffers[k].alignment for k in rows], np.uint64),
            capacity=UNLIMITED if arena.capacity is None else min(arena.capacity, UNLIMITED),
            must_not_alias=np.array(pairs, np.int64) if pairs else None,
            fixed=np.array([fixed[k] for k in rows], np.int64) if any(fixed[k] >= 0 for k in rows) else None,
            gaps=gaps if any(gaps) else None,
            reuse=ReuseTerms(own.colocations, own.exclusions, own.penalties, ranges),
        )
