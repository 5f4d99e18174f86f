"""The resource ledger (seed II.J): counters of a plan's resources."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tmmu_core.plans.figures.live_bytes import live_bytes_of
from tmmu_core.plans.figures.metrics import fragmentation_ratio
from tmmu_core.plans.figures.plan_storages import beats_of, storages_of
from tmmu_core.plans.model import Plan

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class ResourceLedger:
    """Counters at each beat (:class:`Beats`: each step, in all but plans of very many), over all arenas, as columns.

    A row covers the run up to and including its step, so the last row agrees with ``Plan.metrics``.
    """

    bytes_allocated: U64
    """Bytes of the slots occupied at step t, whole slots."""
    peak_bytes: U64
    """Σ over arenas of the highest end of a slot occupied so far; Σ extents at the last step."""
    peak_live_bytes: U64
    """Σ over arenas of the most bytes alive together so far."""
    allocation_failures: I64
    steps: I64
    """The step from which each row holds."""

    @property
    def internal_fragmentation_ratio(self) -> NDArray[np.float64]:
        """1 − peak live so far / peak bytes so far; 0 where nothing was occupied yet."""
        waste = (self.peak_bytes - self.peak_live_bytes).astype(np.float64)
        return np.divide(waste, self.peak_bytes.astype(np.float64), out=np.zeros_like(waste), where=self.peak_bytes > 0)

    def rows(self) -> list[dict[str, int | float]]:
        """One mapping per step, keys as seed II.J names them."""
        return [
            {
                "t": t,
                "bytes_allocated": int(self.bytes_allocated[k]),
                "peak_bytes": int(self.peak_bytes[k]),
                "allocation_failures": int(self.allocation_failures[k]),
                "internal_fragmentation_ratio": fragmentation_ratio(
                    int(self.peak_live_bytes[k]), int(self.peak_bytes[k])
                ),
            }
            for k, t in enumerate(self.steps.tolist())
        ]


def resource_ledger(plan: Plan) -> ResourceLedger:
    """Seed II.J's counters for each step of a plan that was made; a quota that is breached makes none (§4)."""
    s = storages_of(plan)
    beats = beats_of(plan, s)
    steps = len(beats)
    peak_bytes, peak_live = np.zeros((2, steps), np.uint64)
    for number in range(len(plan.arenas)):
        here = s.arena == number
        highest = np.zeros(steps + 1, np.uint64)  # one more: a damaged plan's storage may begin behind the end
        np.maximum.at(highest, beats.birth[here], s.offset[here] + s.backing[here])
        peak_bytes += np.maximum.accumulate(highest[:steps])
        live = live_bytes_of(beats.birth[here], beats.death[here], s.size[here], steps)
        peak_live += np.maximum.accumulate(live)
    failures = np.full(steps, int(plan.metrics.get("allocation_failures", 0)), np.int64)
    allocated = live_bytes_of(beats.birth, beats.death, s.backing, steps)
    return ResourceLedger(allocated, peak_bytes, peak_live, failures, beats.steps)
