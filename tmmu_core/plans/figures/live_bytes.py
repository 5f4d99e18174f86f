"""Live bytes at each step, computed from arrays (birth, death, size) or from the storages of a plan."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX, AllocationOverflow
from tmmu_core.graph.index import GraphIndex
from tmmu_core.plans.model import I64, U64, Plan


def exact_sum(values: U64) -> int:
    """Return the sum of uint64 values as a Python integer, which never wraps."""
    high = int((values >> np.uint64(32)).sum(dtype=np.uint64))
    low = int((values & np.uint64(0xFFFFFFFF)).sum(dtype=np.uint64))
    return (high << 32) + low


def live_bytes_of(birth: I64, death: I64, size: U64, steps: int) -> U64:
    """Return an array of shape (steps,): Σ ``size`` (bytes) over the ranges ``[birth, death)`` that hold each step.

    Raises ``AllocationOverflow`` past 2^64 − 1.
    """
    curve = _curve(birth, death, size, steps)
    if curve.dtype == object and (over := np.flatnonzero(curve > U64_MAX)).size:
        t = int(over[0])
        raise AllocationOverflow(
            f"{curve[t]} bytes are alive at step {t}, more than 64 bits can count.", t=t, offset=0, size=curve[t]
        )
    return curve.astype(np.uint64, copy=False)


def _curve(birth: I64, death: I64, size: U64, steps: int) -> NDArray[Any]:
    """Return an array of shape (steps,): live bytes; Python integers if 64 bits do not hold the sum of all sizes."""
    # Differences are taken modulo 2^64; where the sums themselves fit, the running sum is exact.
    change = np.zeros(steps + 1, object if exact_sum(size) > U64_MAX else np.uint64)
    own = size.astype(change.dtype, copy=False)
    np.add.at(change, birth, own)
    np.subtract.at(change, death, own)
    return np.cumsum(change[:steps], dtype=change.dtype)


def peak_of(curve: NDArray[Any]) -> tuple[int, int]:
    """Return ``(step, value)`` of the curve's first maximum; ``(0, 0)`` for an empty curve."""
    if not len(curve):
        return 0, 0
    step = int(np.argmax(curve))
    return step, int(curve[step])


def peak_and_count(birth: I64, death: I64, size: U64, steps: int) -> tuple[int, int]:
    """Return ``(peak live bytes, max live)``. Memory is O(storages): an instance may have 2^40 steps."""
    _, birth, death, steps = _squeezed(birth, death, steps)
    count = np.bincount(birth, minlength=steps + 1) - np.bincount(death, minlength=steps + 1)
    return peak_of(live_bytes_of(birth, death, size, steps))[1], int(np.cumsum(count[:steps]).max(initial=0))


def peak_together(birth: I64, death: I64, size: U64, steps: int) -> tuple[int, int]:
    """Return ``(step, bytes)``: the first step at which the most bytes of the ranges ``[birth, death)`` are in use."""
    times, birth, death, steps = _squeezed(birth, death, steps)
    step, most = peak_of(_curve(birth, death, size, steps))  # the sum of arenas may exceed 64 bits
    return (0 if not most else step if times is None else int(times[step])), most


def _squeezed(birth: I64, death: I64, steps: int) -> tuple[I64 | None, I64, I64, int]:
    """Return ``(steps, births, deaths, number of steps)``, renumbered to the steps with a birth or death.

    ``steps`` is ``None``, and nothing changes, unless there are many more steps than storages.
    """
    if steps <= 8 * len(birth) + 1024:
        return None, birth, death, steps
    times, event = np.unique(np.concatenate([birth, death]), return_inverse=True)
    return times, event[: len(birth)], event[len(birth) :], len(times)


def change_points(curve: U64 | I64, steps: I64 | None = None) -> tuple[I64, U64 | I64]:
    """Return ``(steps, values)`` of a step curve for drawing, without points that repeat the value before.

    ``steps``: the steps of the curve's points; without it, all steps.
    """
    if not len(curve):
        return np.zeros(0, np.int64), curve
    begins = np.concatenate([[0], np.flatnonzero(curve[1:] != curve[:-1]) + 1]).astype(np.int64)
    return (begins if steps is None else steps[begins]), curve[begins]


# --- storages of a plan -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PlanStorages:
    """A plan's storages as columns, by storage number."""

    head: I64
    """The row that names it: first-born, bases before views, then id bytes."""
    arena: NDArray[np.int32]
    slot: I64
    offset: U64
    """Start of the storage in its arena, in bytes: the lowest offset of its rows."""
    size: U64
    """Bytes up to the highest end of its rows."""
    alignment: U64
    birth: I64
    death: I64
    """Step after the last one at which its bytes are in use (:attr:`Plan.held_until`)."""
    generation: I64
    backing: U64
    """Bytes of its slot: the size of the largest tenant, at least 1 (contract §3)."""
    slot_alignment: U64
    """Greatest alignment of the slot's tenants, in bytes."""

    def __len__(self) -> int:
        return len(self.head)


def moments(plan: Plan) -> int:
    """Return the number of steps of a plan, at least 1."""
    return max(1, plan.steps)


_KNOWN: WeakKeyDictionary[Plan, PlanStorages] = WeakKeyDictionary()


def storages_of(plan: Plan) -> PlanStorages:
    """Return the rows of a plan grouped by storage; computed once for a plan, because all figures need it."""
    if plan not in _KNOWN:
        _KNOWN[plan] = _grouped(plan)
    return _KNOWN[plan]


def _grouped(plan: Plan) -> PlanStorages:
    """Return the ranges of bytes and of steps of each storage.

    The input of an in-place reuse that is not taken keeps its bytes through the step that reads it. A range that
    exceeds the timeline, which only a damaged plan has, is cut to it.
    """
    n, of = int(plan.storage.max(initial=-1)) + 1, plan.storage
    is_view = np.array([base is not None for base in plan.base_tensor_uids], np.bool_)
    head = np.zeros(n, np.int64)
    backwards = np.lexsort((np.arange(len(plan)), is_view, plan.birth))[::-1]
    head[of[backwards]] = backwards  # a later assignment replaces an earlier one, so the first-born row remains
    birth = _gathered(np.minimum, np.iinfo(np.int64).max, of, plan.birth, n)
    death = _gathered(np.maximum, 0, of, plan.held_until, n)
    offset = _gathered(np.minimum, U64_MAX, of, plan.offset, n)
    end = _gathered(np.maximum, 0, of, plan.offset + plan.size, n)
    starts = plan.offset == offset[of]
    alignment = _gathered(np.maximum, 1, of[starts], plan.alignment[starts], n)
    birth = np.clip(birth, 0, moments(plan))
    arena, slot = plan.arena[head], plan.logical_slot[head]
    slot_of, slots = slot_numbers(arena, slot)
    backing = _gathered(np.maximum, plan.has_slots, slot_of, end - offset, slots)  # a slot has a byte at least
    return PlanStorages(
        head=head,
        arena=arena,
        slot=slot,
        offset=offset,
        size=end - offset,
        alignment=alignment,
        birth=birth,
        death=np.clip(death, birth, moments(plan)),
        generation=plan.generation[head],
        backing=backing[slot_of],
        slot_alignment=_gathered(np.maximum, 1, slot_of, alignment, slots)[slot_of],
    )


def _gathered(function: np.ufunc, start: int, number: I64, values: NDArray[Any], count: int) -> NDArray[Any]:
    """Return an array of shape (count,): ``start`` and the values of each number, combined by ``function``."""
    found = np.full(count, start, values.dtype)
    function.at(found, number, values)
    return found


def slot_numbers(arena: NDArray[np.integer[Any]], slot: I64) -> tuple[I64, int]:
    """Return ``(number per row, how many)``: dense numbers of the (arena, slot) pairs, in that order."""
    if not len(slot):
        return np.zeros(0, np.int64), 0
    by = np.lexsort((slot, arena))
    new = np.ones(len(by), np.bool_)
    new[1:] = (arena[by][1:] != arena[by][:-1]) | (slot[by][1:] != slot[by][:-1])
    number = np.empty(len(by), np.int64)
    number[by] = np.cumsum(new) - 1
    return number, int(new.sum())


def arena_number(plan: Plan, arena: str) -> int:
    """Return the index of ``arena`` in ``plan.arenas``. ``KeyError`` when the plan has no such arena."""
    for number, summary in enumerate(plan.arenas):
        if summary.name == arena:
            return number
    raise KeyError(arena)


@dataclass(frozen=True, eq=False)
class CurvePoints:
    """The steps at which the curves of a plan have points, ascending from 0; a value holds until the next point.

    All steps, or, if there are many more steps than rows (an instance may have 2^62), the steps at which a live range
    begins or ends. The length of a curve is bounded by the number of rows.
    """

    steps: I64
    birth: I64
    """Per storage, the index of the point at its first write."""
    death: I64
    """Per storage, the index of the point from which it is not live; the number of points if it lives to the end."""

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, step: int) -> int:
        """Return the index of the last point at or before a step."""
        return max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)


def curve_points_of(plan: Plan) -> CurvePoints:
    """Return the curve points of a plan."""
    s, end = storages_of(plan), moments(plan)
    if end <= 8 * len(s) + 1024:
        return CurvePoints(np.arange(end, dtype=np.int64), s.birth, s.death)
    steps = np.unique(np.concatenate([np.zeros(1, np.int64), s.birth, s.death]))
    steps = steps[steps < end]
    return CurvePoints(steps, np.searchsorted(steps, s.birth), np.searchsorted(steps, s.death))


def live_bytes(plan: Plan, arena: str) -> U64:
    """Return the live bytes of the arena at each curve point; without steps, the bytes of persistent storages."""
    s, points = storages_of(plan), curve_points_of(plan)
    here = s.arena == arena_number(plan, arena)
    return live_bytes_of(points.birth[here], points.death[here], s.size[here], len(points))


def peak_step_of(plan: Plan, arena: str) -> tuple[int, int]:
    """Return ``(step, bytes)``: the first step at which the most bytes of the arena are alive."""
    point, most = peak_of(live_bytes(plan, arena))
    return int(curve_points_of(plan).steps[point]), most


def alive_at(plan: Plan, step: int, arena: str | None = None) -> I64:
    """Return the rows whose bytes are in use at ``step`` (in one arena, or in all), largest first, then by id."""
    alive = (plan.birth <= step) & (step < plan.held_until)
    if arena is not None:
        alive &= plan.arena == arena_number(plan, arena)
    rows = np.flatnonzero(alive)
    return rows[np.lexsort((rows, U64_MAX - plan.size[rows]))]


def by_birth(plan: Plan, arena: str) -> list[int]:
    """Return the storages of an arena in the normative order: birth, −bytes, id bytes."""
    s = storages_of(plan)
    here = np.flatnonzero(s.arena == arena_number(plan, arena)).tolist()
    return sorted(here, key=lambda i: (int(s.birth[i]), -int(plan.size[s.head[i]]), int(s.head[i])))


def held_by_writer(plan: Plan, index: GraphIndex, step: int, arena: str) -> tuple[I64, int]:
    """Return ``(bytes per node, bytes that no node wrote)`` of an arena's storages that are alive at ``step``.

    ``index`` is the graph as run. A storage belongs to the node that writes its head; inputs and persistent storages
    belong to none. The sum of all is the live bytes of the step. The array has the shape (nodes,). O(storages).
    ``KeyError`` for an arena that the plan does not have.
    """
    own = storages_of(plan)
    by_node = np.zeros(len(index.node_ids), np.int64)
    alive = np.flatnonzero((own.arena == arena_number(plan, arena)) & (own.birth <= step) & (step < own.death))
    heads = [index.tensor_of[plan.tensor_ids[row]] for row in own.head[alive].tolist()]
    writer = index.producer[heads] if heads else np.zeros(0, np.int64)
    size = own.size[alive].astype(np.int64)
    np.add.at(by_node, writer[writer >= 0], size[writer >= 0])
    return by_node, int(size[writer < 0].sum())
