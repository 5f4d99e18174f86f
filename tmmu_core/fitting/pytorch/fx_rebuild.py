"""Write a fitted native graph back as an fx joint graph, and split it into a forward and a backward part.

Nodes are in the fitted order, and a recomputed node is a separate node. Values of the forward part that the backward
part reads are saved between the two parts.
"""

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch._functorch.partitioners import _extract_fwd_bwd_modules
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from tmmu_core.fitting.pytorch import fx_runtime
from tmmu_core.fitting.pytorch.fx_executed import Executed, is_batch_norm, is_batch_norm_backward
from tmmu_core.fitting.recompute.write_graph import STATE
from tmmu_core.graph.model import OFFLOAD_ARENA, Graph, Node

TAGS = ("partitioner_tag", "recompute", "ac_graph_id")
"""Keys of metadata of other partitioners, which is wrong after reordering."""

NORMALIZE_AGAIN = torch.ops.aten._native_batch_norm_legit.no_stats
"""Batch normalization in training mode without running statistics: it returns the same first three results."""


def split(joint: Any, executed: Executed, fitted: Graph, num_fwd_outputs: int) -> tuple[Any, Any]:
    """Return the forward and the backward module of ``joint`` in the order of ``fitted``."""
    rebuilt = _Rebuild(joint, executed, fitted)
    module = rebuilt.module()
    saved = [
        node
        for node in rebuilt.forward
        if any(user in rebuilt.backward for user in node.users) or node in rebuilt.backward_results(num_fwd_outputs)
    ]
    forward, backward = _extract_fwd_bwd_modules(module, saved, [], num_fwd_outputs=num_fwd_outputs)
    return forward, backward


class _Rebuild:
    """Copies fx nodes in a given order and records the node of each tensor."""

    def __init__(self, joint: Any, executed: Executed, fitted: Graph) -> None:
        self.joint, self.executed, self.fitted = joint, executed, fitted
        self.original = {node.node_id: node for node in executed.graph.nodes}
        self.graph = FxGraph()
        self.value: dict[str, FxNode] = {}
        """Tensor id → the new fx node that holds it."""
        self.copied: dict[FxNode, FxNode] = {}
        """fx node of the joint graph → its first copy."""
        self.forward: list[FxNode] = []
        """Values that may be saved: inputs and results of the forward part."""
        self.backward: set[FxNode] = set()
        self.hosted = {tensor.id for tensor in fitted.tensors if tensor.arena == OFFLOAD_ARENA}
        self.device = next(
            (str(n.meta["val"].device) for n in joint.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)), "cpu"
        )

    def module(self) -> GraphModule:
        """Return the joint graph in the fitted order."""
        for node in self.joint.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                made = self._copy(node, {})
                if node.op == "placeholder" and not node.name.startswith("tangents"):
                    self.forward.append(made)
        nodes = {node.node_id: node for node in self.fitted.nodes}
        for node_id in self.fitted.execution_order or ():
            self._run(nodes[node_id])
        end = next(node for node in self.joint.graph.nodes if node.op == "output")
        self.end = self.graph.node_copy(end, lambda arg: self._of(arg, {}))
        self.end.meta = dict(end.meta)
        self.graph.lint()
        return GraphModule(self.joint, self.graph)

    def backward_results(self, num_fwd_outputs: int) -> set[Any]:
        """Return the result nodes of the backward part."""
        return set(self.end.args[0][num_fwd_outputs:])

    def _run(self, node: Node) -> None:
        if node.offloads:
            self._move(node)
            return
        source = self.executed.fx_of.get(node.recomputes or node.node_id)
        if source is None:  # tangents and optimizer steps have no fx node
            return
        original = self.original[node.recomputes or node.node_id]
        renamed = dict(zip(original.inputs, node.inputs, strict=False))
        if node.recomputes and node.inputs[-1:] and node.inputs[-1].endswith(STATE):
            made = self._draw_again(source, renamed, self.value[node.inputs[-1]])
        elif node.recomputes and is_batch_norm(source):
            made = self._normalize_again(source, renamed)
        else:
            if any(name.endswith(STATE) for name in node.outputs):
                self._keep(node.outputs[-1], self._state(source), node)
            made = self._copy(source, renamed)
        self._note(made, node)
        results = dict(zip(original.outputs, node.outputs, strict=False))
        self._name(source, made, results)
        without_statistics = made.target is NORMALIZE_AGAIN
        for item in source.users:
            if item.target is operator.getitem and not (without_statistics and item.args[1] > 2):
                part = self.graph.node_copy(item, lambda _, made=made: made)
                part.meta = _meta(item)
                self.copied.setdefault(item, part)
                self._note(part, node)
                self._name(item, part, results)

    def _name(self, source: FxNode, made: FxNode, results: Mapping[str, str]) -> None:
        tensor = self.executed.tensor_of.get(source.name)
        if tensor is not None:
            self.value[results.get(tensor, tensor)] = made

    def _note(self, made: FxNode, node: Node) -> None:
        if node.phase == "forward":
            self.forward.append(made)
        else:
            self.backward.add(made)

    def _keep(self, tensor: str, made: FxNode, node: Node) -> None:
        self.value[tensor] = made
        self._note(made, node)

    def _move(self, node: Node) -> None:
        """Copy a tensor to host memory (to a tensor of the offload arena), or back."""
        (read,), (written,) = node.inputs, node.outputs
        if written in self.hosted:
            made = self.graph.call_function(fx_runtime.to_host, (self.value[read],))
        else:
            made = self.graph.call_function(fx_runtime.from_host, (self.value[read], self.device))
        made.meta["val"] = self.value[read].meta["val"]
        self._keep(written, made, node)

    def _copy(self, source: FxNode, renamed: Mapping[str, str]) -> FxNode:
        made = self.graph.node_copy(source, lambda arg: self._of(arg, renamed))
        made.meta = _meta(source)
        if is_batch_norm_backward(source):
            made.args = (*made.args[:3], None, None, *made.args[5:])
        self.copied.setdefault(source, made)
        if source.op != "call_function":
            self._name(source, made, {})
        return made

    def _generator(self, source: FxNode) -> Any:
        """Return the node of the generator that ``source`` names; for the default generator, the device."""
        own = source.kwargs.get("generator")
        return self.device if own is None else self.copied[own]

    def _state(self, source: FxNode) -> FxNode:
        made = self.graph.call_function(fx_runtime.saved_state, (self._generator(source),))
        made.meta["val"] = torch.empty(state_bytes(self.device), dtype=torch.uint8, device="meta")
        return made

    def _draw_again(self, source: FxNode, renamed: Mapping[str, str], state: FxNode) -> FxNode:
        args, kwargs = torch.fx.map_arg((source.args, source.kwargs), lambda arg: self._of(arg, renamed))
        made = self.graph.call_function(
            fx_runtime.run_with_state, (self._generator(source), state, source.target, *args), dict(kwargs)
        )
        made.meta = _meta(source)
        return made

    def _normalize_again(self, source: FxNode, renamed: Mapping[str, str]) -> FxNode:
        """Append a recomputed normalization without an update of the running statistics, which are updated once."""
        args = torch.fx.map_arg((*source.args[:3], *source.args[5:]), lambda arg: self._of(arg, renamed))
        running = source.args[3].meta["val"]
        if args[1] is None and running.dtype != source.args[0].meta["val"].dtype:
            # Without any parameter the operator rounds the statistics to the dtype of the input.
            how = {"dtype": running.dtype, "device": running.device}
            ones = self.graph.call_function(torch.ops.aten.ones.default, (list(running.shape),), how)
            ones.meta["val"] = running
            args = (args[0], ones, *args[2:])
        made = self.graph.call_function(NORMALIZE_AGAIN, args)
        made.meta = _meta(source)
        return made

    def _of(self, arg: FxNode, renamed: Mapping[str, str]) -> FxNode:
        tensor = self.executed.tensor_of.get(arg.name)
        return self.copied[arg] if tensor is None else self.value[renamed.get(tensor, tensor)]


def _meta(source: FxNode) -> dict[str, Any]:
    return {key: value for key, value in source.meta.items() if key not in TAGS}


def state_bytes(device: str) -> int:
    """Return the bytes of a saved generator state on ``device``."""
    return fx_runtime.CPU_STATE_BYTES if device == "cpu" else fx_runtime.DEVICE_STATE_BYTES
