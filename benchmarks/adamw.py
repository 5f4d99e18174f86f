"""Add the optimizer to the graph of a training step: AdamW, one fused node per parameter (Loshchilov and Hutter, 2019).

A parameter with 16 bits or fewer has a float32 master copy. The optimizer updates the master and writes the rounded
value into the parameter. Its states are float32 if there is a master, else they have the type of the parameter. All
results are written in place.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from tmmu_core.graph import dtypes
from tmmu_core.graph.model import Graph, Node, Tensor, View

MASTER_DTYPE = "float32"


def add_adamw(graph: Graph, gradients: Mapping[str, str]) -> Graph:
    """Return ``graph`` with an AdamW node per parameter after its backward pass; ``gradients``: parameter → gradient.

    The gradients are no longer outputs of the graph, and die after their last read.
    """
    tensor_of = {tensor.id: tensor for tensor in graph.tensors}
    tensors, nodes = list(graph.tensors), list(graph.nodes)
    shared = _shared(graph, gradients)
    for parameter, gradient in gradients.items():
        held = tensor_of[parameter]
        narrow = dtypes.bits(held.dtype) < dtypes.bits(MASTER_DTYPE)
        state = MASTER_DTYPE if narrow else held.dtype
        kept = [
            Tensor(f"{parameter}.{kind}", held.shape, state, "optimizer_state")
            for kind in (*(["master"] if narrow else []), "exp_avg", "exp_avg_sq")
        ]
        written = [*([] if narrow else [held]), *kept, *([held] if narrow else [])]
        # A view of the overwritten tensor: both are one storage, also in modes that never run the optimizer.
        after = [
            msgspec.structs.replace(tensor, id=f"{tensor.id}.updated", view=View(tensor.id), saved_for_backward=False)
            for tensor in written
        ]
        tensors += [*kept, *after]
        nodes.append(
            Node(
                f"adamw:{parameter}",
                "adamw",
                (gradient, *[tensor.id for tensor in written]),
                tuple(tensor.id for tensor in after),
                "optimizer",
                "none",
                tuple((i + 1, i) for i, tensor in enumerate(written) if tensor.id not in shared),
            )
        )
    used = set(gradients.values())
    return msgspec.structs.replace(
        graph,
        tensors=tuple(tensors),
        nodes=tuple(nodes),
        outputs=tuple(name for name in graph.outputs if name not in used),
        execution_order=None if graph.execution_order is None else tuple(node.node_id for node in nodes),
    )


def _shared(graph: Graph, parameters: Mapping[str, str]) -> set[str]:
    """Return the parameters that share bytes with another parameter. They are views, which no node writes in place."""
    base = {tensor.id: tensor.view.base_tensor_uid for tensor in graph.tensors if tensor.view is not None}
    root = {}
    for name in parameters:
        root[name] = name
        while root[name] in base:
            root[name] = base[root[name]]
    count = Counter(root.values())
    return {name for name in parameters if count[root[name]] > 1}
