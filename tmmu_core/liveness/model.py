"""The nouns of liveness: the timeline of steps, and when each tensor and each storage lives (contract §1–§3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tmmu_core.graph.index import GraphIndex
from tmmu_core.graph.model import Graph, Mode, Preset
from tmmu_core.once import cached_property

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Timeline:
    """A graph resolved to a sequence of steps under a mode and a preset.

    ``graph`` is the graph as run: the given one, with the synthesised backward and the rematerialised nodes where the
    mode and the preset ask for them (contract §2). ``source`` is the graph as given; hashes are taken of that one.
    """

    source: Graph
    graph: Graph
    index: GraphIndex
    mode: Mode
    preset: Preset
    node_at: I64
    """Shape (T,): node index (into ``index.nodes``) run at each step; −1 for ``@inputs``."""
    step_of: I64
    """Shape (nodes,): the step of each node; −1 for a node outside this mode's timeline."""
    has_inputs_step: bool
    order: tuple[str, ...]
    """Node ids as run, ``@inputs`` excluded."""
    retain: bool = True
    """Whether saved marks hold tensors (neither mode nor preset is ``inference``)."""

    @property
    def steps(self) -> int:
        """T, ``@inputs`` included."""
        return len(self.node_at)


CONDITIONS: tuple[str, ...] = (
    "several_outputs",
    "persistent",
    "graph_output",
    "saved_for_backward",
    "alias_live",
    "must_not_alias",
    "other_arena",
    "already_taken",
)
"""Why a permitted hand-off is refused, in the order in which the conditions are tried."""


@dataclass(frozen=True)
class Refusal:
    """A hand-off that was not granted, and the first condition of contract §1 that refused it."""

    step: int
    source: str
    target: str
    condition: str
    """One of ``CONDITIONS``."""


@dataclass(frozen=True, eq=False)
class Storages:
    """Columns, one row per storage, in the normative order (birth, −bytes of the head, id bytes of the head)."""

    head: I64
    """Tensor index of the first-born member, which names the storage."""
    birth: I64
    death: I64
    size: U64
    """Bytes: the greatest extent over the members."""
    alignment: U64
    """Bytes: the greatest over the members' own alignments; the arena's floor is not applied here."""
    arena: I32
    """Index into ``Liveness.arenas``."""
    persistent: NDArray[np.bool_]
    handoff_from: I64
    """Storage index whose place this one may take at its birth, or −1."""
    must_not_alias: I64
    """Shape (m, 2): storage index pairs, each once, smaller first."""

    def __len__(self) -> int:
        return len(self.head)


@dataclass(frozen=True, eq=False)
class Liveness:
    """When everything lives. Tensor columns parallel ``timeline.index.tensor_ids``."""

    timeline: Timeline
    arenas: tuple[str, ...]
    """Names of the arenas in use, in byte order."""
    birth: I64
    """First step of each tensor; −1 for a tensor outside this mode's timeline."""
    death: I64
    """Step after the last one; −1 likewise."""
    storage_of: I64
    """Row of ``storages`` of each tensor; −1 likewise."""
    offset_in_storage: U64
    """Bytes from the storage's start: 0 but for views and for what is written in place into a view."""
    storages: Storages
    handoffs: I64
    """Shape (h, 3): granted hand-offs as (step, from tensor, to tensor), in step order."""
    taken: NDArray[np.bool_]
    """Shape (h,): whether the taker lies on the giver's bytes; all are taken to, until storages are placed."""
    refusal_rows: I64
    """Shape (r, 4): refused ones as (step, from tensor, to tensor, index into ``CONDITIONS``), in step order."""

    @cached_property
    def refusals(self) -> tuple[Refusal, ...]:
        """The refused hand-offs in words."""
        ids = self.timeline.index.tensor_ids
        return tuple(Refusal(int(k), ids[x], ids[y], CONDITIONS[c]) for k, x, y, c in self.refusal_rows)
