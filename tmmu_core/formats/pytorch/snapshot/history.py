"""Records of a snapshot beside the live ranges: stacks, streams, pools, reserved bytes and failed allocations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tmmu_core.formats.allocator_plan import peak_of_columns
from tmmu_core.formats.pytorch.caching_allocator import UNLIMITED, AllocatorSettings
from tmmu_core.formats.pytorch.snapshot.categories import CERTAINTIES
from tmmu_core.formats.pytorch.snapshot.reserved_memory import Reserved, reserved_over_time
from tmmu_core.formats.pytorch.snapshot.snapshot_events import ALLOC, FREE, MAP, OOM, UNMAP, Events, Lane, Segment
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import BACKWARD, FORWARD, OPTIMIZER
from tmmu_core.graph.model import Origin, Phase, StorageOrigin
from tmmu_core.planners.problem import Recorded
from tmmu_core.plans.model import CATEGORIES

I64 = NDArray[np.int64]
BEFORE = "before the trace"
KEYS = ("category", "line", "module", "stream", "pool", "certainty", "origin")
"""Keys by which bytes can be summed. The origin is ``before the trace`` or ``during the trace``."""
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
class History(Recorded):
    """One device's history; columns are in the order of the instance's rows."""

    ids: tuple[str, ...]
    birth: I64
    death: I64
    size: I64
    address: I64
    stack: I64
    lane: I64
    certainty: NDArray[np.uint8]
    phase: I64
    is_before: NDArray[np.bool_]
    lines: Sequence[str]
    """By stack."""
    paths: Sequence[tuple[str, ...]]
    """By stack: the user's functions, from the outermost inwards."""
    lanes: Sequence[Lane]
    reserved: Reserved
    events: Events
    segments: Sequence[Segment]
    settings: AllocatorSettings

    @property
    def peak_step(self) -> int:
        """The first step with the most live bytes."""
        return peak_of_columns(self.birth, self.death, self.size)[0]

    def live_at(self, step: int, lane: int | None = None) -> I64:
        """Return the rows that are live at a step, of one of :attr:`lanes` or of all."""
        live = (self.birth <= step) & (step < self.death)
        return np.flatnonzero(live if lane is None else live & (self.lane == lane))

    def _live_before(self, step: int) -> I64:
        return self.live_at(step - 1) if step else np.flatnonzero(self.is_before)

    def name(self, key: str, row: int) -> str:
        """Return the name of a row under one of :data:`KEYS`."""
        stack = int(self.stack[row])
        stream, pool = self.lanes[int(self.lane[row])]
        if key == "line":
            return self.ids[row].rpartition(" #")[0]
        if key == "module":
            return self.paths[stack][-1] if self.paths[stack] else self.ids[row].rpartition(" #")[0]
        if key == "stream":
            return f"stream {stream}"
        if key == "pool":
            return pool_name((stream, pool))
        if key == "certainty":
            return CERTAINTIES[int(self.certainty[row])]
        return self.categories[row] if key == "category" else BEFORE if self.is_before[row] else "during the trace"

    def totals(self, key: str, step: int, lane: int | None = None) -> list[Total]:
        """Return the live bytes at a step by one of :data:`KEYS`, most first."""
        return self._summed((self.name(key, row), row) for row in self.live_at(step, lane).tolist())

    def alike(self, step: int, lane: int | None = None) -> list[tuple[Total, int, int]]:
        """Return ``(total, bytes of one, a row)`` of equal live buffers: of one line, category and size, most first."""
        rows: dict[str, int] = {}
        named = []
        for row in self.live_at(step, lane).tolist():
            name = f"{self.name('line', row)}\t{self.categories[row]}\t{int(self.size[row])}"
            rows.setdefault(name, row)
            named.append((name, row))
        found = self._summed(named)
        return [(total, int(total.name.rpartition("\t")[2]), rows[total.name]) for total in found]

    def _summed(self, named: Iterator[tuple[str, int]] | list[tuple[str, int]]) -> list[Total]:
        sums: dict[str, list[int]] = {}
        for name, row in named:
            total = sums.setdefault(name, [0, 0])
            total[0] += int(self.size[row])
            total[1] += 1
        return sorted((Total(name, *total) for name, total in sums.items()), key=lambda t: (-t.size, t.name))

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
            rows = np.flatnonzero(self.lane == k)
            live = rows[(self.birth[rows] <= step) & (step < self.death[rows])]
            needed = peak_of_columns(self.birth[rows], self.death[rows], self.size[rows])[1]
            found.append(PoolUse(pool_name(lane), most, int(self.size[live].sum()), needed))
        return sorted(found, key=lambda pool: (-pool.reserved, pool.name))

    @cached_property
    def failures(self) -> list[OutOfMemory]:
        """The allocations that failed."""
        action, size = np.frombuffer(self.events.action, np.uint8), np.frombuffer(self.events.size, np.int64)
        steps = np.cumsum((action == ALLOC) | (action == FREE))
        change = np.where(action == MAP, size, 0) - np.where(action == UNMAP, size, 0)
        reserved = self.reserved.size[0] + np.cumsum(change)
        found = []
        for at in np.flatnonzero(action == OOM).tolist():
            step = int(steps[at])
            live = int(self.size[self._live_before(step)].sum())
            held = int(reserved[at])
            line = self.lines[self.events.stack[at]]
            found.append(OutOfMemory(step, self.events.size[at], self.events.addr[at], held, live, line))
        return found

    def would_free(self, failure: OutOfMemory) -> list[Total]:
        """Return the largest lines of live buffers that make room for a failed allocation, parameters last."""
        rows = self._live_before(failure.step).tolist()
        order = {"activation": 0, "gradient": 1, "other": 2, "optimizer_state": 3, "parameter": 4}
        found = self._summed((f"{self.name('line', row)} ({self.categories[row]})", row) for row in rows)
        found.sort(key=lambda t: order[t.name.rpartition("(")[2].removesuffix(")")])
        room, k = 0, 0
        while k < len(found) and room < failure.missing:
            room += found[k].size
            k += 1
        return found[:k]

    def made(self) -> Mapping[str, StorageOrigin]:
        """Return the producer of each buffer by id."""
        known: dict[tuple[int, int], StorageOrigin] = {}
        found = {}
        for name, stack, phase in zip(self.ids, self.stack.tolist(), self.phase.tolist(), strict=True):
            key = stack, phase
            if key not in known:
                source = self.lines[stack] if stack else ""
                known[key] = StorageOrigin(Origin(self.paths[stack], source), "", _PHASE_NAMES.get(phase))
            found[name] = known[key]
        return found


def pool_name(lane: Lane) -> str:
    """Return the name of a stream in a pool: ``stream 7`` or ``stream 7, private pool 0.1``."""
    stream, pool = lane
    return f"stream {stream}" + (f", private pool {pool[0]}.{pool[1]}" if any(pool) else "")


def settings_of(written: object) -> AllocatorSettings:
    """Return the settings of a snapshot's ``allocator_settings``; the defaults for values of another kind."""
    found = written if isinstance(written, dict) else {}
    most = found.get("max_split_size", -1)
    limited = isinstance(most, int) and 0 < most < UNLIMITED
    return AllocatorSettings(found.get("expandable_segments") is True, most if limited else UNLIMITED)
