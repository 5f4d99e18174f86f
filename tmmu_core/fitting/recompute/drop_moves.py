"""Moves that drop storages: the common part of recompute moves and offload moves.

A move of either kind adds drops to a ``Choice``. Its bytes and its cost are the differences between the simulations
with and without these drops. :func:`recover_choice` reads back the choice that ``write_graph.py`` wrote into a graph.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec

from tmmu_core.fitting.move import Cost, Kind, Move
from tmmu_core.fitting.problem.answer import Capacity
from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute.live_curve import MOST_FLOPS, Choice, Run, run
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel, recompute_model
from tmmu_core.fitting.recompute.write_graph import MARK, STATE, Drop, with_drops, write_graph, write_runs
from tmmu_core.graph.index import view_root
from tmmu_core.graph.model import Graph, Node
from tmmu_core.planners.problem import Progress

MOST_SINGLE_MOVES = 200  # maximum number of single moves of a kind
TIGHTENED_GOALS = tuple(
    1_000_000 - less for less in (0, 10, 100, 500, 1_000, 2_000, 4_000, 7_000, 10_000, 20_000, 40_000, 70_000, 100_000)
)
"""Parts per million of the goal, tried in order, because a planner can need more bytes than are live at the peak."""
Groups = Iterable[tuple[list[int], Choice]]  # ``members`` and ``drops`` of each ``AddedDrops``
REPORT_EVERY = 64  # a search reports progress once in this number of rounds


def apply_drops(plan_input: PlanInput, kind: Kind, moves: Iterable[Move]) -> PlanInput:
    """Apply moves whose ``details`` have ``"drops": [[tensor, node after which it is dropped], …]``.

    A node is a node of the graph without recomputation, or ``n0@remat``: every recomputing run of ``n0``. A single move
    can have ``"runs": [node, …]`` instead, see :func:`write_runs`. Raises ``InvalidIrShapes`` (reason
    ``recompute``) for an invalid drop (:func:`with_drops`).
    """
    model, choice = recover_choice(plan_input)
    details = [move.details for move in moves]
    if "runs" in details[0]:
        position = {model.node_id(k): k for k in range(len(model.node_at))}
        return replace(plan_input, graph=write_runs(model, [position[node] for node in details[0]["runs"]]))
    drops = [drop for entry in details for drop in entry["drops"]]
    return replace(plan_input, graph=write_graph(model, with_drops(model, choice, drops, offload=kind == "offload")))


@dataclass(frozen=True, eq=False)
class AddedDrops:
    """Drops that are added to a choice, and the simulations without and with them."""

    model: RecomputeModel
    members: list[int]  # Recompute: positions of the nodes whose outputs are dropped. Offload: storages.
    drops: Choice
    old_run: Run
    new_run: Run

    def move(
        self, kind: Kind, what: str, why: str, tensors: tuple[str, ...], nodes: tuple[str, ...], **details: Any
    ) -> Move:
        """Return the move that adds the drops; ``details`` are further details of the move."""
        old, new = self.old_run, self.new_run
        moved = new.moved - old.moved if kind == "offload" else 0
        cost = Cost(max(0, new.flops - old.flops), moved, max(0, new.extra_steps - old.extra_steps))
        model, added = self.model, self.drops
        drops = [(k, s, "") for k, s in zip(*(column.tolist() for column in added.pairs), strict=True)]
        edges = (-1 - added.drops[added.drops < 0]).tolist()
        drops += [(int(model.reader[e]), int(model.in_idx[e]), MARK) for e in edges]
        details = {"drops": [[model.name_of(s), model.node_id(k) + mark] for k, s, mark in sorted(drops)], **details}
        return Move(kind, what, why, tensors, nodes, cost, old.total - new.total, details)


def added_in_turn(model: RecomputeModel, initial: Choice, groups: Groups) -> Iterator[AddedDrops]:
    """Add each group to ``initial`` and all groups before it, and yield the result.

    A group that is impossible without the next group is added together with the next.
    """
    old, new, old_run, together = initial, initial, run(model, initial), list[int]()
    for members, drops in groups:
        new, together = new | drops, together + members
        new_run = run(model, new)
        if new_run.flops < MOST_FLOPS:
            yield AddedDrops(model, together, new - old, old_run, new_run)
            old, old_run, together = new, new_run, []


def best_added_alone(
    model: RecomputeModel, initial: Choice, groups: Groups, key: Callable[[AddedDrops], int]
) -> list[AddedDrops]:
    """Return the groups that lower the sum of peaks, each added alone to ``initial``; by rising sum, then ``key``."""
    base = run(model, initial)
    found = [AddedDrops(model, group, drops - initial, base, run(model, initial | drops)) for group, drops in groups]
    lower = [added for added in found if added.new_run.total < base.total]
    return sorted(lower, key=lambda added: (added.new_run.total, key(added)))[:MOST_SINGLE_MOVES]


def excess_over_share(goal: Capacity, share: int) -> Callable[[Mapping[str, int]], int]:
    """Return a function from arena sizes to their excess over ``share`` parts per million of the goal.

    The sizes are scaled instead of the limits, so the excess is scaled by 1,000,000 / ``share``.
    """
    return lambda bytes_of: goal.over({name: size * 1_000_000 // share for name, size in bytes_of.items()})


def progress_check(report: Progress | None, what: str) -> Callable[[], bool]:
    """Return a function that each round of a search calls: it returns whether to continue, and can report progress."""
    done = 0

    def should_continue() -> bool:
        nonlocal done
        done += 1
        return report is None or done % REPORT_EVERY > 0 or report(what, done, 0)

    return should_continue


@lru_cache(maxsize=2)
def recover_choice(plan_input: PlanInput) -> tuple[RecomputeModel, Choice]:
    """Return the model of the graph without recomputation and offload, and a choice that adds them.

    Only drops after nodes of the initial graph are recovered; each follows the last use of one copy of the storage.
    Drops after recomputing runs are lost, so a graph written from the choice can have other recomputing runs.
    """
    added = _Added(plan_input.graph)
    if not added.originals and not added.copied_tensor:
        model = recompute_model(plan_input)
        return model, Choice.nothing(model)
    model = recompute_model(replace(plan_input, graph=added.original_graph()))
    drops, offloaded = added.drops(model), set(added.copied_tensor.values())
    choice = with_drops(model, Choice.nothing(model), [drop for drop in drops if drop[0] not in offloaded])
    return model, with_drops(model, choice, [drop for drop in drops if drop[0] in offloaded], offload=True)


class _Added:
    """The nodes and tensors of a graph that ``write_graph.py`` added."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        nodes = {node.node_id: node for node in graph.nodes}
        self.originals: dict[str, Node] = {}  # recomputing node → its original (``_without_state``)
        self.copied_tensor: dict[str, str] = {}  # copy node → the original tensor that is copied
        self.original_of: dict[str, str] = {}  # recomputed tensor, tensor copied back, or view of either → original
        self.offloaded: set[str] = set()  # tensors in the arena ``offload``
        for node in graph.nodes:
            if node.offloads:
                self.copied_tensor[node.node_id] = node.offloads
                if node.instr == "copy_in":
                    self.original_of[node.outputs[0]] = node.offloads
                elif node.instr == "copy_out":
                    self.offloaded.add(node.outputs[0])
            if node.recomputes in nodes and node.node_id.startswith(f"{node.recomputes}{MARK}"):
                original = _without_state(nodes[node.recomputes])
                if len(node.outputs) == len(original.outputs):
                    self.originals[node.node_id] = original
                    self.original_of |= zip(node.outputs, original.outputs, strict=True)
        known = {tensor.id for tensor in graph.tensors}
        written = {name for node in graph.nodes for name in node.outputs}
        for tensor in graph.tensors:
            base = "" if tensor.view is None else tensor.view.base_tensor_uid
            if base in self.original_of and tensor.id not in written:
                name = tensor.id.removesuffix(base.removeprefix(self.original_of[base]))  # without the copy's suffix
                if name != tensor.id and name in known:
                    self.original_of[tensor.id] = name

    def original_graph(self) -> Graph:
        repeated = {node.node_id for node in self.originals.values()}
        removed = self.original_of.keys() | self.offloaded | {f"{node_id}{STATE}" for node_id in repeated}
        tensors = []
        for tensor in (tensor for tensor in self.graph.tensors if tensor.id not in removed):
            if tensor.view is not None and tensor.view.base_tensor_uid in self.original_of:
                base = self.original_of[tensor.view.base_tensor_uid]
                view = msgspec.structs.replace(tensor.view, base_tensor_uid=base)
                tensor = msgspec.structs.replace(tensor, view=view)
            tensors.append(tensor)
        nodes = []
        for node in self.graph.nodes:
            if node.node_id not in self.originals and node.node_id not in self.copied_tensor:
                inputs = tuple(self.original_of.get(name, name) for name in node.inputs)
                original = _without_state(node) if node.node_id in repeated else node
                nodes.append(msgspec.structs.replace(original, inputs=inputs))
        # An order move can place a recomputing node before its original: the original then runs at the earlier place.
        original_id = {name: node.node_id for name, node in self.originals.items()}
        names = [name for name in self.graph.execution_order or () if name not in self.copied_tensor]
        order = tuple(dict.fromkeys([original_id.get(name, name) for name in names])) or None
        return msgspec.structs.replace(self.graph, tensors=tuple(tensors), nodes=tuple(nodes), execution_order=order)

    def drops(self, model: RecomputeModel) -> list[Drop]:
        """Return the drops: a storage is dropped after a use if its next use reads another copy."""
        index, storage_of = model.timeline.index, model.liveness.storage_of
        nodes = {node.node_id: node for node in self.graph.nodes}
        tensors = {tensor.id: tensor for tensor in self.graph.tensors}
        writer_of = {name: node.node_id for node in self.graph.nodes for name in node.outputs}

        def storages(names: tuple[str, ...]) -> list[tuple[str, int]]:
            """Return ``(tensor, its storage in the model)`` for tensors of the graph, without generator states."""
            originals = [(name, index.tensor_of.get(self.original_of.get(name, name))) for name in names]
            return [(name, int(storage_of[i])) for name, i in originals if i is not None]

        def writer(name: str) -> str:
            """Return the node that computes or copies back the root of a tensor; ``""`` for an input."""
            return writer_of.get(view_root(tensors, name), "")

        order = self.graph.execution_order or ()
        next_original: dict[str, str] = {}  # node → itself; for an added node, the next original node in the order
        original = ""
        for node_id in reversed(order):
            original = original if node_id in self.originals or node_id in self.copied_tensor else node_id
            next_original[node_id] = original
        last_use: dict[int, tuple[str, str]] = {}  # storage → writer of the last used copy, original node of that use
        found: dict[Drop, None] = {}
        for node in (nodes[node_id] for node_id in order if node_id not in self.copied_tensor):
            for name, s in storages(node.inputs):
                previous_use = last_use.get(s)
                last_use[s] = (writer(name), next_original[node.node_id])
                if previous_use is not None and previous_use[0] != last_use[s][0] and model.movable[s]:
                    found[model.name_of(s), previous_use[1]] = None
            if node.node_id not in self.originals:
                for name, s in storages(node.outputs):
                    last_use.setdefault(s, (writer(name), node.node_id))
        return list(found)


def _without_state(node: Node) -> Node:
    """Return the node without the output that saves its generator state."""
    state = f"{node.node_id}{STATE}"
    return msgspec.structs.replace(node, outputs=tuple(name for name in node.outputs if name != state))
