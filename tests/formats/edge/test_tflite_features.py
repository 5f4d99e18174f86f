"""Features of real TensorFlow Lite models: subgraphs, variables, sparse and narrow data, offline plans."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import pytest
import tflite

from tmmu_core.base.errors import AllocationOverflow
from tmmu_core.formats.edge.tflite import constants, read
from tmmu_core.formats.edge.tflite_subgraph import SUBGRAPH_FIELDS
from tmmu_core.formats.edge.tflm_plan import with_metadata
from tmmu_core.graph.model import Tensor
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.making.engine import plan_graph

LINK = "PrependUOffsetTRelative"


@dataclass
class T:
    """A tensor; ``behind`` is the size of data that lie behind the flatbuffer."""

    name: str
    shape: tuple[int, ...] = (4,)
    dtype: str = "FLOAT32"
    data: bytes = b""
    behind: int = 0
    variable: bool = False
    sparse: bool = False
    external: int = 0  # which of the buffers in other files its data are
    buffer: int = 0  # which of the buffers its data are, where not one of its own: the tensor's number and one
    scale: float = 0.0  # of its quantization; the zero point is 0
    signature: tuple[int, ...] = ()  # its shape with −1 for dynamic dimensions; empty if none is open


@dataclass
class Op:
    """An operator; ``options`` are (table, its fields), with ``second`` in the newer union."""

    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: tuple[str, dict[str, Any]] | None = None
    second: bool = False
    custom: str = ""


LATER = {"INT2": 19, "UINT4": 20, "FLOAT8_E4M3FN": 21, "FLOAT8_E5M2": 22}
"""Types of today's schema that the parser does not name."""


def _tensor(b: flatbuffers.Builder, fields: dict[str, Any], external: int) -> int:
    """A tensor of today's schema, which has a field more than the parser knows."""
    b.StartObject(11)
    for field, value in fields.items():
        getattr(tflite, f"TensorAdd{field}")(b, value)
    b.PrependUint32Slot(10, external, 0)
    return int(b.EndObject())


@dataclass
class Sub:
    """One more subgraph."""

    tensors: list[T]
    ops: list[Op]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def model(
    tensors: list[T],
    ops: list[Op],
    *,
    subgraphs: int = 1,
    bodies: Sequence[Sub] = (),
    metadata: str = "",
    ends: Any = ((0,), (1,)),
) -> bytes:
    """Return a model of one subgraph, or of ``subgraphs`` equal ones, followed by ``bodies``."""
    b = flatbuffers.Builder(1024)

    def table(kind: str, **fields: Any) -> int:
        getattr(tflite, f"{kind}Start")(b)
        for field, value in fields.items():
            getattr(tflite, f"{kind}Add{field}")(b, value)
        return int(getattr(tflite, f"{kind}End")(b))

    def vector(kind: str, field: str, items: Any, prepend: str = "PrependInt32") -> int:
        getattr(tflite, f"{kind}Start{field}Vector")(b, len(items))
        for item in reversed(items):
            getattr(b, prepend)(item)
        return int(b.EndVector())

    buffers, codes = [table("Buffer")], []

    def tensor_row(tensor: T) -> int:
        held: dict[str, Any] = {"Data": b.CreateByteVector(tensor.data)} if tensor.data else {}
        held |= {"Offset": 4096, "Size": tensor.behind} if tensor.behind else {}
        buffers.append(table("Buffer", **held))
        fields: dict[str, Any] = {
            "Shape": vector("Tensor", "Shape", tensor.shape),
            "Name": b.CreateString(tensor.name),
            "Type": LATER.get(tensor.dtype, getattr(tflite.TensorType, tensor.dtype, None)),
            "Buffer": tensor.buffer or len(buffers) - 1,
            "IsVariable": tensor.variable,
        }
        if tensor.signature:
            fields["ShapeSignature"] = vector("Tensor", "ShapeSignature", tensor.signature)
        if tensor.scale:
            b.StartVector(4, 1, 4)
            b.PrependFloat32(tensor.scale)
            scale = b.EndVector()
            b.StartVector(8, 1, 8)
            b.PrependInt64(0)
            zero = b.EndVector()
            fields["Quantization"] = table("QuantizationParameters", Scale=scale, ZeroPoint=zero)
        if tensor.sparse:
            fields["Sparsity"] = table("SparsityParameters")
        return _tensor(b, fields, tensor.external)

    def operator(op: Op) -> int:
        fields: dict[str, Any] = {
            "Inputs": vector("Operator", "Inputs", op.inputs),
            "Outputs": vector("Operator", "Outputs", op.outputs),
            "OpcodeIndex": len(codes),
        }
        if op.options:
            kind, given = op.options
            given = {key: b.CreateString(value) if isinstance(value, str) else value for key, value in given.items()}
            union = tflite.BuiltinOptions2 if op.second else tflite.BuiltinOptions
            side = "BuiltinOptions2" if op.second else "BuiltinOptions"
            fields |= {side: table(kind, **given), f"{side}Type": getattr(union, kind)}
        row = table("Operator", **fields)
        number = getattr(tflite.BuiltinOperator, op.code)
        custom = {"CustomCode": b.CreateString(op.custom)} if op.custom else {}
        codes.append(table("OperatorCode", BuiltinCode=number, DeprecatedBuiltinCode=min(number, 127), **custom))
        return row

    def subgraph(sub: Sub) -> int:
        rows, operators = [tensor_row(tensor) for tensor in sub.tensors], [operator(op) for op in sub.ops]
        return table(
            "SubGraph",
            Tensors=vector("SubGraph", "Tensors", rows, LINK),
            Inputs=vector("SubGraph", "Inputs", sub.inputs),
            Outputs=vector("SubGraph", "Outputs", sub.outputs),
            Operators=vector("SubGraph", "Operators", operators, LINK),
        )

    rows = [subgraph(Sub(tensors, ops, *ends))] * subgraphs + [subgraph(sub) for sub in bodies]
    whole = {
        "Version": 3,
        "OperatorCodes": vector("Model", "OperatorCodes", codes, LINK),
        "Subgraphs": vector("Model", "Subgraphs", rows, LINK),
        "Buffers": vector("Model", "Buffers", buffers, LINK),
    }
    if metadata:
        entry = table("Metadata", Name=b.CreateString(metadata), Buffer=0)
        whole["Metadata"] = vector("Model", "Metadata", [entry], LINK)
    signature = table("SignatureDef", SignatureKey=b.CreateString("serving_default"))
    whole["SignatureDefs"] = vector("Model", "SignatureDefs", [signature], LINK)
    b.Finish(table("Model", **whole), b"TFL3")
    return bytes(b.Output())


X, Y = T("x"), T("y")


def only(data: bytes, name: str) -> Tensor:
    return next(tensor for tensor in read(data, "m.tflite").tensors if tensor.id == name)


def test_every_operator_of_the_schema_has_its_name() -> None:
    names = {word for word in vars(tflite.BuiltinOperator) if not word.startswith("_")} - {"CUSTOM"}
    read_names = {read(model([X, Y], [Op(word, (0,), (1,))])).nodes[0].instr for word in names - VARIABLE}
    assert read_names == names - VARIABLE


VARIABLE = {"VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"}


def test_every_subgraph_index_of_the_schema_is_read() -> None:
    tables = {table for table, _ in SUBGRAPH_FIELDS.values()}
    fields = {(table, field) for table, names in SUBGRAPH_FIELDS.values() for field in names}
    known = {
        (name, word)
        for name, kind in vars(tflite).items()
        if name.endswith("Options") and isinstance(kind, type)
        for word in vars(kind)
        if word == "Subgraph" or word.endswith("SubgraphIndex")
    }
    assert fields == known
    assert tables == {name for name, _ in known}


def test_variable_behind_a_handle_is_a_buffer_of_its_size() -> None:
    handle, sum_ = T("handle", (1,), "RESOURCE"), T("sum")
    name = ("VarHandleOptions", {"SharedName": "state"})
    ops = [
        Op("VAR_HANDLE", (), (2,), name),
        Op("READ_VARIABLE", (2,), (3,)),
        Op("ADD", (0, 3), (1,)),
        Op("ASSIGN_VARIABLE", (2, 1), ()),
    ]
    graph = read(model([X, Y, handle, sum_], ops))
    held = next(tensor for tensor in graph.tensors if tensor.role == "buffer")
    assert (held.id, held.shape, held.dtype) == ("variable state", (4,), "float32")
    assert [node.inputs[-1] for node in graph.nodes if node.instr in VARIABLE_READERS] == ["variable state"] * 2
    assert plan_graph(graph).plan.arena_of["parameters"].peak_live_bytes == 16


VARIABLE_READERS = ("READ_VARIABLE", "ASSIGN_VARIABLE")


def test_variables_of_one_name_in_two_containers_are_two_buffers() -> None:
    ops = []
    for k, container in enumerate(("", "a")):
        name = ("VarHandleOptions", {"Container": container, "SharedName": "state"})
        ops += [Op("VAR_HANDLE", (), (2 + k,), name), Op("READ_VARIABLE", (2 + k,), (k,))]
    handles = [T(name, (1,), "RESOURCE") for name in ("h", "i")]
    graph = read(model([X, Y, *handles], ops, ends=((), (0, 1))))
    assert [tensor.id for tensor in graph.tensors if tensor.persistent] == ["variable state", "variable a/state"]


def test_variable_tensor_is_persistent() -> None:
    graph = read(model([X, Y, T("state", variable=True)], [Op("SVDF", (0, 2), (1,))]))
    assert plan_graph(graph).plan.arena_of["parameters"].peak_live_bytes == 16


def test_external_weights_are_constants_without_bytes() -> None:
    data = model([X, Y, T("w", (4, 4), external=1), T("v", data=bytes(16))], [Op("CUSTOM", (0, 2, 3), (1,))])
    assert (only(data, "w").role, only(data, "w").shape) == ("constant", (4, 4))
    assert plan_graph(read(data)).plan.arena_of["parameters"].peak_live_bytes == 80
    assert list(constants(data, read(data), None)) == ["v"]


def test_sparse_constant_has_its_stored_bytes() -> None:
    data = model([X, Y, T("w", (64, 64), data=bytes(100), sparse=True)], [Op("DENSIFY", (2,), (1,))])
    assert (only(data, "w").shape, only(data, "w").dtype) == ((100,), "uint8")


COMPILED = model(
    [T("x", (16,), "INT8"), T("y", (4,), "INT8"), T("commands", (8,), "UINT8", bytes(8)), T("scratch", (64,), "UINT8")],
    [Op("CUSTOM", (2, 3, 0), (1,), custom="ethos-u")],
)
"""A model as Vela writes it: one operator with its commands, and scratch memory that nothing writes."""


def test_tensors_that_vela_placed_in_scratch_memory_are_views_of_it() -> None:
    offsets = with_metadata(COMPILED, b"OfflineMemoryAllocation", struct.pack("<7i", 0, 1, 4, 0, 16, -1, 0))
    plan = plan_graph(read(offsets)).plan
    assert plan.arena_of["activations"].extent_bytes == 64
    assert [int(plan.offset[plan.row_of[name]]) for name in ("x", "y", "scratch")] == [0, 16, 0]


def test_number_that_makes_a_name_unique_gives_no_existing_name() -> None:
    tensors = [T("a"), T("a"), T("a:1"), T(""), T("tensor:3")]
    data = model(
        tensors, [Op("ADD", (0, 1), (2,)), Op("RELU", (2,), (3,)), Op("RELU", (3,), (4,))], ends=((0, 1), (4,))
    )
    graph = read(data, "m.tflite")
    assert [tensor.id for tensor in graph.tensors] == ["a:0", "a:1:1", "a:1", "tensor:3:3", "tensor:3"]
    assert verify_plan(plan_graph(graph).plan).ok


def test_variable_is_not_named_like_a_tensor() -> None:
    tensors = [T("variable h", (1,)), T("h", (1,), "RESOURCE"), T("y", (1,)), T("z", (1,))]
    ops = [
        Op("VAR_HANDLE", (), (1,), ("VarHandleOptions", {"SharedName": "h"})),
        Op("READ_VARIABLE", (1,), (2,)),
        Op("ADD", (0, 2), (3,)),
    ]
    data = model(tensors, ops, ends=((0,), (3,)))
    assert only(data, "variable h'").role == "buffer"
    assert only(data, "variable h").role == "input"


def test_open_sizes_of_inputs_are_noted() -> None:
    batch = T("x", (1, 4), signature=(-1, 4))
    graph = read(model([batch, T("y", (1, 4), signature=(-1, 4))], [Op("ABS", (0,), (1,))]), "m.tflite")
    assert graph.notes[0].startswith("dynamic inputs have the sizes in the file: x [1, 4]")
    assert not any(node.unplanned for node in graph.nodes)


def test_size_that_the_file_does_not_have_makes_the_plan_incomplete() -> None:
    places = T("places", (1, 1), "INT64", signature=(-1, 1))
    flat = T("flat", (1,), "INT64", signature=(-1,))
    graph = read(model([X, flat, places], [Op("WHERE", (0,), (2,)), Op("SQUEEZE", (2,), (1,))]), "m.tflite")
    assert [node.unplanned for node in graph.nodes] == [("places: its size depends on data",), ()]
    assert all(arena.status == "incomplete" for arena in plan_graph(graph).plan.arenas)
    batch, frames = T("x", (1, 8), signature=(-1, 8)), T("frames", (1, 2), signature=(-1, 2))  # 8 elements or more
    graph = read(model([batch, frames], [Op("RESHAPE", (0,), (1,))]), "m.tflite")
    assert graph.nodes[0].unplanned == ("frames: its size in the file is a placeholder",)


def test_size_beyond_64_bits_names_the_tensor() -> None:
    with pytest.raises(AllocationOverflow, match="tensor 'y'"):
        read(model([X, T("y", (2**31 - 1,) * 3)], [Op("ABS", (0,), (1,))]), "m.tflite")
