"""Bytes of a fitted training step by module: parameters, gradients, optimizer state, activations."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tmmu_core.graph.dtypes import tensor_bytes
from tmmu_core.graph.model import Graph, Tensor
from tmmu_core.plans.figures.plan_storages import alive_at
from tmmu_core.plans.model import Plan

COLUMNS = ("parameters", "gradients", "optimizer_state", "activations", "kept", "recomputed", "offloaded", "at_peak")
"""Figures of a module in bytes; ``activations`` = kept + recomputed + offloaded: what the backward pass reads.
``at_peak`` is what the module's operators hold at the peak, gradients included: the modules that bind it.
"""


def layers(
    given: Graph, fitted: Graph, gradients: Mapping[str, str], peak: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Return the bytes of each module, by its path: ``COLUMNS`` of its own parameters and operators.

    ``given`` is the step before the fit, ``gradients`` maps a parameter to its gradient, ``peak`` is ``modules`` of
    :func:`at_peak`.
    """
    found: dict[str, dict[str, int]] = {}

    def add(path: str, column: str, size: int) -> None:
        found.setdefault(path, dict.fromkeys(COLUMNS, 0))[column] += size

    tensors = {tensor.id: tensor for tensor in given.tensors}
    for tensor in given.tensors:
        if tensor.view is None and tensor.role == "parameter":
            add(_owner(tensor.id), "parameters", _bytes(tensor))
            if tensor.id in gradients:
                add(_owner(tensor.id), "gradients", _bytes(tensor))
        elif tensor.view is None and tensor.role == "optimizer_state":
            add(_owner(tensor.id.rpartition(".")[0]), "optimizer_state", _bytes(tensor))
    kept = _read_in_backward(fitted)
    away = {node.offloads for node in fitted.nodes if node.offloads}
    makers = {name: node for node in given.nodes for name in node.outputs}
    for name in sorted(_read_in_backward(given)):
        maker = makers.get(name)
        if maker is None or maker.phase != "forward" or tensors[name].persistent:
            continue
        origin = given.origins.get(maker.node_id)
        path = ".".join(origin.module) if origin else ""
        size = _bytes(tensors[name])
        add(path, "activations", size)
        add(path, "offloaded" if name in away else "kept" if name in kept else "recomputed", size)
    for path, size in peak.items():
        add(path, "at_peak", size)
    return dict(sorted(found.items()))


LOSS = ("log_softmax", "nll_loss", "cross_entropy")
"""Operators of a classification loss; the logits are as large as their results."""
CHUNKED_LOSS = (
    "The logits and their log-softmax bind the peak: compute head and cross-entropy in chunks of tokens, each under "
    "torch.utils.checkpoint, so that only one chunk's logits are live."
)


def at_peak(graph: Graph, plan: Plan, step: int) -> dict[str, Any]:
    """Return what is live at ``step``, the peak of ``plan``, a plan of ``graph``.

    ``node`` and ``module`` run at the peak; ``tensors`` are ``(tensor, bytes, module)`` of all that are not persistent,
    largest first; ``modules`` their bytes by module, largest first; ``suggestion`` is a known remedy, or ``""``.
    """
    node = plan.node_at(step)
    module = {each: ".".join(origin.module) for each, origin in graph.origins.items()}
    makers = {name: each for each in graph.nodes for name in each.outputs}
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    live: list[tuple[str, int, str]] = []
    modules: dict[str, int] = {}
    of_loss = 0
    rows = {int(plan.storage[k]): plan.row(k) for k in reversed(alive_at(plan, step).tolist())}
    for row in reversed(rows.values()):
        tensor = _base(tensors, row.tensor_id)
        if tensor.persistent:
            continue
        maker, size = makers.get(tensor.id), int(row.size_bytes)
        path = "" if maker is None else module.get(maker.recomputes or maker.node_id, "")
        live.append((tensor.id, size, path))
        modules[path] = modules.get(path, 0) + size
        of_loss += size if maker is not None and any(word in maker.instr for word in LOSS) else 0
    return {
        "node": node,
        "module": module.get(node or "", ""),
        "tensors": tuple(live),
        "modules": dict(sorted(modules.items(), key=lambda each: (-each[1], each[0]))),
        "suggestion": CHUNKED_LOSS if 4 * of_loss > sum(modules.values()) else "",
    }


def _base(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    """Return the tensor that owns the storage of ``name``."""
    found = tensors[name]
    while found.view is not None:
        found = tensors[found.view.base_tensor_uid]
    return found


def _read_in_backward(graph: Graph) -> set[str]:
    """Storages, by the tensor that names them, that a node of the backward pass reads."""
    tensors = {tensor.id: tensor for tensor in graph.tensors}
    read = [node.inputs for node in graph.nodes if node.phase == "backward" and node.instr != "tangent"]
    return {_base(tensors, name).id for inputs in read for name in inputs}


def _owner(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _bytes(tensor: Tensor) -> int:
    return tensor_bytes(tuple(map(int, tensor.shape)), tensor.dtype) if prod(map(int, tensor.shape)) else 0
