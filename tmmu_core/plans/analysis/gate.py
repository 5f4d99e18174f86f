"""Check a plan against limits: sizes, gaps, reuse, and growth over a baseline plan.

All figures are integers or fractions, so no verdict depends on rounding.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from tmmu_core.base import strict
from tmmu_core.base.errors import U64_MAX, UnreadableInput
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import Plan

ALL = ""
"""Name in place of an arena, for a limit on all arenas together."""

Measure = Literal[
    "extent", "peak live bytes", "gap", "reuse", "reuse cost", "peak growth", "extent growth", "lower bound growth"
]

GROWTH: Mapping[Measure, str] = {
    "peak growth": "peak_live_bytes",
    "extent growth": "extent_bytes",
    "lower bound growth": "bound_bytes",
}
"""Growth over a baseline: measure → the field of an arena's summary that is compared."""


@dataclass(frozen=True)
class Limit:
    """The maximum of a measure, or for ``reuse`` the minimum."""

    what: Measure
    amount: Fraction
    """Bytes; for ``reuse cost``, a cost; for ``gap``, ``reuse`` and a ``relative`` growth, a ratio (5 % is 1/20)."""
    arena: str = ALL
    """Ignored for a growth, which is checked for each arena."""
    relative: bool = False
    """Whether a growth limit is a ratio of the baseline's figure."""


@dataclass(frozen=True)
class Check:
    """One limit, the plan's figure and the verdict."""

    what: Measure
    arena: str
    """``ALL`` for all arenas together."""
    value: int
    """Bytes or cost; for ``gap`` and ``reuse`` the numerator of the ratio."""
    denominator: int
    """1; for ``gap`` and ``reuse`` the denominator of the ratio."""
    limit: Fraction
    """Amount of the :class:`Limit`; for a relative growth, converted to bytes."""
    ok: bool


def gate(
    plan: Plan, limits: Sequence[Limit], before: Plan | None = None, with_bounds: Callable[[Plan], Plan] | None = None
) -> tuple[Check, ...]:
    """Return one check of ``plan`` per limit, in order; for a growth over ``before``, one check per arena.

    The growth of the peak is also checked over all arenas. The growth of the lower bound is checked only if both plans
    have rows; ``with_bounds`` recomputes their lower bounds for this check.
    Raises ``UnreadableInput`` if a limit that is not a growth names an unknown arena.
    """
    checks: list[Check] = []
    for limit in limits:
        if limit.what not in GROWTH:
            checks.append(_check(plan, limit))
            continue
        assert before is not None, "growth needs a baseline"
        if limit.what != "lower bound growth":
            checks += _growth(plan, limit, before)
        elif _bounds_are_known(plan, before):
            new, old = (plan, before) if with_bounds is None else (with_bounds(plan), with_bounds(before))
            checks += _growth(new, limit, old)
    return tuple(checks)


def changed_settings(plan: Plan, before: Plan) -> tuple[str, ...]:
    """Return the settings that differ between two plans, as ``planner slots → greedy`` or by name (``shard spec``)."""
    fields = ("planner", "planner_options", "mode", "preset", "rank", "world_size")
    pairs = [(field.replace("_", " "), getattr(before, field), getattr(plan, field)) for field in fields]
    differences = [f"{name} {_option_text(old)} → {_option_text(new)}" for name, old, new in pairs if old != new]
    if before.arena_config_hash != plan.arena_config_hash:
        old_names, new_names = before.arena_of.keys(), plan.arena_of.keys()
        settings = []
        for name in sorted(old_names & new_names):
            for field in ("alignment_bytes", "capacity_bytes", "page_size"):
                old, new = (getattr(side.arena_of[name], field) for side in (before, plan))
                setting = field.removesuffix("_bytes").replace("_", " ")
                if old != new:
                    settings.append(f"{setting} of {name} {old} → {new}".replace(str(U64_MAX), "unlimited"))
        if not settings and old_names != new_names:
            settings = [f"arenas {', '.join(old_names)} → {', '.join(new_names)}"]
        differences += settings or ["arena configuration"]
    sides = (before, plan)
    old, new = (f"token {s.replay_token.hex()[:12]}" if s.places == "sparse" else "offsets" for s in sides)
    if old != new:
        differences.append(f"addressing {old} → {new}")
    if before.shard_spec_hash != plan.shard_spec_hash:
        differences.append("shard spec")
    if (before.ir_hash, before.mode, before.preset) == (plan.ir_hash, plan.mode, plan.preset):
        if before.execution_order_hash != plan.execution_order_hash:
            differences.append("execution order")
        if before.tensor_ids == plan.tensor_ids and not np.array_equal(before.size, plan.size):
            differences.append("dimensions")
    return tuple(differences)


def baseline_warning(plan: Plan, before: Plan) -> str:
    """Return a warning about different settings and unknown lower bounds of a plan and its baseline; "" without any."""
    differences = changed_settings(plan, before)
    texts = [f"the baseline was planned differently: {'; '.join(differences)}"] if differences else []
    if not _bounds_are_known(plan, before):
        texts.append("growth of the lower bound was not checked: a digest has no rows to recompute it from")
    return "; ".join(texts)


def _bounds_are_known(*plans: Plan) -> bool:
    """Return whether all plans have rows; without rows (a digest), the bounds cannot be recomputed."""
    return all(len(plan) or not any(arena.storages for arena in plan.arenas) for plan in plans)


def _option_text(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name}={value[name]}" for name in sorted(value)) or "none"


def _check(plan: Plan, limit: Limit) -> Check:
    """Return the check of a limit that is not a growth. Raises ``UnreadableInput`` for an unknown arena."""
    chosen = plan.arenas if limit.arena == ALL else [a for a in plan.arenas if a.name == limit.arena]
    if limit.arena != ALL and not chosen:
        hint = strict.closest_hint(limit.arena, plan.arena_of)
        raise UnreadableInput(f"limit of {limit.what}: the plan has no arena {limit.arena!r}.", hint=hint)
    storages = sum(a.storages for a in chosen)
    figures: dict[Measure, tuple[int, int]] = {
        "extent": (sum(a.extent_bytes for a in chosen), 1),
        "peak live bytes": (totals(plan).peak_live_bytes if limit.arena == ALL else chosen[0].peak_live_bytes, 1),
        "gap": (sum(a.over_bound_bytes for a in chosen), sum(a.bound_bytes for a in chosen)),
        "reuse cost": (sum(a.reuse_cost or 0 for a in chosen), 1),
        "reuse": (storages - sum(a.slots for a in chosen), storages),
    }
    value, denominator = figures[limit.what]
    allowed = limit.amount * denominator
    ok = value >= allowed if limit.what == "reuse" else value <= allowed
    if limit.what == "gap":  # the gaps of other arenas must not hide an extent below its bound, which is an error
        ok = ok and all(a.over_bound_bytes >= 0 for a in chosen)
    return Check(limit.what, limit.arena, value, denominator, limit.amount, ok)


def _growth(after: Plan, limit: Limit, before: Plan) -> Iterator[Check]:
    """Yield a check per arena of either plan. The peak over all arenas has its own check, because it can grow alone."""
    old_figures, new_figures = ({a.name: getattr(a, GROWTH[limit.what]) for a in p.arenas} for p in (before, after))
    names = sorted(old_figures | new_figures)
    if limit.what == "peak growth" and len(names) > 1:
        names.append(ALL)
        old_figures[ALL], new_figures[ALL] = totals(before).peak_live_bytes, totals(after).peak_live_bytes
    for name in names:
        old, new = old_figures.get(name, 0), new_figures.get(name, 0)
        allowed = limit.amount * old if limit.relative else limit.amount
        yield Check(limit.what, name, new - old, 1, allowed, new - old <= allowed)
