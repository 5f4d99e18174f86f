"""Read the node-centric dialect (contract §8): nodes contain their outputs, and inputs refer to outputs of nodes.

::

    {"ir_schema_hash": "…", "nodes": [
        {"node_id": "x", "instr": "INPUT", "shape_out": [1, 8], "dtype": "float32", "role": "input"},
        {"node_id": "h", "instr": "RELU", "inputs": [{"node_id": "x", "output_idx": 0}], "shape_out": [1, 8]}],
     "outputs": [{"node_id": "h", "output_idx": 0}]}

Output 0 of node ``h`` is the tensor ``h:0``. There are no graph inputs: a loaded tensor is the output of a node. A node
with several outputs has a list of shapes as ``shape_out``, and one value or a list in the fields :data:`PER_OUTPUT`.
"""

from typing import Any, Literal, cast

import msgspec

from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput, source_of_errors
from tmmu_core.base.strict import register_types
from tmmu_core.graph import checks
from tmmu_core.graph.model import GRAPH_SCHEMA, Dim, Graph, Inplace, Node, Phase, Role, Shard, Tensor, View
from tmmu_core.graph.native import document, native_file

Shape = tuple[int | str, ...]
PER_OUTPUT = ("dtype", "role", "alias_group_id", "view", "saved_for_backward", "remat", "alignment", "arena", "shard")
"""Fields of a node that describe its outputs."""
# Fields of a node and of the graph that are the same in the native format:
NODE_FIELDS = ("node_id", "instr", "phase", "inplace", "in_place_write", "params", "grad_edges")
GRAPH_FIELDS = ("name", "dims", "replan_policy", "safepoints", "execution_order")


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


register_types(Port, PortNode, PortGraph)


def refusal(data: bytes) -> str:
    """Return why bytes are not a graph in this dialect; ``""`` if they probably are."""
    if reason := document.refusal_reason(data):
        return reason
    try:
        fields = document.fields(data)
    except UnreadableInput:
        return "it begins like a document, and is damaged"
    return "" if native_file.is_node_centric(fields) else 'the document has no "nodes" with shapes and ports'


def decode(data: bytes, name: str = "") -> Graph:
    """Read a graph from the bytes of a file (JSON or CBOR). Raises the errors of :func:`.native_file.decode`."""
    with source_of_errors(name):
        document.check_version(document.text_field(data, "ir_schema"), GRAPH_SCHEMA, "$.ir_schema")
        port_graph = document.decode(data, PortGraph)
    node_ids = [node.node_id for node in port_graph.nodes]
    if len(set(node_ids)) != len(node_ids):
        checks.refuse_duplicate(node_ids, "duplicate_node")
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
    graph = Graph(tuple(tensors), tuple(nodes), outputs=graph_outputs, ir_schema=GRAPH_SCHEMA, **same)
    return native_file.normalise_dtypes(graph)


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
