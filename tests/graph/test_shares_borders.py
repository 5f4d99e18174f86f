"""Splits at their borders, a function at a time: rows that just go round, views that just follow, specs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.build import graph, node, tensor, view
from tmmu_core import limits
from tmmu_core.errors import InvalidIrShapes
from tmmu_core.graph import sharding, shares
from tmmu_core.graph.model import Dim, Graph, Shard, Tensor, View
from tmmu_core.graph.shard_spec import ShardSpec, check_world, read_spec, rows_of
from tmmu_core.graph.sharding import local_graph, shard

AB = (("a", 2), ("b", 3))
X = Tensor("x", (8, 6), role="input")
UNSAID = object()


def refusal(call: Callable[[], Any]) -> InvalidIrShapes:
    with pytest.raises(InvalidIrShapes) as caught:
        call()
    return caught.value


def split(axis: int, mesh: str = "a") -> dict[str, Any]:
    return {"axis": axis, "mesh": mesh}


# -- specs -------------------------------------------------------------------------------------------------------------

SPECS: list[tuple[dict[str, Any], str, str]] = [
    ({"frob": 1}, "shard_spec", "$.frob"),
    ({"mesh": 7}, "shard_spec", "$.mesh"),
    ({"mesh": [{"name": "a", "size": 2}, 7]}, "shard_spec", "$.mesh[1]"),
    ({"mesh": [{"name": "a"}]}, "shard_spec", "$.mesh[0]"),
    ({"mesh": [{"name": 5, "size": 2}]}, "shard_spec", "$.mesh[0]"),
    ({"mesh": {"a": 0}}, "shard_spec", "$.mesh[0]"),
    ({"mesh": {"a": "2"}}, "shard_spec", "$.mesh[0]"),
    ({"mesh": {"a": True}}, "shard_spec", "$.mesh[0]"),
    ({"mesh": [{"name": "a", "size": 2}, {"name": "a", "size": 2}]}, "shard_spec", "$.mesh"),
    ({"rules": {}}, "shard_spec", "$.rules"),
    ({"rules": [7]}, "shard_spec", "$.rules[0]"),
    ({"rules": [{"match": "x", "split": None}, {"axis": 0, "mesh": "a"}]}, "shard_spec", "$.rules[1]"),
    ({"rules": [{"match": 5, "axis": 0, "mesh": "a"}]}, "shard_spec", "$.rules[0]"),
    ({"rules": [{"match": "x"}]}, "shard_spec", "$.rules[0]"),
    ({"rules": [{"match": "x", "split": None, "axis": 0}]}, "shard_spec", "$.rules[0]"),
    ({"tensors": []}, "shard_spec", "$.tensors"),
    ({"tensors": {"x": 7}}, "shard_spec", "$.tensors.x"),
    ({"tensors": {"x": {"axis": 0}}}, "shard_spec", "$.tensors.x"),
    ({"tensors": {"x": split(-1)}}, "shard_spec", "$.tensors.x"),
    ({"tensors": {"x": {"axis": True, "mesh": "a"}}}, "shard_spec", "$.tensors.x"),
    ({"tensors": {"x": {"axis": "0", "mesh": "a"}}}, "shard_spec", "$.tensors.x"),
    ({"tensors": {"x": split(0, "c")}}, "shard_mesh", "$.tensors.x"),
    ({"tensors": {"x": [split(0), split(0, "b")]}}, "shard_spec", "$.tensors.x"),
    ({"tensors": {"x": [split(0), split(1)]}}, "shard_spec", "$.tensors.x"),
    ({"contracts": 7}, "shard_spec", "$.contracts"),
    ({"contracts": {"frob": None}}, "shard_spec", "$.contracts.frob"),
]


@pytest.mark.parametrize(("given", "reason", "path"), SPECS)
def test_a_spec_that_is_none_is_refused_at_its_place(given: dict[str, Any], reason: str, path: str) -> None:
    found = refusal(lambda: read_spec({"mesh": {"a": 2, "b": 3}, **given})).diagnostics
    assert (found["reason"], found["path"]) == (reason, path)


def test_a_spec_is_read_as_it_stands() -> None:
    spec = read_spec(
        {
            "mesh": [{"name": "b", "size": 1}, {"name": "a", "size": 2}],
            "tensors": {"x": [split(0), split(1, "b")], "y": None, "z": split(3)},
            "rules": [{"match": "p*", "split": [split(1)]}, {"match": "q", **split(0)}, {"match": "r", "split": None}],
            "contracts": {"gradients": split(0)},
        }
    )
    assert spec.mesh == (("b", 1), ("a", 2))
    assert spec.tensors == {"x": ((0, "a"), (1, "b")), "y": (), "z": ((3, "a"),)}
    assert spec.rules == (("p*", ((1, "a"),)), ("q", ((0, "a"),)), ("r", ()))
    assert spec.contracts == {"gradients": ((0, "a"),)}
    assert read_spec({}) == ShardSpec((), {}, (), {})
    assert "The mesh has: no axes." in refusal(lambda: read_spec({"tensors": {"x": split(0)}})).hint


def test_a_mesh_has_as_many_ranks_as_the_limit_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ceiling", lambda *_: 6)
    assert read_spec({"mesh": {"a": 2, "b": 3}}).world_size == 6
    assert refusal(lambda: read_spec({"mesh": {"a": 7}})).diagnostics["reason"] == "shard_mesh"
    assert refusal(lambda: read_spec({"mesh": {"a": 2, "b": 4}})).diagnostics["path"] == "$.mesh"


def test_ranks_of_a_mesh() -> None:
    spec = ShardSpec(AB, {}, (), {})
    assert [tuple(spec.place(rank)[name] for name in "ab") for rank in range(6)] == [
        *((0, 0), (0, 1), (0, 2)),
        *((1, 0), (1, 1), (1, 2)),
    ]
    assert [check_world(spec, 6, 5), check_world(spec, None, 0)] == [6, 6]
    for world, rank, reason in ((6, 6, "shard_rank"), (6, -1, "shard_rank"), (5, 0, "shard_world_size")):
        assert refusal(lambda w=world, r=rank: check_world(spec, w, r)).diagnostics["reason"] == reason  # type: ignore[misc]
    assert "(a 2 × b 3)" in refusal(lambda: check_world(spec, 7)).message
    assert "(empty) has 1" in refusal(lambda: check_world(ShardSpec((), {}, (), {}), 2)).message
    assert [[rows_of(rows, 3, part) for part in range(3)] for rows in (3, 4, 5)] == [[1, 1, 1], [2, 1, 1], [2, 2, 1]]


# -- splits ------------------------------------------------------------------------------------------------------------


def splits(tensors: list[Tensor], spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    which = graph(tensors, [], **more)
    found = shard(which, read_spec({"mesh": {"a": 2, "b": 3}, **spec}))
    return {t.id: found.splits[i] for i, t in enumerate(which.tensors)}


def test_who_speaks_of_a_tensor_first() -> None:
    tensors = [
        *(Tensor("t", (6, 6), shard=Shard(1, "b")), Tensor("r", (6, 6), shard=Shard(1, "b"))),
        *(Tensor("s", (6, 6), shard=Shard(1, "b")), Tensor("c", (6, 6)), Tensor("w", (6, 6))),
    ]
    spec = {
        "tensors": {"t": split(0), "w": None},
        "rules": [{"match": "[tr]", **split(1)}, {"match": "r", **split(0)}],
        "contracts": {"activations": [split(0, "b"), split(1)]},
    }
    assert splits(tensors, spec) == {
        "t": ((0, "a"),),
        "r": ((1, "a"),),
        "s": ((1, "b"),),
        "c": ((0, "b"), (1, "a")),
        "w": (),
    }


def test_a_contract_takes_what_has_the_axis_and_as_many_rows_as_parts() -> None:
    tensors = [Tensor("e", (3, 2)), Tensor("f", (2, 2)), Tensor("g", (3, 1)), Tensor("h", (3,)), Tensor("i", ())]
    found = splits(tensors, {"contracts": {"activations": [split(0, "b"), split(1)]}})
    assert found == {"e": ((0, "b"), (1, "a")), "f": ((1, "a"),), "g": ((0, "b"),), "h": ((0, "b"),), "i": ()}


def test_what_belongs_to_a_tensor_follows_it_in_whatever_order_they_are_listed() -> None:
    tensors = [
        *(Tensor("x@grad", (6, 6), role="gradient"), Tensor("x@remat", (6, 6)), Tensor("x", (6, 6))),
        *(Tensor("y", (6, 6)), Tensor("y@grad", (5, 6), role="gradient"), Tensor("z@grad", (6, 6), role="gradient")),
        *(Tensor("p", (6, 6), role="parameter"), Tensor("p@grad", (6, 6), role="gradient"), Tensor("w", (6, 6))),
        *(Tensor("w@grad", (6, 6), role="gradient"),),
    ]
    spec = {
        "tensors": {"x": split(1), "y": split(1), "w": None},
        "contracts": {"gradients": split(0, "b"), "parameters": split(1, "b")},
    }
    assert splits(tensors, spec) == {
        "x@grad": ((1, "a"),),
        "x@remat": ((1, "a"),),
        "x": ((1, "a"),),
        "y": ((1, "a"),),
        "y@grad": ((0, "b"),),
        "z@grad": ((0, "b"),),
        "p": ((1, "b"),),
        "p@grad": ((1, "b"),),
        "w": (),
        "w@grad": ((0, "b"),),
    }
    late = [Tensor("p@grad", (6, 6), role="gradient"), Tensor("p", (6, 6), role="parameter")]
    assert splits(late, spec | {"tensors": {}}) == {"p@grad": ((1, "b"),), "p": ((1, "b"),)}
    of_a_view = [Tensor("v@grad", (6, 6), role="gradient"), Tensor("v", (6, 6), view=View("x")), Tensor("x", (6, 6))]
    spec["contracts"] = {"gradients": split(0, "b"), "activations": split(1, "b")}
    assert splits(of_a_view, spec | {"tensors": {"x": split(1)}})["v@grad"] == ((0, "b"),)


def test_what_is_said_must_be_there() -> None:
    for spec, reason in (
        ({"tensors": {"y": None}}, "unknown_tensor"),
        ({"tensors": {"x": split(1)}}, "shard_axis"),
        ({"tensors": {"x": split(0, "b")}}, "shard_too_small"),
        ({"tensors": {"s": split(0)}}, "shard_axis"),
    ):
        found = refusal(lambda spec=spec: splits([Tensor("x", (2,)), Tensor("s", ())], spec))  # type: ignore[misc]
        assert found.diagnostics["reason"] == reason
        if reason == "shard_axis":
            assert ("from 0 to 0" if "x" in spec["tensors"] else "A scalar") in found.hint
    assert splits([Tensor("x", (2,))], {"tensors": {"x": split(0), "x@grad": None, "q@remat": None}}) == {
        "x": ((0, "a"),)
    }
    elsewhere = refusal(lambda: splits([Tensor("x", (2,), shard=Shard(0, "c"))], {}))
    assert (elsewhere.diagnostics["reason"], elsewhere.diagnostics["tensor"]) == ("shard_mesh", "x")
    assert "The mesh has: a, b." in elsewhere.hint


# -- views -------------------------------------------------------------------------------------------------------------


def locally(v: Tensor, base: Tensor, said: Any, own: Any = UNSAID) -> Tensor:
    spec = read_spec({"mesh": {"a": 2, "b": 3}, "tensors": {"x": said} if own is UNSAID else {"x": said, "v": own}})
    return local_graph(graph([base, v], [], "x", "v"), spec, 0).tensors[1]


@pytest.mark.parametrize(
    ("v", "said", "shape", "place"),
    [
        (Tensor("v", (8, 6), view=View("x")), split(0), (4, 6), (0, 96, None)),
        (Tensor("v", (6, 8), view=View("x")), split(0), (3, 8), (0, 96, None)),
        (Tensor("v", (1, 48), view=View("x")), split(0), (1, 24), (0, 96, None)),  # too few rows along the first axis
        (Tensor("v", (2, 24), view=View("x")), split(0), (1, 24), (0, 96, None)),  # just enough
        (Tensor("v", (48,), view=View("x")), split(1), (24,), (0, 96, None)),
        (Tensor("v", (6,), view=View("x", 24)), split(1), (3,), (12, 12, None)),
        (Tensor("v", (2, 6), view=View("x", 144, 48)), split(1), (2, 3), (72, 24, None)),
        (Tensor("v", (5, 8, 6), view=View("x", 0, 192, (0, 6, 1))), split(0), (5, 4, 6), (0, 96, (0, 6, 1))),
        (Tensor("v", (8, 6), view=View("x", 0, None, (6, 1))), split(0), (4, 6), (0, 96, None)),
        (Tensor("v", (8, 6), view=View("x")), [split(0), split(1, "b")], (4, 2), (0, 32, None)),
        (Tensor("v", (8, 6, 1), view=View("x")), [split(0), split(1, "b")], (4, 2, 1), (0, 32, None)),
        (Tensor("v", (8, 6), view=View("x")), None, (8, 6), (0, None, None)),
    ],
)
def test_a_view_follows_its_base(v: Tensor, said: Any, shape: tuple[int, ...], place: tuple[Any, ...]) -> None:
    found = locally(v, X, said)
    assert found.shape == shape
    assert found.view is not None
    assert (found.view.byte_offset, found.view.byte_length, found.view.stride_desc) == place


@pytest.mark.parametrize(
    ("v", "base", "said", "why"),
    [
        (Tensor("v", (6,), view=View("x", 24)), X, split(0), "very rows that the split deals out"),
        (Tensor("v", (4, 6), view=View("x")), X, split(0), "very rows"),
        (Tensor("v", (2,), view=View("x", 4)), Tensor("x", (4, 3)), split(1), "divide as its base"),
        (Tensor("v", (48,), view=View("x")), X, [split(0), split(1, "b")], "no axis of it"),
        (Tensor("v", (1, 1, 1), view=View("x", 24)), X, split(1), "divide as its base|no axis of it"),
        (Tensor("v", (2,), view=View("x", 0)), Tensor("x", (4, 3)), split(1), "divide as its base"),  # its length alone
        (Tensor("v", (3,), view=View("x", 4)), Tensor("x", (4, 3)), split(1), "divide as its base"),  # its offset alone
        (Tensor("v", (0,), view=View("x")), Tensor("x", (0, 6)), split(1), "divide as its base"),
        (
            Tensor("v", (2,), view=View("x", 8, None), dtype="float64"),
            Tensor("x", (2, 6)),
            split(1),
            "no axis|rows|divide",
        ),
    ],
)
def test_a_view_that_cannot_follow_is_refused(v: Tensor, base: Tensor, said: Any, why: str) -> None:
    found = refusal(lambda: locally(v, base, said))
    assert found.diagnostics["reason"] == "shard_view"
    assert any(word in found.message for word in why.split("|"))


def test_a_view_of_a_whole_base_may_be_split_by_nobody_and_one_of_a_split_base_by_what_is_said() -> None:
    v = Tensor("v", (8, 6), view=View("x"))
    assert locally(v, X, split(0), own=split(0)).shape == (4, 6)
    assert locally(v, X, split(0), own=split(1)).shape == (8, 3)
    assert refusal(lambda: locally(v, X, None, own=split(0))).diagnostics["reason"] == "shard_view"
    assert refusal(lambda: locally(v, X, split(0), own=None)).diagnostics["reason"] == "shard_view"


@pytest.mark.parametrize(
    ("base", "axes", "expected"),
    [
        (((0, "a"),), 3, [((0, "a"),), ((1, "a"),), ((2, "a"),)]),
        (((1, "a"),), 3, [((1, "a"),), ((0, "a"),), ((2, "a"),)]),
        (((2, "a"),), 2, [((0, "a"),), ((1, "a"),)]),
        (((0, "a"), (1, "b")), 2, [((0, "a"), (1, "b"))]),
        (((0, "a"), (1, "b")), 1, []),
        (((0, "a"),), 0, []),
    ],
)
def test_a_view_is_tried_along_its_bases_axis_first(base: Any, axes: int, expected: Any) -> None:
    assert shares._candidates(base, axes) == expected


def test_views_come_after_their_bases_and_a_circle_ends() -> None:
    tensors = [view("c", "b"), tensor("x"), view("a", "x"), view("b", "a"), view("d", "a")]
    known = {t.id: i for i, t in enumerate(tensors)}
    assert shares._bases_first(graph(tensors, []), known) == [2, 3, 0, 4]
    circle = [view("a", "b"), view("b", "a"), view("c", "a"), tensor("x"), view("d", "x")]
    found = shares._bases_first(graph(circle, []), {t.id: i for i, t in enumerate(circle)})
    assert sorted(found) == [0, 1, 2, 4]


def test_a_view_follows_the_root_unless_one_between_speaks_for_itself() -> None:
    tensors = [
        X,
        Tensor("a", (8, 6), view=View("x")),
        Tensor("b", (8, 6), view=View("a")),
        Tensor("c", (8, 6), view=View("b")),
    ]
    which = graph(tensors, [], "x")
    for said, roots in (({}, [0, 0, 0]), ({"a": split(0)}, [0, 1, 1]), ({"b": split(0)}, [0, 0, 2])):
        found = shard(which, read_spec({"mesh": {"a": 2}, "tensors": {"x": split(0), **said}}))
        assert [found.root[i] for i in (1, 2, 3)] == roots


# -- which ranks are alike ---------------------------------------------------------------------------------------------


def test_ranks_differ_where_a_remainder_ends() -> None:
    tensors = [Tensor("x", (7, 5), role="input"), Tensor("y", (8, 6)), Tensor("z", (5, 6))]
    spec = read_spec(
        {"mesh": {"a": 4, "b": 3}, "tensors": {"x": [split(0), split(1, "b")], "y": split(0), "z": split(0)}}
    )
    found = shard(graph(tensors, [], "x"), spec)
    assert found.remainders == {"a": (1, 3), "b": (2,)}
    # Along a the first rank has a row more of x and z, the second and third of x alone; along b the first two of x.
    assert [found.class_of(rank) for rank in range(12)] == [
        (a, b) for a, times in ((0, 1), (1, 2), (2, 1)) for _ in range(times) for b in (0, 0, 1)
    ]


def test_where_a_view_may_follow_differently_is_where_any_of_its_axes_ends() -> None:
    tensors = [Tensor("x", (5, 6), role="input"), Tensor("v", (5, 6), view=View("x")), Tensor("y", (4, 7))]
    spec = read_spec({"mesh": {"a": 4}, "tensors": {"x": split(0), "y": split(0)}})
    assert shard(graph(tensors, [], "x"), spec).remainders == {"a": (1, 2)}
    even = [Tensor("x", (4, 6), role="input"), Tensor("v", (4, 6), view=View("x"))]
    assert shard(graph(even, [], "x"), spec_of_x()).remainders == {"a": ()}


def spec_of_x() -> ShardSpec:
    return read_spec({"mesh": {"a": 4}, "tensors": {"x": split(0)}})


def test_places_that_are_tried_are_those_where_shares_change(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = {"mesh": [{"name": n, "size": s} for n, s in (("a", 2), ("b", 3), ("c", 2))]}
    said = {"tensors": {"x": [split(0), split(1, "b")]}}
    uneven = shard(graph([Tensor("x", (6, 7)), Tensor("v", (42,), view=View("x"))], []), read_spec(mesh | said))
    expected = [{"a": a, "b": b, "c": 0} for a in (0, 1) for b in (0, 1)]  # 7 is odd, and one more than two threes
    assert sharding._places_to_try(uneven, 0, [1]) == expected
    odd = shard(graph([Tensor("x", (7, 7)), Tensor("v", (49,), view=View("x"))], []), read_spec(mesh | said))
    even = shard(graph([Tensor("x", (6, 6)), Tensor("v", (35,), view=View("x"))], []), read_spec(mesh | said))
    assert sharding._places_to_try(odd, 0, [1]) == expected
    assert sharding._places_to_try(even, 0, [1]) == [{"a": 0, "b": 0, "c": 0}]
    monkeypatch.setattr(sharding.limits, "ceiling", lambda *_: 4)
    assert sharding._places_to_try(uneven, 0, [1]) == expected
    monkeypatch.setattr(sharding.limits, "ceiling", lambda *_: 3)
    found = refusal(lambda: sharding._places_to_try(uneven, 0, [1])).diagnostics
    assert (found["reason"], found["tensor"]) == ("shard_view", "x")


def test_a_contract_leaves_whole_what_one_of_its_views_could_not_follow_on_some_rank() -> None:
    contract = {"contracts": {"activations": split(0)}, "mesh": {"a": 2}}
    for v, expected in (
        (Tensor("v", (8, 6), view=View("x")), ((0, "a"),)),
        (Tensor("v", (6,), view=View("x", 24)), ()),
        (Tensor("v", (6,), view=View("u", 24)), ()),
    ):
        tensors = [X, Tensor("u", (8, 6), view=View("x")), v, Tensor("y", (8, 6))]
        found = shard(graph(tensors, [node("n", "x", "y")], "x"), read_spec(contract))
        assert found.splits == (expected, (), (), ((0, "a"),))
    # What follows another tensor is held to it: only a contract passes over.
    tensors = [X, Tensor("x@grad", (8, 6), role="gradient"), Tensor("v", (6,), view=View("x@grad", 24))]
    said = read_spec({"mesh": {"a": 2}, "tensors": {"x": split(0)}})
    assert shard(graph(tensors, [], "x"), said).splits == (((0, "a"),), ((0, "a"),), ())
    # Where one of several speaks for itself none is asked.
    tensors = [X, Tensor("u", (6,), view=View("x", 24)), Tensor("v", (6,), view=View("x", 24))]
    found = shard(graph(tensors, [], "x"), read_spec(contract | {"tensors": {"v": split(0)}}))
    assert found.splits == (((0, "a"),), (), ((0, "a"),))
    # One that speaks for itself is not asked.
    tensors = [X, Tensor("v", (6,), view=View("x", 24))]
    found = shard(graph(tensors, [], "x"), read_spec(contract | {"tensors": {"v": split(0)}}))
    assert found.splits == (((0, "a"),), ((0, "a"),))


def test_a_named_dimension_that_is_not_split_keeps_its_name() -> None:
    which = Graph((Tensor("x", ("B", 6), role="input"), Tensor("v", ("B", 6), view=View("x"))), dims={"B": Dim(1, 8)})
    found = local_graph(which, read_spec({"mesh": {"a": 2}, "tensors": {"x": split(1)}}), 1, dims={"B": 4})
    assert [t.shape for t in found.tensors] == [("B", 3), ("B", 3)]
    assert found.tensors[1].view == View("x", 0, 4 * 3 * 4)


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        *(((2, 6), (0,), True), ((2, 6), (1,), False), ((1, 2, 6), (1,), True), ((1, 2, 6), (2,), False)),
        *(((1, 6), (1,), True), ((3, 2), (1, 0), True), ((1, 1), (1,), False), ((1, 1), (0,), True), ((2,), (), False)),
    ],
)
def test_rows_that_are_dealt_out_are_those_of_the_slowest_axis_of_several(
    shape: tuple[int, ...], axes: tuple[int, ...], expected: bool
) -> None:
    assert shares._deals_rows(shape, tuple((axis, "a") for axis in axes)) is expected
