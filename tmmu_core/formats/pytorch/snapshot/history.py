"""The history of one device: live ranges with their stacks, streams, pools, categories and reserved bytes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tmmu_core.formats.pytorch.snapshot.reserved_memory import Reserved
from tmmu_core.formats.pytorch.snapshot.snapshot_events import I64, Device
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import BACKWARD, FORWARD, OPTIMIZER
from tmmu_core.graph.model import Origin, Phase, StorageOrigin
from tmmu_core.planners.problem import Recorded
from tmmu_core.plans.figures.live_bytes import live_bytes_of
from tmmu_core.plans.model import CATEGORIES

BEFORE = "before the trace"
KEYS = ("category", "line", "module", "stream", "pool", "origin")  # properties by which buffers can be grouped
_PHASE_NAMES: dict[int, Phase] = {FORWARD: "forward", BACKWARD: "backward", OPTIMIZER: "optimizer"}


@dataclass(frozen=True)
class Total:
    """Bytes and number of the live buffers with the same value of a property."""

    name: str  # the value of the property
    size: int  # in bytes
    count: int


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class History(Recorded, Device):
    """One device's history; columns are in the order of the instance's rows."""

    ids: tuple[str, ...]
    phase: I64
    lines: Sequence[str]  # source line of each stack
    paths: Sequence[tuple[str, ...]]  # the user's functions in each stack, outermost first
    reserved: Reserved

    def live_at(self, step: int) -> I64:
        """Return the rows that are live at a step."""
        return np.flatnonzero((self.birth <= step) & (step < self.death))

    def name(self, key: str, row: int) -> str:
        """Return the value of a row's property ``key``, which is one of :data:`KEYS`."""
        path = self.paths[int(self.stack[row])]
        stream, pool = tuple(self.events.lanes)[int(self.lane[row])]
        match key:
            case "category":
                return self.categories[row]
            case "module" if path:
                return path[-1]
            case "line" | "module":
                return self.ids[row].rpartition(" #")[0]
            case "stream":
                return f"stream {stream}"
            case "pool":
                return f"stream {stream}" + (f", private pool {pool[0]}.{pool[1]}" if any(pool) else "")
        return BEFORE if self.is_before[row] else "during the trace"

    def totals(self, key: str, step: int) -> list[Total]:
        """Return the live buffers at a step, grouped by the property ``key``, largest sum first."""
        size: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for row in self.live_at(step).tolist():
            name = self.name(key, row)
            size[name] += int(self.size[row])
            count[name] += 1
        return sorted((Total(name, size[name], count[name]) for name in size), key=lambda t: (-t.size, t.name))

    def live_by_category(self, samples: int) -> tuple[list[int], dict[str, list[int]]]:
        """Return ``(steps, category → live bytes)`` at evenly spaced steps and the peak, without empty categories."""
        end = int(self.death.max(initial=1))
        steps = np.unique(np.append(np.linspace(0, end - 1, min(samples, end)).astype(np.int64), self.peak[0]))
        categories = np.array(self.categories)
        curves = {}
        for name in CATEGORIES:
            rows = categories == name
            size = self.size[rows].astype(np.uint64)
            curves[name] = live_bytes_of(self.birth[rows], self.death[rows], size, end)[steps].tolist()
        return steps.tolist(), {name: curve for name, curve in curves.items() if any(curve)}

    def origins(self) -> Mapping[str, StorageOrigin]:
        """Return buffer id → path, source line and phase of its allocation."""
        origin_of: dict[tuple[int, int], StorageOrigin] = {}
        keys = list(zip(self.stack.tolist(), self.phase.tolist(), strict=True))
        for stack, phase in set(keys):
            origin = Origin(self.paths[stack], self.lines[stack] if stack else "")
            origin_of[stack, phase] = StorageOrigin(origin, "", _PHASE_NAMES.get(phase))
        return {name: origin_of[key] for name, key in zip(self.ids, keys, strict=True)}
