"""Records of a snapshot beside the live ranges: stacks, streams, pools, reserved bytes and failed allocations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tmmu_core.formats.allocator_plan import peak_of_columns
from tmmu_core.formats.pytorch.caching_allocator import AllocatorSettings
from tmmu_core.formats.pytorch.snapshot.categories import CERTAINTIES
from tmmu_core.formats.pytorch.snapshot.reserved_memory import Reserved, reserved_over_time
from tmmu_core.formats.pytorch.snapshot.snapshot_device import I64, Device
from tmmu_core.formats.pytorch.snapshot.snapshot_events import OOM, Lane
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import BACKWARD, FORWARD, OPTIMIZER
from tmmu_core.graph.model import Origin, Phase, StorageOrigin
from tmmu_core.planners.problem import Recorded
from tmmu_core.plans.model import CATEGORIES

BEFORE = "before the trace"
KEYS = ("category", "line", "module", "stream", "pool", "certainty", "origin")
"""Keys by which bytes can be summed. The origin is ``before the trace`` or ``during the trace``."""
LAST_TO_FREE = ("activation", "gradient", "other", "optimizer_state", "parameter")
"""Categories in the order in which buffers make room for a failed allocation."""
_PHASE_NAMES: dict[int, Phase] = {FORWARD: "forward", BACKWARD: "backward", OPTIMIZER: "optimizer"}


@dataclass(frozen=True)
class Total:
    """Live bytes and buffers of one name."""

    name: str
    size: int
    count: int


@dataclass(frozen=True)
class PoolUse:
    """One stream's part of a memory pool, in bytes: the most it reserved, what was live then, and its live peak."""

    name: str
    reserved: int
    used: int
    needed: int
    """No packing of these buffers needs less."""


@dataclass(frozen=True)
class OutOfMemory:
    """An allocation that failed, in bytes."""

    step: int
    requested: int
    free: int
    """Free bytes of the device."""
    reserved: int
    live: int
    line: str

    @property
    def unused(self) -> int:
        """Reserved bytes without a live buffer."""
        return self.reserved - self.live

    @property
    def missing(self) -> int:
        """Bytes that the device lacks for a segment of this size."""
        return max(0, self.requested - self.free)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class History(Recorded, Device):
    """One device's history; columns are in the order of the instance's rows."""

    ids: tuple[str, ...]
    certainty: I64
    phase: I64
    lines: Sequence[str]
    """By stack."""
    paths: Sequence[tuple[str, ...]]
    """By stack: the user's functions, from the outermost inwards."""
    reserved: Reserved
    settings: AllocatorSettings

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """Streams and pools."""
        return tuple(self.events.lanes)

    @cached_property
    def peak_step(self) -> int:
        """The first step with the most live bytes."""
        return self.peak[0]

    def live_at(self, step: int, lane: int | None = None) -> I64:
        """Return the rows that are live at a step, of one of :attr:`lanes` or of all."""
        live = (self.birth <= step) & (step < self.death)
        return np.flatnonzero(live if lane is None else live & (self.lane == lane))

    def _live_before(self, step: int) -> I64:
        return self.live_at(step - 1) if step else np.flatnonzero(self.is_before)

    def name(self, key: str, row: int) -> str:
        """Return the name of a row under one of :data:`KEYS`."""
        path = self.paths[int(self.stack[row])]
        lane = self.lanes[int(self.lane[row])]
        match key:
            case "category":
                return self.categories[row]
            case "module" if path:
                return path[-1]
            case "line" | "module":
                return self.ids[row].rpartition(" #")[0]
            case "stream":
                return f"stream {lane[0]}"
            case "pool":
                return pool_name(lane)
            case "certainty":
                return CERTAINTIES[int(self.certainty[row])]
        return BEFORE if self.is_before[row] else "during the trace"

    def totals(self, key: str, step: int, lane: int | None = None) -> list[Total]:
        """Return the live bytes at a step by one of :data:`KEYS`, most first."""
        return self.summed((self.name(key, row), row) for row in self.live_at(step, lane).tolist())

    def alike(self, step: int, lane: int | None = None) -> list[tuple[Total, int, int]]:
        """Return ``(total, bytes of one, a row)`` of equal live buffers: of one line, category and size, most first."""
        named = [
            (f"{self.name('line', row)}\t{self.categories[row]}\t{int(self.size[row])}", row)
            for row in self.live_at(step, lane).tolist()
        ]
        rows = dict(reversed(named))
        return [(total, int(self.size[rows[total.name]]), rows[total.name]) for total in self.summed(named)]

    def summed(self, named: Iterable[tuple[str, int]]) -> list[Total]:
        """Return the bytes and buffers of ``(name, row)`` by name, most first."""
        size: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for name, row in named:
            size[name] += int(self.size[row])
            count[name] += 1
        return sorted((Total(name, size[name], count[name]) for name in size), key=lambda t: (-t.size, t.name))

    def live_by_category(self, most: int) -> tuple[list[int], dict[str, list[int]]]:
        """Return at most ``most`` steps, the peak among them, and the live bytes of each category at each."""
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

    def sizes(self) -> list[tuple[int, int, int]]:
        """Return ``(exponent, allocations, bytes)`` of all allocations of ``2^exponent`` bytes and less than double."""
        exponent = np.frexp(self.size.astype(np.float64))[1] - 1
        return [
            (k, int((exponent == k).sum()), int(self.size[exponent == k].sum())) for k in np.unique(exponent).tolist()
        ]

    @cached_property
    def pools(self) -> list[PoolUse]:
        """Fragmentation of each pool and stream, most reserved first."""
        found = []
        for k, lane in enumerate(self.lanes):
            segments = [one for one in self.segments if one.lane == lane]
            step, most = reserved_over_time(self.events, segments, k).peak
            own = self.lane == k
            needed = peak_of_columns(self.birth[own], self.death[own], self.size[own])[1]
            found.append(PoolUse(pool_name(lane), most, int(self.size[self.live_at(step, k)].sum()), needed))
        return sorted(found, key=lambda pool: (-pool.reserved, pool.name))

    @cached_property
    def failures(self) -> list[OutOfMemory]:
        """The allocations that failed."""
        events = self.events
        steps, reserved = events.step, self.reserved.size[0] + np.cumsum(events.reserved_change)
        found = []
        for at in np.flatnonzero(np.frombuffer(events.action, np.uint8) == OOM).tolist():
            step = int(steps[at])
            live = int(self.size[self._live_before(step)].sum())
            line = self.lines[events.stack[at]]
            found.append(OutOfMemory(step, events.size[at], events.addr[at], int(reserved[at]), live, line))
        return found

    def would_free(self, failure: OutOfMemory) -> list[Total]:
        """Return the largest lines of live buffers that make room for a failed allocation, parameters last."""
        rows = self._live_before(failure.step).tolist()
        totals = self.summed((f"{self.name('line', row)} ({self.categories[row]})", row) for row in rows)
        room, found = 0, []
        for total in sorted(totals, key=lambda t: LAST_TO_FREE.index(t.name.rpartition("(")[2].removesuffix(")"))):
            if room < failure.missing:
                found.append(total)
                room += total.size
        return found

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


def pool_name(lane: Lane) -> str:
    """Return the name of a stream in a pool: ``stream 7`` or ``stream 7, private pool 0.1``."""
    stream, pool = lane
    return f"stream {stream}" + (f", private pool {pool[0]}.{pool[1]}" if any(pool) else "")
