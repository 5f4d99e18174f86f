"""The node-centric dialect at its borders: ports that there are and are not, fields for one output and for each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tmmu_core.errors import InvalidIrShapes
from tmmu_core.graph.importers import node_centric
from tmmu_core.graph.model import Graph, Shard, Tensor, View


def decoded(*nodes: dict[str, Any], **more: Any) -> Graph:
    return node_centric.decode(json.dumps({"nodes": list(nodes), **more}).encode(), "ports.json")


def refused(*nodes: dict[str, Any], **more: Any) -> tuple[Any, ...]:
    with pytest.raises(InvalidIrShapes) as caught:
        decoded(*nodes, **more)
    found = caught.value.diagnostics
    return tuple(found.get(key) for key in ("reason", "path", "node_id", "tensor"))


X = {"node_id": "x", "shape_out": [5], "dtype": "float32"}
TWO = {"node_id": "s", "shape_out": [[2], [3]], "dtype": "float32"}
NONE = {"node_id": "e"}


@pytest.mark.parametrize(
    ("shape_out", "shapes"),
    [
        *((None, []), ([], [()]), ([5], [(5,)]), ([2, 3], [(2, 3)]), (["B", 1], [("B", 1)]), ([[]], [()])),
        *(([[], [2]], [(), (2,)]), ([[2, 3]], [(2, 3)]), ([["B"], [4], [0]], [("B",), (4,), (0,)])),
    ],
)
def test_a_shape_is_one_or_a_list_of_them(shape_out: Any, shapes: list[tuple[int | str, ...]]) -> None:
    graph = decoded({"node_id": "s", "shape_out": shape_out, "dtype": "int8"}, dims={"B": {"min": 1, "max": 2}})
    assert [tensor.shape for tensor in graph.tensors] == shapes
    names = tuple(f"s:{i}" for i in range(len(shapes)))
    assert tuple(tensor.id for tensor in graph.tensors) == graph.nodes[0].outputs == names


@pytest.mark.parametrize("shape_out", [[[2], 3], [2, [3]], [[2], [3], 1], ["B", [3]]])
def test_shapes_and_sizes_are_not_mixed(shape_out: Any) -> None:
    amiss = {"node_id": "s", "shape_out": shape_out, "dtype": "int8"}
    assert refused(X, amiss) == ("wrong_type", "$.nodes[1].shape_out", "s", None)


@pytest.mark.parametrize(
    ("which", "port", "path"),
    [
        *(("s", 0, ""), ("s", 1, ""), ("s", 2, "width"), ("s", -1, "width"), ("x", 0, ""), ("x", 1, "width")),
        *(("e", 0, "width"), ("q", 0, "nobody")),
    ],
)
def test_an_output_is_counted_from_0_up_to_as_many_as_there_are(which: str, port: int, path: str) -> None:
    asked = {"node_id": which, "output_idx": port}
    reader = {"node_id": "r", "inputs": [{"node_id": "x"}, asked]}
    if not path:
        assert decoded(X, TWO, NONE, reader).nodes[3].inputs == ("x:0", f"{which}:{port}")
        assert decoded(X, TWO, NONE, outputs=[asked]).outputs == (f"{which}:{port}",)
        return
    tensor = f"{which}:{port}"
    assert refused(X, TWO, NONE, reader) == ("unknown_tensor", "$.nodes[3].inputs[1]", "r", tensor)
    found = refused(X, TWO, NONE, outputs=[{"node_id": "x"}, asked])
    assert found == ("unknown_tensor", "$.outputs[1]", None, tensor)
    says = 'the graph gives out an output of "q", which is not' if path == "nobody" else f'of "{which}", which has'
    with pytest.raises(InvalidIrShapes, match=says):
        decoded(X, TWO, NONE, outputs=[asked])


FIELDS: dict[str, tuple[Any, Any]] = {
    "dtype": ("int8", "float16"),
    "role": ("output", "workspace"),
    "alias_group_id": ("g", "h"),
    "view": ({"base_tensor_uid": "x:0"}, {"base_tensor_uid": "x:0", "byte_offset": 4}),
    "view_descriptor": ({"base_tensor_uid": "x:0"}, {"base_tensor_uid": "x:0", "byte_offset": 4}),
    "saved_for_backward": (True, False),
    "remat": (True, False),
    "alignment": (64, 128),
    "arena": ("a", "b"),
    "shard": ({"axis": 0, "mesh": "m"}, {"axis": 0, "mesh": "k"}),
}


def as_read(field: str, value: Any) -> Any:
    if field.startswith("view"):
        return View(**value)
    return Shard(**value) if field == "shard" else value


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_is_one_for_all_outputs_or_a_list_with_one_each(field: str) -> None:
    first, second = FIELDS[field]
    name = "view" if field == "view_descriptor" else field
    plain = Tensor(id="").__getattribute__(name)

    def given(value: Any, **more: Any) -> list[Any]:
        graph = decoded(X, {**TWO, "must_not_alias": ["x:0"], field: value, **more})
        assert [tensor.must_not_alias for tensor in graph.tensors] == [(), ("x:0",), ("x:0",)]
        assert getattr(graph.tensors[0], name) == plain
        return [getattr(tensor, name) for tensor in graph.tensors[1:]]

    one, two = as_read(field, first), as_read(field, second)
    assert given(first) == [one, one]
    assert given([first, second]) == [one, two]
    assert given([second, first]) == [two, one]
    called = "view" if field == "view_descriptor" else field
    for amiss in ([], [first], [first] * 3):
        assert refused(X, {**TWO, field: amiss}) == ("wrong_length", f"$.nodes[1].{called}", "s", None)


def test_a_view_under_the_seeds_name_goes_before() -> None:
    graph = decoded(X, {**TWO, "view": {"base_tensor_uid": "q"}, "view_descriptor": {"base_tensor_uid": "x:0"}})
    assert [tensor.view for tensor in graph.tensors[1:]] == [View("x:0")] * 2


def test_where_something_is_written_its_dtype_is_said() -> None:
    assert decoded({"node_id": "e"}).tensors == decoded({"node_id": "e", "dtype": ["int8", "int8"]}).tensors == ()
    assert refused({"node_id": "s", "shape_out": []}) == ("missing_field", "$.nodes[0].dtype", "s", None)
    assert refused(X, {"node_id": "e", "role": ["output"]}) == ("wrong_length", "$.nodes[1].role", "e", None)


def test_of_two_nodes_of_one_name_the_second_is_told() -> None:
    assert refused(X, TWO, X)[:3] == ("duplicate_node", "$.nodes[2].node_id", "x")


def test_what_the_graph_says_is_kept() -> None:
    more = {"safepoints": ["x"], "execution_order": ["x"], "name": "g", "replan_policy": "REPLAN_AT_SAFEPOINT"}
    graph = decoded(X, **more)
    assert {key: getattr(graph, key) for key in more} == {
        **more,
        "safepoints": ("x",),
        "execution_order": ("x",),
    }
