"""Value types of liveness: the timeline, and live ranges of tensors and storages (contract §1–§3)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tmmu_core.graph.index import GraphIndex
from tmmu_core.graph.model import Graph, Mode, Preset

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Timeline:
    """A graph resolved to a sequence of steps under a mode and a preset."""

    source: Graph  # the graph as given; hashes are computed from it
    graph: Graph  # the graph as run, with synthesised backward nodes and recomputing nodes (contract §2)
    index: GraphIndex
    mode: Mode
    preset: Preset
    node_at: I64  # shape (T,): node index run at each step; −1 for ``@inputs``
    step_of: I64  # shape (nodes,): the step of each node; −1 for a node outside this mode's timeline
    has_inputs_step: bool
    order: tuple[str, ...]  # node ids as run, without ``@inputs``
    retain: bool = True  # whether ``saved_for_backward`` counts (neither mode nor preset is ``inference``)

    @property
    def steps(self) -> int:
        """Number of steps T, with ``@inputs``."""
        return len(self.node_at)


REFUSAL_WORDS: dict[str, str] = {
    "several_outputs": "the last reader writes several outputs",
    "persistent": "the tensor is persistent",
    "graph_output": "the tensor is an output of the graph",
    "saved_for_backward": "the tensor is saved for the backward pass",
    "alias_live": "another tensor of its buffer is still live, or the output has a buffer already",
    "must_not_alias": "the two must not alias",
    "other_arena": "the two are in different arenas",
    "already_taken": "the output reuses another input",
}
"""Condition that refuses a permitted in-place reuse → its text (a clause after "because"), in checking order."""

CONDITIONS: tuple[str, ...] = tuple(REFUSAL_WORDS)


@dataclass(frozen=True)
class Refusal:
    """A refused in-place reuse, and the first condition of contract §1 that refused it."""

    step: int
    source: str
    target: str
    condition: str  # one of ``CONDITIONS``


@dataclass(frozen=True, eq=False)
class Storages:
    """Columns, one row per storage, in the order of the contract (birth, −bytes of the head, id bytes of the head)."""

    head: I64  # tensor index of the first-born member, whose id names the storage
    birth: I64
    death: I64
    size: U64  # bytes: greatest end over the members
    alignment: U64  # bytes: greatest alignment of the members; the alignment of the arena is not included
    arena: I32  # index into ``Liveness.arenas``
    persistent: NDArray[np.bool_]
    handoff_from: I64  # storage that this one may reuse in place at its birth, or −1
    must_not_alias: I64  # shape (m, 2): storage index pairs, each once, smaller first

    def __len__(self) -> int:
        return len(self.head)


@dataclass(frozen=True, eq=False)
class Liveness:
    """Live ranges of tensors and storages. Columns over tensors are parallel to ``timeline.index.tensor_ids``."""

    timeline: Timeline
    arenas: tuple[str, ...]  # names of the used and the declared arenas, in byte order
    birth: I64  # first step of each tensor; −1 for a tensor outside the timeline
    death: I64  # step after the last step at which each tensor is live; −1 for a tensor outside the timeline
    storage_of: I64  # row of each tensor's storage in ``storages``, or −1
    offset_in_storage: U64  # bytes from the storage's start; 0 except for views and in-place writes into views
    storages: Storages
    handoffs: I64  # shape (h, 3): granted in-place reuses as (step, from tensor, to tensor), in step order
    taken: NDArray[np.bool_]
    """Shape (h,): whether the output uses the input's bytes; all true until storages are placed."""
    refusal_rows: I64
    """Shape (r, 4): refused in-place reuses as (step, from tensor, to tensor, index into ``CONDITIONS``), by step."""

    @cached_property
    def refusals(self) -> tuple[Refusal, ...]:
        """The refused in-place reuses by name."""
        ids = self.timeline.index.tensor_ids
        return tuple(Refusal(int(k), ids[x], ids[y], CONDITIONS[c]) for k, x, y, c in self.refusal_rows)
