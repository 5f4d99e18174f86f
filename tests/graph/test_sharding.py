"""Shard specs and the graph of each rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.build import graph, node, tensor
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.graph.dtypes import tensor_bytes
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Graph, Node, Shard, Tensor, View
from tmmu_core.graph.sharding.shard_spec import check_world, read_spec, rows_of
from tmmu_core.graph.sharding.splits import local_graph_of, rules_without_effect, shard

TP4 = {"mesh": {"tp": 4}}


def local_graph(ir, mesh, rank, world_size=None, dims=None):
    check_world(mesh, world_size, rank)
    return local_graph_of(shard(ir, mesh, dims), rank)


def spec(mesh=None, **rest):
    return read_spec({"mesh": mesh or {"tp": 4}, **rest})


def split(axis, mesh="tp"):
    return {"axis": axis, "mesh": mesh}


def linear(rows=10, columns=8):
    tensors = [
        Tensor("x", (2, rows), role="input"),
        Tensor("w", (rows, columns), role="parameter"),
        Tensor("y", (2, columns)),
    ]
    return Graph(tuple(tensors), (Node("n", "MATMUL", ("x", "w"), ("y",)),), ("x",), ("y",))


def shapes(graph_, spec_, **how):
    return [
        {t.id: t.shape for t in local_graph(graph_, spec_, rank, **how).tensors} for rank in range(spec_.world_size)
    ]


def refusal(call):
    with pytest.raises(InvalidIrShapes) as caught:
        call()
    return caught.value.diagnostics["reason"]


# --- splits


def test_rule_that_splits_no_tensor_is_a_warning():
    rules = [{"match": pattern, **split(0)} for pattern in ("nothing*", "w", "w", "x*", "x")]
    assert rules_without_effect(linear(), spec(rules=rules, tensors={"x": split(0)})) == [
        "shard rule 1 ('nothing*') matches no tensor.",
        "shard rule 3 ('w') has no effect: earlier rules or entries match first.",
        "shard rule 5 ('x') has no effect: earlier rules or entries match first.",
    ]


def test_contract_that_splits_no_tensor_is_a_warning():
    contracts = {"parameters": split(5), "activations": split(1), "gradients": split(5)}
    assert rules_without_effect(linear(), spec(contracts=contracts)) == [
        "shard contract 'parameters' has no effect: no tensor has enough rows along the axis."
    ]


def test_uneven_split_gives_the_remainder_to_the_first_ranks():
    assert [local["w"] for local in shapes(linear(), spec(tensors={"w": split(0)}))] == [(3, 8), (3, 8), (2, 8), (2, 8)]
    assert shapes(linear(0), spec(tensors={"w": split(0)}))[0]["w"] == (0, 8)


@given(st.integers(0, 1000), st.integers(1, 50))
def test_shares_sum_up_and_differ_by_one_row_at_most(rows, parts):
    shares = [rows_of(rows, parts, part) for part in range(parts)]
    assert sum(shares) == rows
    assert shares == sorted(shares, reverse=True)
    assert shares[0] - shares[-1] <= 1


def test_tensor_may_be_split_over_two_mesh_axes():
    both = spec([{"name": "dp", "size": 2}, {"name": "tp", "size": 2}], tensors={"w": [split(0, "dp"), split(1)]})
    assert [local["w"] for local in shapes(linear(), both)] == [(5, 4)] * 4


# --- precedence


def test_id_wins_over_a_pattern_and_null_means_whole():
    assert shapes(linear(), spec(tensors={"w": None}, rules=[{"match": "*", **split(1)}]))[0]["w"] == (10, 8)


def test_shard_field_of_a_tensor_is_used():
    ir = Graph((Tensor("w", (8,), role="parameter", shard=Shard(0, "tp")),))
    assert shapes(ir, spec())[0] == {"w": (2,)}


@pytest.mark.parametrize(
    ("kind", "role"),
    [("parameters", "parameter"), ("activations", "activation"), ("gradients", "gradient"), ("optimizer_state",) * 2],
)
def test_contract_applies_to_its_kind(kind, role):
    ir = graph([tensor("x", 8, role="input"), tensor("t", 8, role=role)], [node("n", "x", "t")], "x", "t")
    local = shapes(ir, spec(contracts={kind: split(0)}))[0]
    assert (local["t"], local["x"]) == ((2,), (2,) if kind == "activations" else (8,))


@pytest.mark.parametrize("order", [1, 2000], ids=["gradient", "gradients of gradients"])
def test_gradient_is_split_like_its_tensor(order):
    ids = ["w" + "@grad" * k for k in range(order, 0, -1)]
    ir = Graph((*(Tensor(name, (8,), role="gradient") for name in ids), Tensor("w", (8,), role="parameter")))
    assert set(shapes(ir, spec(tensors={"w": split(0)}))[0].values()) == {(2,)}


# --- views


def reshaped(base, shape, **rest):
    tensors = (Tensor("x", base, role="input"), Tensor("v", shape, view=View("x", **rest)), Tensor("y", (1,)))
    return Graph(tensors, (Node("n", "", ("v",), ("y",)),), ("x",), ("y",))


def test_part_across_the_split_keeps_its_relative_offset():
    local = local_graph(reshaped((4, 8), (2, 8), byte_offset=64), spec(tensors={"x": split(1)}), 1)
    assert (local.tensors[1].shape, local.tensors[1].view) == ((2, 2), View("x", 16, 16))


@pytest.mark.parametrize(
    ("base", "shape", "named", "axis"),
    [
        ((8, 4), (2, 4), "x", 0),  # a part of the split rows
        ((4, 8), (4,), "x", 1),  # a part of a split row
        ((8, 3), (3, 2, 2, 2), "x", 0),
        ((8, 0), (8, 0), "x", 0),
        ((8,), (8,), "v", 0),  # the base is whole
    ],
)
def test_view_that_cannot_follow_is_rejected(base, shape, named, axis):
    assert refusal(lambda: shapes(reshaped(base, shape), spec(tensors={named: split(axis)}))) == "shard_view"


def test_contract_skips_bases_whose_views_cannot_follow():
    by_rows = spec(contracts={"activations": split(0)})
    assert shapes(reshaped((8, 3), (3, 2, 2, 2)), by_rows)[0] == {"x": (8, 3), "v": (3, 2, 2, 2), "y": (1,)}
    assert shapes(reshaped((8, 3), (8, 3)), by_rows)[0] == {"x": (2, 3), "v": (2, 3), "y": (1,)}


def test_view_of_a_view_follows_the_root():
    tensors = [
        Tensor("x", (8, 6), role="input"),
        Tensor("v", (8, 2, 3), view=View("x")),
        Tensor("u", (48,), view=View("v")),
    ]
    ir = Graph((*tensors, Tensor("y", (1,))), (Node("n", "", ("u",), ("y",)),), ("x",), ("y",))
    assert shapes(ir, spec(tensors={"x": split(0)}))[0] == {"x": (2, 6), "v": (2, 2, 3), "u": (12,), "y": (1,)}


def test_expanded_view_follows_along_a_stored_axis():
    ir = reshaped((8,), (3, 8), byte_length=32, stride_desc=(0, 1))
    assert shapes(ir, spec(tensors={"x": split(0)}))[0]["v"] == (3, 2)


@given(st.integers(4, 12), st.integers(1, 5), st.integers(1, 5), st.integers(2, 4))
def test_following_view_has_the_bytes_of_its_base(rows, a, b, parts):
    ir = reshaped((rows, a * b), (rows, a, b))
    mesh = spec({"tp": parts}, tensors={"x": split(0)})
    for rank in range(parts):
        local = local_graph(ir, mesh, rank)
        assert tensor_bytes(local.tensors[0].shape, "float32") == tensor_bytes(local.tensors[1].shape, "float32")
        index_graph(local)


# --- refusals


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"meshes": {}}, "shard_spec"),
        ({"mesh": {"tp": 0}}, "shard_spec"),
        ({"mesh": [{"name": "tp"}]}, "shard_spec"),
        ({"mesh": 4}, "shard_spec"),
        ({**TP4, "tensors": {"w": {"axis": 0}}}, "shard_spec"),
        ({**TP4, "tensors": {"w": {"axis": -1, "mesh": "tp"}}}, "shard_spec"),
        ({**TP4, "tensors": {"w": [split(0), split(1)]}}, "shard_spec"),
        ({**TP4, "tensors": {"w": split(0, "pp")}}, "shard_mesh"),
        ({**TP4, "rules": [{"axis": 0, "mesh": "tp"}]}, "shard_spec"),
        ({**TP4, "contracts": {"weights": split(0)}}, "shard_spec"),
    ],
)
def test_malformed_spec_is_rejected(broken, reason):
    assert refusal(lambda: read_spec(broken)) == reason


@pytest.mark.parametrize(
    ("name", "axis", "reason"), [("w", 2, "shard_axis"), ("x", 0, "shard_too_small"), ("ww", 0, "unknown_tensor")]
)
def test_split_that_no_tensor_allows_is_rejected(name, axis, reason):
    assert refusal(lambda: shapes(linear(), spec(tensors={name: split(axis)}))) == reason


def test_unknown_mesh_axis_of_a_field_is_rejected():
    ir = Graph((Tensor("w", (8,), role="parameter", shard=Shard(0, "pp")),))
    assert refusal(lambda: shapes(ir, spec())) == "shard_mesh"


@pytest.mark.parametrize("rank", [-1, 4])
def test_rank_outside_the_world_is_rejected(rank):
    assert refusal(lambda: local_graph(linear(), spec(), rank)) == "shard_rank"


# --- classes


@given(st.integers(8, 40), st.integers(8, 40), st.integers(1, 8))
def test_ranks_of_one_class_have_one_graph(rows, columns, parts):
    mesh = spec(
        [{"name": "dp", "size": 2}, {"name": "tp", "size": parts}],
        tensors={"w": [split(0, "dp"), split(1)], "x": split(1)},
    )
    ir = linear(rows, columns)
    sharding = shard(ir, mesh)
    graphs = {}
    for rank in range(mesh.world_size):
        local = local_graph(ir, mesh, rank)
        assert graphs.setdefault(sharding.class_of(rank), local) == local


# --- activations that follow the weights


def test_hidden_units_follow_the_weights_and_the_residual_is_whole():
    """Two linear layers split by columns, then by rows (Shoeybi et al., 2019, figure 3a), for 4 ranks."""
    tensors = [
        Tensor("x", (6, 8), role="input"),
        Tensor("w1", (8, 32), role="parameter"),
        Tensor("h", (6, 32)),
        Tensor("a", (6, 32)),
        Tensor("w2", (32, 8), role="parameter"),
        Tensor("y", (6, 8)),
    ]
    nodes = (
        Node("n0", "aten.mm", ("x", "w1"), ("h",)),
        Node("n1", "aten.gelu", ("h",), ("a",)),
        Node("n2", "aten.mm", ("a", "w2"), ("y",)),
    )
    mlp = Graph(tuple(tensors), nodes, ("x",), ("y",))
    rules = [{"match": "w1", **split(1)}, {"match": "w2", **split(0)}]
    (first, *_) = shapes(mlp, spec(rules=rules, contracts={"activations": "follow"}))
    assert {name: first[name] for name in ("h", "a", "y")} == {"h": (6, 8), "a": (6, 8), "y": (6, 8)}
    assert shapes(mlp, spec(rules=rules))[0]["h"] == (6, 32)


@pytest.mark.parametrize(
    ("instr", "x", "w", "axis", "result", "share"),
    [
        ("FULLY_CONNECTED", (4, 8), (8, 8), 0, (4, 8), (4, 2)),  # the weights are [n, k]
        ("FULLY_CONNECTED", (4, 8), (8, 8), 1, (4, 8), (4, 8)),  # a partial sum
        ("Gemm", (4, 8), (12, 8), 0, (4, 12), (4, 3)),
        ("Gemm", (4, 8), (12, 8), 1, (4, 12), (4, 12)),
        ("Gemm", (4, 8), (8, 12), 1, (4, 12), (4, 3)),
        ("Gemm", (4, 8), (8, 8), 1, (4, 8), (4, 8)),  # the shape does not show the transposition
        ("Conv", (4, 3, 8, 8), (4, 3, 3, 3), 0, (4, 4, 8, 8), (4, 4, 8, 8)),  # four channels, not the batch of four
        ("Transpose", (4, 8), (2, 3, 4), 2, (8, 4), (8, 4)),  # of another rank than the split operand
    ],
)
def test_result_of_a_layer_follows_its_weights(instr, x, w, axis, result, share):
    tensors = (Tensor("x", x, role="input"), Tensor("w", w, role="parameter"), Tensor("y", result))
    layer = Graph(tensors, (Node("n", instr, ("x", "w"), ("y",)),), ("x",), ("y",))
    sharded = spec(tensors={"w": split(axis)}, contracts={"activations": "follow"})
    assert shapes(layer, sharded)[0]["y"] == share


def test_heads_follow_the_weights_through_views():
    """Batch 2, 4 heads of 8: the view that merges batch and heads keeps a head per rank."""
    tensors = [
        Tensor("x", (6, 32), role="input"),
        Tensor("w", (32, 32), role="parameter"),
        Tensor("q", (6, 32)),
        Tensor("heads", (2, 3, 4, 8)),
        Tensor("turned", (2, 4, 3, 8)),
        Tensor("flat", (8, 3, 8)),
        Tensor("scores", (8, 3, 3)),
        Tensor("back", (2, 4, 3, 3)),
    ]
    steps = ("mm x,w q", "reshape q heads", "permute heads turned", "reshape turned flat", "bmm flat,flat scores")
    nodes = tuple(
        Node(f"n{k}", name, tuple(reads.split(",")), (writes,))
        for k, (name, reads, writes) in enumerate(line.split() for line in (*steps, "reshape scores back"))
    )
    attention = Graph(tuple(tensors), nodes, ("x",), ("back",))
    found = shapes(attention, spec(rules=[{"match": "w", **split(1)}], contracts={"activations": "follow"}))[0]
    assert {name: found[name] for name in ("q", "turned", "flat", "scores", "back")} == {
        "q": (6, 8),
        "turned": (2, 1, 3, 8),
        "flat": (2, 3, 8),
        "scores": (2, 3, 3),
        "back": (2, 1, 3, 3),
    }
