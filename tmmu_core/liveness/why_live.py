"""Explain the live range of a tensor (contract §1–§3)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tmmu_core.graph.model import INPUTS_STEP
from tmmu_core.liveness.live_model import Liveness, Refusal

DeathReason = Literal[
    "persistent",
    "graph_output",
    "saved_for_backward",
    "handed_off",
    "written_over",
    "last_read",
    "dead",
    "gradient_kept",
]


@dataclass(frozen=True)
class Event:
    """A step and the node that runs there."""

    step: int
    node_id: str
    instr: str = ""


@dataclass(frozen=True)
class Explanation:
    """The live range ``[birth, death)`` of one tensor, and the reason for its end."""

    tensor_id: str
    birth: int
    death: int
    producer: Event | None
    """``@inputs`` for a graph input; ``None`` if no node in the timeline writes the tensor."""
    readers: tuple[Event, ...]
    """In step order, each node once."""
    reason: DeathReason
    """Reason why the live range ends at this step."""
    sentence: str
    """The reason as text."""
    takes_over: str | None
    """Tensor whose bytes this tensor reuses in place in the plan."""
    granted_by: str | None
    """Tensor whose bytes this tensor can reuse in place, whether or not it does in the plan."""
    handed_to: str | None
    """Tensor that can reuse the bytes of this tensor in place."""
    handed_over: bool
    """Whether the tensor ``handed_to`` reuses them in the plan."""
    refusals: tuple[Refusal, ...]
    """Refused in-place reuses of the bytes of this tensor."""


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
    rows = zip(liveness.handoffs.tolist(), liveness.taken.tolist(), strict=True)
    reuses = [(step, index.tensor_ids[x], index.tensor_ids[y], on) for (step, x, y), on in rows if tensor in (x, y)]
    source, reuses_source = next(((x, on) for _, x, y, on in reuses if y == tensor_id), (None, False))
    target = next(((step, y, on) for step, x, y, on in reuses if x == tensor_id), None)
    reason, sentence = _death(liveness, tensor, readers, target)
    return Explanation(
        tensor_id=tensor_id,
        birth=int(liveness.birth[tensor]),
        death=int(liveness.death[tensor]),
        producer=producer,
        readers=readers,
        reason=reason,
        sentence=sentence,
        takes_over=source if reuses_source else None,
        granted_by=source,
        handed_to=target[1] if target else None,
        handed_over=bool(target and target[2]),
        refusals=tuple([liveness.refusals[i] for i in np.flatnonzero(liveness.refusal_rows[:, 1] == tensor)]),
    )


def _event(liveness: Liveness, node: int) -> Event:
    timeline = liveness.timeline
    return Event(int(timeline.step_of[node]), timeline.index.node_ids[node], timeline.graph.nodes[node].instr)


def _death(
    liveness: Liveness, tensor: int, readers: tuple[Event, ...], target: tuple[int, str, bool] | None
) -> tuple[DeathReason, str]:
    """Return why the live range ends, as a code and as text.

    ``target``: the in-place reuse of the tensor, as (step, output, whether the plan uses it).
    """
    timeline, index = liveness.timeline, liveness.timeline.index
    name, death = index.tensor_ids[tensor], int(liveness.death[tensor])
    last = readers[-1] if readers else None
    if index.is_persistent[tensor]:
        role = timeline.graph.tensors[tensor].role
        return "persistent", f"live at every step: its role is {role}"
    if index.is_output[tensor]:
        if name not in timeline.source.outputs:
            return "gradient_kept", "live to the end: gradient of a parameter"
        return "graph_output", "live to the end: output of the graph"
    if target:
        step, to, taken = target
        at = f"#{step:,} {index.node_ids[int(timeline.node_at[step])]}"
        if taken:
            return "handed_off", f"{at}, overwritten in place by {to}"
        return "handed_off", f"{at}; could be overwritten in place by {to}, but {to} has its own memory"
    if last is not None and death == last.step + 1:
        return "last_read", f"#{last.step:,} {last.node_id}"
    if last is not None and death == last.step:
        return "written_over", f"#{last.step:,} {last.node_id}, which overwrites it"
    if last is None and death == int(liveness.birth[tensor]) + 1:
        return "dead", "never read; live for the step that writes it"
    return "saved_for_backward", "live to the end: saved for a backward pass that this mode does not run"
