"""Sum the live bytes of an allocator snapshot by line of code and category, and compare the peaks of two snapshots."""

from collections.abc import Iterable
from dataclasses import dataclass

from tmmu_core.plans.figures.live_bytes import alive_at
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.model import Plan


@dataclass(frozen=True)
class LineChange:
    """Live bytes and buffers of one line and category at the peaks of two plans."""

    line: str
    category: str
    before_bytes: int
    after_bytes: int
    before_count: int
    after_count: int

    @property
    def growth_bytes(self) -> int:
        """Bytes after − bytes before."""
        return self.after_bytes - self.before_bytes


def line_of(tensor_id: str) -> str:
    """Return the line of code in a snapshot's tensor id: ``model.py:12 forward #3`` → ``model.py:12 forward``."""
    return tensor_id.rpartition(" #")[0] or tensor_id


def live_by_line(plan: Plan, step: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Return ``(line, category)`` → ``(bytes, buffers)`` live at a step of a snapshot's plan."""
    live: dict[tuple[str, str], tuple[int, int]] = {}
    for row in alive_at(plan, step).tolist():
        key = line_of(plan.tensor_ids[row]), plan.categories[row]
        size, count = live.get(key, (0, 0))
        live[key] = size + int(plan.size[row]), count + 1
    return live


def changes_at_peak(before: Plan, after: Plan) -> tuple[LineChange, ...]:
    """Return the change of each line and category that has live bytes at one of the peaks, largest change first.

    The changes sum to the change of the peak. Empty unless both plans come from snapshots.
    """
    if not before.categories or not after.categories:
        return ()
    old, new = (live_by_line(plan, totals(plan).peak_step) for plan in (before, after))
    changes = []
    for key in old | new:
        (old_bytes, old_count), (new_bytes, new_count) = old.get(key, (0, 0)), new.get(key, (0, 0))
        changes.append(LineChange(*key, old_bytes, new_bytes, old_count, new_count))
    return _sorted(changes)


def by_category(changes: Iterable[LineChange]) -> tuple[LineChange, ...]:
    """Return the sums of changes by category, largest change first; their line is empty."""
    sums: dict[str, list[int]] = {}
    for change in changes:
        figures = (change.before_bytes, change.after_bytes, change.before_count, change.after_count)
        sums[change.category] = [a + b for a, b in zip(sums.get(change.category, [0] * 4), figures, strict=True)]
    return _sorted(LineChange("", category, *total) for category, total in sums.items())


def _sorted(changes: Iterable[LineChange]) -> tuple[LineChange, ...]:
    return tuple(sorted(changes, key=lambda c: (-abs(c.growth_bytes), -c.after_bytes, c.line, c.category)))
