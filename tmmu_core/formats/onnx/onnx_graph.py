"""Build the graph of a flat ONNX model: fold constants, derive views, in-place pairs and roles."""

from collections import Counter
from itertools import chain
from pathlib import PurePath
from typing import NoReturn

import onnx
from onnx import defs

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.onnx.onnx_model import ELEMENTWISE_IN_FIRST, MEASURES, VIEWS, attribute_of, operator_name
from tmmu_core.formats.onnx.onnx_scopes import SCOPE, Flat, captured, in_place, is_scope
from tmmu_core.formats.onnx.onnx_shapes import Facts, Sizes, size_without_input
from tmmu_core.graph import checks, dtypes
from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Node, Origin, Role, ShapeFrom, Tensor, View
from tmmu_core.graph.operators import operator_of
from tmmu_core.graph.origin import known, scopes_path, source_of


class Builder:
    """Builds one graph; for one use."""

    def __init__(self, flat: Flat, facts: Facts, sizes: Sizes, source: str) -> None:
        model = flat.model
        self.flat, self.graph, self.facts, self.open_sizes, self.source = flat, model.graph, facts, sizes, source
        dims = sizes.dims
        self.versions = {entry.domain: entry.version for entry in model.opset_import}
        self.weights = {weight.name for weight in self.graph.initializer}
        self.inputs = [value.name for value in self.graph.input if value.name not in self.weights]
        self.constant = set(self.weights)
        self.readers: Counter[str] = Counter()
        self.tensors: dict[str, Tensor] = {}
        self.ends = {key: dim.min for key, dim in dims.items()}, {key: dim.max for key, dim in dims.items()}
        self.sizes: dict[str, tuple[int, int]] = {}
        """Bytes of each tensor at the lower and the upper bounds."""
        closings = [node for node in self.graph.node if is_scope(node, "Loop.close", "Scan.close")]
        self.results = {name for node in closings for name in node.input}
        """Values that are copied into carried buffers at the end of an iteration."""
        self.carried = {n for node in self.graph.node if is_scope(node, "Loop.open", "Scan.open") for n in node.output}

    def build(self) -> Graph:
        """Return the graph of the nodes that are not folded."""
        outputs = list(dict.fromkeys(value.name for value in self.graph.output))
        kept = self._fold()
        self.readers.update(name for _, node in kept for name in node.input if name)
        self.readers.update(outputs)
        ids = self.flat.ids([k for k, _ in kept])
        for name in self.inputs:
            self._add(name, role="input", node_id="")
        nodes = [self._node(k, node, node_id, set(outputs)) for (k, node), node_id in zip(kept, ids, strict=True)]
        for name in outputs:
            if name not in self.tensors:
                self._constant(name, node_id="")
        closings = Counter(node.op_type for node in self.graph.node if is_scope(node))
        count = 2 * closings["If.close"] + closings["Loop.close"] + closings["Scan.close"]
        note = f" ({count} subgraph{'s'[: count > 1]} planned as nested scopes)" if count else ""
        return Graph(
            tensors=tuple(self.tensors.values()),
            nodes=tuple(nodes),
            inputs=tuple(self.inputs),
            outputs=tuple(outputs),
            ir_schema=GRAPH_SCHEMA,
            name=(self.graph.name or PurePath(self.source).stem) + note,
            dims=self.open_sizes.dims,
            assumed=self.open_sizes.assumed,
            execution_order=tuple(ids),
            shapes_from=self._shapes_from(),
            origins={
                node_id: made for (_, node), node_id in zip(kept, ids, strict=True) if known(made := made_from(node))
            },
        )

    def _shapes_from(self) -> dict[str, ShapeFrom]:
        """Return the source of each shape; the last source wins."""
        source_of_shape: dict[str, ShapeFrom] = {}
        for value in chain(self.graph.input, self.graph.value_info, self.graph.output):
            tensor = value.type.tensor_type
            if tensor.HasField("shape") and all(dim.HasField("dim_value") or dim.dim_param for dim in tensor.shape.dim):
                source_of_shape[value.name] = "declared"
        source_of_shape.update((weight.name, "declared") for weight in self.graph.initializer)
        source_of_shape.update(self.facts.origin)
        return {name: source_of_shape.get(name, "onnx") for name in self.tensors}

    def _fold(self) -> list[tuple[int, onnx.NodeProto]]:
        """Return the nodes that depend on a graph input or are random, with their position in the file."""
        kept: list[tuple[int, onnx.NodeProto]] = []
        shapes = {name: shape for name, shape in self.facts.shape.items() if name not in self.facts.derived}
        for k, node in enumerate(self.graph.node):
            fixed = all(name in self.constant for name in node.input if name)
            if operator_name(node) in MEASURES and node.input[0] in shapes:
                fixed = fixed or all(isinstance(dim, int) for dim in shapes[node.input[0]])
            if is_scope(node):
                fixed = fixed and is_scope(node, "If.close")  # carried values change in every iteration
            if fixed and (operator_name(node) in VIEWS or not operator_of(_instr(node)).keeps_position):
                self.constant.update(name for name in node.output if name)
            else:
                kept.append((k, node))
        return kept

    def _node(self, k: int, node: onnx.NodeProto, node_id: str, outputs: set[str]) -> Node:
        lasting = self.constant.intersection(captured(node)) if is_scope(node) else ()
        operands = [name for name in node.input if name and name not in lasting]
        for name in operands:
            if name not in self.tensors:
                self._constant(name, node_id)
        view = self._view_of(node)
        written = [name for i, name in enumerate(node.output) if name and not self._droppable(node, i)]
        for name in written:
            role: Role = "output" if name in outputs else "activation"
            self._add(name, role=role, node_id=node_id, view=view if name == node.output[0] else "")
        pairs = self._pairs(node, operands, written)
        demanded = in_place(node) if is_scope(node) else ()
        sources = {self.facts.origin[name] for name in written if name in self.facts.origin}
        return Node(
            node_id=node_id,
            instr=_instr(node),
            inputs=tuple(operands),
            outputs=tuple(written),
            inplace=pairs or "none",
            in_place_write=tuple((operands.index(place), written.index(name)) for place, name in demanded),
            params={"shapes": min(sources)} if sources else {},
            scope=self.flat.origins[k].scope,
        )

    def _droppable(self, node: onnx.NodeProto, i: int) -> bool:
        """Return whether output ``i`` is optional and unread."""
        if self.readers[node.output[i]]:
            return False
        version = self.versions.get(node.domain)
        if version is None or not defs.has(node.op_type, version, node.domain):
            return False
        formal = defs.get_schema(node.op_type, version, node.domain).outputs
        return i < len(formal) and formal[i].option == defs.OpSchema.FormalParameterOption.Optional

    def _view_of(self, node: onnx.NodeProto) -> str:
        """Return the tensor whose bytes the first output has; ``""`` if none."""
        if operator_name(node) not in VIEWS or not node.input[0] or node.input[0] in self.constant:
            return ""
        if any(node.input[2:]):
            return ""  # the third input of Dropout enables training
        root = node.input[0]
        while (view := self.tensors[root].view) is not None:
            root = view.base_tensor_uid
        if node.output[0] in self.results and root in self.carried:
            return ""  # the carried buffer is overwritten before this result is copied
        return str(node.input[0])

    def _pairs(self, node: onnx.NodeProto, operands: list[str], written: list[str]) -> tuple[tuple[int, int], ...]:
        """Return the in-place pairs: element-wise inputs with exactly the bytes of the output."""
        operator = operator_name(node)
        if len(written) != 1:
            return ()
        if is_scope(node, "If.close"):
            candidates = list(dict.fromkeys(operands[1:]))  # one of them is the result, the others are dead
        elif operator_of(operator).is_elementwise:
            candidates = list(dict.fromkeys(operands))
        elif operator in ELEMENTWISE_IN_FIRST and not attribute_of(node, "training_mode"):
            candidates = operands[:1]
        else:
            return ()
        fit = [name for name in candidates if name not in self.constant and self.sizes[name] == self.sizes[written[0]]]
        return tuple((operands.index(name), 0) for name in fit)

    def _constant(self, name: str, node_id: str) -> None:
        if name not in self.constant:
            reader = f'the node "{node_id}" reads' if node_id else "the graph outputs"
            what = f'{reader} "{name}", which no earlier node writes and which is neither an input nor a weight.'
            hint = "Check the model with onnx.checker.check_model(model)."
            raise self._refusal("unknown_tensor", what, hint, name, node_id)
        floating = name in self.weights and dtypes.is_floating(self.facts.dtype[name])
        self._add(name, role="parameter" if floating else "constant", node_id=node_id)

    def _add(self, name: str, *, role: Role, node_id: str, view: str = "") -> None:
        shape, dtype = self.facts.shape.get(name), self.facts.dtype.get(name)
        if name in self.tensors:
            hint = "In ONNX every value is written once; check the model with onnx.checker.check_model(model)."
            what = f'the node "{node_id}" writes "{name}", which exists already.'
            raise self._refusal("two_producers", what, hint, name, node_id)
        if view and (shape is None or name in self.facts.derived):
            shape = self.tensors[view].shape  # equal bytes at every size
            dtype = dtype or self.tensors[view].dtype
        if shape is None or dtype is None:
            self._refuse_shape(name, node_id)
        tensor = Tensor(id=name, shape=shape, dtype=dtype, role=role, view=View(base_tensor_uid=view) if view else None)
        low, high = (
            checks.size_of(tensor, checks.resolve_shape(tensor, end, len(self.tensors)), len(self.tensors))
            for end in self.ends
        )
        self.tensors[name], self.sizes[name] = tensor, (low, high)

    def _refuse_shape(self, name: str, node_id: str) -> NoReturn:
        gathering = next((n for n in self.graph.node if is_scope(n) and name in dict(in_place(n))), None)
        size = size_without_input(self.flat.model, name, self.open_sizes.dims)
        if gathering is not None:
            name, scope = dict(in_place(gathering))[name], node_id.rpartition("/")[0]
            operator = gathering.op_type.partition(".")[0]
            what = f'the operator {operator} (node "{scope}") collects "{name}" over its iterations, '
            what += "whose number is unknown."
            hint = f"Give a maximum: tmmu convert MODEL --dims {gathering.input[0] or scope}=64 -o GRAPH.json. Or give "
            hint += "the trip count as a constant, or the shape of the result as value_info in the model."
        elif size:
            what = f'"{name}" has the size "{size}", which depends on data: no input has it.'
            hint = f"Give its bounds: tmmu convert MODEL --dims {size}=1:512 -o GRAPH.json"
        else:
            maker = next((node for node in self.graph.node if name in node.output), None)
            by = f'the operator {maker.op_type} (node "{node_id or maker.name}") writes' if maker else "the graph reads"
            what = f'{by} "{name}", whose shape cannot be inferred.'
            hint = "Its size may depend on data, or the operator is not a standard one: "
            hint += "give the shape as value_info in the model."
        raise self._refusal("unknown_shape", what, hint, name, node_id)

    def _refusal(self, reason: str, what: str, hint: str, tensor: str, node_id: str) -> InvalidIrShapes:
        return InvalidIrShapes(
            what, hint=hint, reason=reason, tensor=tensor, node_id=node_id or "none", source=self.source
        )


def _instr(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", SCOPE) else f"{node.domain}::{node.op_type}"


def made_from(node: onnx.NodeProto) -> Origin:
    """Return a node's origin as PyTorch's exporters write it: in the metadata, or as the node's description."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    trace = metadata.get("pkg.torch.onnx.stack_trace", node.doc_string)
    return Origin(scopes_path(metadata.get("pkg.torch.onnx.name_scopes", "")), source_of(trace))
