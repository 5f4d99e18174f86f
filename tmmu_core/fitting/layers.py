"""Bytes of a fitted training step by module: parameters, gradients, optimizer state, activations."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from tmmu_core.fitting.problem.answer import Fitted
from tmmu_core.graph.index import index_graph, view_root
from tmmu_core.graph.model import Graph
from tmmu_core.graph.modules.module_paths import modules_of
from tmmu_core.liveness.timeline import Liveness
from tmmu_core.plans.figures.live_bytes import storages_alive

COLUMNS = ("parameters", "gradients", "optimizer_state", "activations", "kept", "recomputed", "offloaded", "at_peak")
"""Figures of a module in bytes.

``activations``: results of the forward pass that the backward pass of the initial or the fitted graph reads. They are
the sum of ``kept``, ``recomputed`` and ``offloaded``. ``at_peak``: live tensors at the peak of the fitted plan, without
persistent ones and without arenas that the capacity does not limit.
"""


def fitted_layers(fitted: Fitted, gradients: Collection[str] | None = None) -> dict[str, dict[str, int]]:
    """Return module path → column of ``COLUMNS`` → bytes; empty if the graph has no backward pass. O(operands).

    The bytes of submodules are not included. ``gradients`` names the parameters with a gradient; the default is those
    with a tensor ``PARAMETER.grad``.
    """
    graph_before, graph_after = fitted.start.plan_input.graph, fitted.best.plan_input.graph
    if not any(node.phase == "backward" for node in graph_before.nodes):
        return {}
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COLUMNS, 0))
    liveness = fitted.start.liveness
    size_of = _sizes(liveness) | _sizes(fitted.best.liveness)
    first_of_storage = {liveness.timeline.index.tensor_ids[row] for row in liveness.storages.head.tolist()}
    if gradients is None:
        gradients = {name.removesuffix(".grad") for name in size_of if name.endswith(".grad")}
    # An in-place update shares the storage of the tensor that it updates, so only the first tensor of a storage counts.
    for tensor in (tensor for tensor in graph_before.tensors if tensor.id in first_of_storage):
        parent, size = tensor.id.rpartition(".")[0], size_of[tensor.id]
        if tensor.role == "parameter":
            found[parent]["parameters"] += size
            if tensor.id in gradients:
                found[parent]["gradients"] += size
        elif tensor.role == "optimizer_state":  # MODULE.PARAMETER.STATE
            found[parent.rpartition(".")[0]]["optimizer_state"] += size
    kept, module_of = _results_for_backward(graph_after), _module_of_node(graph_before)
    offloaded = {node.offloads for node in graph_after.nodes if node.offloads}
    for name, node_id in sorted((_results_for_backward(graph_before) | kept).items()):
        size, path = size_of[name], module_of[node_id]
        found[path]["activations"] += size
        found[path]["offloaded" if name in offloaded else "kept" if name in kept else "recomputed"] += size
    for path, size in fitted_peak(fitted)["modules"].items():
        found[path]["at_peak"] += size
    return dict(sorted(found.items()))


def grouped_layers(layers: Mapping[str, Mapping[str, int]]) -> dict[str, tuple[int, Counter[str]]]:
    """Return group of modules → number of modules and sum of their figures, most activations first.

    A group is named by a path with ``*`` in place of its first number. The root is the group ``outside modules``.
    """
    found: dict[str, tuple[int, Counter[str]]] = {}
    for path, row in layers.items():
        group = re.sub(r"\.\d+", ".*", path, count=1) or "outside modules"
        count, total = found.get(group, (0, Counter()))
        found[group] = count + 1, total + Counter(row)
    return dict(sorted(found.items(), key=lambda row: -row[1][1]["activations"]))


LOSS_OPERATORS = ("log_softmax", "nll_loss", "cross_entropy")  # parts of the names of loss operators
CHUNKED_LOSS = (
    "The logits and their log-softmax determine the peak: compute head and cross-entropy in chunks of tokens, each "
    "under torch.utils.checkpoint, so that only one chunk's logits are live."
)


def fitted_peak(fitted: Fitted) -> dict[str, Any]:
    """Return facts about the peak of the best plan, counted over the arenas that the capacity limits.

    ``node`` is the node that runs at the peak, and ``module`` is its module. ``tensors`` lists the live storages that
    are not persistent as ``(tensor, bytes, module)``. ``modules`` maps each module to the bytes of its storages. Both
    are sorted, largest first. ``suggestion`` is a change of the model, or ``""``.
    """
    graph, plan = fitted.best.plan_input.graph, fitted.best.plan
    step, limited = int(fitted.capacity.live(plan).argmax()), fitted.capacity.limited(plan)
    producers = {name: node for node in graph.nodes for name in node.outputs}
    module_of = _module_of_node(fitted.start.plan_input.graph)
    for node in graph.nodes:
        original = producers[node.offloads].node_id if node.offloads in producers else node.recomputes
        if original in module_of:
            module_of[node.node_id] = module_of[original]
    node_id = plan.node_at(step)
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    live: list[tuple[str, int, str]] = []
    modules: Counter[str] = Counter()
    loss_bytes = 0
    for head, size in storages_alive(plan, step):
        row = plan.row(head)
        tensor = tensors[view_root(tensors, row.tensor_id)]
        if tensor.persistent or row.arena not in limited or not size:
            continue
        producer = producers.get(tensor.id)
        path = "" if producer is None else module_of.get(producer.node_id, "")
        live.append((tensor.id, size, path))
        modules[path] += size
        loss_bytes += size if producer is not None and any(word in producer.instr for word in LOSS_OPERATORS) else 0
    return {
        "node": node_id,
        "module": module_of.get(node_id, ""),
        "tensors": tuple(live),
        "modules": dict(sorted(modules.items(), key=lambda row: (-row[1], row[0]))),
        "suggestion": CHUNKED_LOSS if 4 * loss_bytes > sum(modules.values()) else "",
    }


def _module_of_node(graph: Graph) -> dict[str, str]:
    index = index_graph(graph)
    order = graph.execution_order or tuple(node.node_id for node in graph.nodes)
    modules = modules_of(index, [index.node_of[node_id] for node_id in order])
    return {node_id: ".".join(modules.paths[modules.of_node[k]]) for node_id, k in index.node_of.items()}


def _results_for_backward(graph: Graph) -> dict[str, str]:
    """Return result → the node that computes it, for the results of the forward pass that the backward pass reads.

    A recomputed result and its node have their ids in the initial graph.
    """
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    nodes = {node.node_id: node for node in graph.nodes}
    producers = {name: node for node in graph.nodes for name in node.outputs}
    read = [node.inputs for node in graph.nodes if node.phase == "backward" and node.instr != "tangent"]
    found: dict[str, str] = {}
    for name in {view_root(tensors, name) for inputs in read for name in inputs}:
        node = producers.get(name)
        if node is None or node.phase != "forward" or node.offloads or tensors[name].persistent:
            continue
        initial = nodes.get(node.recomputes, node)
        found[dict(zip(node.outputs, initial.outputs, strict=False)).get(name, name)] = initial.node_id
    return found


def _sizes(liveness: Liveness) -> dict[str, int]:
    index = liveness.timeline.index
    return dict(zip(index.tensor_ids, index.nbytes.tolist(), strict=True))
