"""Find the commit that increased an arena, and the tensors that cause the growth (iree-org/iree#15323).

All runs from this commit on are larger than the first run. The growth of an arena is the growth of its peak plus the
growth of its slack (extent − peak live bytes). The growth of the peak is the sum, over all storages, of the change of
their live bytes at the peak.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tmmu_core.base.errors import StoreFault
from tmmu_core.plans.figures.live_bytes import peak_step_of, storages_alive
from tmmu_core.plans.model import Plan
from tmmu_core.store.run_label import Run

FIGURES = {"extent": "extent_bytes", "peak": "peak_live_bytes", "bound": "lower_bound_bytes"}  # name → field, in bytes


@dataclass(frozen=True)
class Share:
    """The live bytes of one storage at the peak of an arena, before and after a change."""

    tensor_id: str
    before_bytes: int
    after_bytes: int

    @property
    def grown_bytes(self) -> int:
        """``after_bytes`` − ``before_bytes``."""
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True)
class GrowthCauses:
    """The growth of one arena, by cause. Pairs are ``(before, after)``."""

    arena: str
    extent_bytes: tuple[int, int]
    peak_bytes: tuple[int, int]
    peak_steps: tuple[int, int]
    shares: tuple[Share, ...]  # storages whose bytes at the peak differ, largest growth first, then by id bytes

    @property
    def grown_bytes(self) -> int:
        """Growth of the extent."""
        return self.extent_bytes[1] - self.extent_bytes[0]

    @property
    def slack_bytes(self) -> int:
        """Growth of the slack: alignment gaps, slot rounding, holes and tail."""
        return self.grown_bytes - (self.peak_bytes[1] - self.peak_bytes[0])


def comparable_runs(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs of the last run's :attr:`.Run.series`, and the latest run of each other commit; oldest first."""
    series_commits = {run.commit for run in runs if run.series == runs[-1].series}
    latest = {run.commit: run for run in runs if run.commit not in series_commits}
    return tuple(run for run in runs if run.series == runs[-1].series or run is latest.get(run.commit))


def value_of(run: Run, figure: str, arena: str | None = None) -> int:
    """Return a figure of a run or of one arena, in bytes; 0 if the run does not have the arena."""
    parts = [run] if arena is None else [part for part in run.arenas if part.name == arena]
    return sum(int(getattr(part, FIGURES[figure])) for part in parts)


def culprit(values: Sequence[int]) -> int | None:
    """Return the first index from which all values are above ``values[0]``; ``None`` if the last value is not."""
    if not values or values[-1] <= values[0]:
        return None
    return 1 + max(k for k, value in enumerate(values) if value <= values[0])


def between(runs: Sequence[Run], good: str | None, bad: str | None) -> tuple[Run, ...]:
    """Return the runs from commit ``good`` (default: first run) to ``bad`` (default: last). Raises ``StoreFault``."""
    start = 0 if good is None else _latest_index(runs, good)
    end = len(runs) if bad is None else _latest_index(runs, bad) + 1
    if good is not None and start >= end:
        raise StoreFault(f"the run of {good} is later than the run of {bad}.", hint="Swap --good and --bad.")
    return tuple(runs[start:end])


def _latest_index(runs: Sequence[Run], commit: str) -> int:
    """Return the index of the latest run of a commit, which may be abbreviated."""
    exact = [k for k, run in enumerate(runs) if run.commit == commit]
    matching = exact or [k for k, run in enumerate(runs) if run.commit.startswith(commit)]
    if not matching or len({runs[k].commit for k in matching}) > 1:
        problem = "has no run" if not matching else "is ambiguous: several commits start with it"
        raise StoreFault(f"{commit} {problem}.", hint="List the commits with tmmu history.")
    return matching[-1]


def growth_causes(before: Plan, after: Plan, arena: str) -> GrowthCauses:
    """Return the causes of the growth of ``arena``, in O(n log n)."""
    step_before, bytes_before = _bytes_at_peak(before, arena)
    step_after, bytes_after = _bytes_at_peak(after, arena)
    shares = [
        Share(name, bytes_before.get(name, 0), bytes_after.get(name, 0))
        for name in bytes_before | bytes_after
        if bytes_before.get(name, 0) != bytes_after.get(name, 0)
    ]
    shares.sort(key=lambda share: (-share.grown_bytes, share.tensor_id.encode("utf-8", "surrogatepass")))
    extents = [plan.arena_of[arena].extent_bytes if arena in plan.arena_of else 0 for plan in (before, after)]
    peaks = sum(bytes_before.values()), sum(bytes_after.values())
    return GrowthCauses(arena, (extents[0], extents[1]), peaks, (step_before, step_after), tuple(shares))


def _bytes_at_peak(plan: Plan, arena: str) -> tuple[int, dict[str, int]]:
    """Return ``(step, live bytes by storage name)`` at the peak of an arena; ``(0, {})`` without the arena."""
    if arena not in plan.arena_of:
        return 0, {}
    step, _ = peak_step_of(plan, arena)
    return step, {plan.tensor_ids[row]: size for row, size in storages_alive(plan, step, arena)}


def grown_arenas(before: Run, after: Run, figure: str) -> tuple[str, ...]:
    """Return the arenas whose figure grew, largest growth first, then by name."""
    names = sorted({arena.name for run in (before, after) for arena in run.arenas})
    grown = {name: value_of(after, figure, name) - value_of(before, figure, name) for name in names}
    return tuple(sorted((name for name in names if grown[name] > 0), key=lambda name: (-grown[name], name)))
