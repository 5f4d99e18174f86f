"""Borders of the smaller rooms behind the reader of ONNX: names, functions, loops in loops, and what a run is fed."""

from __future__ import annotations

import io
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.graph.test_onnx import model, op, read, value
from tests.importers.test_onnx_growth import body_of, concat, largest, looped
from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.importers import onnx_measure
from tmmu_core.graph.importers.onnx_functions import check_calls
from tmmu_core.graph.importers.onnx_names import unique_ids
from tmmu_core.graph.model import Dim


def test_what_would_be_called_alike_is_made_longer() -> None:
    assert unique_ids([(0, "", "A"), (0, "", "A"), (1, "", "A")]) == ["A_0", "A_0_", "A_1"]
    assert unique_ids([(0, "n", "A"), (1, "n", "A"), (2, "", "B"), (3, "B_2", "C")]) == ["A_0", "A_1", "B_2_", "B_2"]


def function(name: str, *calls: str) -> onnx.FunctionProto:
    nodes = [op(each, "q" if not k else f"b{k}", f"b{k + 1}", domain="own") for k, each in enumerate(calls)]
    return helper.make_function("own", name, ["q"], [f"b{len(calls)}"], nodes, [helper.make_opsetid("own", 1)])


def test_a_function_may_call_others_and_never_itself() -> None:
    def checked(*functions: onnx.FunctionProto) -> None:
        check_calls(model([op("F", "x", "y", domain="own")], [], [], functions=functions), "m.onnx")

    leaf = function("H", "Own")
    checked(function("F", "G", "H", "G"), function("G", "H"), leaf)
    checked(leaf, function("G", "H"), function("F", "G", "H"))
    for circle in ((function("F", "F"),), (function("F", "G"), function("G", "H"), function("H", "F"))):
        with pytest.raises(UnreadableInput, match='the local function "own::F" calls itself') as caught:
            checked(*circle)
        assert caught.value.source == "m.onnx"


def called(domains: str, nodes: str) -> onnx.ModelProto:
    """A model that lists ONNX's own operators under ``domains`` and uses them as ``nodes``; bodies, a function."""

    def own(operator: str, reads: str, writes: str, **more: object) -> onnx.NodeProto:
        return op(operator, reads, writes, domain=nodes, **more)

    opsets = [helper.make_opsetid(each.strip(), 17) for each in domains.split(",")]
    twice = helper.make_function("own", "Twice", ["a"], ["b"], [own("Add", "a a", "b")], opsets)
    ends = [value("s", [4]), value("v", [4])], [value("t", [4]), value("o", [4])]
    body = helper.make_graph([own("Add", "s v", "t"), own("Identity", "t", "o")], "body", *ends)
    shape = onnx.numpy_helper.from_array(np.array([-1, 4]))
    rows = [
        own("MaxPool", "x", "p where", kernel_shape=[2, 2], strides=[2, 2]),
        own("Constant", "", "sides", value=shape),
        own("Reshape", "p sides", "rows"),
        op("Twice", "z", "two", domain="own"),
        own("Scan", "two rows", "y ys", body=body, num_scan_inputs=1),
    ]
    proto = model(rows, [value("x", [1, 1, 8, 8]), value("z", [4])], [value("y", [4])], functions=[twice])
    del proto.opset_import[:]
    proto.opset_import.extend([*opsets, helper.make_opsetid("own", 1)])
    return proto


@pytest.mark.parametrize("nodes", ["", "ai.onnx"])
@pytest.mark.parametrize("domains", ["ai.onnx", " ,ai.onnx", "ai.onnx, ", " "])
def test_the_standard_operators_have_two_names(domains: str, nodes: str) -> None:
    """Of all spellings the same graph, and the same one without a name; results that nobody reads are left out."""
    graph = read(called(domains, nodes))
    assert graph == read(called(" ", ""))
    assert "where" not in {tensor.id for tensor in graph.tensors}


def test_where_both_names_say_a_version_the_one_without_a_name_counts() -> None:
    for domains in ((" ", 17), ("ai.onnx", 5)), (("ai.onnx", 5), (" ", 17)):
        asked = called(" ", "ai.onnx")
        del asked.opset_import[:]
        asked.opset_import.extend([helper.make_opsetid(each.strip(), version) for each, version in domains])
        asked.opset_import.append(helper.make_opsetid("own", 1))
        assert read(asked) == read(called(" ", ""))


def test_a_function_that_calls_itself_by_its_other_name_is_refused() -> None:
    """Of the standard set, which a model may add to: no name of it hides a circle."""
    nodes = [op("F", "q", "b", domain="ai.onnx")]
    circle = helper.make_function("", "F", ["q"], ["b"], nodes, [helper.make_opsetid("", 17)])
    with pytest.raises(UnreadableInput, match='"::F" calls itself'):
        read(model([op("F", "x", "y")], [value("x", [2])], [value("y", [2])], functions=[circle]))


# --- states that grow --------------------------------------------------------------------------------------------


def test_a_state_that_grows_in_a_loop_within_one_that_grows_is_not_told() -> None:
    """The inner one was told by what the outer one's first iteration finds."""
    inner = helper.make_node("Loop", ["trips", "before", "s0"], ["r0"], "inner", body=body_of(concat("s0", "row")))
    found, facts, _ = largest(looped(body_of(inner), 3, [1, 3]))
    assert (found, facts.derived) == (False, set())


def test_what_a_branch_in_a_body_holds_is_as_large_as_the_last_iteration_finds_it() -> None:
    """Of five rows that come to one, the fifth is added to five: the place of the state alone holds six."""
    branches = [
        helper.make_graph(
            [helper.make_node(kind, ["s0"], [kind])], kind, [], [helper.make_empty_tensor_value_info(kind)]
        )
        for kind in ("Relu", "Neg")
    ]
    choice = helper.make_node("If", ["before"], ["q"], "choice", then_branch=branches[0], else_branch=branches[1])
    found, facts, _ = largest(looped(body_of(choice, concat("q", "row")), 5, [1, 3]))
    assert found is True
    sizes = [facts.shape[name] for name in ("loop/choice/then/Relu", "loop/choice/else/Neg", "loop/s0", "y0")]
    assert sizes == [(5, 3), (5, 3), (6, 3), (6, 3)]


def test_where_a_state_grows_every_size_is_held() -> None:
    proto = looped(body_of(concat("s0", "row")), 5, [1, 3], helper.make_node("Relu", ["z"], ["far"]))
    proto.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 4]))
    found, _, sizes = largest(proto)
    assert (found, sizes.dims) == (True, {"N": Dim(1, 1)})


# --- what a run is fed -------------------------------------------------------------------------------------------


def test_a_run_is_fed_small_floats_or_nothings_and_counts_that_differ() -> None:
    inputs: onnx_measure.Inputs = [
        *(("x", "float32", ["N", 2]), ("u", "float64", ["?", 2]), ("h", "float16", [3]), ("b", "bool", [2])),
        *(("i", "int64", [3]), ("s", "int32", []), ("t", "uint8", [1]), ("m", "int8", [1, 1])),
    ]
    point = {"N": 3}
    first = onnx_measure._values(inputs, point, 9, first=True)
    then = onnx_measure._values(inputs, point, 9, first=False)
    generator = np.random.default_rng(0)
    x, u, h = (generator.standard_normal(shape) for shape in ((3, 2), (0, 2), (3,)))
    expected = {"x": x.astype("f4") * np.float32(0.1), "u": u, "h": h.astype("f2") * np.float16(0.1)}
    for name, array in expected.items():
        assert (first[name].tolist(), first[name].dtype) == (array.tolist(), array.dtype)
        assert (then[name].tolist(), then[name].dtype) == ((array * 0).tolist(), array.dtype)
        assert first[name].shape == then[name].shape == array.shape
    counts = [(each["b"].tolist(), each["i"].tolist(), each["m"].tolist()) for each in (first, then)]
    assert counts == [([True, True], [1, 1, 1], [[1]]), ([False, False], [2, 2, 2], [[2]])]
    assert [(each["s"].tolist(), each["t"].tolist()) for each in (first, then)] == [(9, [9])] * 2
    assert [first[name].dtype for name in "bist"] == [np.dtype(kind) for kind in ("bool", "int64", "int32", "uint8")]


def test_symbols_are_merged_and_what_is_negative_is_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    kind = ModuleType("onnxruntime.tools.symbolic_shape_infer")

    def infer_shapes(proto: onnx.ModelProto, **how: Any) -> onnx.ModelProto:
        asked.append(how)
        return proto

    kind.SymbolicShapeInference = SimpleNamespace(infer_shapes=infer_shapes)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, kind.__name__, kind)
    proto = model([op("Relu", "x", "y")], [], [value("y", [0, 4]), value("less", [-1, 4]), value("open", ["N", 4])])
    assert onnx_measure.symbols(proto.SerializeToString()) == {"symbols": {"y": [1, [0, 4]]}}
    assert asked == [{"auto_merge": True}]


def test_of_a_failure_so_much_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(data: bytes) -> None:
        raise ValueError("x" * 400)

    out = io.StringIO()
    monkeypatch.setattr(onnx_measure, "limit", lambda *asked: None)
    monkeypatch.setattr(onnx_measure, "symbols", fails)
    monkeypatch.setattr(sys, "argv", ["child", "5", "6"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"{}\nm")))
    monkeypatch.setattr(sys, "stdout", out)
    onnx_measure.main()
    assert json.loads(out.getvalue()) == {"failed": "x" * 300}
