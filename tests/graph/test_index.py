"""What the checked graph looks like as numbers. What it refuses is in ``test_broken.py``."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.build import graph, node, tensor, view
from tmmu_core.base.errors import ContractError, InvalidIrShapes
from tmmu_core.graph.index import index_graph, named
from tmmu_core.graph.model import Dim, Graph, Tensor, View


def diamond() -> Graph:
    return graph(
        [
            tensor("x", 4, role="input"),
            tensor("w", 2, role="parameter"),
            tensor("a", 8),
            tensor("b", 8),
            tensor("y", 1),
        ],
        [node("left", "x w", "a"), node("right", "x", "b"), node("join", "a b a", "y")],
        "x",
        "y",
    )


def test_operands_are_numbered_in_order_with_repeats() -> None:
    index = index_graph(diamond())
    assert [index.inputs_of(k).tolist() for k in range(3)] == [[0, 1], [0], [2, 3, 2]]
    assert [index.outputs_of(k).tolist() for k in range(3)] == [[2], [3], [4]]


def test_each_tensor_knows_who_writes_and_who_reads_it() -> None:
    index = index_graph(diamond())
    assert index.producer.tolist() == [-1, -1, 0, 1, 2]
    assert [index.readers_of(i).tolist() for i in range(5)] == [[0, 1], [0], [2, 2], [2], []]


def test_ends_and_persistent_tensors_are_flagged() -> None:
    index = index_graph(diamond())
    assert index.is_input.tolist() == [True, False, False, False, False]
    assert index.is_output.tolist() == [False, False, False, False, True]
    assert index.is_persistent.tolist() == [False, True, False, False, False]


def test_bytes_come_from_shape_and_dtype() -> None:
    index = index_graph(diamond())
    assert index.nbytes.dtype == np.uint64
    assert index.nbytes.tolist() == [16, 8, 32, 32, 4]


def test_an_empty_graph_is_whole() -> None:
    index = index_graph(Graph())
    assert (len(index.tensor_ids), len(index.node_ids), index.in_ptr.tolist()) == (0, 0, [0])


def test_a_view_points_to_its_declared_base_not_to_the_root() -> None:
    index = index_graph(graph([tensor("x", 8, role="input"), view("v", "x", 4), view("u", "v", 2)], [], "x"))
    assert index.base.tolist() == [-1, 0, 1]


def test_a_long_chain_of_views_ends() -> None:
    tensors = [tensor("v0", role="input"), *(view(f"v{i}", f"v{i - 1}") for i in range(1, 500))]
    assert index_graph(graph(tensors, [], "v0")).base.tolist() == list(range(-1, 499))


def test_a_circle_of_many_views_is_refused() -> None:
    tensors = [view(f"v{i}", f"v{(i + 1) % 7}") for i in range(7)]
    with pytest.raises(ContractError, match="views of each other"):
        index_graph(graph(tensors, []))


def test_a_view_that_repeats_bytes_may_have_more_elements_than_bytes() -> None:
    spread = Tensor(id="s", shape=(5, 4), view=View("x", byte_length=16, stride_desc=(0, 1)))
    assert index_graph(graph([tensor("x", role="input"), spread], [], "x")).nbytes.tolist() == [16, 80]


def test_a_view_without_a_stride_of_zero_may_not() -> None:
    spread = Tensor(id="s", shape=(5, 4), view=View("x", byte_length=16, stride_desc=(4, 1)))
    with pytest.raises(InvalidIrShapes, match="spans 16 bytes"):
        index_graph(graph([tensor("x", role="input"), spread], [], "x"))


def batched() -> Graph:
    return graph([Tensor(id="x", shape=("B", 3), role="input")], [], "x", dims={"B": Dim(2, 5)})


def test_named_dimensions_stand_at_their_upper_end() -> None:
    index = index_graph(batched())
    assert (index.shapes, index.nbytes.tolist()) == (((5, 3),), [60])


def test_a_point_inside_the_envelope_is_taken() -> None:
    index = index_graph(batched(), {"B": 2})
    assert (index.shapes, index.nbytes.tolist()) == (((2, 3),), [24])


@pytest.mark.parametrize(
    ("point", "reason"),
    [({"B": 1}, "dim_out_of_envelope"), ({"B": 6}, "dim_out_of_envelope"), ({"T": 2}, "unknown_dim")],
)
def test_a_point_outside_is_refused(point: dict[str, int], reason: str) -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        index_graph(batched(), point)
    assert caught.value.diagnostics["reason"] == reason


def test_the_first_of_two_faults_is_told() -> None:
    bad = graph([Tensor(id="a", shape=(-1,), role="input"), Tensor(id="b", shape=(-2,), role="input")], [], "a b")
    with pytest.raises(InvalidIrShapes) as caught:
        index_graph(bad)
    assert caught.value.diagnostics["path"] == "$.tensors[0].shape[0]"


def test_a_tensor_that_nobody_reads_or_writes_is_no_fault() -> None:
    assert index_graph(graph([tensor("idle")], [])).producer.tolist() == [-1]


@pytest.mark.parametrize(("field", "reason"), [("reads", "duplicate_input"), ("gives", "duplicate_output")])
def test_an_end_is_listed_once(field: str, reason: str) -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        index_graph(graph([tensor("x", role="input")], [], **{"reads": "x", field: "x x"}))
    assert caught.value.diagnostics["reason"] == reason


def test_a_role_that_is_none_is_refused_in_a_graph_made_in_memory() -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        index_graph(graph([tensor("x", role="weight")], []))
    assert caught.value.diagnostics == {"reason": "unknown_role", "path": "$.tensors[0].role", "tensor": "x"}


def test_names_are_looked_up_by_their_codes() -> None:
    for codes, expected in (([], ()), ([1], ("b",)), ([1, 1], ("b", "b")), ([0, 1, 1], ("a", "b", "b"))):
        assert named(("a", "b"), np.array(codes, np.int64)) == expected
