"""The growth of an arena between two plans, and the tensors responsible (iree-org/iree#15323).

Both sums are exact in bytes::

    extent after − extent before = (peak after − peak before) + (slack after − slack before)
    peak after − peak before     = Σ over storages of (live bytes at the peak after − live bytes at the peak before)

Slack is the part of the extent above the peak (gaps, rounding, holes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tmmu_core.plans.figures.plan_storages import arena_number, peak_step_of, storages_of
from tmmu_core.plans.model import Plan
from tmmu_core.store.run_label import Run


@dataclass(frozen=True)
class Share:
    """The change of one storage's live bytes at the peak of an arena."""

    tensor_id: str
    before_bytes: int
    after_bytes: int

    @property
    def grown_bytes(self) -> int:
        """The growth."""
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True)
class Blame:
    """The growth of one arena in bytes, by cause."""

    arena: str
    grown_bytes: int
    slack_bytes: int
    """Growth that no tensor at the peak explains."""
    shares: tuple[Share, ...]
    """Storages whose bytes at the peak differ, largest growth first, then by id bytes."""


def like_the_latest(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs of the latest run's series; for commits without one, their latest run."""
    if not runs:
        return ()
    alike = {run.commit for run in runs if run.series == runs[-1].series}
    last = {run.commit: k for k, run in enumerate(runs)}
    return tuple(
        run
        for k, run in enumerate(runs)
        if (run.series == runs[-1].series if run.commit in alike else k == last[run.commit])
    )


def blame(before: Plan, after: Plan, arena: str) -> Blame:
    """Return the causes of the growth of ``arena``. O(n log n)."""
    held_before, held_after = _held(before, arena), _held(after, arena)
    shares = [
        Share(name, held_before.get(name, 0), held_after.get(name, 0))
        for name in held_before | held_after
        if held_before.get(name, 0) != held_after.get(name, 0)
    ]
    shares.sort(key=lambda share: (-share.grown_bytes, share.tensor_id.encode("utf-8", "surrogatepass")))
    first, last = (plan.arena_of[arena].extent_bytes if arena in plan.arena_of else 0 for plan in (before, after))
    peak_growth = sum(share.grown_bytes for share in shares)
    return Blame(arena, last - first, last - first - peak_growth, tuple(shares))


def _held(plan: Plan, arena: str) -> dict[str, int]:
    """Return the live bytes at the peak of an arena by storage name; empty without the arena."""
    if arena not in plan.arena_of:
        return {}
    step, _ = peak_step_of(plan, arena)
    s = storages_of(plan)
    held = np.flatnonzero((s.arena == arena_number(plan, arena)) & (s.birth <= step) & (step < s.death))
    rows = zip(s.head[held].tolist(), s.size[held].tolist(), strict=True)
    return {plan.tensor_ids[row]: size for row, size in rows}
