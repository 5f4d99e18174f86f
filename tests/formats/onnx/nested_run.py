"""Run a planned ONNX model with nested scopes, node by node, on bytes at the planned offsets.

Operands, conditions, counters and trip counts are read from the arena, and results are written there. A dictionary has
the true value of each tensor: an operand with other bytes in the arena is a difference. The bytes of a result are
overwritten before the operands are read, unless the plan or the graph permits that it overwrites an operand.
"""

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tmmu_core.formats.onnx.onnx_model import attribute_of
from tmmu_core.formats.onnx.onnx_reader import flattened
from tmmu_core.formats.onnx.onnx_scopes import carried_of, in_place, is_scope
from tmmu_core.graph.model import Graph, Node
from tmmu_core.plans.model import Plan

Array = NDArray[Any]
Feeds = dict[str, Array]
POISON = 0xA5
LONG = 2000
"""Maximum steps of a run; more mean that a condition or a counter was overwritten."""


def reference(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    """Return the outputs of the model from the reference evaluator of the onnx package."""
    return [np.asarray(value) for value in ReferenceEvaluator(model).run(None, feeds)]


class NestedRun:
    """One run of a planned model, for one use; ``differences`` has rows of (step, node id, tensor, when)."""

    def __init__(self, model: onnx.ModelProto, graph: Graph, plan: Plan, feeds: Feeds) -> None:
        self.graph, self.plan, self.feeds = graph, plan, feeds
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        flat = flattened(copy)
        self.opsets = [entry for entry in flat.model.opset_import if not entry.domain]
        self.arenas = [np.full(arena.extent_bytes, POISON, np.uint8) for arena in plan.arenas]
        self.truth: Feeds = {}
        self.differences: list[tuple[int, str, str, str]] = []
        self.executed = 0
        self.protos = {name: node for node in flat.model.graph.node for name in node.output if name}
        self.closing = {n.name.rpartition("/")[0]: n for n in flat.model.graph.node if n.op_type.endswith(".close")}
        self.handed = {(step, taker) for step, _, taker in plan.handoffs}
        self._load_constants(flat.model)

    def _load_constants(self, model: onnx.ModelProto) -> None:
        """Write the weights and the constants that the importer folds, computed in the order of the file."""
        values = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
        planned = {tensor.id for tensor in self.graph.tensors if tensor.persistent}
        written = {name for node in self.graph.nodes for name in node.outputs}
        shapes = {tensor.id: tensor.shape for tensor in self.graph.tensors}
        for node in model.graph.node:
            if node.op_type == "Shape" and node.output[0] not in written and node.input[0] in shapes:
                ends = {attribute.name: attribute.i for attribute in node.attribute}
                shape = np.array(shapes[node.input[0]], np.int64)
                values[node.output[0]] = shape[ends.get("start", 0) : ends.get("end")]
            elif not is_scope(node) and not written & set(node.output) and all(x in values for x in node.input if x):
                values |= self._compute(node, [values[x] for x in node.input if x])
        for name in planned:
            self._write(name, values[name])

    # --- memory

    def _place(self, name: str, size: int) -> NDArray[np.uint8]:
        row = self.plan.row_of[name]
        start = int(self.plan.offset[row])
        assert size <= int(self.plan.size[row]), f"{name} has {size} bytes, planned are {self.plan.size[row]}"
        return self.arenas[int(self.plan.arena[row])][start : start + size]

    def _write(self, name: str, value: Array) -> None:
        raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        self._place(name, raw.size)[:] = raw
        self.truth[name] = np.array(value)

    def _in_arena(self, name: str) -> Array:
        true = self.truth[name]
        return self._place(name, true.nbytes).view(true.dtype).reshape(true.shape).copy()

    def _read(self, step: int, node_id: str, name: str, when: str = "read") -> Array:
        here, true = self._in_arena(name), self.truth[name]
        if here.tobytes() != true.tobytes():
            self.differences.append((step, node_id, name, when))
        return here

    def _spoil(self, step: int, node: Node) -> None:
        kept = {o for _, o in node.in_place_write}
        for i, name in enumerate(node.outputs):
            row = self.plan.row_of[name]
            view = self.plan.base_tensor_uids[row] is not None
            if i not in kept and (step, name) not in self.handed and not view:
                self._place(name, int(self.plan.size[row]))[:] = POISON

    # --- control

    def run(self) -> list[Array]:
        """Return the graph's outputs, read from the arena."""
        nodes = {node.node_id: node for node in self.graph.nodes}
        branches: dict[str, tuple[str, bool]] = {}
        for scope, closing in self.closing.items():
            if closing.op_type == "If.close":
                branches |= {f"{scope}/{word}": (closing.input[0], word == "then") for word in ("then", "else")}
        step = 0
        if self.plan.node_at(0) == "@inputs":
            step = 1
            for name in self.graph.inputs:
                self._write(name, self.feeds[name])
        at = {self.plan.node_at(k): k for k in range(step, self.plan.steps)}
        while step < self.plan.steps:
            node = nodes[self.plan.node_at(step)]
            scope = node.scope
            around = [branches[key] for key in branches if scope == key or scope.startswith(key + "/")]
            if any(bool(self._read(step, node.node_id, name).all()) != flag for name, flag in around):
                step += 1
                continue
            self.executed += 1
            if self.executed > LONG:
                self.differences.append((step, node.node_id, "", "endless"))
                return []
            step = self._step(step, node, scope, at)
        return [self._read(self.plan.steps, "@end", name, "end") for name in self.graph.outputs]

    def _step(self, step: int, node: Node, scope: str, at: dict[str, int]) -> int:
        """Run one node, and return the next step."""
        self._spoil(step, node)
        if node.instr in ("Loop.open", "Scan.open"):
            return self._open(step, node, scope, at)
        if node.instr == "Scan.next":
            return self._next(step, node, scope)
        if node.instr in ("If.close", "Loop.close", "Scan.close"):
            return self._close(step, node, scope, at)
        operands = [self._read(step, node.node_id, name) for name in node.inputs]
        for name, value in self._compute(self.protos[node.outputs[0]], operands).items():
            if name in node.outputs:
                self._write(name, value)
        return step + 1

    def _compute(self, proto: onnx.NodeProto, operands: list[Array]) -> Feeds:
        names = [name for name in proto.input if name]
        values = dict(zip(names, operands, strict=True))
        inputs = [
            helper.make_tensor_value_info(x, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for x, v in values.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
        one = helper.make_model(helper.make_graph([proto], "one", inputs, outputs), opset_imports=self.opsets)
        results = ReferenceEvaluator(one).run(None, values)
        return {info.name: np.asarray(value) for info, value in zip(outputs, results, strict=True)}

    # --- scopes

    def _open(self, step: int, node: Node, scope: str, at: dict[str, int]) -> int:
        closing, opening = self.closing[scope], self.protos[node.outputs[0]]
        loop = closing.op_type == "Loop.close"
        states = len(carried_of(closing).states)
        initial = list(opening.input[len(opening.input) - states :]) if states else []
        for source, name in zip(initial, opening.output[2 if loop else 0 :], strict=False):
            self._write(name, self._read(step, node.node_id, source))
        for name, _ in in_place(closing):
            if name not in opening.output[: (2 if loop else 0) + states]:
                self.truth[name] = np.zeros(0, np.uint8)
        if not loop:
            self.truth[f"#{scope}"] = np.array(0)
            return step + 1
        count, condition = opening.input[:2]
        goes = not condition or bool(self._read(step, node.node_id, condition).all())
        self._write(opening.output[0], np.array(0, np.int64))
        self._write(opening.output[1], np.array(goes))
        goes = goes and (not count or int(self._read(step, node.node_id, count).reshape(-1)[0]) > 0)
        if goes:
            return step + 1
        end = at[f"{scope}/close"]
        return self._finish(end, closing)

    def _next(self, step: int, node: Node, scope: str) -> int:
        proto, counter = self.protos[node.outputs[0]], self.truth.setdefault(f"#{scope}", np.array(0))
        axes, turned = attribute_of(proto, "axes"), attribute_of(proto, "directions") or [0] * len(proto.input)
        for source, piece, axis, back in zip(proto.input, proto.output, axes, turned, strict=True):
            whole = self._read(step, node.node_id, source)
            k = int(counter)
            self._write(piece, np.take(whole, whole.shape[axis] - 1 - k if back else k, axis=axis))
        return step + 1

    def _close(self, step: int, node: Node, scope: str, at: dict[str, int]) -> int:
        closing = self.closing[scope]
        if closing.op_type == "If.close":
            taken = bool(self._read(step, node.node_id, closing.input[0]).all())
            count = len(closing.output)
            results = closing.input[1 : 1 + count] if taken else closing.input[1 + count :]
            values = [self._read(step, node.node_id, name) for name in results]
            for name, value in zip(closing.output, values, strict=True):
                if name:
                    self._write(name, value)
            return step + 1
        for name in node.inputs:
            if name in self.truth:
                self._read(step, node.node_id, name)
        loop = closing.op_type == "Loop.close"
        places, stacked, results, slices = (list(names) for names in carried_of(closing))
        for name, row in zip(stacked, slices, strict=True):
            if name:
                before, value = self._read(step, node.node_id, name), self._in_arena(row)
                whole = np.concatenate([before.reshape(-1), value.reshape(-1)]) if before.size else value.reshape(-1)
                self._write(name, whole.view(value.dtype))
        carried = dict(zip(places, [self.truth[name] for name in results], strict=True))
        if loop:
            condition = closing.input[3 + len(places) + len(stacked)]
            carried[closing.input[2]] = self.truth[condition].reshape(self.truth[closing.input[2]].shape)
            results.append(condition)
            self._write(closing.input[1], self.truth[closing.input[1]] + 1)
        for (name, value), source in zip(carried.items(), results, strict=True):
            if name != source:
                raw = self._place(source, value.nbytes).copy()
                self._place(name, value.nbytes)[:] = raw
            self.truth[name] = value
        if loop:
            count = closing.input[0]
            goes = bool(self._in_arena(closing.input[2]).all())
            if count:
                goes &= int(self._in_arena(closing.input[1])) < int(self._in_arena(count).reshape(-1)[0])
            back = at[f"{scope}/open"] + 1
        else:
            done = self.truth[f"#{scope}"] = self.truth[f"#{scope}"] + 1
            scanned = self.truth[attribute_of(closing, "scanned").decode()]
            goes = int(done) < scanned.shape[attribute_of(closing, "axis")]
            back = at[f"{scope}/next"]
        return back if goes else self._finish(step, closing)

    def _finish(self, step: int, closing: onnx.NodeProto) -> int:
        """Write the results of a scope after its last iteration; the axes of stacked outputs are moved."""
        _, stacked, _, slices = carried_of(closing)
        axes, turned = (attribute_of(closing, name) or [0] * len(stacked) for name in ("axes", "directions"))
        for place, output in in_place(closing):
            value = self._read(step, closing.name, place)
            if place in stacked:
                j = list(stacked).index(place)
                value = self._moved(value, slices[j], output, axes[j], bool(turned[j]))
            self._write(output, value)
        self.truth.pop(f"#{closing.name.rpartition('/')[0]}", None)
        return step + 1

    def _moved(self, flat: Array, row: str, output: str, axis: int, back: bool) -> Array:
        if row not in self.truth:  # no iteration
            tensor = next(t for t in self.graph.tensors if t.id == output)
            shape = [int(dim) for dim in tensor.shape]
            shape[axis] = 0
            return np.zeros(shape, np.dtype(tensor.dtype))
        whole = flat.view(self.truth[row].dtype).reshape(-1, *self.truth[row].shape)
        return np.moveaxis(whole[::-1] if back else whole, 0, axis)
