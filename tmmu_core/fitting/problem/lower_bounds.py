"""Lower bounds over all plans that the allowed moves can reach: the proof behind "cannot".

* **Step**: a node needs all its inputs and outputs at once, in any order, with recomputation and offload. Its inputs
  are live one step earlier too, so that with in-place reuse the larger need of the two steps counts.
* **Ends**: all graph inputs are live at the start, all graph outputs at the end.
* **Persistent** storages are live at every step. A storage that no move can drop is live between its first and its
  last use.
* **Order**: without recomputation and offload, the bound of the order search holds; with a fixed order, the plan's
  bound.

The extent of an arena is at least the largest of these bounds, with all storages but one rounded up to the alignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tmmu_core.fitting.move import Kind
from tmmu_core.fitting.problem.capacity import bounds
from tmmu_core.fitting.problem.in_place import missing_pairs
from tmmu_core.fitting.problem.planner_calls import Candidate, PlanInput, extents
from tmmu_core.graph.arenas import read_arenas
from tmmu_core.graph.model import INPUTS_STEP, OFFLOAD_ARENA, Arena, Node, Tensor
from tmmu_core.liveness.analyse import row_bytes
from tmmu_core.liveness.live_model import Liveness
from tmmu_core.liveness.live_ranges import view_roots
from tmmu_core.plans.model import Plan

OUTPUTS = "@outputs"
"""The moment after the last node, at which all graph outputs are live."""


@dataclass(frozen=True)
class Need:
    """The lower bound of one arena."""

    arena: str
    bytes: int
    step: str
    """The node that needs these bytes, ``@inputs`` or ``@outputs``; empty for a combined bound."""
    tensors: tuple[str, ...]
    """Ids of the storages whose sizes add up to the bound, without persistent ones."""
    why: str


@dataclass(frozen=True)
class LowerBound:
    """A lower bound of the extents of all plans that the allowed moves can reach."""

    needs: tuple[Need, ...]
    """One per arena, by name."""

    @property
    def bytes_of(self) -> dict[str, int]:
        """Arena → bytes."""
        return {need.arena: need.bytes for need in self.needs}

    @property
    def bytes(self) -> int:
        """Sum over all arenas."""
        return sum(need.bytes for need in self.needs)


def alignments_of(plan_input: PlanInput) -> dict[str, int]:
    """Return arena → alignment of offsets, in bytes."""
    config = read_arenas(plan_input.arenas)
    return {name: arena.alignment_bytes for name, arena in config.items()} or dict.fromkeys(
        ("activations", "gradients", "parameters", OFFLOAD_ARENA), Arena().alignment_bytes
    )


def lower_bound(
    start: Candidate, allowed: Iterable[Kind], always_live: Sequence[Sequence[int]] | None = None
) -> LowerBound:
    """Return the lower bound of all plans that the allowed moves can reach from ``start``.

    ``always_live``: node → storages that are live when it first runs.
    """
    kinds = frozenset(allowed)
    if not kinds:  # the planner is fixed too
        sizes = extents(start.plan).items()
        return LowerBound(tuple(Need(name, size, "", (), "no move is allowed") for name, size in sorted(sizes)))
    if not kinds & {"order", "recompute", "offload", "inplace"}:
        return LowerBound(tuple(_order_needs(start.plan)))
    return LowerBound(tuple(_step_needs(start.plan_input, start.liveness, "inplace" in kinds, always_live)))


def with_order(bound: LowerBound, needs: Mapping[str, int]) -> LowerBound:
    """Return the bound raised by the proof over all orders."""
    raised = []
    for need in bound.needs:
        proven = needs.get(need.arena, 0)
        if proven > need.bytes:
            need = Need(need.arena, proven, "", (), "every order has at least this many live bytes at some step")
        raised.append(need)
    return LowerBound(tuple(raised))


def _order_needs(plan: Plan) -> Iterable[Need]:
    for name, least in bounds(plan).items():
        arena = plan.arena_of[name]
        step = plan.node_at(arena.witness_step) if arena.witness_step >= 0 else ""
        yield Need(name, least, step, arena.witness, "live at the same step of this order")


def _step_needs(
    plan_input: PlanInput, liveness: Liveness, may_take_over: bool, always_live: Sequence[Sequence[int]] | None
) -> Iterable[Need]:
    storages, alignments = liveness.storages, alignments_of(plan_input)
    for number, arena in enumerate(liveness.arenas):
        if arena == OFFLOAD_ARENA:
            continue
        alignment = alignments.get(arena, Arena().alignment_bytes)
        in_arena = storages.persistent & (storages.arena == number)
        persistent = _AlignedSum(alignment).plus(storages.size[in_arena].tolist())
        best = Need(arena, persistent.bytes, "", (), "persistent storages are live at every step")
        for moment in _moments(liveness, number, alignment, may_take_over, always_live):
            least = persistent.plus(moment.sizes.values()).bytes - moment.reused
            if least > best.bytes:
                largest_first = sorted(moment.sizes, key=lambda s: (-moment.sizes[s], s))
                names = [liveness.timeline.index.tensor_ids[storages.head[s]] for s in largest_first]
                best = Need(arena, least, moment.step, tuple(names), moment.why)
        yield best


class _Moment(NamedTuple):
    """Storages of one arena that are live together in every plan, without persistent ones."""

    step: str
    sizes: dict[int, int]
    """Storage → bytes."""
    why: str
    reused: int = 0
    """Largest number of bytes that the output of the step may share with an input."""


def _moments(
    liveness: Liveness,
    arena: int,
    alignment: int,
    may_take_over: bool,
    always_live: Sequence[Sequence[int]] | None,
) -> Iterator[_Moment]:
    timeline, storages = liveness.timeline, liveness.storages
    index = timeline.index
    tensor_bytes = row_bytes(timeline)[view_roots(index)[0]].tolist()
    storage_of, size = liveness.storage_of.tolist(), storages.size.tolist()
    counts = (~storages.persistent & (storages.arena == arena)).tolist()
    tensors = {tensor.id: tensor for tensor in timeline.graph.tensors}

    def sizes_of(rows: Iterable[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for t in rows:
            s = storage_of[t]
            if s >= 0 and counts[s]:
                found[s] = max(found.get(s, 0), tensor_bytes[t])
        return found

    yield _Moment(INPUTS_STEP, sizes_of(np.flatnonzero(index.is_input).tolist()), "the inputs are loaded together")
    yield _Moment(OUTPUTS, sizes_of(np.flatnonzero(index.is_output).tolist()), "the outputs are live at the end")
    for k in np.flatnonzero(timeline.step_of >= 0).tolist():
        node, reads, writes = timeline.graph.nodes[k], index.inputs_of(k).tolist(), index.outputs_of(k).tolist()
        undropped = {s: size[s] for s in (always_live[k] if always_live else ()) if counts[s]}
        inputs = sizes_of(reads) | undropped
        live = sizes_of([*reads, *writes]) | undropped
        reused = 0
        if len(node.outputs) == 1 and len(live) > len(inputs):
            sources = [storage_of[reads[i]] for i in _overwritable_inputs(node, tensors, may_take_over)]
            reused = max((-(-inputs[s] // alignment) * alignment for s in sources if s in inputs), default=0)
        why = "the node reads and writes them in one step" + (", or no move drops them" if undropped else "")
        yield _Moment(node.node_id, live, why, reused)
        if reused:
            yield _Moment(node.node_id, inputs, "the node reads them, and they are live one step earlier")


def _overwritable_inputs(node: Node, tensors: dict[str, Tensor], may_take_over: bool) -> list[int]:
    """Return the positions of inputs that the output may overwrite, with permissions that may be added."""
    if node.inplace is None or node.inplace == "any":
        return list(range(len(node.inputs)))
    permitted = [] if isinstance(node.inplace, str) else [i for i, _ in node.inplace]
    return permitted + [i for i, _ in missing_pairs(node, tensors)] if may_take_over else permitted


@dataclass(frozen=True)
class _AlignedSum:
    """The bytes of storages side by side: all but the one with most padding are rounded up to the alignment."""

    alignment: int
    padded: int = 0
    padding: int = 0
    """Most padding of a storage."""

    def plus(self, sizes: Iterable[int]) -> _AlignedSum:
        padded, padding = self.padded, self.padding
        for size in sizes:
            padded += -(-size // self.alignment) * self.alignment
            padding = max(padding, -size % self.alignment)
        return _AlignedSum(self.alignment, padded, padding)

    @property
    def bytes(self) -> int:
        return self.padded - self.padding
