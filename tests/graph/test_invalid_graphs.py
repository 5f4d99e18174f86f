"""Graphs that are rejected, with reason and path, and graphs that are just valid."""

from typing import Any

import pytest

from tests.support.build import graph, node, tensor, view
from tmmu_core.base import limits
from tmmu_core.base.errors import AlignmentViolation, AllocationOverflow, ContractError, LivenessCycle
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
    """Return a graph in which ``n`` reads ``x w`` and writes ``a b``."""
    return Node("n", "", ("x", "w"), ("a", "b"), **fields)


def of(*tensors: Tensor, nodes: tuple[Node, ...] = (), inputs: str = "x", outputs: str = "", **more: Any) -> Graph:
    return graph([X, W, *tensors], nodes, inputs, outputs, **more)


A, B, C = tensor("a", 4), tensor("b", 4), tensor("c", 4)
REFUSED: list[tuple[Graph, str | type[ContractError], str]] = [
    (of(A, B, A), "duplicate_tensor", "$.tensors[4].id"),
    (
        of(A, B, C, nodes=(node("m", "x", "a"), node("n", "x", "b"), node("n", "x", "c"))),
        "duplicate_node",
        "$.nodes[2].node_id",
    ),
    (of(inputs="x w x"), "duplicate_input", "$.inputs[2]"),
    (of(outputs="w x w"), "duplicate_output", "$.outputs[2]"),
    (of(A, tensor("q", role="none")), "unknown_role", "$.tensors[3].role"),
    (of(A, B, nodes=(node("m", "x", "a"), node("n", "x", "b", phase="none"))), "unknown_phase", "$.nodes[1].phase"),
    (of(A, nodes=(node("m", "x", "a"), node("n", "x y", ""))), "unknown_tensor", "$.nodes[1].inputs[1]"),
    (of(A, nodes=(node("m", "x", "a"), node("n", "x", "y"))), "unknown_tensor", "$.nodes[1].outputs[0]"),
    (of(inputs="x y"), "unknown_tensor", "$.inputs[1]"),
    (of(outputs="x y"), "unknown_tensor", "$.outputs[1]"),
    (
        of(A, B, nodes=(node("l", "x", "b"), node("m", "x", "a"), node("n", "x", "a"))),
        "two_producers",
        "$.nodes[2].outputs[0]",
    ),
    (of(A, nodes=(node("n", "x", "a a"),)), "two_producers", "$.nodes[0].outputs[1]"),
    (of(A, nodes=(node("n", "w", "x a"),)), "input_is_produced", "$.nodes[0].outputs[0]"),
    (of(A, B, nodes=(node("m", "w", "a"), node("n", "w", "b x"))), "input_is_produced", "$.nodes[1].outputs[1]"),
    (of(A, B, nodes=(node("m", "x", "b"), node("n", "x a", ""))), "dangling_input", "$.nodes[1].inputs[1]"),
    (of(A, outputs="x a"), "never_produced", "$.outputs[1]"),
    (of(Tensor("a", (2, -1, -3))), "negative_dim", "$.tensors[2].shape[1]"),
    (of(tensor("a", dtype="q8")), "unknown_dtype", "$.tensors[2].dtype"),
    (of(Tensor("a", (2**62,))), AllocationOverflow, "$.tensors[2].shape"),
    (of(Tensor("a", (2, "B"))), "unknown_dim", "$.tensors[2].shape[1]"),
    (of(view("v", "y", 1)), "unknown_tensor", "$.tensors[2].view.base_tensor_uid"),
    (of(Tensor("v", (2,), view=View("x", 12))), "view_out_of_bounds", "$.tensors[2].view"),
    (of(Tensor("v", (2,), view=View("x", -4))), "view_out_of_bounds", ""),
    *[
        (of(Tensor("v", (2,), view=View("x", 0, length, strides))), "view_size", "$.tensors[2].view.byte_length")
        for (length, strides) in ((4, None), (4, (1,)), (12, (0,)), (-4, (0,)), (12, None))
    ],
    (of(Tensor("v", (2,), view=View("x", 2))), AlignmentViolation, "$.tensors[2].view.byte_offset"),
    (
        of(
            view("v", "u", 1), view("u", "t", 1), view("t", "u", 1), A, nodes=(node("m", "x", "a"), node("n", "x", "u"))
        ),
        LivenessCycle,
        "$.tensors[3].view.base_tensor_uid",
    ),
    (
        of(*(view(f"v{k}", f"v{(k + 1) % 5000}", 1) for k in range(5000))),
        LivenessCycle,
        "$.tensors[2].view.base_tensor_uid",
    ),
    *[
        (of(tensor("a", alignment=alignment)), AlignmentViolation, "$.tensors[2].alignment")
        for alignment in (0, -1, 3, 2**64, 6)
    ],
    (of(A, tensor("b", must_not_alias=("a", "y"))), "unknown_tensor", "$.tensors[3].must_not_alias[1]"),
    (of(tensor("a", arena="")), "unknown_arena", "$.tensors[2].arena"),
    (of(A, tensor("b", must_not_alias=("a", "b"))), "must_not_alias_same_storage", "$.tensors[3].must_not_alias[1]"),
    (of(Tensor("a", (2, 3), shard=Shard(2, "tp"))), "shard_axis", "$.tensors[2].shard.axis"),
    (of(Tensor("a", (2,), shard=Shard(-1, "tp"))), "shard_axis", ""),
    (of(Tensor("a", (), shard=Shard(0, "tp"))), "shard_axis", ""),
    (of(A, B, nodes=(small(inplace="some"),)), "unknown_inplace", "$.nodes[0].inplace"),
    *[
        (
            of(A, B, C, nodes=(node("m", "x", "c"), small(**{field: pairs}))),
            "pair_out_of_range",
            f"$.nodes[1].{field}[{at}]",
        )
        for field in ("inplace", "in_place_write", "grad_edges")
        for (at, pairs) in (
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
    (of(A, B, nodes=(small(),), safepoints=("n", "m")), "unknown_node", "$.safepoints[1]"),
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


@pytest.mark.parametrize(("which", "reason", "path"), REFUSED)
def test_invalid_graph_is_rejected_with_its_place(which: Graph, reason: str | type[ContractError], path: str) -> None:
    found = refusal(which)
    assert reason in (found.diagnostics.get("reason"), type(found))
    assert path in ("", found.diagnostics["path"])
    assert len(found.message) < 400


@pytest.mark.parametrize("which", WHOLE)
def test_graph_at_the_limits_is_valid(which: Graph) -> None:
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
        (1, 8, None, -1, "dim_out_of_envelope"),
        (-1, 8, None, None, "dim_envelope"),
        (8, 7, None, None, "dim_envelope"),
    ],
)
def test_dimension_is_inside_its_envelope(
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
            assert (f"B={min(low, size)}:{max(high, size)}" in found.hint) == (size >= 0)
    else:
        assert index_graph(which, dims).shapes == ((expected,),)


def test_unknown_dimension_is_rejected_with_the_known_ones() -> None:
    assert "Choose from: B, T." in refusal(Graph(dims={"B": Dim(1, 2), "T": Dim(1, 2)}), C=1).hint
    assert refusal(Graph(), C=1).diagnostics["reason"] == "unknown_dim"


def test_number_of_must_not_alias_pairs_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    which = of(tensor("a", must_not_alias=("x", "w")), tensor("b", must_not_alias=("a",)))
    monkeypatch.setattr(indexing.limits, "ceiling", lambda limit, *_: 3 if limit is limits.PAIRS else 2**40)
    index_graph(which)
    monkeypatch.setattr(indexing.limits, "ceiling", lambda limit, *_: 2 if limit is limits.PAIRS else 2**40)
    with pytest.raises(limits.limit_error(limits.PAIRS, "").__class__):
        index_graph(which)


def test_first_fault_in_the_file_is_reported() -> None:
    # Sizes of equal shapes and dtypes are computed once; the first invalid tensor is still reported.
    tensors = [X, tensor("a", 2), Tensor("b", (3,)), Tensor("c", (-3,)), Tensor("d", (-3,)), Tensor("e", (-2,))]
    assert refusal(graph(tensors, [], "x")).diagnostics["tensor"] == "c"
    tensors = [X, tensor("a", 2), Tensor("b", (-3,), dtype="int8"), Tensor("c", (-3,)), Tensor("e", (-2,))]
    assert refusal(graph(tensors, [], "x")).diagnostics["tensor"] == "b"


def test_root_of_a_view_is_its_last_base_or_a_written_view() -> None:
    tensors = [tensor("t"), view("v", "t"), view("u", "x"), view("ou", "u"), X, view("ov", "v"), view("w", "v")]
    nodes = [node("n", "x", "u"), node("m", "ou", "t"), node("o", "v", "w")]
    index = index_graph(graph(tensors, nodes, "x", "t"))
    assert [index.tensor_ids[k] for k in index.written_base.tolist()] == ["t", "t", "u", "u", "x", "t", "w"]
