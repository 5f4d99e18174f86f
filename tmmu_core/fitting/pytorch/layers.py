"""Bytes of a fitted training step by module: parameters, gradients, optimizer state, activations."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tmmu_core.graph.dtypes import tensor_bytes
from tmmu_core.graph.model import Graph, Tensor

COLUMNS = ("parameters", "gradients", "optimizer_state", "activations", "kept", "recomputed", "offloaded")
"""Figures of a module in bytes; ``activations`` = kept + recomputed + offloaded: what the backward pass reads."""


def layers(given: Graph, fitted: Graph, gradients: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Return the bytes of each module, by its path: ``COLUMNS`` of its own parameters and operators.

    ``given`` is the step before the fit, ``gradients`` maps a parameter to its gradient.
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
    return dict(sorted(found.items()))


def _read_in_backward(graph: Graph) -> set[str]:
    """Storages, by the tensor that names them, that a node of the backward pass reads."""
    base = {tensor.id: tensor.view.base_tensor_uid for tensor in graph.tensors if tensor.view is not None}
    found = set()
    for node in graph.nodes:
        if node.phase == "backward" and node.instr != "tangent":
            for name in node.inputs:
                while name in base:
                    name = base[name]
                found.add(name)
    return found


def _owner(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _bytes(tensor: Tensor) -> int:
    return tensor_bytes(tuple(map(int, tensor.shape)), tensor.dtype) if prod(map(int, tensor.shape)) else 0
