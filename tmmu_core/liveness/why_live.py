"""Explain the live range of a tensor (contract §1–§3), and find the steps at which a storage is live but not used.

A storage is *used* at a step whose node writes or reads one of its tensors; ``@inputs`` uses the graph inputs.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tmmu_core.graph.model import INPUTS_STEP
from tmmu_core.liveness.timeline import I64, Liveness, Refusal


@dataclass(frozen=True)
class Event:
    """A step and the node that runs there."""

    step: int
    node_id: str
    instr: str = ""


@dataclass(frozen=True)
class Explanation:
    """The nodes that write and read one tensor, and the reason for the end of its live range."""

    producer: Event | None  # ``@inputs`` for a graph input; ``None`` if no node in the timeline writes the tensor
    readers: tuple[Event, ...]  # in step order, each node once
    reason: str  # reason why the live range ends at its last step, as text
    refusals: tuple[Refusal, ...]  # refused in-place reuses of the bytes of this tensor


def explain(liveness: Liveness, tensor_id: str) -> Explanation:
    """Explain the live range of a tensor. Raises ``KeyError`` for a tensor that is unknown or not planned."""
    timeline, index = liveness.timeline, liveness.timeline.index
    tensor = index.tensor_of[tensor_id]
    if liveness.birth[tensor] < 0:
        raise KeyError(f"{tensor_id!r} is not planned in mode {timeline.mode!r}")
    nodes = {int(node) for node in index.readers_of(tensor) if timeline.step_of[node] >= 0}
    readers = tuple(sorted([_event(liveness, node) for node in nodes], key=lambda event: event.step))
    producer = Event(0, INPUTS_STEP) if index.is_input[tensor] else None
    if index.producer[tensor] >= 0 and timeline.step_of[index.producer[tensor]] >= 0:
        producer = _event(liveness, int(index.producer[tensor]))
    refusals = tuple([liveness.refusals[i] for i in np.flatnonzero(liveness.refusal_rows[:, 1] == tensor)])
    return Explanation(producer, readers, _reason(liveness, tensor, readers), refusals)


def _event(liveness: Liveness, node: int) -> Event:
    timeline = liveness.timeline
    return Event(int(timeline.step_of[node]), timeline.index.node_ids[node], timeline.graph.nodes[node].instr)


def _reason(liveness: Liveness, tensor: int, readers: tuple[Event, ...]) -> str:
    timeline, index = liveness.timeline, liveness.timeline.index
    death, last = int(liveness.death[tensor]), readers[-1] if readers else None
    if index.is_persistent[tensor]:
        return f"live at every step: its role is {timeline.graph.tensors[tensor].role}"
    if index.is_output[tensor]:
        is_declared = index.tensor_ids[tensor] in timeline.source.outputs
        return f"live to the end: {'output of the graph' if is_declared else 'gradient of a parameter'}"
    for row in np.flatnonzero(liveness.handoffs[:, 1] == tensor).tolist():
        step, _, output = liveness.handoffs[row].tolist()
        place, name = f"#{step:,} {index.node_ids[int(timeline.node_at[step])]}", index.tensor_ids[output]
        if liveness.taken[row]:
            return f"{place}, overwritten in place by {name}"
        return f"{place}; could be overwritten in place by {name}, but {name} has its own memory"
    if last is not None and death in (last.step, last.step + 1):
        return f"#{last.step:,} {last.node_id}" + (", which overwrites it" if death == last.step else "")
    if last is None and death == int(liveness.birth[tensor]) + 1:
        return "never read; live for the step that writes it"
    return "live to the end: saved for a backward pass that this mode does not run"


@dataclass(frozen=True, eq=False)
class Idle:
    """Columns, one row per storage of a :class:`Liveness`. Values are steps; ranges are half-open."""

    live: I64  # number of steps from birth to death
    idle: I64  # number of these steps that do not use the storage
    gap_from: I64  # first step of the longest idle range (the first of equal ones); the death if there is none
    gap_to: I64  # step after that idle range
    last_use: I64  # last step that uses the storage or overwrites it in place; −1: none
    previous_use: I64  # last step before ``last_use`` that uses the storage; −1: none


def idle_of(liveness: Liveness) -> Idle:
    """Return the idle steps of every storage. O(operands · log operands)."""
    timeline, index = liveness.timeline, liveness.timeline.index
    birth, death = liveness.storages.birth.tolist(), liveness.storages.death.tolist()
    loaded = np.flatnonzero(index.is_input)
    owner = liveness.storage_of[np.concatenate([index.in_idx, index.out_idx, loaded])]
    read_at, written_at = (np.repeat(timeline.step_of, np.diff(ptr)) for ptr in (index.in_ptr, index.out_ptr))
    step = np.concatenate([read_at, written_at, np.zeros(len(loaded), np.int64)])
    uses: list[list[int]] = [[] for _ in birth]  # per storage, the steps that use it, ascending
    for storage, at in np.unique(np.stack([owner, step], axis=1), axis=0).tolist():
        if storage >= 0 and birth[storage] <= at <= death[storage]:  # a use at the death is an in-place overwrite
            uses[storage].append(at)
    rows = []
    for first, end, used in zip(birth, death, uses, strict=True):
        live_uses = [use for use in used if use < end]
        # An idle range lies between two uses. The death, and the step before the birth, count as uses here.
        gaps = [(use + 1, next_use) for use, next_use in pairwise((first - 1, *live_uses, end))]
        gap_from, gap_to = max(gaps, key=lambda gap: gap[1] - gap[0])
        if gap_from == gap_to:
            gap_from = gap_to = end
        previous_use, last_use = (-1, -1, *used)[-2:]
        rows.append((end - first, end - first - len(live_uses), gap_from, gap_to, last_use, previous_use))
    return Idle(*np.array(rows, np.int64).reshape(-1, 6).T)
