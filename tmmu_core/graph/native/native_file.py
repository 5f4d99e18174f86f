"""The native graph file (contract §8): ``*.tmmu.json`` and ``*.tmmu.cbor``, plain or gzipped, detected by content.

Writing is deterministic: equal graphs give equal bytes. The published schema is ``native.schema.json`` in this folder.

In the node-centric dialect, which is read but not written, nodes contain their outputs, and inputs refer to these::

    {"ir_schema_hash": "…", "nodes": [
        {"node_id": "x", "instr": "INPUT", "shape_out": [1, 8], "dtype": "float32", "role": "input"},
        {"node_id": "h", "instr": "RELU", "inputs": [{"node_id": "x", "output_idx": 0}], "shape_out": [1, 8]}],
     "outputs": [{"node_id": "h", "output_idx": 0}]}

Output 0 of node ``h`` is the tensor ``h:0``. There are no graph inputs: a loaded tensor is the output of a node. A node
with several outputs has a list of shapes as ``shape_out``, and one value or a list in the fields :data:`PER_OUTPUT`.
"""

import json
from typing import Any, Literal, cast

import cbor2
import msgspec

from tmmu_core.base import strict
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput, source_of_errors
from tmmu_core.graph import checks, dtypes, model
from tmmu_core.graph.model import GRAPH_SCHEMA, Dim, Graph, Inplace, Node, Phase, Role, Shard, Tensor, View
from tmmu_core.graph.native import document

WRITTEN_ORDER = (
    *("ir_schema", "name", "dims", "assumed", "replan_policy", "safepoints"),
    *("inputs", "outputs", "execution_order", "planner", "planner_options", "alignment", "sidecar"),
    *("tensors", "nodes", "shapes_from", "origins"),
)
"""Fields of the file, in the order in which they are written."""
UNWRITTEN = ("notes", "ranges")  # fields of a graph that only readers set: no native file contains them
NOT_HASHED = ("sidecar", "shapes_from", "origins")
IDENTIFYING_FIELDS = ("ir_schema", "tensors", "nodes")  # a document with one of these fields is a graph
_DEFAULT_DTYPE = Tensor("").dtype
NONEMPTY_DEFAULTS = {"tensors": (("dtype", "float32"), ("role", "activation")), "nodes": (("phase", "forward"),)}
"""``tensors`` or ``nodes`` → ``(field, default)`` of each text field with a nonempty default."""

Shape = tuple[int | str, ...]
PER_OUTPUT = ("dtype", "role", "alias_group_id", "view", "saved_for_backward", "remat", "alignment", "arena", "shard")
"""Fields of a node that describe its outputs."""
# Fields of a node and of the graph that are the same in the native format:
NODE_FIELDS = ("node_id", "instr", "phase", "inplace", "in_place_write", "params", "grad_edges")
GRAPH_FIELDS = ("name", "dims", "replan_policy", "safepoints", "execution_order")


def refusal(data: bytes) -> str:
    """Return why bytes are not a native graph file (contract §8); ``""`` for a native file and a damaged document."""
    if reason := document.refusal_reason(data):
        return reason
    try:
        fields = document.fields(data)
    except UnreadableInput:
        return ""
    if "schema" in fields:
        schema = fields["schema"]
        if isinstance(schema, msgspec.Raw):
            schema = bytes(schema).decode("utf-8", "replace").strip('"')
        return f"the document is of the schema {strict.shown(schema)}, not a graph"
    if not any(field in fields for field in IDENTIFYING_FIELDS):
        return "the document has none of the fields " + ", ".join(IDENTIFYING_FIELDS)
    return "the document is in the node-centric dialect" if is_node_centric(fields) else ""


def is_node_centric(fields: dict[str, Any]) -> bool:
    """Return whether a document with these fields is of the node-centric dialect."""
    if "tensors" in fields or "nodes" not in fields:
        return False
    nodes = fields["nodes"]
    if isinstance(nodes, msgspec.Raw):
        has_shapes = b'"shape_out"' in bytes(nodes)
    else:
        has_shapes = isinstance(nodes, list) and any("shape_out" in node for node in nodes if isinstance(node, dict))
    return "ir_schema_hash" in fields or has_shapes


def decode(data: bytes, name: str = "") -> Graph:
    """Read a graph from the bytes of a native file. Raises the errors of :func:`.document.decode`."""
    with source_of_errors(name):
        data = document.unpack(data)
        document.check_version(document.text_field(data, "ir_schema"), GRAPH_SCHEMA, "$.ir_schema")
        graph = document.decode(data, Graph)
    for field in UNWRITTEN:
        if getattr(graph, field):
            hint = "Remove the field: a graph file cannot set it."
            raise InvalidIrShapes(f"$: unknown field {field!r}.", hint=hint, reason="unknown_field", path=f"$.{field}")
    if any(tensor.dtype is _DEFAULT_DTYPE or not tensor.shape for tensor in graph.tensors):
        # The first program version omitted the dtype float32 and the shape (): decode again to find missing fields.
        # If ``dtype`` is missing, the value is the default object itself.
        tensors = document.decode(data, dict[str, Any])["tensors"]
        shapeless = [i for i, tensor in enumerate(tensors) if "shape" not in tensor]
        untyped = sum("dtype" not in tensor for tensor in tensors)
        # A file that contains float32 or the shape () is not of the first version: a shape is then required.
        if shapeless and any(tensor.get("dtype") == _DEFAULT_DTYPE or tensor.get("shape") == [] for tensor in tensors):
            tensor_id, path = tensors[shapeless[0]]["id"], f"$.tensors[{shapeless[0]}]"
            message = f'{path} (the tensor {tensor_id!r}): the required field "shape" is missing.'
            raise InvalidIrShapes(message, hint="Add the field.", reason="missing_field", path=path, tensor=tensor_id)
        counts = {"no dtype and are read as float32": untyped, "no shape and are read as scalars": len(shapeless)}
        notes = [f"{n:,} of {len(tensors):,} tensors have {what}." for what, n in counts.items() if n]
        graph = msgspec.structs.replace(graph, notes=tuple(notes))
    return normalise_dtypes(graph)


def encode_json(graph: Graph) -> bytes:
    """Return the graph as JSON, a line per tensor and node. Raises ``InvalidIrShapes`` for a NaN or an infinity."""
    for k, node in enumerate(graph.nodes):
        try:
            json.dumps(node.params, allow_nan=False, default=str)
        except ValueError as error:
            what = f"the params of the node {node.node_id!r} contain a NaN or an infinity, which JSON cannot represent."
            path, hint = f"$.nodes[{k}].params", "Write the graph as CBOR."
            raise InvalidIrShapes(what, hint=hint, reason="not_json", node_id=node.node_id, path=path) from error
    encode = msgspec.json.encode
    parts: list[bytes] = []
    for field, value in _fields_in_order(graph).items():
        is_table = field in ("tensors", "nodes")
        text = b"[\n  " + b",\n  ".join(map(encode, value)) + b"\n ]" if is_table else encode(value)
        parts.append(encode(field) + b": " + text)
    return b"{" + b",\n ".join(parts) + b"}\n"


def encode_cbor(graph: Graph) -> bytes:
    """Return the graph as CBOR with sorted keys. Defaults are omitted, except shapes and dtypes."""
    return cbor2.dumps(_fields_in_order(graph), canonical=True)


def encode(graph: Graph, name: str) -> bytes:
    """Encode the graph in the format of the file name. Raises ``UnreadableInput`` for an unsupported extension."""
    plain = name.removesuffix(".gz")
    for ending, writer in ((".json", encode_json), (".cbor", encode_cbor)):
        if plain.endswith(ending):
            return document.pack(writer(graph)) if plain != name else writer(graph)
    hint = "Use the extension .json, .cbor, .json.gz or .cbor.gz."
    raise UnreadableInput("a graph file cannot have this extension.", source=name, hint=hint)


def normal_form(graph: Graph) -> dict[str, Any]:
    """Return a graph's hashed values: canonical dtypes, no defaults, no ``inplace="any"``, none of ``NOT_HASHED``."""
    plain = _plain(normalise_dtypes(graph))
    for field in NOT_HASHED:
        plain.pop(field, None)
    for node in plain.get("nodes", ()):
        if node.get("inplace") == "any":
            del node["inplace"]
        if in_params := {name: node.pop(name) for name in model.HASHED_IN_PARAMS if name in node}:
            node["params"] = {**node.get("params", {}), **in_params}
    return plain


def normalise_dtypes(graph: Graph) -> Graph:
    """Return the graph with canonical dtype names. Raises ``InvalidIrShapes`` (reason ``unknown_dtype``)."""
    canonical = {dtype: dtypes.canonical(dtype) for dtype in {tensor.dtype for tensor in graph.tensors}}
    if all(dtype == name for dtype, name in canonical.items()):
        return graph
    tensors = list(graph.tensors)
    for i, tensor in enumerate(graph.tensors):
        name = canonical[tensor.dtype]
        if name is None:
            checks.size_of(tensor, (), i)  # raises ``InvalidIrShapes`` for the unknown dtype
        elif name != tensor.dtype:
            tensors[i] = msgspec.structs.replace(tensor, dtype=name)
    return msgspec.structs.replace(graph, tensors=tuple(tensors))


def _plain(graph: Graph) -> dict[str, Any]:
    """Return the graph as plain values without defaults and :data:`UNWRITTEN` fields."""
    plain: dict[str, Any] = msgspec.to_builtins(graph)
    plain["ir_schema"] = graph.ir_schema or GRAPH_SCHEMA
    for field in UNWRITTEN:
        plain.pop(field, None)
    for table, defaults in NONEMPTY_DEFAULTS.items():
        for row in plain.get(table, ()):
            for field, default in defaults:
                if row.get(field) == default:
                    del row[field]
    if graph.replan_policy == Graph().replan_policy:
        plain.pop("replan_policy", None)
    return plain


def _fields_in_order(graph: Graph) -> dict[str, Any]:
    """Return the plain values of a graph in the order of the file, with the shape and dtype of every tensor."""
    plain = _plain(graph)
    if "tensors" in plain:
        plain["tensors"] = [
            {"id": tensor.id, "shape": list(tensor.shape), "dtype": tensor.dtype, **row}
            for tensor, row in zip(graph.tensors, plain["tensors"], strict=True)
        ]
    return {field: plain[field] for field in WRITTEN_ORDER if field in plain}


class Port(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Output ``output_idx`` of the node ``node_id``."""

    node_id: str
    output_idx: int = 0


class PortNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node of the dialect: an operator and the tensors it writes."""

    node_id: str
    instr: str = ""
    inputs: tuple[Port, ...] = ()
    shape_out: tuple[int | str | tuple[int | str, ...], ...] | None = None  # absent for a node without outputs
    dtype: str | tuple[str, ...] | None = None  # required for a node with outputs
    role: Role | tuple[Role, ...] = "activation"
    phase: Phase = "forward"
    inplace: Inplace | None = None
    in_place_write: tuple[tuple[int, int], ...] = ()
    params: dict[str, Any] = {}
    grad_edges: tuple[tuple[int, int], ...] = ()
    alias_group_id: str | tuple[str | None, ...] | None = None
    view: View | tuple[View | None, ...] | None = None
    view_descriptor: View | tuple[View | None, ...] | None = None  # the name of ``view`` in the TMMU v2 specification
    saved_for_backward: bool | tuple[bool, ...] = False
    remat: bool | tuple[bool, ...] = False
    must_not_alias: tuple[str, ...] = ()
    alignment: int | tuple[int | None, ...] | None = None
    arena: str | tuple[str | None, ...] | None = None
    shard: Shard | tuple[Shard | None, ...] | None = None


class PortGraph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the dialect. The value of ``ir_schema_hash`` is ignored."""

    nodes: tuple[PortNode, ...]
    outputs: tuple[Port, ...] = ()
    ir_schema_hash: str = ""
    ir_schema: str = ""
    name: str = ""
    dims: dict[str, Dim] = {}
    replan_policy: Literal["ABORT", "REPLAN_AT_SAFEPOINT"] = "ABORT"
    safepoints: tuple[str, ...] = ()
    execution_order: tuple[str, ...] | None = None


strict.register_types(Port, PortNode, PortGraph)


def decode_node_centric(data: bytes, name: str = "") -> Graph:
    """Read a graph from the bytes of a file (JSON or CBOR). Raises the errors of :func:`decode`."""
    with source_of_errors(name):
        document.check_version(document.text_field(data, "ir_schema"), GRAPH_SCHEMA, "$.ir_schema")
        port_graph = document.decode(data, PortGraph)
    node_ids = [node.node_id for node in port_graph.nodes]
    if len(set(node_ids)) != len(node_ids):
        checks.refuse_duplicate(node_ids, "node", "$.nodes[{}].node_id")
    output_counts = {node.node_id: len(_shapes(node)) for node in port_graph.nodes}
    tensors: list[Tensor] = []
    nodes: list[Node] = []
    for k, node in enumerate(port_graph.nodes):
        tensors += _tensors(node, k)
        path, ports = f"$.nodes[{k}].inputs", enumerate(node.inputs)
        inputs = tuple([_port(port, output_counts, f"{path}[{j}]", node.node_id) for j, port in ports])
        outputs = tuple([f"{node.node_id}:{i}" for i in range(output_counts[node.node_id])])
        nodes.append(Node(**{name: getattr(node, name) for name in NODE_FIELDS}, inputs=inputs, outputs=outputs))
    ports = enumerate(port_graph.outputs)
    graph_outputs = tuple([_port(port, output_counts, f"$.outputs[{j}]", "") for j, port in ports])
    same = {field: getattr(port_graph, field) for field in GRAPH_FIELDS}
    return normalise_dtypes(Graph(tuple(tensors), tuple(nodes), outputs=graph_outputs, ir_schema=GRAPH_SCHEMA, **same))


def _shapes(node: PortNode) -> tuple[Shape, ...]:
    if node.shape_out is None:
        return ()
    if node.shape_out and all(isinstance(entry, tuple) for entry in node.shape_out):
        return cast(tuple[Shape, ...], node.shape_out)
    return (cast(Shape, node.shape_out),)


def _tensors(node: PortNode, k: int) -> list[Tensor]:
    shapes, path = _shapes(node), f"$.nodes[{k}]"
    if any(isinstance(dim, tuple) for shape in shapes for dim in shape):
        hint = "Give one shape, or a list of shapes, one for each output."
        raise _wrong_field(node, f"{path}.shape_out", "sizes and shapes are mixed", hint, "wrong_type")
    if shapes and node.dtype is None:
        hint = "Give the dtype of the outputs: one for all outputs, or a list with one each."
        raise _wrong_field(node, f"{path}.dtype", "the field is missing", hint, "missing_field")
    columns: dict[str, tuple[Any, ...]] = {}
    for field in PER_OUTPUT:
        value = node.view_descriptor or node.view if field == "view" else getattr(node, field)
        if not isinstance(value, tuple) or not shapes:
            value = (value,) * len(shapes)
        if len(value) != len(shapes):
            what = f"{len(value)} values for {len(shapes)} outputs"
            hint = "Give one value for all outputs, or one for each."
            raise _wrong_field(node, f"{path}.{field}", what, hint, "wrong_length")
        columns[field] = value
    columns["must_not_alias"] = (node.must_not_alias,) * len(shapes)
    fields = [{field: values[i] for field, values in columns.items()} for i in range(len(shapes))]
    return [Tensor(f"{node.node_id}:{i}", shape, **fields[i]) for i, shape in enumerate(shapes)]


def _wrong_field(node: PortNode, path: str, what: str, hint: str, reason: str) -> InvalidIrShapes:
    message = f"{path} (the node {node.node_id!r}): {what}."
    return InvalidIrShapes(message, hint=hint, reason=reason, node_id=node.node_id, path=path)


def _port(port: Port, output_counts: dict[str, int], path: str, reader: str) -> str:
    """Return the tensor id of a port. ``reader`` is the node that reads it, or empty for a graph output."""
    count, tensor = output_counts.get(port.node_id), f"{port.node_id}:{port.output_idx}"
    if count is not None and 0 <= port.output_idx < count:
        return tensor
    if count is None:
        what = f"an output of {port.node_id!r}, which is not among the nodes"
        hint = "Add the node, or correct the name."
    else:
        what = f"output {port.output_idx} of {port.node_id!r}, which has {count}"
        hint = "Outputs are counted from 0; a node with several has a shape_out of several shapes."
    subject = f"the node {reader!r} reads" if reader else "a graph output is"
    checks.refuse("unknown_tensor", path, f"{subject} {what}.", hint, tensor=tensor, node_id=reader)
