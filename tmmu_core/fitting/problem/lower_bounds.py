"""Lower bounds of all plans that the allowed moves can reach: a bound above the capacity proves that no plan fits.

* **Step**: when a node runs, all its inputs and outputs are live, whatever the moves. If the output can reuse an input,
  the reused bytes are counted once. A second bound then counts only the inputs: all are live one step earlier.
* **Ends**: all graph inputs are live at the start, all graph outputs at the end.
* **Persistent** storages are live at every step. A storage that no move can drop is live from first to last use.
* **Order**: if no move recomputes or offloads, the bound of the order search is valid as well. If order and in-place
  reuse are fixed too, the bound of the plan is used.

The largest bound applies. It counts the padding of storages except the largest padding: the storage on top needs none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tmmu_core.fitting.move import Kind
from tmmu_core.fitting.problem.in_place import missing_pairs, permitted_pairs
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, bounds, extents
from tmmu_core.graph.checks import read_arenas
from tmmu_core.graph.model import INPUTS_STEP, OFFLOAD_ARENA, Arena
from tmmu_core.graph.quantities import short_bytes
from tmmu_core.liveness.analyse import bytes_of_tensors
from tmmu_core.liveness.timeline import Liveness, view_roots

OUTPUTS = "@outputs"  # the moment after the last node, at which all graph outputs are live


@dataclass(frozen=True)
class ArenaBound:
    """The lower bound of one arena."""

    arena: str
    bytes: int
    step: str  # the node that needs these bytes, ``@inputs`` or ``@outputs``; empty if the bound has no single step
    tensors: tuple[str, ...]  # ids of storages live at the step; also persistent ones if no move changes live ranges
    why: str


@dataclass(frozen=True)
class LowerBound:
    """A lower bound of the extents of all plans that the allowed moves can reach."""

    arenas: tuple[ArenaBound, ...]  # one per arena, by name

    @property
    def bytes_of(self) -> dict[str, int]:
        """Arena → bytes."""
        return {bound.arena: bound.bytes for bound in self.arenas}

    @property
    def bytes(self) -> int:
        """Sum over all arenas."""
        return sum(bound.bytes for bound in self.arenas)


def alignments_of(plan_input: PlanInput, arenas: Iterable[str]) -> dict[str, int]:
    """Return arena → alignment of offsets, in bytes."""
    config = read_arenas(plan_input.arenas)
    return {name: config.get(name, Arena()).alignment_bytes for name in arenas}


def lower_bound(start: Candidate, allowed: Iterable[Kind], always_live: list[list[int]] | None = None) -> LowerBound:
    """Return the lower bound of all plans that the allowed moves can reach from ``start``.

    ``always_live``: node → storages that are live when it first runs, whatever moves are applied.
    """
    kinds, found = frozenset(allowed), list[ArenaBound]()
    if not kinds:  # neither the graph nor the planner can change
        sizes = extents(start.plan).items()
        return LowerBound(tuple(ArenaBound(name, size, "", (), "no move is allowed") for name, size in sorted(sizes)))
    if not kinds & {"order", "recompute", "offload", "inplace"}:
        for name, least in bounds(start.plan).items():
            arena = start.plan.arena_of[name]
            step = start.plan.node_at(arena.witness_step) if arena.witness_step >= 0 else ""
            found.append(ArenaBound(name, least, step, arena.witness, "live at the same step of this order"))
        return LowerBound(tuple(found))
    liveness, storages = start.liveness, start.liveness.storages
    for number, (name, alignment) in enumerate(alignments_of(start.plan_input, liveness.arenas).items()):
        if name == OFFLOAD_ARENA:
            continue
        persistent_sizes = storages.size[storages.persistent & (storages.arena == number)].tolist()
        persistent, persistent_padding = _aligned_sum(persistent_sizes, alignment)
        bound = ArenaBound(name, persistent - persistent_padding, "", (), "persistent storages are live at every step")
        for live_set in live_sets(liveness, number, alignment, "inplace" in kinds, always_live):
            other_bytes, padding = _aligned_sum(live_set.sizes.values(), alignment)
            needed = persistent + other_bytes - max(persistent_padding, padding) - live_set.reused
            if needed > bound.bytes:
                largest_first = sorted(live_set.sizes, key=lambda s: (-live_set.sizes[s], s))
                names = [liveness.timeline.index.tensor_ids[storages.head[s]] for s in largest_first]
                why = live_set.why + f"; in-place reuse saves {short_bytes(live_set.reused)}" * (live_set.reused > 0)
                why += f"; {short_bytes(persistent)} of the bound are persistent tensors" * (persistent > 0)
                bound = ArenaBound(name, needed, live_set.step, tuple(names), why)
        found.append(bound)
    return LowerBound(tuple(found))


def with_order(bound: LowerBound, needs: Mapping[str, int]) -> LowerBound:
    """Return ``bound``, raised to at least ``needs``: arena → bytes that every order needs."""
    why = "every order has at least this many live bytes at some step"
    pairs = ((old, ArenaBound(old.arena, needs.get(old.arena, 0), "", (), why)) for old in bound.arenas)
    return LowerBound(tuple(max(pair, key=lambda bound: bound.bytes) for pair in pairs))


def _aligned_sum(sizes: Collection[int], alignment: int) -> tuple[int, int]:
    """Return the sum of the sizes, each rounded up to the alignment, and the largest padding of a size."""
    paddings = [-size % alignment for size in sizes]
    return sum(sizes) + sum(paddings), max(paddings, default=0)


class LiveSet(NamedTuple):
    """Storages of one arena that are live together in every plan, without persistent ones."""

    step: str
    sizes: dict[int, int]  # storage → bytes
    why: str
    reused: int = 0  # largest number of bytes that the output of the step may share with an input


def live_sets(
    liveness: Liveness, arena: int, alignment: int, may_add_pairs: bool, always_live: list[list[int]] | None = None
) -> Iterator[LiveSet]:
    """Yield live sets of an arena: one when the inputs are loaded, one at the end, one or two for each node."""
    timeline, storages = liveness.timeline, liveness.storages
    index = timeline.index
    tensor_bytes = bytes_of_tensors(timeline)[view_roots(index)[0]].tolist()
    storage_of, size = liveness.storage_of.tolist(), storages.size.tolist()
    is_counted = (~storages.persistent & (storages.arena == arena)).tolist()
    tensors = {tensor.id: tensor for tensor in timeline.graph.tensors}

    def sizes_of(rows: Iterable[int]) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for t in rows:
            s = storage_of[t]
            if s >= 0 and is_counted[s]:
                sizes[s] = max(sizes.get(s, 0), tensor_bytes[t])
        return sizes

    yield LiveSet(INPUTS_STEP, sizes_of(np.flatnonzero(index.is_input).tolist()), "the inputs are loaded together")
    yield LiveSet(OUTPUTS, sizes_of(np.flatnonzero(index.is_output).tolist()), "the outputs are live at the end")
    for k in np.flatnonzero(timeline.step_of >= 0).tolist():
        node, reads, writes = timeline.graph.nodes[k], index.inputs_of(k).tolist(), index.outputs_of(k).tolist()
        undropped = {s: size[s] for s in (always_live[k] if always_live else ()) if is_counted[s]}
        inputs = sizes_of(reads) | undropped
        live = sizes_of([*reads, *writes]) | undropped
        reused = 0
        if len(node.outputs) == 1 and len(live) > len(inputs):
            overwritable = range(len(reads)) if node.inplace in (None, "any") else [i for i, _ in permitted_pairs(node)]
            added = missing_pairs(node, tensors) if may_add_pairs else ()  # none if ``inplace`` is ``any``
            sources = [storage_of[reads[i]] for i in (*overwritable, *(i for i, _ in added))]
            reused = max((-(-inputs[s] // alignment) * alignment for s in sources if s in inputs), default=0)
        why = "the node reads and writes them in one step" + (", or no move frees them" if undropped else "")
        yield LiveSet(node.node_id, live, why, reused)
        if reused:
            yield LiveSet(node.node_id, inputs, "the node reads them, and they are live one step earlier")
