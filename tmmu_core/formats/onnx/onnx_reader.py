"""Read ONNX models: infer shapes, separate weights from activations, derive views and in-place pairs.

1. A plan needs only the shapes of weights: external data is never opened, and the bytes of large weights are dropped.
2. Functions are inlined. The bodies of If, Loop and Scan are flattened at their node (:mod:`.onnx_scopes`), without the
   branches that never run. Other subgraphs, sequences, optionals, maps, strings and sparse weights are refused.
3. A dynamic size of an input gets bounds and an assumed size: a batch is 1 (1 to 8), another size is 512 (1 to 512).
   :mod:`.onnx_runnable_sizes` changes sizes at which the model cannot run.
4. The other shapes are inferred. A multiple of one or two dimensions is written as a product such as ``2 * N``
   (:mod:`.onnx_shapes`). Unknown shapes come from onnxruntime (:mod:`.onnx_shape_run`). A node that writes a value with
   such a shape has the parameter ``shapes``.
5. Nodes with constant results are folded: ``Constant``, ``ConstantOfShape``, operators on weights alone, and the shape
   of a tensor with a fixed shape. Random and unknown operators are not folded. Nor is ``DequantizeLinear``, so that
   weights stay quantized.
6. Floating-point weights have the role ``parameter``; other weights, and folded values that are read, ``constant``.
7. Unread optional outputs are dropped; nodes without a unique name are called ``<operator>_<position in its graph>``.
8. ``inplace`` is set for every node, reshapes are views, and the order is that of the file.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from math import prod
from pathlib import PurePath
from typing import Any, NoReturn

import msgspec
import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import defs

from tmmu_core.base import limits
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput, first_line, install_command, installed
from tmmu_core.formats.onnx import onnx_model, onnx_shape_run
from tmmu_core.formats.onnx.onnx_inference import (
    MAX_FOLDED_ELEMENTS,
    check_scopes,
    without_dead_branches,
    write_trip_limits,
)
from tmmu_core.formats.onnx.onnx_model import SHAPE_OPERATORS, VIEWS, operator_name
from tmmu_core.formats.onnx.onnx_runnable_sizes import make_runnable
from tmmu_core.formats.onnx.onnx_scopes import SCOPE, Flat, captured, carried_of, flatten, in_place, is_scope
from tmmu_core.formats.onnx.onnx_shapes import Facts, Sizes, conditions, infer, named_dims, refuse_type, undefined_size
from tmmu_core.graph import checks, dtypes
from tmmu_core.graph.checks import dims_text
from tmmu_core.graph.index import view_root
from tmmu_core.graph.model import GRAPH_SCHEMA, Dim, Graph, Node, Origin, Role, ShapeFrom, Tensor, View
from tmmu_core.graph.modules.module_paths import scopes_path, source_of
from tmmu_core.graph.operators import operator_of

LOG = logging.getLogger("tmmu")

OWN_WEIGHTS_FROM = 4  # first IR version in which weights need not be inputs; some older files omit these inputs too


def read(data: bytes, name: str = "", envelopes: Mapping[str, Dim] | None = None) -> Graph:
    """Return the graph of a model. ``envelopes`` are bounds of named dimensions that replace the defaults.

    Raises ``UnreadableInput`` for damaged and refused models, ``InvalidIrShapes`` for shapes that are unknown or
    contradict each other, and for a value that no node or more than one node writes.
    """
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        what = f"the ONNX model is cut off or damaged (it has {len(data)} bytes)."
        raise UnreadableInput(what, hint="Copy the file again.") from error
    for is_valid, what in (
        (model.graph.node, "has no nodes"),
        (all(isinstance(text, str) for text in _texts(model)), "is damaged: a name in it is not UTF-8"),
        (model.opset_import, "names no operator set (opset_import)"),
    ):
        if not is_valid:
            raise UnreadableInput(f"the ONNX model {what}.", hint="Export the model again.")
    onnx_model.check_weight_paths(model)
    try:
        return _read(data, model, name, dict(envelopes or {}))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        try:
            model = onnx.ModelProto.FromString(data)
            for tensor in onnx_model.tensors_of(model):  # the checker would open external files
                del tensor.external_data[:]
                tensor.data_location = onnx.TensorProto.DEFAULT
            onnx.checker.check_model(model)
        except Exception as fault:  # ValidationError, or any error of damaged bytes
            hint = "Check the model with onnx.checker.check_model(model), and export it again."
            raise UnreadableInput(f"the ONNX model is not valid: {first_line(fault)}", hint=hint) from fault
        raise AssertionError("the ONNX importer failed on a valid model") from error


def _read(data: bytes, model: onnx.ModelProto, name: str, envelopes: dict[str, Dim]) -> Graph:
    flat = flattened(model)
    for node in flat.model.graph.node:  # shape inference ignores this default
        if node.op_type == "STFT" and not any(attribute.name == "onesided" for attribute in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))
    sizes = named_dims(flat.model, envelopes)
    sizes.dims |= {count: dim for count, dim in write_trip_limits(flat, envelopes).items() if count not in sizes.dims}
    facts, notes = make_runnable(flat.model, infer(flat.model, sizes), sizes)
    try:
        try:
            graph = _build(flat, facts, sizes, name)
        except InvalidIrShapes as error:
            if error.diagnostics.get("reason") != "unknown_shape":
                raise
            graph = _build_with_runtime_shapes(data, flat, facts, sizes, name, error)
    except InvalidIrShapes as error:
        if sizes.assumed and "--dims" not in error.hint:
            error.hint += f" Dynamic sizes of the model were assumed. Change them: --dims {dims_text(sizes.assumed)}"
        raise
    return msgspec.structs.replace(graph, notes=tuple(notes))


def _build(flat: Flat, facts: Facts, sizes: Sizes, name: str, *, fix: bool = False) -> Graph:
    """Return the graph. ``fix``: fix the assumed dimensions, because the shapes are known at these sizes only."""
    if not check_scopes(flat, facts.shape, facts.dtype, sizes.point()):
        sizes.fix(sizes.dims)  # results of branches have equal sizes only at these sizes
    graph = Builder(flat, facts, sizes, name).build()
    if fix:
        sizes.fix(sizes.dims)
    return msgspec.structs.replace(graph, dims=sizes.dims)


def _build_with_runtime_shapes(
    data: bytes, flat: Flat, facts: Facts, sizes: Sizes, name: str, error: InvalidIrShapes
) -> Graph:
    """Return the graph with shapes from onnxruntime: from symbolic inference if possible, else from a run.

    If shapes are still unknown, omit the branches that the run did not take. Raises ``InvalidIrShapes``.
    """
    option = "" if limits.ceiling(limits.RUN_SECONDS) else f"omit --no-run, or give --max-{limits.RUN_SECONDS.name} N"
    option = option if installed("onnxruntime") else install_command("run")
    if option:
        error.hint += f" Or measure the shape in a run of the model: {option}"
        raise error
    if known := onnx_shape_run.symbolic(flat.model, sizes.point()):
        onnx_shape_run.add_known_shapes(flat, facts, known, "symbolic")
        with suppress(InvalidIrShapes):
            return _build(flat, facts, sizes, name, fix=True)
    text = "%s does not state all shapes: onnxruntime runs it for at most %s s (--max-run-seconds 0 turns this off)"
    LOG.info(text, name or "the model", limits.ceiling(limits.RUN_SECONDS))
    run = onnx_shape_run.measure(data, flat, onnx_shape_run.points_to_try(sizes))
    if not run.failed and run.point != sizes.point():
        sizes.assume(run.point)
        facts = infer(flat.model, sizes)
    onnx_shape_run.add_known_shapes(flat, facts, run.known, "measured")
    try:
        return _build(flat, facts, sizes, name, fix=True)
    except InvalidIrShapes as after_run:
        if run.failed:
            after_run.hint += f" A run of the model does not give the shape either: {run.failed.rstrip('.')}."
        if not run.taken:
            raise
    flat = without_dead_branches(flat, {condition: np.array(taken) for condition, taken in run.taken.items()})
    facts = infer(flat.model, sizes)
    onnx_shape_run.add_known_shapes(flat, facts, run.known, "measured")
    graph = _build(flat, facts, sizes, name, fix=True)
    note = f"{len(run.taken)} branches of one run" if len(run.taken) > 1 else "1 branch of one run"
    return msgspec.structs.replace(graph, name=f"{graph.name} ({note})")


def flattened(model: onnx.ModelProto) -> Flat:
    """Return the model with functions and bodies inlined, without dead branches and without bytes of large weights."""
    for weight in onnx_model.tensors_of(model):
        if prod(weight.dims) > MAX_FOLDED_ELEMENTS:  # inference would process them
            for data_field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                weight.ClearField(data_field)
    model.ir_version = max(model.ir_version, OWN_WEIGHTS_FROM)
    model = onnx_model.inlined(model)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for place, graph in onnx_model.graphs(model.graph):
        if graph.sparse_initializer:
            what, where = f"the weight {graph.sparse_initializer[0].values.name!r} is sparse.", "sparse_initializer[0]"
            raise UnreadableInput(what, place=f"{place}.{where}", hint="Export the model with dense weights.")
        for k, node in enumerate(graph.node):
            schema = _schema(node, versions)
            formals = schema.inputs if schema is not None else ()
            required = [formal.option == defs.OpSchema.FormalParameterOption.Single for formal in formals]
            is_omitted = any(needs and not name for needs, name in zip(required, node.input, strict=False))
            if schema is not None and (len(node.input) < schema.min_input or is_omitted):
                what = f"the operator {node.op_type} lacks a required input."
                raise UnreadableInput(what, place=f"{place}.node[{k}]", hint="Export the model again.")
            if node.domain == SCOPE:
                what = f"the operator {node.op_type} is of the set {SCOPE!r}, which is reserved for flattened bodies."
                raise UnreadableInput(what, place=f"{place}.node[{k}]", hint="Give the operator set another name.")
        for value_info in (*graph.input, *graph.value_info, *graph.output):
            refuse_type(value_info)
    if not model.graph.output:
        raise UnreadableInput("the ONNX graph has no outputs.", hint="Export the model again.")
    flat = flatten(model)
    return without_dead_branches(flat, conditions(flat.model))


def _texts(model: onnx.ModelProto) -> Iterator[Any]:
    """Yield the names of graphs, functions, nodes, values and weight files: text, or bytes if a name is not UTF-8."""
    for _, part in chain.from_iterable(map(onnx_model.graphs, (model.graph, *model.functions))):
        for node in part.node:
            attributes = (attribute.name for attribute in node.attribute)
            yield from (node.op_type, node.domain, node.name, *node.input, *node.output, *attributes)
        values = chain(part.input, part.output, part.value_info, getattr(part, "initializer", ()))
        yield from (part.name, *(getattr(value, "name", value) for value in values))
    entries = (entry for tensor in onnx_model.tensors_of(model) for entry in tensor.external_data)
    yield from (text for entry in entries for text in (entry.key, entry.value))


def _schema(node: onnx.NodeProto, versions: Mapping[str, int]) -> Any:
    version = versions.get(node.domain)
    known = version is not None and defs.has(node.op_type, version, node.domain)
    return defs.get_schema(node.op_type, version, node.domain) if known else None


class Builder:
    """Builds one graph of a flat model; use it once."""

    def __init__(self, flat: Flat, facts: Facts, sizes: Sizes, source: str) -> None:
        self.flat, self.graph, self.facts, self.sizes, self.source = flat, flat.model.graph, facts, sizes, source
        self.versions = {entry.domain: entry.version for entry in flat.model.opset_import}
        self.weights = {weight.name for weight in self.graph.initializer}
        self.outputs = list(dict.fromkeys(value.name for value in self.graph.output))
        self.read_names = set(self.outputs)  # values that a node or the caller reads
        self.constant = set(self.weights)
        self.tensors: dict[str, Tensor] = {}
        self.dims_at_bounds = [{key: getattr(dim, end) for key, dim in sizes.dims.items()} for end in ("min", "max")]
        self.bytes_at_bounds: dict[str, list[int]] = {}  # of each tensor, at the lower and the upper bounds
        closings = [node for node in self.graph.node if is_scope(node, "Loop.close", "Scan.close")]
        self.closing_reads = {name for node in closings for name in node.input}  # operands of nodes that close a loop
        self.carried = {n for node in self.graph.node if is_scope(node, "Loop.open", "Scan.open") for n in node.output}

    def build(self) -> Graph:
        """Return the graph of the nodes that are not folded."""
        inputs = [value.name for value in self.graph.input if value.name not in self.weights]
        unfolded: dict[int, onnx.NodeProto] = {}  # position → node
        shapes = {name: shape for name, shape in self.facts.shape.items() if name not in self.facts.derived}
        for k, node in enumerate(self.graph.node):
            is_constant = all(name in self.constant for name in node.input if name)
            if operator_name(node) in SHAPE_OPERATORS and node.input[0] in shapes:
                is_constant = is_constant or all(isinstance(dim, int) for dim in shapes[node.input[0]])
            if node.op_type == "DequantizeLinear" or (is_scope(node) and not is_scope(node, "If.close")):
                is_constant = False  # weights stay quantized; carried values change in every iteration
            if is_constant and (operator_name(node) in VIEWS or not operator_of(_instr(node)).keeps_position):
                self.constant.update(name for name in node.output if name)
            else:
                unfolded[k] = node
        self.read_names.update(name for node in unfolded.values() for name in node.input)
        rows = []
        for k, node in unfolded.items():
            origin = self.flat.origins[k]
            rows.append((origin.position, node.name, f"{origin.scope}/{node.op_type}".removeprefix("/")))
        ids = onnx_model.unique_ids(rows)
        for name in inputs:
            self._add(name, role="input", node_id="")
        nodes = [self._node(k, node, node_id) for (k, node), node_id in zip(unfolded.items(), ids, strict=True)]
        for name in self.outputs:
            if name not in self.tensors:
                self._add_constant(name, node_id="")
        operators = Counter(node.op_type for node in self.graph.node if is_scope(node))
        count = 2 * operators["If.close"] + operators["Loop.close"] + operators["Scan.close"]
        note = f" ({count} subgraph{'s' if count > 1 else ''} planned as nested scopes)" if count else ""
        shapes_from: dict[str, ShapeFrom] = dict.fromkeys(self.weights, "declared")
        for value in chain(self.graph.input, self.graph.value_info, self.graph.output):
            tensor = value.type.tensor_type
            if tensor.HasField("shape") and all(dim.HasField("dim_value") or dim.dim_param for dim in tensor.shape.dim):
                shapes_from[value.name] = "declared"
        shapes_from |= self.facts.origin
        origins: dict[str, Origin] = {}  # PyTorch's exporters write them to a node's metadata, or to its description
        for node, node_id in zip(unfolded.values(), ids, strict=True):
            metadata = {entry.key: entry.value for entry in node.metadata_props}
            source = source_of(metadata.get("pkg.torch.onnx.stack_trace", node.doc_string))
            origins[node_id] = Origin(scopes_path(metadata.get("pkg.torch.onnx.name_scopes", "")), source)
        return Graph(
            *(tuple(self.tensors.values()), tuple(nodes), tuple(inputs), tuple(self.outputs), GRAPH_SCHEMA),
            name=(self.graph.name or PurePath(self.source).stem) + note,
            assumed=self.sizes.assumed,
            execution_order=tuple(ids),
            shapes_from={name: shapes_from.get(name, "onnx") for name in self.tensors},
            origins={node_id: origin for node_id, origin in origins.items() if origin != Origin()},
        )

    def _node(self, k: int, node: onnx.NodeProto, node_id: str) -> Node:
        constants = self.constant.intersection(captured(node)) if is_scope(node) else ()
        operands = [name for name in node.input if name and name not in constants]
        for name in operands:
            if name not in self.tensors:
                self._add_constant(name, node_id)
        is_view = operator_name(node) in VIEWS and node.input[0] != "" and node.input[0] not in self.constant
        if is_view and node.output[0] in self.closing_reads:  # no view of a carried buffer, which is overwritten
            is_view = view_root(self.tensors, node.input[0]) not in self.carried
        view = node.input[0] if is_view and not any(node.input[2:]) else ""  # input 2 of Dropout enables training
        written = []
        for i, name in enumerate(node.output):
            schema = None if name in self.read_names else _schema(node, self.versions)
            formals = schema.outputs if schema is not None else ()
            if not name or (i < len(formals) and formals[i].option == defs.OpSchema.FormalParameterOption.Optional):
                continue  # omitted, or an optional output that nothing reads
            written.append(name)
            role: Role = "output" if name in self.outputs else "activation"
            self._add(name, role=role, node_id=node_id, view=view if name == node.output[0] else "")
        pairs = self._pairs(node, operands, written)
        overwritten = in_place(node) if is_scope(node) else ()
        sources = {self.facts.origin[name] for name in written if name in self.facts.origin}
        fields = (node_id, _instr(node), tuple(operands), tuple(written))
        overwrites = tuple([(operands.index(place), written.index(name)) for place, name in overwritten])
        params = {"shapes": min(sources)} if sources else {}
        scope = self.flat.origins[k].scope
        return Node(*fields, inplace=pairs or "none", in_place_write=overwrites, params=params, scope=scope)

    def _pairs(self, node: onnx.NodeProto, operands: list[str], written: list[str]) -> tuple[tuple[int, int], ...]:
        """Return ``(operand, 0)`` for each operand that is as large as the only output and may be overwritten by it."""
        operator = operator_name(node)
        if len(written) != 1:
            return ()
        if is_scope(node, "If.close"):
            candidates = list(dict.fromkeys(operands[1:]))  # results of the branches, of which only one runs
        elif operator_of(operator).is_elementwise:
            candidates = list(dict.fromkeys(operands))
        elif operator in onnx_model.ELEMENTWISE_IN_FIRST and not onnx_model.attribute_of(node, "training_mode"):
            candidates = operands[:1]
        elif (position := onnx_model.SUM_IN_CONVOLUTION.get((node.domain, node.op_type))) is not None:
            candidates = [name for name in node.input[position:] if name]
        else:
            return ()
        size = self.bytes_at_bounds[written[0]]
        fitting = [name for name in candidates if name not in self.constant and self.bytes_at_bounds[name] == size]
        return tuple((operands.index(name), 0) for name in fitting)

    def _add_constant(self, name: str, node_id: str) -> None:
        if name not in self.constant:
            reader = f"the node {node_id!r} reads" if node_id else "the graph returns"
            what = f"{reader} {name!r}, which no earlier node writes and which is neither an input nor a weight."
            raise self._refusal("unknown_tensor", what, "Check it with onnx.checker.check_model.", name, node_id)
        floating = name in self.weights and dtypes.is_floating(self.facts.dtype[name])
        self._add(name, role="parameter" if floating else "constant", node_id=node_id)

    def _add(self, name: str, *, role: Role, node_id: str, view: str = "") -> None:
        shape, dtype = self.facts.shape.get(name), self.facts.dtype.get(name)
        if name in self.tensors:
            hint = "In ONNX every value is written once; check the model with onnx.checker.check_model(model)."
            writer = f"the node {node_id!r} writes" if node_id else "the graph has the input"
            raise self._refusal("two_producers", f"{writer} {name!r}, which exists already.", hint, name, node_id)
        if view and (shape is None or name in self.facts.derived):
            shape = self.tensors[view].shape  # a view has as many bytes as its base, at every size
            dtype = dtype or self.tensors[view].dtype
        if shape is None or dtype is None:
            self._refuse_shape(name, node_id)
        tensor = Tensor(id=name, shape=shape, dtype=dtype, role=role, view=View(base_tensor_uid=view) if view else None)
        position = len(self.tensors)
        shapes = (checks.resolve_shape(tensor, dims, position) for dims in self.dims_at_bounds)
        self.bytes_at_bounds[name] = [checks.size_of(tensor, at_bound, position) for at_bound in shapes]
        self.tensors[name] = tensor

    def _refuse_shape(self, name: str, node_id: str) -> NoReturn:
        closing = next((n for n in self.graph.node if is_scope(n) and name in dict(in_place(n))), None)
        _, buffers, _, rows = carried_of(closing) if closing is not None else ((),) * 4
        if (row := dict(zip(buffers, rows, strict=True)).get(name, "")) and row not in self.facts.shape:
            name, node_id, closing = row, "", None  # the cause is the unknown shape of one row
        size = undefined_size(self.flat.model, name, self.sizes.dims)
        if closing is not None:
            name, scope = dict(in_place(closing))[name], node_id.rpartition("/")[0]
            operator = closing.op_type.partition(".")[0]
            what = f"the operator {operator} (node {scope!r}) collects {name!r} over an unknown number of iterations."
            hint = f"Give a maximum: tmmu convert MODEL --dims {closing.input[0] or scope}=64 -o GRAPH.json. Or give "
            hint += "the trip count as a constant, or the shape of the result as value_info in the model."
        elif size:
            what = f"{name!r} has the size {size!r}, which depends on data: no input has this size."
            hint = f"Give its bounds: tmmu convert MODEL --dims {size}=1:512 -o GRAPH.json"
        else:
            writer = next((node for node in self.graph.node if name in node.output), None)
            by = f"the operator {writer.op_type} (node {node_id or writer.name or name!r}) writes" if writer else ""
            what = f"{by or 'the graph reads'} {name!r}, whose shape cannot be inferred."
            hint = "Its size may depend on data, or the operator is not a standard one: "
            hint += "give the shape as value_info in the model."
        raise self._refusal("unknown_shape", what, hint, name, node_id)

    def _refusal(self, reason: str, what: str, hint: str, tensor: str, node_id: str) -> InvalidIrShapes:
        return InvalidIrShapes(what, hint=hint, reason=reason, tensor=tensor, node_id=node_id or "none")


def _instr(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", SCOPE) else f"{node.domain}::{node.op_type}"
