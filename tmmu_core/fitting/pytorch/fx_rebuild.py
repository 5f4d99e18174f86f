"""Convert a fitted native graph to an fx joint graph, and split it into a forward and a backward part.

Nodes are in the fitted order, and a recomputed node is a separate node. Values of the forward part that the backward
part reads are saved between the two parts. A fit adds operators that copy to host memory and back. A random operator is
recomputed with the saved state of its generator, so that it draws the same numbers again.
"""

import operator
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch._functorch.partitioners import _extract_fwd_bwd_modules
from torch._inductor import config as inductor_config
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule
from torch.fx import Node as FxNode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from tmmu_core.fitting.pytorch.fx_executed import Executed, is_batch_norm, is_batch_norm_backward
from tmmu_core.fitting.recompute.write_graph import STATE
from tmmu_core.graph.model import Graph, Node

Generator: TypeAlias = torch.Generator | str  # a generator, or a device whose default generator is meant
TAGS = ("partitioner_tag", "recompute", "ac_graph_id")  # metadata for other partitioners, wrong after reordering
BATCH_NORM_NO_STATS = torch.ops.aten._native_batch_norm_legit.no_stats
"""Training batch norm without running statistics; its results equal the first three of the original operator."""


def state_bytes(device: str) -> int:
    """Return the bytes of a generator's state: Mersenne Twister on the CPU, else Philox (a seed and an offset)."""
    return 5056 if device == "cpu" else 16


def saved_state(generator: Generator) -> torch.Tensor:
    """Return a copy of the generator's state."""
    state = generator_of(generator).get_state()
    return state.view(state.shape)  # dispatch modes count the bytes of this view, as the plan does


def generator_of(generator: Generator) -> torch.Generator:
    """Return ``generator``, or the default generator of the device that it names."""
    if isinstance(generator, torch.Generator):
        return generator
    device = torch.device(generator)
    if device.type == "cpu":
        return torch.default_generator
    return torch.get_device_module(device).default_generators[device.index]


def run_with_state(generator: Generator, state: torch.Tensor, operator: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run ``operator`` with ``generator`` in ``state``, then restore the generator, and return the result."""
    generator = generator_of(generator)
    state_before = generator.get_state()
    generator.set_state(state)
    try:
        return operator(*args, **kwargs)
    finally:
        generator.set_state(state_before)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of ``tensor`` in host memory.

    The copy is hidden from dispatch modes, because it is not in the planned memory. On the CPU, a mode that counts live
    bytes could not distinguish the two memories.
    """
    pinned = tensor.device.type == "cuda"
    with _disable_current_modes():
        host = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, pin_memory=pinned)
        host.copy_(tensor, non_blocking=pinned)
    return host


def from_host(host: torch.Tensor, device: str) -> torch.Tensor:
    """Return a copy of ``host`` on ``device``."""
    tensor = torch.empty_strided(host.size(), host.stride(), dtype=host.dtype, device=device)
    return tensor.copy_(host, non_blocking=tensor.device.type == "cuda")


def split(joint: Any, executed: Executed, fitted: Graph, num_fwd_outputs: int) -> tuple[Any, Any]:
    """Split ``joint``, ordered as ``fitted``, into a forward part (``num_fwd_outputs`` results) and a backward part."""
    rebuilt = _Rebuild(joint, executed, fitted)
    module = rebuilt.module()
    backward_results = set(rebuilt.output.args[0][num_fwd_outputs:])
    saved = [n for n in rebuilt.forward if n in backward_results or not rebuilt.backward.isdisjoint(n.users)]
    with inductor_config.patch(fallback_random=True):  # keep random operators without a reader
        return _extract_fwd_bwd_modules(module, saved, [], num_fwd_outputs=num_fwd_outputs)


class _Rebuild:
    """Copies fx nodes in a given order and records the node of each tensor."""

    def __init__(self, joint: Any, executed: Executed, fitted: Graph) -> None:
        self.joint, self.executed, self.fitted = joint, executed, fitted
        self.original = {node.node_id: node for node in executed.graph.nodes}
        self.graph = FxGraph()
        self.node_of: dict[str, FxNode] = {}  # tensor id → the new fx node that computes it
        self.copied: dict[FxNode, FxNode] = {}  # fx node of the joint graph → its first copy
        self.forward: list[FxNode] = []  # values that may be saved: inputs and results of the forward part
        self.backward: set[FxNode] = set()
        self.source_of: dict[str, str] = {}  # recomputed tensor, or copy from host memory → the original tensor
        self.returned: dict[str, str] = {}  # tensor → its copy that the autograd engine or the optimizer reads

    def module(self) -> GraphModule:
        for node in self.joint.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                new = self._copy(node, {})
                # PyTorch copies the attributes of the backward part, so it gets constants as saved tensors.
                if "val" in node.meta and not node.name.startswith("tangents"):
                    self.forward.append(new)
        nodes = {node.node_id: node for node in self.fitted.nodes}
        for node_id in self.fitted.execution_order or ():
            self._append(nodes[node_id])
        output = next(node for node in self.joint.graph.nodes if node.op == "output")
        self.output = self.graph.node_copy(output, lambda arg: self._new_node_of(arg, self.returned))
        self.output.meta = dict(output.meta)
        self.graph.lint()
        return GraphModule(self.joint, self.graph)

    def _append(self, node: Node) -> None:
        if node.offloads:
            (read,), (written,) = node.inputs, node.outputs
            if node.instr == "copy_out":
                new = self.graph.call_function(to_host, (self.node_of[read],))
            else:
                self.source_of[written] = node.offloads
                new = self.graph.call_function(from_host, (self.node_of[read], _device_of(self.node_of[read])))
            new.meta["val"] = self.node_of[read].meta["val"]
            self.node_of[written] = new
            self._record_phase(new, node)
            return
        source = self.executed.fx_of.get(node.recomputes or node.node_id)
        if source is None:  # tangents and optimizer steps have no fx node
            copies = {self.source_of[copy]: copy for copy in node.inputs if copy in self.source_of}
            self.returned.update({tensor: copy for tensor, copy in copies.items() if tensor not in self.fitted.outputs})
            return
        original = self.original[node.recomputes or node.node_id]
        renamed = dict(zip(original.inputs, node.inputs, strict=False))
        if node.recomputes and node.inputs[-1:] and node.inputs[-1].endswith(STATE):
            args, kwargs = torch.fx.map_arg((source.args, source.kwargs), lambda arg: self._new_node_of(arg, renamed))
            run_args = self._generator(source), self.node_of[node.inputs[-1]], source.target, *args
            new = self.graph.call_function(run_with_state, run_args, dict(kwargs))
            new.meta = _meta(source)
        elif node.recomputes and is_batch_norm(source):
            new = self._recompute_batch_norm(source, renamed)
        else:
            if any(name.endswith(STATE) for name in node.outputs):
                state = self.graph.call_function(saved_state, (self._generator(source),))
                state.meta["val"] = torch.empty(state_bytes(_device_of(source)), dtype=torch.uint8, device="meta")
                self.node_of[node.outputs[-1]] = state
                self._record_phase(state, node)
            new = self._copy(source, renamed)
        self._record_phase(new, node)
        results = dict(zip(original.outputs, node.outputs, strict=False))
        if node.recomputes:
            self.source_of.update({copy: tensor for tensor, copy in results.items()})
        self._record_tensor(source, new, results)
        without_statistics = new.target is BATCH_NORM_NO_STATS
        for item in source.users:
            if item.target is operator.getitem and not (without_statistics and item.args[1] > 2):
                part = self.graph.node_copy(item, lambda _, new=new: new)
                part.meta = _meta(item)
                self.copied.setdefault(item, part)
                self._record_phase(part, node)
                self._record_tensor(item, part, results)

    def _record_tensor(self, source: FxNode, new: FxNode, results: Mapping[str, str]) -> None:
        tensor = self.executed.tensor_of.get(source.name)
        if tensor is not None:
            self.node_of[results.get(tensor, tensor)] = new

    def _record_phase(self, new: FxNode, node: Node) -> None:
        # Without these tags, PyTorch runs a random operator in both parts if both have its operands.
        if node.phase == "forward":
            self.forward.append(new)
            new.meta["partitioner_tag"] = "must_be_in_forward"
        else:
            self.backward.add(new)
            new.meta["partitioner_tag"] = "must_be_in_backward"

    def _copy(self, source: FxNode, renamed: Mapping[str, str]) -> FxNode:
        new = self.graph.node_copy(source, lambda arg: self._new_node_of(arg, renamed))
        new.meta = _meta(source)
        if is_batch_norm_backward(source):
            new.args = (*new.args[:3], None, None, *new.args[5:])  # running statistics, unused in training mode
        self.copied.setdefault(source, new)
        if source.op != "call_function":
            self._record_tensor(source, new, {})
        return new

    def _generator(self, source: FxNode) -> Any:
        """Return the node of the generator argument of ``source``; without that argument, the device of the result."""
        generator = source.kwargs.get("generator")
        return _device_of(source) if generator is None else self.copied[generator]

    def _recompute_batch_norm(self, source: FxNode, renamed: Mapping[str, str]) -> FxNode:
        """Append a recomputed batch norm; only the original node updates the running statistics."""
        args = torch.fx.map_arg((*source.args[:3], *source.args[5:]), lambda arg: self._new_node_of(arg, renamed))
        running = source.args[3].meta["val"]
        if args[1] is None and running.dtype != source.args[0].meta["val"].dtype:
            # Without a weight, the operator rounds the statistics to the dtype of the input, so the weight is ones.
            tensor_options = {"dtype": running.dtype, "device": running.device}
            ones = self.graph.call_function(torch.ops.aten.ones.default, (list(running.shape),), tensor_options)
            ones.meta["val"] = running
            args = (args[0], ones, *args[2:])
        new = self.graph.call_function(BATCH_NORM_NO_STATS, args)
        new.meta = _meta(source)
        return new

    def _new_node_of(self, arg: FxNode, renamed: Mapping[str, str]) -> FxNode:
        tensor = self.executed.tensor_of.get(arg.name)
        return self.copied[arg] if tensor is None else self.node_of[renamed.get(tensor, tensor)]


def _meta(source: FxNode) -> dict[str, Any]:
    return {key: value for key, value in source.meta.items() if key not in TAGS}


def _device_of(node: FxNode) -> str:
    return next(str(leaf.device) for leaf in tree_leaves(node.meta["val"]) if isinstance(leaf, torch.Tensor))
