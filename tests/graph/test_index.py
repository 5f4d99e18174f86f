"""The indexed graph: numbers of operands, producers, readers, bytes. Invalid graphs: ``test_invalid_graphs.py``."""

import numpy as np
import pytest

from tests.support.build import graph, node, tensor, view
from tmmu_core.graph.index import index_graph
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


def test_tensor_has_its_producer_and_readers() -> None:
    index = index_graph(diamond())
    assert index.producer.tolist() == [-1, -1, 0, 1, 2]
    assert [index.readers_of(i).tolist() for i in range(5)] == [[0, 1], [0], [2, 2], [2], []]


def test_inputs_outputs_and_persistent_tensors_are_flagged() -> None:
    index = index_graph(diamond())
    assert index.is_input.tolist() == [True, False, False, False, False]
    assert index.is_output.tolist() == [False, False, False, False, True]
    assert index.is_persistent.tolist() == [False, True, False, False, False]


def test_bytes_are_those_of_shape_and_dtype() -> None:
    index = index_graph(diamond())
    assert index.nbytes.dtype == np.uint64
    assert index.nbytes.tolist() == [16, 8, 32, 32, 4]


def test_empty_graph_is_valid() -> None:
    index = index_graph(Graph())
    assert (len(index.tensor_ids), len(index.node_ids), index.in_ptr.tolist()) == (0, 0, [0])


def test_base_of_a_view_is_the_declared_one() -> None:
    index = index_graph(graph([tensor("x", 8, role="input"), view("v", "x", 4), view("u", "v", 2)], [], "x"))
    assert index.base.tolist() == [-1, 0, 1]


def test_long_chain_of_views_is_indexed() -> None:
    tensors = [tensor("v0", role="input"), *(view(f"v{i}", f"v{i - 1}") for i in range(1, 500))]
    assert index_graph(graph(tensors, [], "v0")).base.tolist() == list(range(-1, 499))


def test_view_with_stride_0_may_have_more_elements_than_bytes() -> None:
    spread = Tensor(id="s", shape=(5, 4), view=View("x", byte_length=16, stride_desc=(0, 1)))
    assert index_graph(graph([tensor("x", role="input"), spread], [], "x")).nbytes.tolist() == [16, 80]


@pytest.mark.parametrize(("dims", "rows"), [(None, 5), ({"B": 2}, 2)])
def test_named_dimension_has_the_given_size_or_its_upper_bound(dims: dict[str, int] | None, rows: int) -> None:
    batched = graph([Tensor(id="x", shape=("B", 3), role="input")], [], "x", dims={"B": Dim(2, 5)})
    index = index_graph(batched, dims)
    assert (index.shapes, index.nbytes.tolist()) == (((rows, 3),), [12 * rows])


def test_unused_tensor_is_valid() -> None:
    assert index_graph(graph([tensor("idle")], [])).producer.tolist() == [-1]
