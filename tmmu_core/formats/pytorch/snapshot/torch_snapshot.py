"""Read PyTorch's allocator snapshot (``torch.cuda.memory._snapshot()``, a pickle or JSON) as a finished plan.

::

    device_traces[device]   alloc 0x7f…00 512 B ── frames ──┐            a live range: alloc to free_completed
                            free_completed 0x7f…00 ─────────┘
    segments                memory reserved by the caching allocator; the arena is at least as large as its peak
      blocks                allocations at the end; one without an alloc event existed before the trace began

A step is an alloc or free event. Of several devices, the one with the highest peak is shown. A tensor is named after
its stack (:func:`.snapshot_stacks.label`).

The category of an allocation (parameter, gradient, optimizer state, activation, other) follows from the phase of its
stack (forward, backward, optimizer …), its live range and its size: see :func:`categorise`.

A job has a snapshot per rank. Several processes read the files if their total size is large.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import TmmuError, UnreadableInput, source_of_errors
from tmmu_core.formats import signatures
from tmmu_core.formats.allocator_plan import normative_order, refuse_too_many_bytes, stem_of
from tmmu_core.formats.pytorch.snapshot import snapshot_events
from tmmu_core.formats.pytorch.snapshot import snapshot_stacks as codes
from tmmu_core.formats.pytorch.snapshot.reserved_memory import Reserved, layout, reserved_over_time
from tmmu_core.formats.pytorch.snapshot.snapshot_events import HINT, I64, MEMORY_PER_BYTE, OOM, Device, Events, Segment
from tmmu_core.formats.pytorch.snapshot.snapshot_stacks import Stacks
from tmmu_core.graph.model import Origin, Phase, StorageOrigin
from tmmu_core.graph.quantities import short_bytes
from tmmu_core.planners.problem import Packing, PlainInstance, Problem, Recorded
from tmmu_core.plans.figures.live_bytes import live_bytes_of
from tmmu_core.plans.model import CATEGORIES

BEFORE = "before the trace"
KEYS = ("category", "line", "module", "stream", "pool", "origin")  # properties by which buffers can be grouped
_PHASE_NAMES: dict[int, Phase] = {codes.FORWARD: "forward", codes.BACKWARD: "backward", codes.OPTIMIZER: "optimizer"}
MEMORY_BYTES = 3 << 30  # maximum estimated memory of all processes together
MIN_PARALLEL_BYTES = 1 << 26  # several processes are started if all files together have at least this size
SIGNATURE_BYTES = 1 << 12  # bytes of a file that are read to detect a snapshot
_RANK = re.compile(r"rank[_-]?(\d+)|(\d+)(?=\D*$)")


@dataclass(frozen=True)
class Total:
    """Bytes and number of the live buffers with the same value of a property."""

    name: str  # the value of the property
    size: int  # in bytes
    count: int


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class History(Recorded, Device):
    """Allocations of one device over time; columns are in the order of the instance's rows."""

    ids: tuple[str, ...]
    phase: I64  # code of the phase at each birth; −1: unknown
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
        since = "during the trace" if self.events.is_recorded else "unknown"
        return BEFORE if self.is_before[row] else since  # the key is "origin"

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


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan of the device with the highest peak. Raises ``UnreadableInput``."""
    return instance_of_history(stem_of(name) or "snapshot", *read_history(data))


def read_history(data: bytes) -> tuple[History, list[str]]:
    """Return the history of the device with the highest peak, and notes on the others. Raises ``UnreadableInput``."""
    segments, traces, stacks = snapshot_events.read_snapshot(data)
    of_device: dict[int, list[Segment]] = {}
    for segment in segments:
        of_device.setdefault(segment.device, []).append(segment)
    trace_of = {device: events for device, events in enumerate(traces) if events.is_recorded}
    devices = sorted({*of_device, *trace_of})
    if not devices:
        raise UnreadableInput("the snapshot has no segment and no allocation.", hint=HINT)
    snapshot_events.refuse_many_devices(len(devices))
    columns_of = {}
    for device in devices:
        events = trace_of.get(device) or Events((), stacks)
        columns_of[device] = snapshot_events.device_of(events, of_device.get(device, []))
    peaks = {device: columns_of[device].peak[1] for device in devices}
    chosen = max(devices, key=lambda device: (peaks[device], -device))
    if not columns_of[chosen].size.size:
        raise UnreadableInput("nothing is allocated in the snapshot.", hint=HINT)
    others = ", ".join(f"{device} (peak {short_bytes(peaks[device])})" for device in devices if device != chosen)
    notes = [f"device {chosen} is shown; the snapshot also has device {others}"] if others else []
    return history_of(columns_of[chosen], stacks), notes


def history_of(device: Device, stacks: Stacks) -> History:
    """Return the history of a device, its rows in the normative order."""
    category, phase = categorise(device, stacks.phases)
    reserved = reserved_over_time(device.events, device.segments)
    seen: Counter[str] = Counter()
    ids = []
    for stack, is_before in zip(device.stack.tolist(), device.is_before.tolist(), strict=True):
        line = BEFORE if is_before and not stack else stacks.lines[stack]
        ids.append(f"{line} #{seen[line]}")
        seen[line] += 1
    order = normative_order(ids, device.birth, device.size)
    arrays = {name: column[order] for name, column in vars(device).items() if isinstance(column, np.ndarray)}
    columns: dict[str, Any] = vars(device) | arrays | {"phase": phase[order], "reserved": reserved}
    columns |= {"lines": stacks.lines, "paths": stacks.paths, "ids": tuple([ids[row] for row in order.tolist()])}
    categories = tuple([CATEGORIES[k] for k in category[order].tolist()])
    peak = reserved.peak[1] if reserved.peak[1] >= device.peak[1] else None  # less than in use: not recorded
    return History(**columns, categories=categories, reserved_peak_bytes=peak)


def instance_of_history(name: str, history: History, notes: list[str]) -> PlainInstance:
    """Return the finished plan of a device, with its history."""
    offset, note = layout(history, history.reserved_peak_bytes)
    refuse_too_many_bytes(sum(history.size.tolist()), int((offset + history.size).max(initial=0)))
    size, alignment = history.size.astype(np.uint64), np.ones(len(history.ids), np.uint64)
    roles = ("activation",) * len(history.ids)
    problem = Problem("arena", history.ids, history.birth, history.death, size, alignment, roles=roles)
    packing = Packing(offset.astype(np.uint64))
    origin_of: dict[tuple[int, int], StorageOrigin] = {}
    keys = list(zip(history.stack.tolist(), history.phase.tolist(), strict=True))
    for stack, phase in set(keys):
        origin = Origin(history.paths[stack], history.lines[stack] if stack else "")
        origin_of[stack, phase] = StorageOrigin(origin, "", _PHASE_NAMES.get(phase))
    origins = {row_id: origin_of[key] for row_id, key in zip(history.ids, keys, strict=True)}
    notes = [*notes, *_notes(history), *([note] if note else [])]
    return PlainInstance(name, problem, packing, tuple(notes), origins=origins, recorded=history)


def _notes(history: History) -> Iterator[str]:
    peak_step, reserved = history.reserved.peak
    if history.reserved_peak_bytes is None:
        yield "reserved bytes are not recorded"
    else:
        live = int(history.size[history.live_at(min(peak_step, history.steps - 1))].sum())
        yield f"reserved: at most {short_bytes(reserved)}, at #{peak_step:,} with {short_bytes(live)} in use"
    if not history.events.is_recorded:
        yield "the snapshot has no trace, only a state; record one with torch.cuda.memory._record_memory_history()"
        return
    if history.is_before.any():
        size = int(history.size[history.is_before].sum())
        yield f"{int(history.is_before.sum()):,} allocations ({short_bytes(size)}) are from {BEFORE}"
    events = history.events
    if events.repeated_frees:
        yield f"{events.repeated_frees:,} frees of blocks that are already free are omitted"
    failed = np.flatnonzero(np.frombuffer(events.action, np.uint8) == OOM)
    for k in failed[:1].tolist():  # ``addr`` has the free bytes of the device at this event
        step, requested, free = int(events.step[k]), short_bytes(events.size[k]), short_bytes(events.addr[k])
        yield f"{len(failed):,} allocations failed; the first, at step {step:,}, requested {requested} with {free} free"


PARAMETERS, GRADIENTS, STATES, ACTIVATIONS, OTHERS = range(len(CATEGORIES))
_CATEGORY_OF = {codes.FORWARD: ACTIVATIONS, codes.BACKWARD: GRADIENTS, codes.STATE: STATES}
_CATEGORY_OF |= dict.fromkeys((codes.PARAMETER, codes.INIT), PARAMETERS)
"""Code of a stack → category; default: ``OTHERS``."""
_PHASES = {code: code for code in (codes.FORWARD, codes.BACKWARD, codes.OPTIMIZER, codes.PARAMETER)}
_PHASES[codes.STATE] = codes.OPTIMIZER  # code of a stack → code of its phase


def categorise(device: Device, phases: Sequence[int]) -> tuple[I64, I64]:
    """Return the category of each allocation, an index into ``CATEGORIES``, and the phase at its birth; −1: unknown.

    ``phases``: the code of each stack. A phase lasts until the next allocation whose stack has another phase. A group
    is the consecutive allocations of one phase: forward, forward, backward, forward → groups 0, 0, 1, 2.
    """
    code, freed_by = (np.array(phases, np.int64)[rows] for rows in (device.stack, device.free_stack))
    has_phases = bool((code[~device.is_before] > codes.NO_PHASE).any())
    # Autograd's threads run no Python code: without C++ frames their allocations have no stack at all.
    is_autograd_thread = has_phases & (code == codes.NO_STACK) & ~device.is_before
    code = np.where(is_autograd_thread, codes.BACKWARD, code)
    category = np.array([_CATEGORY_OF.get(k, OTHERS) for k in range(codes.CODE_COUNT)], np.int64)[code]

    phase = np.array([_PHASES.get(k, -1) for k in range(codes.CODE_COUNT)], np.int64)[code]
    with_phase = np.flatnonzero((phase >= 0) & ~device.is_before)
    with_phase = with_phase[np.argsort(device.birth[with_phase], kind="stable")]
    starts, phases_from = device.birth[with_phase], phase[with_phase]
    changes = phases_from[1:] != phases_from[:-1]
    groups_from = np.cumsum(np.concatenate(([0], changes))) if len(starts) else with_phase
    birth_phase, group = _latest(starts, phases_from, device.birth), _latest(starts, groups_from, device.birth)
    never_freed = device.death >= device.steps
    can_end_in_backward = ~never_freed & ((device.free_stack == 0) | (freed_by == codes.BACKWARD))
    ends_in_backward = can_end_in_backward & (_latest(starts, phases_from, device.death) == codes.BACKWARD)
    outlasts_group = never_freed | (_latest(starts, groups_from, device.death - 1) > group)
    is_of_backward = (phase == codes.BACKWARD) & ~device.is_before
    last_of_group = np.searchsorted(groups_from, group, side="right") - 1
    is_temporary = device.death <= (starts[last_of_group] if len(starts) else 0)  # freed before its group ends

    category[(code == codes.OPTIMIZER) & outlasts_group] = STATES
    category[np.isin(code, (codes.PARAMETER, codes.INIT)) & ~outlasts_group] = OTHERS
    without_phase = (code == codes.NO_PHASE) & ~device.is_before
    read_in_backward = ends_in_backward & (birth_phase != codes.BACKWARD)
    category[without_phase & ((birth_phase == codes.FORWARD) | read_in_backward)] = ACTIVATIONS
    unknown = device.is_before & (code == codes.NO_STACK)
    category[unknown & ends_in_backward] = ACTIVATIONS
    category[unknown & (freed_by == codes.ZERO_GRAD)] = GRADIENTS
    rows = is_of_backward & ~is_temporary
    gradients: Counter[int] = Counter()  # size → maximum number of gradients of this size that are live at once
    live: Counter[int] = Counter()
    births, deaths, sizes = (column[rows].tolist() for column in (device.birth, device.death, device.size))
    for _, change, size in sorted([*zip(births, repeat(1), sizes), *zip(deaths, repeat(-1), sizes)]):
        live[size] += change
        gradients[size] = max(gradients[size], live[size])
    if gradients or not is_of_backward.any():  # else the sizes of the gradients, thus of the parameters, are unknown
        for rows in (unknown, without_phase & (birth_phase == -1)):
            _categorise_by_size(device, rows & never_freed, gradients, category)
    return category, birth_phase


def _latest(starts: I64, values: I64, steps: I64) -> I64:
    """Return the value at each of ``steps``: ``values[k]`` from the step ``starts[k]`` on, −1 before the first."""
    k = np.searchsorted(starts, steps, side="right") - 1
    return np.where(k >= 0, values[np.maximum(k, 0)], -1) if len(values) else np.full(len(steps), -1, np.int64)


def _categorise_by_size(device: Device, rows: NDArray[np.bool_], gradients: Counter[int], category: I64) -> None:
    """Set the ``category`` of ``rows`` to parameter or optimizer state. ``gradients``: size → number of gradients."""
    # A gradient has the size of its parameter. Adam with 2 gradients of 400 B has 6 rows of 400 B. State is allocated
    # after the parameters, so the 2 rows at the lowest addresses are parameters, and 4 are state. State can also have
    # twice the size (float32 state of 16-bit parameters). Without gradients, all rows are parameters.
    taken: Counter[int] = Counter()
    candidates = np.flatnonzero(rows)
    for row in candidates[np.argsort(device.address[candidates])].tolist():
        size = int(device.size[row])
        taken[size] += 1
        if not gradients or taken[size] <= gradients[size]:
            category[row] = PARAMETERS
        elif gradients[size] or (size % 2 == 0 and gradients[size // 2]):
            category[row] = STATES


@dataclass(frozen=True)
class RankSummary:
    """Peaks of one rank's snapshot, in bytes."""

    rank: int
    file: str
    peak: int = 0
    reserved: int = 0  # peak of the bytes that the allocator reserved
    lines: Mapping[tuple[str, str], int] = field(default_factory=dict)  # ``(line, category)`` → live bytes at the peak
    error: str = ""  # why the file could not be read; ``""`` if it was read


def snapshot_files(folder: Path) -> list[tuple[int, Path]]:
    """Return sorted ``(rank, path)`` of a folder's snapshots; rank: a number in the name, else the file's position."""
    snapshots = []
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except (OSError, ValueError):
        return []
    for position, path in enumerate(files):
        with suppress(OSError), path.open("rb") as file:
            if not signatures.refusal_torch_snapshot(file.read(SIGNATURE_BYTES)):
                rank = _RANK.search(path.name)
                snapshots.append((int(rank[1] or rank[2]) if rank else position, path))
    return sorted(snapshots)


def _summary(rank: int, path: Path) -> RankSummary:
    try:
        with source_of_errors(path.name):
            history, _ = read_history(path.read_bytes())
    except (TmmuError, OSError) as error:
        return RankSummary(rank, path.name, error=str(error).splitlines()[0])
    step, peak = history.peak
    lines: Counter[tuple[str, str]] = Counter()
    for row in history.live_at(step).tolist():
        lines[history.name("line", row), history.categories[row]] += int(history.size[row])
    return RankSummary(rank, path.name, peak, history.reserved.peak[1], lines)


def summaries(files: Sequence[tuple[int, Path]]) -> Iterator[RankSummary]:
    """Yield the summary of each file, in order."""
    workers = workers_for([path.stat().st_size for _, path in files])
    if workers < 2:
        yield from (_summary(rank, path) for rank, path in files)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        jobs = [pool.submit(_summary, rank, path) for rank, path in files]
        for (rank, path), job in zip(files, jobs, strict=True):
            try:
                yield job.result()
            except BrokenProcessPool:
                yield RankSummary(rank, path.name, error="the process that read it ended, perhaps out of memory")


def workers_for(sizes: Sequence[int]) -> int:
    """Return how many processes can read files of ``sizes`` (bytes) in :data:`MEMORY_BYTES`; 1 for small files."""
    max_workers = MEMORY_BYTES // (max(sizes, default=0) * MEMORY_PER_BYTE + 1)
    return 1 if sum(sizes) < MIN_PARALLEL_BYTES else max(1, min(os.cpu_count() or 1, len(sizes), max_workers))


def largest_difference(base: RankSummary, other: RankSummary) -> tuple[str, str, int] | None:
    """Return ``(line, category, bytes in other − bytes in base)`` of the largest difference; ``None`` without one."""
    changes = [(*key, other.lines.get(key, 0) - base.lines.get(key, 0)) for key in {**base.lines, **other.lines}]
    return max(filter(lambda change: change[2], changes), key=lambda change: (abs(change[2]), change[:2]), default=None)
