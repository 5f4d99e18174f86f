"""What is refused of a graph that is not whole, and what just is: a row for each border of each check."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.build import graph, node, tensor, view
from tmmu_core.base import limits
from tmmu_core.base.errors import (
    AlignmentViolation,
    AllocationOverflow,
    ContractError,
    InvalidIrShapes,
    LivenessCycle,
)
from tmmu_core.graph import dtypes
from tmmu_core.graph import index as indexing
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Dim, Graph, Node, Shard, Tensor, View

X = tensor("x", 4, role="input")
W = tensor("w", 2, role="parameter")


def refusal(which: Graph, **dims: int) -> ContractError:
    with pytest.raises(ContractError) as caught:
        index_graph(which, dims or None)
    return caught.value


def small(**fields: Any) -> Node:
    """``n`` reads ``x w`` and writes ``a b``."""
    return Node("n", "", ("x", "w"), ("a", "b"), **fields)


def of(*tensors: Tensor, nodes: tuple[Node, ...] = (), inputs: str = "x", outputs: str = "", **more: Any) -> Graph:
    return graph([X, W, *tensors], nodes, inputs, outputs, **more)


A, B, C = tensor("a", 4), tensor("b", 4), tensor("c", 4)
REFUSED: list[tuple[Graph, type[ContractError], dict[str, str], str]] = [
    (
        of(A, B, A),
        InvalidIrShapes,
        {"reason": "duplicate_tensor", "path": "$.tensors[4].id", "tensor": "a"},
        "tensors[2",
    ),
    (
        of(A, B, C, nodes=(node("m", "x", "a"), node("n", "x", "b"), node("n", "x", "c"))),
        *(InvalidIrShapes, {"reason": "duplicate_node", "path": "$.nodes[2].node_id", "node_id": "n"}),
        "$.nodes[1].node_id and $.nodes[2]",
    ),
    (of(inputs="x w x"), InvalidIrShapes, {"reason": "duplicate_input", "path": "$.inputs[2]", "tensor": "x"}, "twice"),
    (
        of(outputs="w x w"),
        InvalidIrShapes,
        {"reason": "duplicate_output", "path": "$.outputs[2]", "tensor": "w"},
        "twice",
    ),
    (
        of(A, tensor("q", role="none")),  # type: ignore[arg-type]
        *(InvalidIrShapes, {"reason": "unknown_role", "path": "$.tensors[3].role", "tensor": "q"}, "gradient"),
    ),
    (
        of(A, B, nodes=(node("m", "x", "a"), node("n", "x", "b", phase="none"))),  # type: ignore[arg-type]
        *(InvalidIrShapes, {"reason": "unknown_phase", "path": "$.nodes[1].phase", "node_id": "n"}, "optimizer"),
    ),
    (
        of(A, nodes=(node("m", "x", "a"), node("n", "x y", ""))),
        *(
            InvalidIrShapes,
            {"reason": "unknown_tensor", "path": "$.nodes[1].inputs[1]", "tensor": "y"},
            '"n" reads "y"',
        ),
    ),
    (
        of(A, nodes=(node("m", "x", "a"), node("n", "x", "y"))),
        *(InvalidIrShapes, {"reason": "unknown_tensor", "path": "$.nodes[1].outputs[0]", "node_id": "n"}, 'writes "y"'),
    ),
    (
        of(inputs="x y"),
        InvalidIrShapes,
        {"reason": "unknown_tensor", "path": "$.inputs[1]", "tensor": "y"},
        "graph input ",
    ),
    (
        of(outputs="x y"),
        InvalidIrShapes,
        {"reason": "unknown_tensor", "path": "$.outputs[1]", "tensor": "y"},
        "output ",
    ),
    (
        of(A, B, nodes=(node("l", "x", "b"), node("m", "x", "a"), node("n", "x", "a"))),
        *(InvalidIrShapes, {"reason": "two_producers", "path": "$.nodes[2].outputs[0]", "tensor": "a", "node_id": "n"}),
        'before that by "m"',
    ),
    (
        of(A, nodes=(node("n", "x", "a a"),)),
        *(InvalidIrShapes, {"reason": "two_producers", "path": "$.nodes[0].outputs[1]", "node_id": "n"}, 'that by "n"'),
    ),
    (
        of(A, nodes=(node("n", "w", "x a"),)),
        *(
            InvalidIrShapes,
            {"reason": "input_is_produced", "path": "$.nodes[0].outputs[0]", "tensor": "x"},
            "graph input",
        ),
    ),
    (
        of(A, B, nodes=(node("m", "w", "a"), node("n", "w", "b x"))),
        *(
            InvalidIrShapes,
            {"reason": "input_is_produced", "path": "$.nodes[1].outputs[1]", "node_id": "n"},
            '"n" writes',
        ),
    ),
    (
        of(A, B, nodes=(node("m", "x", "b"), node("n", "x a", ""))),
        *(
            InvalidIrShapes,
            {"reason": "dangling_input", "path": "$.nodes[1].inputs[1]", "tensor": "a"},
            '"n" reads "a"',
        ),
    ),
    (
        of(A, outputs="x a"),
        *(InvalidIrShapes, {"reason": "never_produced", "path": "$.outputs[1]", "tensor": "a"}, "no node and is no"),
    ),
    (
        of(Tensor("a", (2, -1, -3))),
        *(
            InvalidIrShapes,
            {"reason": "negative_dim", "path": "$.tensors[2].shape[1]", "tensor": "a"},
            'tensor "a": dim',
        ),
    ),
    (
        of(tensor("a", dtype="q8")),
        *(
            InvalidIrShapes,
            {"reason": "unknown_dtype", "path": "$.tensors[2].dtype", "tensor": "a"},
            '"a": the dtype "q8"',
        ),
    ),
    (
        of(Tensor("a", (2**62,))),
        *(
            AllocationOverflow,
            {"tensor": "a", "path": "$.tensors[2].shape", "size": str(2**64)},
            'the tensor "a": a tensor',
        ),
    ),
    (
        of(Tensor("a", (2, "B"))),
        *(InvalidIrShapes, {"reason": "unknown_dim", "path": "$.tensors[2].shape[1]", "tensor": "a"}, "not declared"),
    ),
    (
        of(view("v", "y", 1)),
        *(InvalidIrShapes, {"reason": "unknown_tensor", "path": "$.tensors[2].view.base_tensor_uid"}, 'view of "y"'),
    ),
    # 4 floats are 16 bytes: a view may end there and no byte further on, and may not begin before its base.
    (
        of(Tensor("v", (2,), view=View("x", 12))),
        *(InvalidIrShapes, {"reason": "view_out_of_bounds", "path": "$.tensors[2].view", "tensor": "v"}, "[12, 20) of"),
    ),
    (
        of(Tensor("v", (2,), view=View("x", -4))),
        *(InvalidIrShapes, {"reason": "view_out_of_bounds", "tensor": "v"}, "bytes [-4, 4)"),
    ),
    *[
        (
            of(Tensor("v", (2,), view=View("x", 0, length, strides))),
            *(
                InvalidIrShapes,
                {"reason": "view_size", "path": "$.tensors[2].view.byte_length", "tensor": "v"},
                "8 bytes",
            ),
        )
        for length, strides in ((4, None), (4, (1,)), (12, (0,)), (-4, (0,)), (12, None))
    ],
    (
        of(Tensor("v", (2,), view=View("x", 2))),
        *(AlignmentViolation, {"tensor": "v", "path": "$.tensors[2].view.byte_offset"}, "off the 4-byte grid"),
    ),
    (
        of(
            view("v", "u", 1), view("u", "t", 1), view("t", "u", 1), A, nodes=(node("m", "x", "a"), node("n", "x", "u"))
        ),
        *(LivenessCycle, {"tensor": "u", "path": "$.tensors[3].view.base_tensor_uid", "node_id": "n"}),
        '"u" → "t" → "u"',
    ),
    *[
        (
            of(tensor("a", alignment=alignment)),
            *(AlignmentViolation, {"tensor": "a", "path": "$.tensors[2].alignment"}, "power of two"),
        )
        for alignment in (0, -1, 3, 2**64, 6)
    ],
    (
        of(A, tensor("b", must_not_alias=("a", "y"))),
        *(
            InvalidIrShapes,
            {"reason": "unknown_tensor", "path": "$.tensors[3].must_not_alias[1]", "tensor": "b"},
            '"y"',
        ),
    ),
    (
        of(A, tensor("b", must_not_alias=("a", "b"))),
        *(
            InvalidIrShapes,
            {"reason": "must_not_alias_same_storage", "path": "$.tensors[3].must_not_alias[1]"},
            "itself",
        ),
    ),
    (
        of(Tensor("a", (2, 3), shard=Shard(2, "tp"))),
        *(InvalidIrShapes, {"reason": "shard_axis", "path": "$.tensors[2].shard.axis", "tensor": "a"}, "from 0 to 1"),
    ),
    (of(Tensor("a", (2,), shard=Shard(-1, "tp"))), InvalidIrShapes, {"reason": "shard_axis"}, "from 0 to 0"),
    (of(Tensor("a", (), shard=Shard(0, "tp"))), InvalidIrShapes, {"reason": "shard_axis"}, "A scalar cannot"),
    (
        of(A, B, nodes=(small(inplace="some"),)),
        *(InvalidIrShapes, {"reason": "unknown_inplace", "path": "$.nodes[0].inplace", "node_id": "n"}, '"some"'),
    ),
    *[
        (
            of(A, B, C, nodes=(node("m", "x", "c"), small(**{field: pairs}))),
            *(InvalidIrShapes, {"reason": "pair_out_of_range", "path": f"$.nodes[1].{field}[{at}]", "node_id": "n"}),
            f"pairs input {pairs[at][0]} with output {pairs[at][1]}, but has 2 inputs and 2 outputs",
        )
        for field in ("inplace", "in_place_write", "grad_edges")
        for at, pairs in (
            (0, ((2, 0),)),
            (0, ((0, 2),)),
            (1, ((1, 1), (0, 2))),
            (1, ((1, 1), (2, 1))),
            (1, ((0, 0), (-1, 0))),
            (0, ((0, -1), (0, 0))),
            (0, ((2**70, 0), (0, 0))),
            (0, ((0, 2**70), (0, 0))),
        )
    ],
    (
        of(A, B, nodes=(small(),), safepoints=("n", "m")),
        *(
            InvalidIrShapes,
            {"reason": "unknown_node", "path": "$.safepoints[1]", "node_id": "m"},
            "not among the nodes",
        ),
    ),
]
WHOLE = [
    of(
        A,
        B,
        nodes=(small(inplace=((1, 1), (0, 0)), in_place_write=((1, 1),), grad_edges=((0, 1),)),),
        safepoints=("n",),
    ),
    *(of(A, B, nodes=(small(inplace=word),)) for word in ("any", "none", ())),
    of(tensor("b", must_not_alias=("a",)), tensor("a", alignment=2**63), Tensor("c", (2, 3), shard=Shard(1, "tp"))),
    of(tensor("a", alignment=1), Tensor("b", (2,), shard=Shard(0, "tp"))),
    of(
        Tensor("v", (2,), view=View("x", 8)),
        Tensor("u", (2,), view=View("x", 0, 4, (0,))),
        Tensor("t", (2, 2), view=View("x")),
    ),
    of(Tensor("v", (2,), view=View("x", 0, 0, (0,))), Tensor("u", (0,), view=View("x", 16))),
    of(Tensor("a", (2**61 - 1, 8), dtype="uint8"), Tensor("b", (2**64 - 1,), dtype="uint8")),
    of(A, outputs="x w"),
    Graph((X,), (), ("x",), ("x",)),
    of(view("v", "x", 1), view("u", "w", 1), nodes=(node("n", "v u", ""),), outputs="v"),
]


@pytest.mark.parametrize(("which", "error", "expected", "words"), REFUSED)
def test_what_is_not_whole_is_refused_with_its_place(
    which: Graph, error: type[ContractError], expected: dict[str, str], words: str
) -> None:
    found = refusal(which)
    assert type(found) is error
    assert {key: found.diagnostics.get(key) for key in expected} == expected
    assert words in f"{found.message} {found.hint}"


@pytest.mark.parametrize("which", WHOLE)
def test_what_is_just_whole_is_taken(which: Graph) -> None:
    index_graph(which)


@pytest.mark.parametrize(
    ("low", "high", "assumed", "given", "expected"),
    [
        (1, 8, None, None, 8),
        (1, 8, 3, None, 3),
        (1, 8, 3, 5, 5),
        (1, 8, None, 1, 1),
        (1, 8, None, 8, 8),
        (0, 0, None, None, 0),
        (1, 8, None, 0, "dim_out_of_envelope"),
        (1, 8, None, 9, "dim_out_of_envelope"),
        (1, 8, 9, None, "dim_out_of_envelope"),
        (-1, 8, None, None, "dim_envelope"),
        (8, 7, None, None, "dim_envelope"),
    ],
)
def test_a_dimension_stands_inside_its_envelope(
    low: int, high: int, assumed: int | None, given: int | None, expected: int | str
) -> None:
    more = {"dims": {"B": Dim(low, high)}, "assumed": {} if assumed is None else {"B": assumed}}
    which = Graph(tensors=(Tensor("x", ("B",)),), **more)  # type: ignore[arg-type]
    dims = {} if given is None else {"B": given}
    if isinstance(expected, str):
        found = refusal(which, **dims)
        assert (found.diagnostics["reason"], found.diagnostics["path"]) == (expected, "$.dims.B")
        if expected == "dim_out_of_envelope":
            size = assumed or given or 0
            assert f"B={min(low, size)}:{max(high, size)}" in found.hint
    else:
        assert index_graph(which, dims).shapes == ((expected,),)


def test_a_dimension_that_is_not_there_is_refused_with_those_that_are() -> None:
    assert "Known: B, T." in refusal(Graph(dims={"B": Dim(1, 2), "T": Dim(1, 2)}), C=1).hint
    assert refusal(Graph(), C=1).diagnostics["reason"] == "unknown_dim"


def test_as_many_tensors_may_be_kept_apart_as_the_limit_says(monkeypatch: pytest.MonkeyPatch) -> None:
    which = of(tensor("a", must_not_alias=("x", "w")), tensor("b", must_not_alias=("a",)))
    monkeypatch.setattr(indexing.limits, "ceiling", lambda limit, *_: 3 if limit is limits.PAIRS else 2**40)
    index_graph(which)
    monkeypatch.setattr(indexing.limits, "ceiling", lambda limit, *_: 2 if limit is limits.PAIRS else 2**40)
    with pytest.raises(limits.past(limits.PAIRS, "").__class__):
        index_graph(which)


def test_of_several_faults_the_first_in_the_file_is_told() -> None:
    # Two of one shape and dtype are worked out once, and yet the first of all is named.
    tensors = [X, tensor("a", 2), Tensor("b", (3,)), Tensor("c", (-3,)), Tensor("d", (-3,)), Tensor("e", (-2,))]
    assert refusal(graph(tensors, [], "x")).diagnostics["tensor"] == "c"
    tensors = [X, tensor("a", 2), Tensor("b", (-3,), dtype="int8"), Tensor("c", (-3,)), Tensor("e", (-2,))]
    assert refusal(graph(tensors, [], "x")).diagnostics["tensor"] == "b"


def test_a_size_may_be_all_that_64_bits_hold_and_no_byte_more() -> None:
    assert dtypes.tensor_bytes((2**64 - 1,), "uint8") == 2**64 - 1
    assert [dtypes.tensor_bytes((n,), "int4") for n in range(4)] == [0, 1, 1, 2]
    assert [dtypes.tensor_bytes((n,), "int1") for n in (7, 8, 9)] == [1, 1, 2]
    assert dtypes.tensor_bytes((), "int2") == 1
    with pytest.raises(AllocationOverflow) as caught:
        dtypes.tensor_bytes((2**64,), "uint8")
    expected = {"arena": "unknown", "offset": 0, "size": str(2**64)}
    assert {key: caught.value.diagnostics[key] for key in expected} == expected
    with pytest.raises(InvalidIrShapes) as refused:
        dtypes.tensor_bytes((0, 3, -1), "uint8")
    assert refused.value.diagnostics["axis"] == 2


def test_the_root_of_a_view_is_what_it_shows_in_the_end_unless_a_node_writes_it() -> None:
    tensors = [tensor("t"), view("v", "t"), view("u", "x"), view("ou", "u"), X, view("ov", "v"), view("w", "v")]
    nodes = [node("n", "x", "u"), node("m", "ou", "t"), node("o", "v", "w")]
    index = index_graph(graph(tensors, nodes, "x", "t"))
    assert [index.tensor_ids[k] for k in index.root.tolist()] == ["t", "t", "u", "u", "x", "t", "w"]
