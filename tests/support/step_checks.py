"""Checks of an imported step: no tensor is read before it is written, and no saved tensor is freed early."""

import math
from collections import Counter
from itertools import accumulate

from tmmu_core.graph import dtypes
from tmmu_core.graph.model import Graph


def check_step(graph: Graph) -> None:
    """Assert that no tensor is read before it is written and that the peak is at least the saved bytes."""
    made = {*graph.inputs, *(tensor.id for tensor in graph.tensors if tensor.persistent)}
    produced = {name for node in graph.nodes for name in node.outputs}
    made |= {tensor.id for tensor in graph.tensors if tensor.view is not None and tensor.id not in produced}
    for node in graph.nodes:
        for name in node.inputs:
            assert name in made, f"{node.node_id} reads {name} before anything writes it"
        made.update(node.outputs)
    assert peak_bytes(graph) >= saved_bytes(graph), "more is saved than is ever alive"


def saved_bytes(graph: Graph) -> int:
    """Return the bytes of storages that the backward pass reads and that exist before it."""
    root = _roots(graph)
    size = {tensor.id: _bytes(tensor.shape, tensor.dtype) for tensor in graph.tensors}
    persistent = {root[tensor.id] for tensor in graph.tensors if tensor.persistent}
    return sum(size[name] for name in {root[t.id] for t in graph.tensors if t.saved_for_backward} - persistent)


def peak_bytes(graph: Graph) -> int:
    """Return the peak of the live bytes of storages that are not persistent."""
    root = _roots(graph)
    size = {tensor.id: _bytes(tensor.shape, tensor.dtype) for tensor in graph.tensors}
    persistent = {root[tensor.id] for tensor in graph.tensors if tensor.persistent}
    birth: dict[str, int] = {}
    death: dict[str, int] = {}
    written_and_read = ((graph.inputs, ()), *((node.outputs, node.inputs) for node in graph.nodes))
    for step, (written, read) in enumerate(written_and_read):
        for name in written:
            birth.setdefault(root[name], step)
        for name in (*written, *read):
            death[root[name]] = step + 1
    kept = {root[name] for name in graph.outputs}
    change: Counter[int] = Counter()
    for name, born in birth.items():
        if name not in persistent:
            change[born] += size[name]
            change[death[name]] -= 0 if name in kept else size[name]
    return max(accumulate(change[step] for step in sorted(change)), default=0)


def _roots(graph: Graph) -> dict[str, str]:
    """Return tensor → the tensor that owns its bytes, by views only."""
    base = {tensor.id: tensor.view.base_tensor_uid for tensor in graph.tensors if tensor.view is not None}
    root = {}
    for tensor in graph.tensors:
        at = tensor.id
        while at in base:
            at = base[at]
        root[tensor.id] = at
    return root


def _bytes(shape: tuple[int | str, ...], dtype: str) -> int:
    return -(-math.prod(int(dim) for dim in shape) * dtypes.bits(dtype) // 8)
