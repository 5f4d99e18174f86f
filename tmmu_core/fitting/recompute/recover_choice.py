"""Recover the recomputation choice that ``write_graph.py`` wrote into a graph."""

from dataclasses import replace
from functools import lru_cache

import msgspec

from tmmu_core.fitting.problem.planner_calls import PlanInput
from tmmu_core.fitting.recompute.live_curve import Choice
from tmmu_core.fitting.recompute.recompute_model import RecomputeModel, recompute_model
from tmmu_core.fitting.recompute.write_graph import MARK, STATE, Drop, with_drops
from tmmu_core.graph.model import Graph, Node


@lru_cache(maxsize=2)
def recover_choice(plan_input: PlanInput) -> tuple[RecomputeModel, Choice]:
    """Return the model of the graph without recomputation and offload, and the choice that added them."""
    graph = plan_input.graph
    originals = {node.node_id: node for node in graph.nodes}
    copies = {
        node.node_id: _without_state(originals[node.recomputes])
        for node in graph.nodes
        if node.recomputes in originals
        and node.node_id.startswith(f"{node.recomputes}{MARK}")
        and len(node.outputs) == len(_without_state(originals[node.recomputes]).outputs)
    }
    copying = {node.node_id: node.offloads for node in graph.nodes if node.offloads}
    if not copies and not copying:
        model = recompute_model(plan_input)
        return model, Choice.nothing(model)
    original_of = {
        node.outputs[0]: copying[node.node_id]
        for node in graph.nodes
        if node.node_id in copying and node.instr == "copy_in"
    }
    away = {node.outputs[0] for node in graph.nodes if node.node_id in copying and node.instr == "copy_out"}
    original_of |= {
        copy: original
        for node in graph.nodes
        if node.node_id in copies
        for copy, original in zip(node.outputs, copies[node.node_id].outputs, strict=True)
    }
    known = {tensor.id for tensor in graph.tensors}
    for tensor in graph.tensors:  # views that no node writes
        name = tensor.id.rpartition(MARK)[0]
        if (
            tensor.view is not None
            and tensor.view.base_tensor_uid in original_of
            and tensor.id not in original_of
            and name in known
        ):
            produced = any(tensor.id in node.outputs for node in graph.nodes)
            if not produced:
                original_of[tensor.id] = name
    plain_graph = _without_copies(_without_offload(graph, copying, away), copies, original_of)
    model = recompute_model(replace(plan_input, graph=plain_graph))
    drops = _drops_in(graph, model, (copies, set(copying)), original_of)
    offloaded = set(copying.values())
    choice = with_drops(model, Choice.nothing(model), [drop for drop in drops if drop[0] not in offloaded])
    return model, with_drops(model, choice, [drop for drop in drops if drop[0] in offloaded], away=True)


def _without_offload(graph: Graph, copying: dict[str, str], away: set[str]) -> Graph:
    """Return the graph without copying nodes and offloaded tensors."""
    return msgspec.structs.replace(
        graph,
        tensors=tuple(tensor for tensor in graph.tensors if tensor.id not in away),
        nodes=tuple(node for node in graph.nodes if node.node_id not in copying),
        execution_order=tuple(name for name in graph.execution_order or () if name not in copying),
    )


def _without_state(node: Node) -> Node:
    """Return the node without the output that saves its generator state."""
    state = f"{node.node_id}{STATE}"
    return msgspec.structs.replace(node, outputs=tuple(name for name in node.outputs if name != state))


def _without_copies(graph: Graph, copies: dict[str, Node], original_of: dict[str, str]) -> Graph:
    repeated = {node.node_id for node in copies.values()}
    states = {f"{node_id}{STATE}" for node_id in repeated}
    tensors = []
    for tensor in graph.tensors:
        if tensor.id in original_of or tensor.id in states:
            continue
        if tensor.view is not None and tensor.view.base_tensor_uid in original_of:
            view = msgspec.structs.replace(tensor.view, base_tensor_uid=original_of[tensor.view.base_tensor_uid])
            tensor = msgspec.structs.replace(tensor, view=view)
        tensors.append(tensor)
    nodes = tuple(
        msgspec.structs.replace(
            _without_state(node) if node.node_id in repeated else node,
            inputs=tuple(original_of.get(name, name) for name in node.inputs),
        )
        for node in graph.nodes
        if node.node_id not in copies
    )
    # A new order can run the copy of a node before the node: the first of them is the node.
    original = {name: node.node_id for name, node in copies.items()}
    order = tuple(dict.fromkeys([original.get(name, name) for name in graph.execution_order or ()]))
    return msgspec.structs.replace(graph, tensors=tuple(tensors), nodes=nodes, execution_order=order or None)


def _drops_in(
    graph: Graph, model: RecomputeModel, added: tuple[dict[str, Node], set[str]], original_of: dict[str, str]
) -> list[Drop]:
    """Return the drops: a storage was dropped after a use if the next use reads another copy."""
    copies, copying = added
    index, storage_of = model.timeline.index, model.liveness.storage_of
    nodes = {node.node_id: node for node in graph.nodes}
    copy_of = {}
    """Tensor of ``graph`` → the node that writes its root: the original or one of its recomputing runs."""
    root_in = {tensor.id: tensor for tensor in graph.tensors}
    maker = {name: node.node_id for node in graph.nodes for name in node.outputs}

    def storages(names: tuple[str, ...]) -> list[tuple[str, int]]:
        """Return ``(tensor, its storage in the model)`` for tensors of ``graph``, without generator states."""
        originals = [(name, index.tensor_of.get(original_of.get(name, name))) for name in names]
        return [(name, int(storage_of[i])) for name, i in originals if i is not None]

    def life(name: str) -> str:
        if name not in copy_of:
            at = name
            while root_in[at].view is not None:
                at = root_in[at].view.base_tensor_uid  # type: ignore[union-attr]
            copy_of[name] = maker.get(at, "")
        return copy_of[name]

    before: dict[str, str] = {}
    """Node → itself; for an added node, the next original node in the order."""
    last: dict[int, tuple[str, str]] = {}
    """Storage → its writer (:func:`life`) and the original node of its last use (:data:`before`)."""
    found: dict[Drop, None] = {}
    position = ""
    for node_id in reversed(graph.execution_order or ()):
        position = position if node_id in copies or node_id in copying else node_id
        before[node_id] = position
    for node_id in graph.execution_order or ():
        node = nodes[node_id]
        if node_id in copying:
            continue
        for name, s in storages(node.inputs):
            now = life(name)
            known = last.get(s)
            if known is not None and known[0] != now and (model.droppable[s] or model.movable[s]):
                found[model.name_of(s), known[1]] = None
            last[s] = (now, before[node_id])
        if node_id not in copies:
            for name, s in storages(node.outputs):
                last.setdefault(s, (life(name), node_id))
    return list(found)
