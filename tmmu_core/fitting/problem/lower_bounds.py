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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tmmu_core.fitting.move import Kind
from tmmu_core.fitting.problem.capacity import bounds
from tmmu_core.fitting.problem.in_place import missing_pairs
from tmmu_core.fitting.problem.planner_calls import PlanInput, extents
from tmmu_core.graph.arenas import read_arenas
from tmmu_core.graph.model import INPUTS_STEP, OFFLOAD_ARENA, Arena, Node, Tensor
from tmmu_core.liveness.analyse import row_bytes
from tmmu_core.liveness.live_model import Liveness
from tmmu_core.liveness.live_ranges import view_roots
from tmmu_core.plans.making.engine import Solution
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


def grids_of(plan_input: PlanInput) -> dict[str, int]:
    """Return arena → alignment of offsets, in bytes."""
    config = read_arenas(plan_input.arenas)
    return {name: arena.alignment_bytes for name, arena in config.items()} or dict.fromkeys(
        ("activations", "gradients", "parameters", OFFLOAD_ARENA), Arena().alignment_bytes
    )


def lower_bound(
    plan_input: PlanInput,
    solution: Solution,
    allowed: Iterable[Kind],
    always_live: Sequence[Sequence[int]] | None = None,
) -> LowerBound:
    """Return the lower bound of all plans that the allowed moves can reach.

    ``always_live``: node → storages that are live when it first runs.
    """
    kinds = frozenset(allowed)
    if not kinds:  # the planner is fixed too
        sizes = extents(solution.plan).items()
        return LowerBound(tuple(Need(name, size, "", (), "no move is allowed") for name, size in sorted(sizes)))
    if not kinds & {"order", "recompute", "offload", "inplace"}:
        return LowerBound(tuple(_order_needs(solution.plan)))
    return LowerBound(tuple(_step_needs(plan_input, solution.liveness, "inplace" in kinds, always_live)))


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
    timeline = liveness.timeline
    index, storages = timeline.index, liveness.storages
    own = row_bytes(timeline).astype(object)
    of_root = own[view_roots(index)[0]].tolist()
    storage_of, arena_of = liveness.storage_of.tolist(), storages.arena.tolist()
    persistent, size_of = storages.persistent.tolist(), storages.size.tolist()
    grids = grids_of(plan_input)
    tensors = {tensor.id: tensor for tensor in timeline.graph.tensors}
    names = [index.tensor_ids[h] for h in storages.head.tolist()]
    for number, arena in enumerate(liveness.arenas):
        if arena == OFFLOAD_ARENA:
            continue
        grid = grids.get(arena, Arena().alignment_bytes)
        always = [int(size) for s, size in enumerate(storages.size) if persistent[s] and arena_of[s] == number]
        base = _Sum(grid, 0, 0).with_(always)
        best = (base.least, "", (), "persistent storages are live at every step")

        def sizes_in(tensors: Iterable[int], here: int = number) -> dict[int, int]:
            found: dict[int, int] = {}
            for t in tensors:
                s = storage_of[t]
                if s >= 0 and arena_of[s] == here and not persistent[s]:
                    found[s] = max(found.get(s, 0), of_root[t])
            return found

        moments = [
            (INPUTS_STEP, sizes_in(np.flatnonzero(index.is_input).tolist()), 0, "the inputs are loaded together")
        ]
        moments.append(
            (OUTPUTS, sizes_in(np.flatnonzero(index.is_output).tolist()), 0, "the outputs are live at the end")
        )
        for k, node in enumerate(timeline.graph.nodes):
            if timeline.step_of[k] < 0:
                continue
            reads, writes = index.inputs_of(k).tolist(), index.outputs_of(k).tolist()
            others = always_live[k] if always_live is not None else ()
            staying = {s: size_of[s] for s in others if arena_of[s] == number}
            inputs, everything = sizes_in(reads) | staying, sizes_in([*reads, *writes]) | staying
            fresh = set(everything) - set(inputs)
            overlap = 0
            if len(node.outputs) == 1 and fresh:
                overwritable = [storage_of[reads[i]] for i in _overwritable_inputs(node, tensors, may_take_over)]
                overlap = max((-(-inputs[s] // grid) * grid for s in overwritable if s in inputs), default=0)
            why = "the node reads and writes them in one step" + (", or no move drops them" if staying else "")
            moments.append((node.node_id, everything, overlap, why))
            if overlap:
                moments.append((node.node_id, inputs, 0, "the node reads them, and they are live one step earlier"))
        for step, sizes, overlap, why in moments:
            least = base.with_(sizes.values()).least - overlap
            if least > best[0]:
                best = (least, step, tuple(names[s] for s in sorted(sizes, key=lambda s: (-sizes[s], s))), why)
        yield Need(arena, *best)


def _overwritable_inputs(node: Node, tensors: dict[str, Tensor], may_take_over: bool) -> list[int]:
    """Return the positions of inputs that the output may overwrite, with permissions that may be added."""
    if node.inplace is None or node.inplace == "any":
        return list(range(len(node.inputs)))
    given = [] if isinstance(node.inplace, str) else [i for i, _ in node.inplace]
    return given + [i for i, _ in missing_pairs(node, tensors)] if may_take_over else given


@dataclass(frozen=True)
class _Sum:
    """Size of storages side by side: all but the one with most padding are rounded up to the alignment."""

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
