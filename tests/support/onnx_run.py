"""Run an ONNX model node by node on tensors in the planned arenas, and compare every tensor with a plain run.

onnxruntime first runs the whole model with every intermediate exposed: the oracle. Then it runs each node alone; its
operands are read from the arenas at ``base + offset``, its results written there. Operands are compared bit for bit
with the oracle before each node, results after it, graph outputs at the end. Comparing only outputs would miss most
overlaps.

Weights with one value everywhere cannot show an overlap: they get Philox values in both runs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tests.runtime.test_philox import pattern
from tmmu_core.base.errors import UnreadableInput, need
from tmmu_core.formats.onnx.onnx_model import inlined
from tmmu_core.formats.onnx.onnx_reader import read
from tmmu_core.graph.model import Graph, Node
from tmmu_core.plans.model import Plan
from tmmu_core.runtime.apply import Applied, apply_plan

Array = NDArray[Any]

POISON = 0xA5
VARIED_FROM = 2
"""Elements from which a constant weight gets varied values."""


@dataclass(frozen=True)
class Difference:
    """A tensor that differs from the plain run."""

    step: int
    node_id: str
    """The node that reads or has written it; ``@end`` for a graph output."""
    tensor: str
    when: str
    """``read``, ``written`` or ``end``."""
    byte: int
    """The first differing byte."""


@dataclass(frozen=True)
class OnnxRun:
    """The result of a run: what was compared and what differs."""

    model: str
    nodes: int
    tensors: int
    """Distinct tensors compared."""
    comparisons: int
    bytes_compared: int
    arena_bytes: int
    """Sum of the plan's arena sizes."""
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        """Whether every tensor was bit-identical at every read and write."""
        return not self.differences

    def __str__(self) -> str:
        ran = (
            f"{self.model}: {self.nodes:,} nodes, {self.tensors:,} tensors compared {self.comparisons:,} times "
            f"({self.bytes_compared:,} B) in {self.arena_bytes:,} B of arenas"
        )
        if self.ok:
            return f"{ran}: bit-identical"
        first = self.differences[0]
        where = f"{first.tensor!r} {first.when} at step {first.step} ({first.node_id!r})"
        return f"{ran}: {len(self.differences):,} differences, the first: {where}"


def runtime() -> Any:
    """Return the onnxruntime module. Raises ``MissingExtra`` with the command that installs it."""
    return need("onnxruntime", "running a model")


@dataclass(frozen=True, eq=False)
class Oracle:
    """The plain run of a model: every value by name."""

    graph: Graph
    """The imported graph."""
    values: dict[str, Array]
    nodes: dict[str, onnx.NodeProto]
    """Graph node id → the node of the model."""
    opsets: tuple[Any, ...]
    ir_version: int


def plain_run(data: bytes, name: str = "") -> Oracle:
    """Run the whole model with every intermediate exposed and without optimisations.

    Raises the errors of the ONNX reader, and ``UnreadableInput`` for named dimensions and nested scopes.
    """
    graph = read(data, name)
    if graph.dims:
        raise UnreadableInput(
            f"the model has the named dimensions {', '.join(sorted(graph.dims))}; a run needs numbers.",
            source=name,
            hint="Fix the input shapes of the model first.",
        )
    scoped = next((node for node in graph.nodes if node.scope), None)
    if scoped is not None:
        raise UnreadableInput(
            f'the model has nested scopes ("{scoped.scope}"); only straight models are run.',
            source=name,
            hint="Plan and verify it; its bodies are not executed here.",
        )
    model = onnx.ModelProto.FromString(data)
    model = inlined(model)
    shapes = {t.id: (tuple(d for d in t.shape if isinstance(d, int)), t.dtype) for t in graph.tensors}
    feeds = {tensor: _varied(tensor, *shapes[tensor]) for tensor in graph.inputs}
    values = {w.name: numpy_helper.to_array(w) for w in model.graph.initializer if w.name in shapes}
    feeds |= _vary_weights(model, shapes)
    wanted = [t.id for t in graph.tensors if t.id not in feeds and t.id not in values]
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(tensor) for tensor in wanted)
    results = _session(model).run(wanted, feeds)
    values |= feeds | dict(zip(wanted, results, strict=True))

    maker = {output: node for node in model.graph.node for output in node.output if output}
    nodes = {node.node_id: maker[node.outputs[0]] for node in graph.nodes}
    return Oracle(graph, values, nodes, tuple(model.opset_import), model.ir_version)


def arena_run(oracle: Oracle, plan: Plan) -> OnnxRun:
    """Run each node alone on tensors in the plan's arenas, and compare every tensor with the oracle."""
    applied = apply_plan(plan, verified=True)  # a faulty plan shows as differences
    run = _Run(oracle, plan, applied)
    differences = tuple(run.steps())
    return OnnxRun(
        model=oracle.graph.name,
        nodes=len(oracle.graph.nodes),
        tensors=len(run.compared),
        comparisons=run.comparisons,
        bytes_compared=run.bytes_compared,
        arena_bytes=sum(arena.extent_bytes for arena in plan.arenas),
        differences=differences,
    )


class _Run:
    def __init__(self, oracle: Oracle, plan: Plan, applied: Applied) -> None:
        self.oracle, self.plan, self.applied = oracle, plan, applied
        self.tensors = {tensor.id: tensor for tensor in oracle.graph.tensors}
        self.handoffs: dict[int, list[tuple[int, str, str]]] = {}
        for handoff, taken in zip(plan.handoffs, plan.taken, strict=True):
            if taken:
                self.handoffs.setdefault(handoff[0], []).append(handoff)
        self.compared: set[str] = set()
        self.comparisons = self.bytes_compared = 0

    def steps(self) -> Iterator[Difference]:
        graph, plan = self.oracle.graph, self.plan
        nodes = {node.node_id: node for node in graph.nodes}
        for tensor in graph.tensors:
            if tensor.persistent:
                self._load(tensor.id)
        for step in range(plan.steps):
            self.applied.enter(step)
            node_id = plan.node_at(step)
            if node_id == "@inputs":
                for tensor_id in graph.inputs:
                    self._load(tensor_id)
                    yield from self._compare(step, node_id, tensor_id, "written")
                continue
            node = nodes[node_id]
            self._poison(step, node)
            for tensor_id in dict.fromkeys(node.inputs):
                yield from self._compare(step, node_id, tensor_id, "read")
            self._execute(node_id, node.inputs, node.outputs)
            for tensor_id in node.outputs:
                yield from self._compare(step, node_id, tensor_id, "written")
        for tensor_id in graph.outputs:
            yield from self._compare(plan.steps, "@end", tensor_id, "end")

    def _poison(self, step: int, node: Node) -> None:
        """Overwrite the blocks of the results before the node reads, except for permitted in-place reuse.

        A kernel may write before it has read all operands; a plan must not depend on the order.
        """
        for tensor_id in node.outputs:
            offered = [x for k, x, y in self.handoffs.get(step, ()) if y == tensor_id and _offers(node, x)]
            if not offered and self.tensors[tensor_id].view is None:
                self.applied.array(tensor_id)[:] = POISON

    def _load(self, tensor_id: str) -> None:
        self.applied.array(tensor_id)[:] = _bytes(self.oracle.values[tensor_id])

    def _compare(self, step: int, node_id: str, tensor_id: str, when: str) -> Iterator[Difference]:
        here, existing = self.applied.array(tensor_id), _bytes(self.oracle.values[tensor_id])
        self.compared.add(tensor_id)
        self.comparisons += 1
        self.bytes_compared += len(here)
        if not np.array_equal(here, existing):
            byte = int(np.flatnonzero(here != existing)[0]) if len(here) == len(existing) else 0
            yield Difference(step, node_id, tensor_id, when, byte)

    def _execute(self, node_id: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        """Run one node with its operands bound to arena memory."""
        values = self.oracle.values
        proto = onnx.NodeProto()
        proto.CopyFrom(self.oracle.nodes[node_id])
        kept = [name if name in outputs else "" for name in proto.output]
        del proto.output[:]
        proto.output.extend(kept)
        model = helper.make_model(
            helper.make_graph(
                [proto], "one node", *([_info(x, values[x]) for x in dict.fromkeys(side)] for side in (inputs, outputs))
            ),
            opset_imports=self.oracle.opsets,
            ir_version=self.oracle.ir_version,
        )
        session = _session(model)
        binding = session.io_binding()
        for tensor_id in dict.fromkeys(inputs):
            binding.bind_input(tensor_id, "cpu", 0, *self._place(tensor_id))
        for tensor_id in outputs:
            binding.bind_output(tensor_id, "cpu", 0, *self._place(tensor_id))
        session.run_with_iobinding(binding)

    def _place(self, tensor_id: str) -> tuple[Any, list[int], int]:
        value = self.oracle.values[tensor_id]
        return value.dtype.type, list(value.shape), self.applied.pointer(tensor_id)


def _offers(node: Node, tensor_id: str) -> bool:
    """Return whether the node's first output may overwrite this input at every position."""
    if node.inplace is None or isinstance(node.inplace, str):
        return node.inplace != "none"
    listed = {i for i, o in node.inplace if o == 0}
    return all(i in listed for i, x in enumerate(node.inputs) if x == tensor_id)


def _session(model: onnx.ModelProto) -> Any:
    ort = runtime()
    options = ort.SessionOptions()
    # The same kernels and summation order, whether a node runs alone or in the model.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _info(name: str, value: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _bytes(value: Array) -> NDArray[np.uint8]:
    return np.ascontiguousarray(value).ravel().view(np.uint8)


def _vary_weights(model: onnx.ModelProto, shapes: dict[str, tuple[tuple[int, ...], str]]) -> dict[str, Array]:
    """Replace weights filled by ``ConstantOfShape`` with varied inputs; return their values."""
    fed: dict[str, Array] = {}
    variances = {node.input[4] for node in model.graph.node if node.op_type == "BatchNormalization"}
    for node in list(model.graph.node):
        name = node.output[0] if node.output else ""
        if node.op_type != "ConstantOfShape" or name not in shapes or shapes[name][1] != "float32":
            continue
        shape = shapes[name][0]
        if math.prod(shape) >= VARIED_FROM:
            fed[name] = _varied(name, shape, "float32", positive=name in variances)
            model.graph.node.remove(node)
            model.graph.input.append(_info(name, fed[name]))
    return fed


def _varied(name: str, shape: tuple[int, ...], dtype: str, *, positive: bool = False) -> Array:
    """Return values that differ by position, equal on every run: Philox, keyed by the tensor's name.

    Floats lie in ±√(6 / fan-in), so that sums stay near 1 in deep networks; ``positive`` ones in [0.5, 1.5).
    """
    count = math.prod(shape)
    if dtype not in ("float32", "float16", "float64"):
        kind = np.dtype(dtype)
        return (pattern(count, name, 0, 0) & 1).astype(kind).reshape(shape)
    words = pattern(count * 4, name, 0, 0).view(np.uint32)
    unit = (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    if positive:
        return (unit + np.float32(0.5)).reshape(shape)
    width = math.sqrt(6 / max(math.prod(shape[1:]), 1)) if len(shape) > 1 else 1.0
    return ((unit * 2 - 1) * np.float32(width)).astype(dtype).reshape(shape)
