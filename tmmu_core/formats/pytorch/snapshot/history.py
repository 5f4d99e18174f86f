"""The history of one device: live ranges with their stacks, streams, pools, categories and reserved bytes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tmmu_core.formats.pytorch.snapshot.reserved_memory import Reserved
from tmmu_core.formats.pytorch.snapshot.snapshot_events import I64, Device
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import BACKWARD, FORWARD, OPTIMIZER
from tmmu_core.graph.model import Origin, Phase, StorageOrigin
from tmmu_core.planners.problem import Recorded
from tmmu_core.plans.model import CATEGORIES

BEFORE = "before the trace"
KEYS = ("category", "line", "module", "stream", "pool", "origin")
"""Keys by which bytes are summed. The origin is ``before the trace`` or ``during the trace``."""
_PHASE_NAMES: dict[int, Phase] = {FORWARD: "forward", BACKWARD: "backward", OPTIMIZER: "optimizer"}


@dataclass(frozen=True)
class Total:
    """Live bytes and buffers of one name."""

    name: str
    size: int
    count: int


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class History(Recorded, Device):
    """One device's history; columns are in the order of the instance's rows."""

    ids: tuple[str, ...]
    phase: I64
    lines: Sequence[str]
    """Source line of each stack."""
    paths: Sequence[tuple[str, ...]]
    """The user's functions of each stack, from the outermost inwards."""
    reserved: Reserved

    @cached_property
    def peak_step(self) -> int:
        """The first step with the most live bytes."""
        return self.peak[0]

    def live_at(self, step: int) -> I64:
        """Return the rows that are live at a step."""
        return np.flatnonzero((self.birth <= step) & (step < self.death))

    def name(self, key: str, row: int) -> str:
        """Return the name of a row under one of :data:`KEYS`."""
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
        """Return the live bytes and buffers at a step by one of :data:`KEYS`, largest first."""
        size: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for row in self.live_at(step).tolist():
            name = self.name(key, row)
            size[name] += int(self.size[row])
            count[name] += 1
        return sorted((Total(name, size[name], count[name]) for name in size), key=lambda t: (-t.size, t.name))

    def live_by_category(self, most: int) -> tuple[list[int], dict[str, list[int]]]:
        """Return at most ``most`` steps, including the peak, and the live bytes of each category at each step."""
        end = int(self.death.max(initial=1))
        steps = np.unique(np.append(np.linspace(0, end - 1, min(most, end)).astype(np.int64), self.peak_step))
        kinds = np.array(self.categories)
        curves = {}
        for name in CATEGORIES:
            rows = kinds == name
            change = np.zeros(end + 1, np.int64)
            np.add.at(change, self.birth[rows], self.size[rows])
            np.add.at(change, self.death[rows], -self.size[rows])
            curves[name] = np.cumsum(change)[steps].tolist()
        return steps.tolist(), {name: curve for name, curve in curves.items() if any(curve)}

    def made(self) -> Mapping[str, StorageOrigin]:
        """Return the producer of each buffer by id."""
        known: dict[tuple[int, int], StorageOrigin] = {}
        found = {}
        for name, stack, phase in zip(self.ids, self.stack.tolist(), self.phase.tolist(), strict=True):
            if (stack, phase) not in known:
                origin = Origin(self.paths[stack], self.lines[stack] if stack else "")
                known[stack, phase] = StorageOrigin(origin, "", _PHASE_NAMES.get(phase))
            found[name] = known[stack, phase]
        return found
