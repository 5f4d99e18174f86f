"""Recover the recomputation choice that ``write_graph.py`` wrote into a graph."""

from dataclasses import replace
from functools import lru_cache

import msgspec

from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute.live_curve import Choice
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel, recompute_model
from tmmu_core.fitting.recompute.write_graph import MARK, STATE, Drop, with_drops
from tmmu_core.graph.index import view_root
from tmmu_core.graph.model import Graph, Node


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
        self.offloaded: set[str] = set()  # tensors in the other memory
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
                name = tensor.id.removesuffix(base.removeprefix(self.original_of[base]))
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
        nodes = [
            msgspec.structs.replace(
                _without_state(node) if node.node_id in repeated else node,
                inputs=tuple(self.original_of.get(name, name) for name in node.inputs),
            )
            for node in self.graph.nodes
            if node.node_id not in self.originals and node.node_id not in self.copied_tensor
        ]
        # An order move can place a recomputing node before its original: the original then runs at the earlier place.
        original = {name: node.node_id for name, node in self.originals.items()}
        names = [name for name in self.graph.execution_order or () if name not in self.copied_tensor]
        order = tuple(dict.fromkeys([original.get(name, name) for name in names]))
        return msgspec.structs.replace(
            self.graph, tensors=tuple(tensors), nodes=tuple(nodes), execution_order=order or None
        )

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
        position = ""
        for node_id in reversed(order):
            position = position if node_id in self.originals or node_id in self.copied_tensor else node_id
            next_original[node_id] = position
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
