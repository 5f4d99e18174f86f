"""The node-centric dialect (contract §8): nodes hold their outputs, and inputs are named by node and output.

::

    {"ir_schema_hash": "…", "nodes": [
        {"node_id": "x", "instr": "INPUT", "shape_out": [1, 8], "dtype": "float32", "role": "input"},
        {"node_id": "h", "instr": "RELU", "inputs": [{"node_id": "x", "output_idx": 0}], "shape_out": [1, 8]}],
     "outputs": [{"node_id": "h", "output_idx": 0}]}

The tensor that node ``h`` writes as its output 0 is called ``h:0``. There are no graph inputs: a loaded tensor is the
output of a node. A node with several outputs has a ``shape_out`` of several shapes; its ``dtype``, ``role`` and the
tensor's other fields are then one for all, or a list with one each.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec

from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.base.struct_types import register_types
from tmmu_core.graph import checks
from tmmu_core.graph.model import GRAPH_SCHEMA, Dim, Graph, Inplace, Node, Phase, Role, Shard, Tensor, View
from tmmu_core.graph.native import document, native_file

Shape = tuple[int | str, ...]
PER_OUTPUT = ("dtype", "role", "alias_group_id", "view", "saved_for_backward", "remat", "alignment", "arena", "shard")
"""Fields of a node that are one value for all outputs, or a list with one each."""
SAME = ("node_id", "instr", "phase", "inplace", "in_place_write", "params", "grad_edges")
"""Fields of a node that are those of the native format."""


class Port(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Output ``output_idx`` of the node ``node_id``."""

    node_id: str
    output_idx: int = 0


class PortNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node of the dialect: an operator and the tensors it writes."""

    node_id: str
    instr: str = ""
    inputs: tuple[Port, ...] = ()
    shape_out: tuple[int | str | tuple[int | str, ...], ...] | None = None
    """One shape, or a list of them; absent where nothing is written."""
    dtype: str | tuple[str, ...] | None = None
    """Absent only where nothing is written."""
    role: Role | tuple[Role, ...] = "activation"
    phase: Phase = "forward"
    inplace: Inplace | None = None
    in_place_write: tuple[tuple[int, int], ...] = ()
    params: dict[str, Any] = {}
    grad_edges: tuple[tuple[int, int], ...] = ()
    alias_group_id: str | tuple[str | None, ...] | None = None
    view: View | tuple[View | None, ...] | None = None
    view_descriptor: View | tuple[View | None, ...] | None = None
    """The seed's name of ``view``."""
    saved_for_backward: bool | tuple[bool, ...] = False
    remat: bool | tuple[bool, ...] = False
    must_not_alias: tuple[str, ...] = ()
    alignment: int | tuple[int | None, ...] | None = None
    arena: str | tuple[str | None, ...] | None = None
    shard: Shard | tuple[Shard | None, ...] | None = None


class PortGraph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A graph of the dialect, as its file has it. ``ir_schema_hash`` is ignored."""

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


def refuses(data: bytes) -> str:
    """Return why bytes are no graph in this dialect; ``""`` if they are."""
    if reason := document.no_document(data):
        return reason
    try:
        fields = document.fields(data)
    except UnreadableInput:
        return "it begins like a document, and is damaged"
    if native_file.is_node_centric(fields):
        return ""
    if "tensors" in fields:
        return "the document has a list of tensors"
    if "nodes" not in fields:
        return 'the document has no "nodes"'
    return 'no node has a "shape_out" and no input names a "node_id"'


def decode(data: bytes, name: str = "") -> Graph:
    """The dialect's bytes (JSON or CBOR) to a graph in the native vocabulary. Errors as :func:`native.decode`."""
    document.check_version(document.text_field(data, "ir_schema", name), GRAPH_SCHEMA, name, "$.ir_schema")
    read = document.decode(data, PortGraph, name)
    node_ids = [node.node_id for node in read.nodes]
    if len(set(node_ids)) != len(node_ids):
        checks.refuse_duplicate(node_ids, "duplicate_node")
    widths = {node.node_id: len(_shapes(node)) for node in read.nodes}
    tensors: list[Tensor] = []
    nodes: list[Node] = []
    for k, node in enumerate(read.nodes):
        tensors += _tensors(node, k)
        ports = enumerate(node.inputs)
        inputs = [_port(port, widths, f"$.nodes[{k}].inputs[{j}]", node.node_id) for j, port in ports]
        outputs = tuple([f"{node.node_id}:{i}" for i in range(widths[node.node_id])])
        fields = {field: getattr(node, field) for field in SAME}
        nodes.append(Node(**fields, inputs=tuple(inputs), outputs=outputs))
    graph = Graph(
        tensors=tuple(tensors),
        nodes=tuple(nodes),
        outputs=tuple([_port(port, widths, f"$.outputs[{j}]", "") for j, port in enumerate(read.outputs)]),
        ir_schema=GRAPH_SCHEMA,
        name=read.name,
        dims=read.dims,
        replan_policy=read.replan_policy,
        safepoints=read.safepoints,
        execution_order=read.execution_order,
    )
    return native_file.normalise_dtypes(graph)


def _shapes(node: PortNode) -> tuple[Shape, ...]:
    if node.shape_out is None:
        return ()
    if node.shape_out and all(isinstance(entry, tuple) for entry in node.shape_out):
        return cast(tuple[Shape, ...], node.shape_out)
    return (cast(Shape, node.shape_out),)


def _tensors(node: PortNode, k: int) -> list[Tensor]:
    shapes = _checked_shapes(node, k)

    def each(field: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple):
            return (value,) * len(shapes)
        if len(value) != len(shapes):
            raise InvalidIrShapes(
                f'$.nodes[{k}].{field} (the node "{node.node_id}"): {len(value)} values for {len(shapes)} outputs.',
                hint="Give one value for all outputs, or one for each.",
                reason="wrong_length",
                node_id=node.node_id,
                path=f"$.nodes[{k}].{field}",
            )
        return value

    columns = {field: each(field, getattr(node, field)) for field in PER_OUTPUT if shapes or field != "dtype"}
    if node.view_descriptor is not None:
        columns["view"] = each("view", node.view_descriptor)
    return [
        Tensor(
            id=f"{node.node_id}:{i}",
            shape=shape,
            must_not_alias=node.must_not_alias,
            **{field: values[i] for field, values in columns.items()},
        )
        for i, shape in enumerate(shapes)
    ]


def _checked_shapes(node: PortNode, k: int) -> tuple[Shape, ...]:
    """Return the shapes of a node's outputs. Raises ``InvalidIrShapes`` for mixed shapes or a missing dtype."""
    shapes = _shapes(node)
    if any(isinstance(dim, tuple) for shape in shapes for dim in shape):
        raise InvalidIrShapes(
            f'$.nodes[{k}].shape_out (the node "{node.node_id}"): sizes and shapes are mixed.',
            hint="Give one shape, or a list of shapes, one for each output.",
            reason="wrong_type",
            node_id=node.node_id,
            path=f"$.nodes[{k}].shape_out",
        )

    if shapes and node.dtype is None:
        raise InvalidIrShapes(
            f'$.nodes[{k}].dtype (the node "{node.node_id}"): the field is missing.',
            hint="Say the dtype of what the node writes: one for all outputs, or a list with one each.",
            reason="missing_field",
            node_id=node.node_id,
            path=f"$.nodes[{k}].dtype",
        )
    return shapes


def _port(port: Port, widths: dict[str, int], path: str, reader: str) -> str:
    """The tensor id that a port means. Raises ``InvalidIrShapes`` (reason ``unknown_tensor``)."""
    width, tensor = widths.get(port.node_id), f"{port.node_id}:{port.output_idx}"
    if width is None:
        what = f'an output of "{port.node_id}", which is not among the nodes'
        hint = "Add the node, or correct the name."
    elif not 0 <= port.output_idx < width:
        what = f'output {port.output_idx} of "{port.node_id}", which has {width}'
        hint = "Outputs are counted from 0; a node with several has a shape_out of several shapes."
    else:
        return tensor
    who = f'the node "{reader}" reads' if reader else "the graph gives out"
    error = InvalidIrShapes(f"{who} {what}.", hint=hint, reason="unknown_tensor", tensor=tensor, path=path)
    if reader:
        error.fill(node_id=reader)
    raise error
