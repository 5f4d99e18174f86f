"""PyTorch's allocator snapshot (``torch.cuda.memory._snapshot()``), pickled or as JSON, as a finished plan.

::

    device_traces[device]   alloc 0x7f…00 512 B ── frames ──┐            a live range: alloc to free_completed
                            free_completed 0x7f…00 ─────────┘
    segments                memory reserved by the caching allocator; the arena is as large as the most it reserved
      blocks                allocations at the end; one without an alloc event existed before the trace began

A step is an alloc or free event. Of several devices, the one with the highest peak is shown; a note names the others.
A tensor is named after its stack (:func:`label`); its category is that of :func:`categorise`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.allocator_plan import LiveRanges, instance_of_columns, normative_order, stem_of
from tmmu_core.formats.pytorch.snapshot.categories import categorise
from tmmu_core.formats.pytorch.snapshot.history import BEFORE, History
from tmmu_core.formats.pytorch.snapshot.reserved_memory import layout, reserved_over_time
from tmmu_core.formats.pytorch.snapshot.snapshot_device import Device, device_of
from tmmu_core.formats.pytorch.snapshot.snapshot_events import (
    OOM,
    Events,
    Segment,
    Snapshot,
    read_snapshot,
    refuse_many_devices,
)
from tmmu_core.graph.quantities import short_bytes
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.model import CATEGORIES

HINT = "Write it with torch.cuda.memory._dump_snapshot(FILE)."
FEWER_EVENTS = "Record fewer events: torch.cuda.memory._record_memory_history(max_entries=1_000_000)."


def read(data: bytes, name: str = "") -> PlainInstance:
    """Return the plan of the device with the highest peak. Raises ``UnreadableInput``."""
    return instance_of_history(stem_of(name) or "snapshot", *read_history(data, name))


def read_history(data: bytes, name: str) -> tuple[History, list[str]]:
    """Return the history of the device with the highest peak, and a note that names the others.

    Raises ``UnreadableInput``.
    """
    snapshot = _decoded(data, name)
    of_device: dict[int, list[Segment]] = {}
    for segment in snapshot.segments:
        of_device.setdefault(segment.device, []).append(segment)
    traces = {device: events for device, events in enumerate(snapshot.traces) if events.is_recorded}
    devices = sorted({*of_device, *traces})
    if not devices:
        raise UnreadableInput("the snapshot has no segment and no allocation.", source=name, hint=HINT)
    refuse_many_devices(len(devices), name)
    found = {device: device_of(traces.get(device) or Events(), of_device.get(device, [])) for device in devices}
    peaks = {device: found[device].peak[1] for device in devices}
    chosen = max(devices, key=lambda device: (peaks[device], -device))
    if not found[chosen].size.size:
        raise UnreadableInput("nothing is allocated in the snapshot.", source=name, hint=HINT)
    others = ", ".join(f"{device} (peak {short_bytes(peaks[device])})" for device in devices if device != chosen)
    notes = [f"device {chosen} is shown; the snapshot also has device {others}"] if others else []
    return history_of(found[chosen], snapshot), notes


# --- decoding ----------------------------------------------------------------------------------------------------


def _decoded(data: bytes, name: str) -> Snapshot:
    try:
        return read_snapshot(data, lambda what: UnreadableInput(what, hint=HINT))
    except UnreadableInput as error:
        error.source = error.source or name
        raise
    except MemoryError as error:
        what = f"the snapshot of {len(data):,} bytes needs more memory than there is."
        raise UnreadableInput(what, source=name, hint=FEWER_EVENTS) from error
    except msgspec.DecodeError as error:
        what, _, place = str(error).partition(" - at ")
        what = f"the snapshot is damaged: {what}."
        raise UnreadableInput(what, source=name, place=place, hint=HINT) from error
    except Exception as error:  # a damaged pickle raises nearly anything
        what = "the snapshot is damaged: it is cut off, or contains other values than a snapshot."
        raise UnreadableInput(what, source=name, hint=f"Copy the file again. {HINT}") from error


# --- history and instance ----------------------------------------------------------------------------------------


def history_of(device: Device, snapshot: Snapshot) -> History:
    """Return the history of a device, its rows in the normative order."""
    stacks = snapshot.stacks
    kinds = categorise(device, stacks.phases)
    reserved = reserved_over_time(device.events, device.segments)
    seen: Counter[str] = Counter()
    ids = []
    for stack, is_before in zip(device.stack.tolist(), device.is_before.tolist(), strict=True):
        line = BEFORE if is_before and not stack else stacks.lines[stack]
        ids.append(f"{line} #{seen[line]}")
        seen[line] += 1
    order = normative_order(ids, device.birth, device.size)
    columns: dict[str, Any] = vars(device) | device.rows(order)
    return History(
        **columns,
        categories=tuple([CATEGORIES[k] for k in kinds.code[order].tolist()]),
        reserved_peak_bytes=reserved.peak[1] if reserved.peak[1] >= device.peak[1] else None,
        ids=tuple([ids[row] for row in order.tolist()]),
        phase=kinds.phase[order],
        lines=stacks.lines,
        paths=stacks.paths,
        reserved=reserved,
    )


def instance_of_history(name: str, history: History, notes: list[str]) -> PlainInstance:
    """Return the finished plan of a device, with its history."""
    offset, note = layout(history, history.reserved_peak_bytes)
    lives = LiveRanges(history.ids, history.birth, history.death, history.size, offset)
    notes = [*notes, *_notes(history), *([note] if note else [])]
    return replace(instance_of_columns(name, lives, notes), made=history.made(), recorded=history)


def _notes(found: History) -> Iterator[str]:
    at, reserved = found.reserved.peak
    if found.reserved_peak_bytes is None:
        yield "reserved bytes are not recorded"
    else:
        live = int(found.size[found.live_at(min(at, found.steps - 1))].sum())
        yield f"reserved: at most {short_bytes(reserved)}, at step {at:,} with {short_bytes(live)} in use"
    if not found.events.is_recorded:
        yield "the snapshot has no trace: it is one moment; record one with torch.cuda.memory._record_memory_history()"
        return
    if found.is_before.any():
        size = int(found.size[found.is_before].sum())
        yield f"{int(found.is_before.sum()):,} allocations ({short_bytes(size)}) began {BEFORE} and live from its start"
    events = found.events
    failed = np.flatnonzero(np.frombuffer(events.action, np.uint8) == OOM)
    for at in failed[:1].tolist():
        yield (
            f"{len(failed):,} allocations failed; the first, at step {int(events.step[at]):,}, requested "
            f"{short_bytes(events.size[at])} with {short_bytes(events.addr[at])} free"
        )
