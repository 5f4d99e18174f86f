"""What is read of each tensor and operator of a TensorFlow Lite model, at the borders; and what a file is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import tflite

from tests.importers.test_tflite_features import Op, T, model
from tmmu_core.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.graph.importers import sniff
from tmmu_core.graph.importers.tflite import _ids, _length, _Reading, constants, read
from tmmu_core.graph.model import Graph, Node
from tmmu_core.plan.making.engine import plan_graph

X, Y, Z = T("x"), T("y"), T("z")
RELU = Op("RELU", (0,), (1,))


def tensors(graph: Graph) -> dict[str, tuple[Any, ...]]:
    return {each.id: (each.shape, each.dtype, each.role) for each in graph.tensors}


@pytest.mark.parametrize(
    ("tensor", "at", "role"),
    [
        *(
            (T("t"), "inner", "activation"),
            (T("t"), "in", "input"),
            (T("t"), "out", "output"),
            (T("t"), "ends", "input"),
        ),
        *(
            (T("t", data=b"1"), "inner", "constant"),
            (T("t", data=b"1"), "in", "input"),
            (T("t", data=b"1"), "out", "constant"),
        ),
        *((T("t", behind=1), "inner", "activation"), (T("t", behind=2), "inner", "constant")),
        *(
            (T("t", (0, 3)), "inner", "constant"),
            (T("t", (0, 3)), "in", "input"),
            (T("t", (0, 3)), "written", "activation"),
        ),
        *((T("t", variable=True), "inner", "buffer"), (T("t", variable=True), "in", "buffer")),
        *((T("t", data=b"1", variable=True), "inner", "buffer"), (T("t", ()), "inner", "activation")),
    ],
)
def test_what_a_tensor_is(tensor: T, at: str, role: str) -> None:
    ends = ((0, 2) if at in ("in", "ends") else (0,), (1, 2) if at in ("out", "ends") else (1,))
    ops = [Op("CUSTOM", (0,), (2,))] if at == "written" else []
    graph = read(model([X, Y, tensor], [*ops, Op("CONCATENATION", (0, 2), (1,))], ends=ends))
    assert tensors(graph)["t"] == (tensor.shape, "float32", role)


@pytest.mark.parametrize(("data", "behind", "shape"), [(b"12345", 0, (5,)), (b"", 7, (7,)), (b"123", 7, (3,))])
def test_a_sparse_constant_is_its_bytes_and_no_other_tensor_is(data: bytes, behind: int, shape: tuple[int]) -> None:
    sparse = T("s", (8, 8), data=data, behind=behind, sparse=True)
    graph = read(model([X, Y, sparse, T("a", (8, 8), sparse=True)], [Op("ADD", (0, 2, 3), (1,))]))
    assert (tensors(graph)["s"], tensors(graph)["a"]) == (
        (shape, "uint8", "constant"),
        ((8, 8), "float32", "activation"),
    )


def test_constants_whose_data_are_one_buffer_are_one_storage(tmp_path: Path) -> None:
    """a and b are the same sixteen bytes of the file, c others, and d, which nobody reads, a's as well."""
    held = [
        T("a", data=b"0123456789abcdef"),
        T("b", (2, 2), buffer=3),
        T("c", data=b"fedcba9876543210"),
        T("d", buffer=5),
    ]
    data = model([X, Y, *held], [Op("CONCATENATION", (0, 2, 3, 4), (1,))])
    graph = read(data)
    assert {t.id: t.alias_group_id for t in graph.tensors if t.role == "constant"} == {
        "a": "buffer 3",
        "b": "buffer 3",
        "c": None,
    }
    plan = plan_graph(graph).plan
    assert {arena.name: arena.storages for arena in plan.arenas}["parameters"] == 2
    assert constants(data, graph, None)["b"] == b"0123456789abcdef"


def test_bytes_of_constants_are_ranges_of_the_file(tmp_path: Path) -> None:
    held = [T("a", data=b"four"), T("b", behind=7), T("c", (0,)), T("d", data=b"x")]
    data = model([X, Y, *held], [Op("CONCATENATION", (0, 2, 3, 4, 5), (1,))]).ljust(4096, b"-") + b"behind it"
    file = tmp_path / "m.tflite"
    file.write_bytes(data)
    graph = read(data)
    for where in (None, file):
        found = constants(data, graph, where)
        assert {name: found[name] for name in found} == {"a": b"four", "b": b"behind ", "c": b"", "d": b"x"}
    file.unlink()
    with pytest.raises(UnreadableInput, match="cannot be opened"):
        constants(data, graph, file)["a"]


@pytest.mark.parametrize(
    ("op", "permits"),
    [
        *(
            (Op("ADD", (0, 1), (2,)), ((0, 0), (1, 0))),
            (Op("ADD", (0, 3), (2,)), ((0, 0),)),
            (Op("ADD", (3, 0), (2,)), ((1, 0),)),
        ),
        *(
            (Op("ADD", (0, 1, 0), (2,)), ((0, 0), (1, 0))),
            (Op("RELU", (0, 1), (2,)), ((0, 0),)),
            (Op("RELU", (3,), (2,)), "none"),
        ),
        *(
            (Op("RESHAPE", (0, 1), (2,)), ((0, 0),)),
            (Op("CONV_2D", (0,), (2,)), "none"),
            (Op("RELU", (0,), (1, 2)), "none"),
        ),
        *(
            (Op("RELU", (0,), ()), "none"),
            (Op("RELU", (-1, 0), (2,)), ((0, 0),)),
            (Op("RELU", (0,), (-1, 2)), ((0, 0),)),
        ),
    ],
)
def test_what_a_kernel_may_write_over(op: Op, permits: Any) -> None:
    graph = read(model([X, Y, Z, T("h", (2,))], [op]))
    assert graph.nodes == (
        Node(
            f"{op.code}_0",
            op.code,
            tuple("xyzh"[i] for i in op.inputs if i >= 0),
            tuple("xyzh"[i] for i in op.outputs if i >= 0),
            inplace=permits,
        ),
    )


@pytest.mark.parametrize(
    ("op", "ends", "wrong"),
    [
        *((Op("RELU", (0,), (2,)), ((0,), (1,)), "operator 0 (RELU) names tensor 2 among its outputs"),),
        *((Op("RELU", (0, -2), (1,)), ((0,), (1,)), "operator 0 (RELU) names tensor -2 among its inputs"),),
        *((RELU, ((2,), (1,)), "the subgraph names tensor 2 among its inputs"),),
        *((RELU, ((0,), (-1,)), "the subgraph names tensor -1 among its outputs"),),
        *((Op("RELU", (0, -1), (1,)), ((0, 1), (0, 1)), ""), (Op("RELU", (-1,), (-1,)), ((), ()), "")),
    ],
)
def test_a_number_is_that_of_a_tensor(op: Op, ends: Any, wrong: str) -> None:
    data = model([X, Y], [op], ends=ends)
    if wrong:
        with pytest.raises(UnreadableInput) as caught:
            read(data, "m.tflite")
        assert wrong in str(caught.value)
        assert "there are 2 tensors" in str(caught.value)
    else:
        assert read(data).nodes[0].instr == "RELU"


def test_only_what_is_used_or_is_an_end_is_a_tensor_and_ends_stand_once() -> None:
    graph = read(model([X, Y, Z, T("in"), T("out")], [RELU], ends=((0, 3, 0), (4, 1, 4))))
    assert list(tensors(graph)) == ["x", "y", "in", "out"]
    assert (graph.inputs, graph.outputs) == (("x", "in"), ("out", "y"))


@pytest.mark.parametrize(
    "op",
    [
        *(Op("ASSIGN_VARIABLE", (-1, 1), ()), Op("ASSIGN_VARIABLE", (0, -1), ()), Op("ASSIGN_VARIABLE", (-1, -1), ())),
        *(Op("READ_VARIABLE", (-1,), (1,)), Op("READ_VARIABLE", (0,), (-1,)), Op("READ_VARIABLE", (-1, 0), (1,))),
    ],
)
def test_a_variable_or_a_value_that_is_left_out_is_refused_by_name(op: Op) -> None:
    with pytest.raises(UnreadableInput, match=f"operator 1 \\({op.code}\\) leaves out which variable"):
        read(model([X, Y], [RELU, op]), "m.tflite")


@pytest.mark.parametrize("op", [Op("READ_VARIABLE", (), (1,)), Op("READ_VARIABLE", (0,), ()), Op("VAR_HANDLE", (), ())])
def test_an_operator_on_variables_without_its_operands_is_damage(op: Op) -> None:
    with pytest.raises(UnreadableInput, match="cut off or damaged"):
        read(model([X, Y], [op]))


def test_handles_of_one_name_are_one_variable_as_large_as_what_is_seen_of_it_first() -> None:
    handles = [T(name, (1,), "RESOURCE") for name in ("h", "i", "j")]
    ops = [
        *(Op("VAR_HANDLE", (), (at,), ("VarHandleOptions", {"SharedName": name})) for at, name in ((1, "s"), (2, "s"))),
        *(Op("VAR_HANDLE", (), (3,)), Op("ASSIGN_VARIABLE", (1, 4), ()), Op("READ_VARIABLE", (2,), (0,))),
        *(Op("READ_VARIABLE", (3,), (0,)), Op("ASSIGN_VARIABLE", (3, 4), ())),
    ]
    graph = read(
        model(
            [X, *handles, T("large", (9,), "INT8"), T("variable s", (1,)), T("variable s'", (1,))],
            ops,
            ends=((5, 6), (0,)),
        )
    )
    found = tensors(graph)
    assert found["variable s''"] == ((9,), "int8", "buffer")
    assert found["variable j"] == ((4,), "float32", "buffer")
    assert [node.inputs for node in graph.nodes[3:]] == [
        *(("h", "large", "variable s''"), ("i", "variable s''"), ("j", "variable j"), ("j", "large", "variable j")),
    ]


@pytest.mark.parametrize(("dims", "refused"), [((4, 0), False), ((4, -1), True), ((-1,), True)])
def test_a_dimension_that_is_left_open_is_refused(dims: tuple[int, ...], refused: bool) -> None:
    data = model([X, T("y", dims)], [RELU])
    if refused:
        with pytest.raises(InvalidIrShapes, match='"y" has a dimension that the model leaves open'):
            read(data)
    else:
        assert tensors(read(data))["y"][0] == dims


def test_a_model_without_a_subgraph_is_refused_and_names_say_what_is_not_planned() -> None:
    with pytest.raises(UnreadableInput, match="has no subgraph"):
        read(model([X, Y], [RELU], subgraphs=0))
    both = model([X, Y], [RELU], subgraphs=2, metadata="OfflineMemoryAllocation")
    assert read(both, "a/m.tflite").name == (
        "m (subgraph 1 of 2; the others are not planned; the offline plan in the file is not used)"
    )


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "b"], ["a:0", "a:1", "b"]),
        (["", "b", ""], ["tensor:0", "b", "tensor:2"]),
        (["a", "a", "a:1"], ["a:0", "a:1:1", "a:1"]),
        (["a", "a", "a:1", "a:1:1"], ["a:0", "a:1:1:1", "a:1", "a:1:1"]),
        (["", "tensor:0", "tensor:0"], ["tensor:0:0", "tensor:0:1", "tensor:0:2"]),
    ],
)
def test_names_are_told_apart_by_their_number(names: list[str], ids: list[str]) -> None:
    assert _ids(names) == ids


@pytest.mark.parametrize(("length", "fits"), [(25, True), (26, False), (0, True)])
def test_a_vector_is_no_longer_than_the_file(length: int, fits: bool) -> None:
    table = SimpleNamespace(InputsLength=lambda: length, _tab=SimpleNamespace(Bytes=b"x" * 103))
    if fits:
        assert _length(table, "Inputs") == length
    else:
        with pytest.raises(IndexError, match="Inputs"):
            _length(table, "Inputs")


@pytest.mark.parametrize(
    ("builtin", "deprecated", "custom", "name"),
    [
        *(
            (0, 0, None, "ADD"),
            (19, 19, None, "RELU"),
            (0, 19, None, "RELU"),
            (150, 127, None, "GELU"),
            (32, 32, None, "CUSTOM"),
        ),
        *(
            (32, 32, b"Mine\xff", "Mine�"),
            (0, 32, b"", "CUSTOM"),
            (9999, 127, None, "BUILTIN_9999"),
            (19, 19, b"Mine", "RELU"),
        ),
    ],
)
def test_an_operator_is_called_by_the_larger_of_its_numbers(
    builtin: int, deprecated: int, custom: bytes | None, name: str
) -> None:
    code = SimpleNamespace(
        BuiltinCode=lambda: builtin, DeprecatedBuiltinCode=lambda: deprecated, CustomCode=lambda: custom
    )
    reading: Any = SimpleNamespace(
        tflite=tflite, model=SimpleNamespace(OperatorCodes=lambda k: code if k == 3 else None)
    )
    assert _Reading._operator_name(reading, SimpleNamespace(OpcodeIndex=lambda: 3)) == name


def test_subgraphs_are_called_by_their_names_cut_at_a_thousand_bytes() -> None:
    names = [b"cond", "é".encode() * 600, b"a" + "é".encode() * 600, None]
    options = SimpleNamespace(CondSubgraphIndex=lambda: 0, BodySubgraphIndex=lambda: 3)
    subgraphs = SimpleNamespace(Subgraphs=lambda n: SimpleNamespace(Name=lambda: names[n]))
    reading: Any = SimpleNamespace(model=subgraphs, _options=lambda operator, table: options)
    assert _Reading._called(reading, "WHILE", None) == ["cond", "subgraph_3"]
    options.CondSubgraphIndex, options.BodySubgraphIndex = (lambda: 1), (lambda: 2)
    assert _Reading._called(reading, "WHILE", None) == ["é" * 500, "a" + "é" * 499 + "�"]
    assert _Reading._called(reading, "ADD", None) == []
    reading._options = lambda operator, table: None
    assert _Reading._called(reading, "WHILE", None) == []


# -- what a file is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "value", "at"),
    [
        *((b"\x00", 0, 1), (b"\x7f", 127, 1), (b"\x80\x01", 128, 2), (b"\xff\x7f", 16383, 2), (b"", 0, 0)),
        *((b"\x80", 0, 1), (b"\x81\x80\x80", 1, 3), (b"\x01\x01", 1, 1), (b"\xff" * 9 + b"\x01", (1 << 64) - 1, 10)),
        (b"\x80" * 9 + b"\x01\x01", 1 << 63, 10),
    ],
)
def test_a_number_of_seven_bits_a_byte(data: bytes, value: int, at: int) -> None:
    assert sniff._varint(data, 0) == (value, at)
    assert sniff._varint(b"\x01" + data, 1) == (value, at + 1)


@pytest.mark.parametrize(
    ("nodes", "ports"),
    [
        *((b"[]", False), (b"4", False), (b'[{"shape_out": []}]', True), (b'[4, {"shape_out": []}]', True)),
        *(
            (b'[{"inputs": [{}]}]', True),
            (b'[{"inputs": ["x"]}, {"inputs": ["x", {}]}]', True),
            (b'[{"inputs": null}]', False),
        ),
        *((b'[{"inputs": ["x"]}]', False), (b'["\xff"]', False), (b"[" * 5000 + b"]" * 5000, False), (b"[{}, ", False)),
    ],
)
def test_nodes_with_shapes_or_ports_are_of_the_dialect(nodes: bytes, ports: bool) -> None:
    assert sniff._has_ports(msgspec.Raw(nodes)) is ports
