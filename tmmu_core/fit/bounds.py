"""What every plan needs, whatever is moved: the proof behind "cannot".

* **A step**: no node runs without all that it reads and writes in its place, wherever the rest is, in whatever order,
  recomputed or fetched back. What it reads is there a step earlier too, so that where its output may take an input's
  place the greater of the two moments counts.
* **The beginning** holds all inputs of the graph, **the end** all its outputs.
* **Persistent** storages are there at every step.
* **The order**: where nothing may be recomputed or moved away, no order's peaks are below what ``fit/order`` proves;
  where the order may not change either, the plan's own bound holds.

An arena's extent is at least the greatest of these for it, all storages but one rounded up to its grid, and what is
held to the capacity is the arenas' sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tmmu_core.fit.asking import Question, extents
from tmmu_core.fit.capacity import Capacity, bounds
from tmmu_core.fit.inplace import missing_pairs
from tmmu_core.fit.moves import Kind
from tmmu_core.graph.arenas import read_arenas
from tmmu_core.graph.model import INPUTS_STEP, OFFLOAD_ARENA, Arena, Node, Tensor
from tmmu_core.liveness.analyse import row_bytes
from tmmu_core.liveness.model import Liveness
from tmmu_core.liveness.views import view_roots
from tmmu_core.plan.making.engine import Solution

OUTPUTS = "@outputs"
"""The end, after the last node: what the graph gives is there."""


@dataclass(frozen=True)
class Need:
    """What one arena needs at least."""

    arena: str
    bytes: int
    step: str
    """The node that needs it, ``@inputs`` or ``@outputs``; empty where several moments together make it."""
    tensors: tuple[str, ...]
    """The storages that make it, by the ids that name them; persistent ones left out."""
    why: str


@dataclass(frozen=True)
class LowerBound:
    """No plan that the allowed moves lead to has smaller extents."""

    needs: tuple[Need, ...]
    """One an arena, by name."""

    @property
    def bytes_of(self) -> dict[str, int]:
        """Arena → bytes."""
        return {need.arena: need.bytes for need in self.needs}

    @property
    def bytes(self) -> int:
        """Over all arenas."""
        return sum(need.bytes for need in self.needs)

    def hardest(self, capacity: Capacity) -> Need:
        """The need that the capacity fails by most; the largest where it fails by the sum."""
        over = {need.arena: need.bytes - capacity.arenas.get(need.arena, need.bytes) for need in self.needs}
        return max(self.needs, key=lambda need: (over[need.arena], need.bytes, need.arena))


def grids_of(question: Question) -> dict[str, int]:
    """Arena → the bytes that its alignment makes every start a multiple of."""
    config = read_arenas(question.arenas)
    return {name: arena.alignment_bytes for name, arena in config.items()} or dict.fromkeys(
        ("activations", "gradients", "parameters", OFFLOAD_ARENA), Arena().alignment_bytes
    )


def lower_bound(question: Question, solution: Solution, allowed: Iterable[Kind]) -> LowerBound:
    """What every plan needs that the allowed moves lead to from ``question``, which was planned as ``solution``."""
    kinds = frozenset(allowed)
    if not kinds:
        sizes = extents(solution.plan).items()
        return LowerBound(tuple(Need(name, size, "", (), "no move is allowed") for name, size in sorted(sizes)))
    if not kinds & {"order", "recompute", "offload", "inplace"}:
        return LowerBound(tuple(_of_the_order(solution)))
    return LowerBound(tuple(_of_steps(question, solution.liveness, "inplace" in kinds)))


def with_order(bound: LowerBound, needs: Mapping[str, int]) -> LowerBound:
    """``bound`` raised, arena by arena, to what is proven of every order."""
    raised = []
    for need in bound.needs:
        proven = needs.get(need.arena, 0)
        if proven > need.bytes:
            need = Need(need.arena, proven, "", (), "in every order so much is alive at some step")
        raised.append(need)
    return LowerBound(tuple(raised))


def _of_the_order(solution: Solution) -> Iterable[Need]:
    least = bounds(solution.plan)
    for arena in solution.plan.arenas:
        if arena.name in least:
            step = solution.plan.node_at(arena.witness_step) if arena.witness_step >= 0 else ""
            yield Need(arena.name, least[arena.name], step, arena.witness, "alive together in this order")


def _of_steps(question: Question, liveness: Liveness, may_take_over: bool) -> Iterable[Need]:
    timeline = liveness.timeline
    index, storages = timeline.index, liveness.storages
    own = row_bytes(timeline).astype(object)
    of_root = own[view_roots(index)[0]].tolist()
    storage_of, arena_of = liveness.storage_of.tolist(), storages.arena.tolist()
    persistent = storages.persistent.tolist()
    grids = grids_of(question)
    tensors = {tensor.id: tensor for tensor in timeline.graph.tensors}
    names = [index.tensor_ids[h] for h in storages.head.tolist()]
    for number, arena in enumerate(liveness.arenas):
        if arena == OFFLOAD_ARENA:
            continue
        grid = grids.get(arena, Arena().alignment_bytes)
        always = [int(size) for s, size in enumerate(storages.size) if persistent[s] and arena_of[s] == number]
        base = _Sum(
            grid, sum(-(-size // grid) * grid for size in always), max((-size % grid for size in always), default=0)
        )
        best = (base.least, "", (), "persistent storages are there at every step")

        def held(tensors: Iterable[int], here: int = number) -> dict[int, int]:
            found: dict[int, int] = {}
            for t in tensors:
                s = storage_of[t]
                if s >= 0 and arena_of[s] == here and not persistent[s]:
                    found[s] = max(found.get(s, 0), of_root[t])
            return found

        moments = [(INPUTS_STEP, held(np.flatnonzero(index.is_input).tolist()), 0, "the inputs are loaded together")]
        moments.append((OUTPUTS, held(np.flatnonzero(index.is_output).tolist()), 0, "the outputs are there at the end"))
        for k, node in enumerate(timeline.graph.nodes):
            if timeline.step_of[k] < 0:
                continue
            reads, writes = index.inputs_of(k).tolist(), index.outputs_of(k).tolist()
            inputs, everything = held(reads), held([*reads, *writes])
            fresh = set(everything) - set(inputs)
            gives = 0
            if len(node.outputs) == 1 and fresh:
                takers = [storage_of[reads[i]] for i in _may_give(node, tensors, may_take_over)]
                gives = max((-(-inputs[s] // grid) * grid for s in takers if s in inputs), default=0)
            why = "the node reads and writes them in one step"
            moments.append((node.node_id, everything, gives, why))
            if gives:
                moments.append((node.node_id, inputs, 0, "the node reads them, and they are there a step before"))
        for step, sizes, gives, why in moments:
            least = base.with_(sizes.values()).least - gives
            if least > best[0]:
                best = (least, step, tuple(names[s] for s in sorted(sizes, key=lambda s: (-sizes[s], s))), why)
        yield Need(arena, *best)


def _may_give(node: Node, tensors: dict[str, Tensor], may_take_over: bool) -> list[int]:
    """Inputs, by position, whose place the output may take: by permission, or by one that may be added."""
    if node.inplace is None or node.inplace == "any":
        return list(range(len(node.inputs)))
    given = [] if isinstance(node.inplace, str) else [i for i, _ in node.inplace]
    return given + [i for i, _ in missing_pairs(node, tensors)] if may_take_over else given


@dataclass(frozen=True)
class _Sum:
    """Storages side by side: all but one rounded up to the grid, at best the one that gains most by it."""

    grid: int
    padded: int
    pad: int

    def with_(self, sizes: Iterable[int]) -> _Sum:
        padded, pad = self.padded, self.pad
        for size in sizes:
            padded += -(-size // self.grid) * self.grid
            pad = max(pad, -size % self.grid)
        return _Sum(self.grid, padded, pad)

    @property
    def least(self) -> int:
        return self.padded - self.pad
