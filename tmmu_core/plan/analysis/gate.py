"""A gate: limits that a plan is held to. Whole numbers and fractions throughout; no verdict hangs on a rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from tmmu_core.errors import UnreadableInput
from tmmu_core.plan.figures.metrics import totals
from tmmu_core.plan.model import ArenaSummary, Plan

ALL = ""
"""The arena of a limit that holds over all of them."""

Measure = Literal["extent", "peak live bytes", "gap", "reuse", "growth"]


@dataclass(frozen=True)
class Limit:
    """What a plan is held to: a most of ``extent``, ``peak live bytes``, ``gap``, ``growth``; a least of ``reuse``."""

    what: Measure
    amount: Fraction
    """Bytes; of ``gap`` and ``reuse``, and of a ``relative`` growth, a ratio: 5 % is 1/20."""
    arena: str = ALL
    relative: bool = False
    """Of ``growth``: whether it is in proportion to the baseline's extent."""


@dataclass(frozen=True)
class Check:
    """One limit and how the plan stands to it."""

    what: Measure
    arena: str
    """``ALL`` for all arenas together."""
    value: int
    """Bytes; of a ratio its numerator."""
    of: int
    """1; of a ratio its denominator."""
    limit: Fraction
    """As :class:`Limit` has it; of a growth, in bytes."""
    ok: bool


def gate(plan: Plan, limits: Sequence[Limit], before: Plan | None = None) -> tuple[Check, ...]:
    """``plan`` held to each limit, in their order; a growth is over ``before``, arena by arena.

    Raises ``UnreadableInput`` for an arena that the plan has not.
    """
    return tuple([check for limit in limits for check in _checks(plan, limit, before)])


def in_common(plan: Plan, before: Plan) -> int:
    """How many tensors of ``plan`` ``before`` has too, by id: of two versions of one model most, of two models none."""
    return len(before.row_of.keys() & plan.row_of.keys())


def _checks(plan: Plan, limit: Limit, before: Plan | None) -> Iterator[Check]:
    if limit.what == "growth":
        assert before is not None, "growth is over a baseline"
        yield from _growth(plan, limit, before)
        return
    if limit.arena != ALL and limit.arena not in plan.arena_of:
        raise UnreadableInput(
            f"the plan has no arena {limit.arena!r}.", hint=f"Its arenas are: {', '.join(plan.arena_of)}."
        )
    value, of = _figure(plan, limit)
    ok = value >= limit.amount * of if limit.what == "reuse" else value <= limit.amount * of
    if limit.what == "gap":  # below a bound one of the two figures is false, and the other arenas' may not hide it
        ok = ok and not any(a.over_bound_bytes < 0 for a in plan.arenas if limit.arena in (ALL, a.name))
    yield Check(limit.what, limit.arena, value, of, limit.amount, ok)


def _figure(plan: Plan, limit: Limit) -> tuple[int, int]:
    chosen: list[ArenaSummary] = [a for a in plan.arenas if limit.arena in (ALL, a.name)]
    if limit.what == "extent":
        return sum(a.extent_bytes for a in chosen), 1
    if limit.what == "peak live bytes":
        return (totals(plan).peak_live_bytes if limit.arena == ALL else chosen[0].peak_live_bytes), 1
    if limit.what == "gap":
        return sum(a.over_bound_bytes for a in chosen), sum(a.bound_bytes for a in chosen)
    slots, storages = sum(a.slots for a in chosen), sum(a.storages for a in chosen)
    return storages - slots, storages


def _growth(after: Plan, limit: Limit, before: Plan) -> Iterator[Check]:
    for name in sorted({**before.arena_of, **after.arena_of}):
        old, new = (side.arena_of[name].extent_bytes if name in side.arena_of else 0 for side in (before, after))
        allowed = limit.amount * old if limit.relative else limit.amount
        yield Check("growth", name, new - old, 1, allowed, new - old <= allowed)
