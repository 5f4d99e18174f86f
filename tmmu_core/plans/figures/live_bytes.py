"""Compute the live bytes at each step, for arrays (birth, death, size) and for the storages of a plan."""

from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX, AllocationOverflow
from tmmu_core.base.escaping import natural_key
from tmmu_core.graph.index import GraphIndex
from tmmu_core.plans.model import I64, U64, Plan, group_numbers


def live_bytes_of(birth: I64, death: I64, size: U64, steps: int | I64) -> U64:
    """Return the sum of ``size`` over the ranges at each step, shape (steps,). Raises ``AllocationOverflow``."""
    # ``steps``: the number of steps; or ``CurvePoints.steps``, if births and deaths are indexes of points
    step_of = range(steps) if isinstance(steps, int) else steps
    curve = _curve(birth, death, size, len(step_of))
    if curve.dtype == object and (over := np.flatnonzero(curve > U64_MAX)).size:
        t, live = int(step_of[over[0]]), curve[over[0]]
        message, hint = f"{live:,} bytes are live at step {t}, more than 2^64 − 1.", "Check the sizes of the buffers."
        raise AllocationOverflow(message, t=t, hint=hint, offset=0, size=live)
    return curve.astype(np.uint64, copy=False)


def _curve(birth: I64, death: I64, size: U64, steps: int) -> NDArray[Any]:
    """Return the array of :func:`live_bytes_of`, with Python integers if the sum of all sizes exceeds 64 bits."""
    # uint64 differences wrap modulo 2^64; the running sum is exact, because it fits 64 bits.
    change = np.zeros(steps + 1, object if sum(size.tolist()) > U64_MAX else np.uint64)
    size = size.astype(change.dtype, copy=False)
    np.add.at(change, birth, size)
    np.subtract.at(change, death, size)
    return np.cumsum(change[:steps], dtype=change.dtype)


def peak_of(curve: NDArray[Any]) -> tuple[int, int]:
    """Return ``(step, value)`` of the curve's first maximum; ``(0, 0)`` for an empty curve."""
    if not len(curve):
        return 0, 0
    step = int(np.argmax(curve))
    return step, int(curve[step])


def peak_and_count(birth: I64, death: I64, size: U64, steps: int) -> tuple[int, int]:
    """Return the peaks of live bytes and of the number of live ranges. Raises ``AllocationOverflow`` past 2^64 − 1."""
    points = CurvePoints.of(birth, death, steps)
    columns = (size, np.ones_like(size))
    peak, count = (peak_of(live_bytes_of(points.birth, points.death, column, points.steps))[1] for column in columns)
    return peak, count


def peak_of_ranges(birth: I64, death: I64, size: U64, steps: int) -> tuple[int, int]:
    """Return ``(step, bytes)`` of the first peak of the ranges ``[birth, death)``; the bytes may exceed 64 bits."""
    points = CurvePoints.of(birth, death, steps)
    point, peak = peak_of(_curve(points.birth, points.death, size, len(points)))
    return int(points.steps[point]), peak


@dataclass(frozen=True, eq=False)
class CurvePoints:
    """The steps at which a curve has points, ascending from 0. Between two points the curve is constant."""

    steps: I64
    birth: I64  # per range, the index of the point at its birth
    death: I64  # per range, the index of the point at its death; the number of points if it is live to the end

    @classmethod
    def of(cls, birth: I64, death: I64, steps: int) -> Self:
        """Return the points for live ranges in a timeline of ``steps`` steps, at least 1."""
        steps = max(1, steps)
        # An instance may have 2^62 steps: then the points are step 0 and the steps at which a range begins or ends.
        if steps <= 8 * len(birth) + 1024:
            return cls(np.arange(steps, dtype=np.int64), birth, death)
        points = np.unique(np.concatenate([np.zeros(1, np.int64), birth, death]))
        points = points[points < steps]
        return cls(points, np.searchsorted(points, birth), np.searchsorted(points, death))

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, step: int) -> int:
        """Return the index of the last point at or before a step."""
        return max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)


@dataclass(frozen=True, eq=False)
class PlanStorages:
    """A plan's storages as columns, by storage number."""

    head: I64  # row that names the storage: the first by birth, then a base before its views, then by id bytes
    arena: NDArray[np.int32]
    slot: I64
    offset: U64  # start of the storage in its arena, in bytes: the lowest offset of its rows
    size: U64  # bytes up to the highest end of its rows
    alignment: U64  # greatest alignment of the rows at its start, in bytes
    birth: I64
    death: I64  # step after the last use of its bytes (:attr:`Plan.held_until`)
    backing: U64  # bytes of its slot: size of the slot's largest storage, in a plan with slots at least 1 (contract §3)
    slot_alignment: U64  # greatest alignment of the slot's storages, in bytes


_STORAGES: WeakKeyDictionary[Plan, PlanStorages] = WeakKeyDictionary()


def storages_of(plan: Plan) -> PlanStorages:
    """Return the storages of a plan, computed once. In an invalid plan, live ranges are cut to the timeline."""
    if plan in _STORAGES:
        return _STORAGES[plan]
    n, storage = int(plan.storage.max(initial=-1)) + 1, plan.storage
    is_view = np.array([base is not None for base in plan.base_tensor_uids], np.bool_)
    head = np.zeros(n, np.int64)
    youngest_first = np.lexsort((np.arange(len(plan)), is_view, plan.birth))[::-1]
    head[storage[youngest_first]] = youngest_first  # the last assignment remains: the row with the earliest birth
    birth = _reduce_groups(np.minimum, np.iinfo(np.int64).max, storage, plan.birth, n)
    death = _reduce_groups(np.maximum, 0, storage, plan.held_until, n)
    offset = _reduce_groups(np.minimum, U64_MAX, storage, plan.offset, n)
    end = _reduce_groups(np.maximum, 0, storage, plan.offset + plan.size, n)
    is_start = plan.offset == offset[storage]
    alignment = _reduce_groups(np.maximum, 1, storage[is_start], plan.alignment[is_start], n)
    birth = np.clip(birth, 0, plan.end)
    size, death = end - offset, np.clip(death, birth, plan.end)
    arena, slot = plan.arena[head], plan.logical_slot[head]
    slot_of, slots = group_numbers(arena, slot)
    backing = _reduce_groups(np.maximum, int(plan.has_slots), slot_of, size, slots)[slot_of]
    slot_alignment = _reduce_groups(np.maximum, 1, slot_of, alignment, slots)[slot_of]
    columns = (head, arena, slot, offset, size, alignment, birth, death, backing, slot_alignment)
    return _STORAGES.setdefault(plan, PlanStorages(*columns))


def _reduce_groups(function: np.ufunc, start: int, number: I64, values: NDArray[Any], count: int) -> NDArray[Any]:
    """Return an array of shape (count,): per group number, ``function`` over ``start`` and the values of the group."""
    result = np.full(count, start, values.dtype)
    function.at(result, number, values)
    return result


def arena_number(plan: Plan, arena: str) -> int:
    """Return the index of ``arena`` in ``plan.arenas``. Raises ``KeyError`` if the plan has no such arena."""
    return plan.arenas.index(plan.arena_of[arena])


def curve_points_of(plan: Plan) -> CurvePoints:
    """Return the points of the curves over a plan's steps; ``birth`` and ``death`` are per storage."""
    s = storages_of(plan)
    return CurvePoints.of(s.birth, s.death, plan.steps)


def live_bytes(plan: Plan, arena: str) -> U64:
    """Return the live bytes of the arena at each point of :func:`curve_points_of`."""
    s, points = storages_of(plan), curve_points_of(plan)
    in_arena = s.arena == arena_number(plan, arena)
    return live_bytes_of(points.birth[in_arena], points.death[in_arena], s.size[in_arena], points.steps)


def peak_step_of(plan: Plan, arena: str) -> tuple[int, int]:
    """Return ``(step, bytes)``: the first step at which the most bytes of the arena are live."""
    point, peak = peak_of(live_bytes(plan, arena))
    return int(curve_points_of(plan).steps[point]), peak


def alive_at(plan: Plan, step: int, arena: str | None = None) -> I64:
    """Return the rows whose bytes are in use at ``step`` (in one arena, or in all), largest first, then by id."""
    is_alive = (plan.birth <= step) & (step < plan.held_until)
    if arena is not None:
        is_alive &= plan.arena == arena_number(plan, arena)
    rows = np.flatnonzero(is_alive)
    return rows[np.lexsort((rows, U64_MAX - plan.size[rows]))]


def storages_alive(plan: Plan, step: int, arena: str | None = None) -> list[tuple[int, int]]:
    """Return ``(head row, bytes)`` of the storages live at ``step`` in one arena, or in all; largest first."""
    s = storages_of(plan)
    in_arena = True if arena is None else s.arena == arena_number(plan, arena)
    live = np.flatnonzero(in_arena & (s.birth <= step) & (step < s.death))
    pairs = zip(s.head[live].tolist(), s.size[live].tolist(), strict=True)
    return sorted(pairs, key=lambda pair: (-pair[1], natural_key(plan.tensor_ids[pair[0]])))


def by_birth(plan: Plan, arena: str) -> list[int]:
    """Return the storages of an arena in the normative order: birth, then −bytes and id bytes of the head."""
    s = storages_of(plan)
    in_arena = np.flatnonzero(s.arena == arena_number(plan, arena)).tolist()
    return sorted(in_arena, key=lambda i: (int(s.birth[i]), -int(plan.size[s.head[i]]), int(s.head[i])))


def live_bytes_by_writer(plan: Plan, index: GraphIndex, step: int, arena: str) -> tuple[I64, int]:
    """Return ``(bytes per node, bytes that no node wrote)`` of the storages live at ``step``, by writer of the head."""
    by_node = np.zeros(len(index.node_ids) + 1, np.int64)  # the last element, −1, is for storages that no node writes
    for row, size in storages_alive(plan, step, arena):
        by_node[index.producer[index.tensor_of[plan.tensor_ids[row]]]] += size
    return by_node[:-1], int(by_node[-1])
