"""What opens and closes a scope: the shapes of what it writes, branches that are never taken, and what must agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.graph.test_onnx import model, op
from tmmu_core.errors import InvalidIrShapes
from tmmu_core.graph.importers.onnx_scope_shapes import (
    UNBOUNDED,
    _axis,
    check_scopes,
    scope_shapes,
    trips_of,
    without_dead_branches,
)
from tmmu_core.graph.importers.onnx_scopes import SCOPE, Flat, Origin, branch

F, N64, B = 1, 7, 9
"""Element types: floats, integers, booleans."""


def scope(kind: str, reads: str, writes: str, **counts: Any) -> onnx.NodeProto:
    return op(kind, reads, writes, domain=SCOPE, **counts)


def found(*nodes: onnx.NodeProto, values: dict[str, Any] | None = None, **known: Any) -> dict[str, Any]:
    """What is news, of values that are known by element type and dimensions; ``w`` is a weight of [9] integers."""
    proto = model(nodes, [], [], {"w": np.zeros(9, np.int64)})
    arrays = {name: np.asarray(value) for name, value in (values or {}).items()}
    return {name: (kind, list(dims)) for name, (kind, dims) in scope_shapes(proto, known, arrays).items()}


def test_what_follows_follows_from_what_followed_and_from_weights() -> None:
    chain = [scope("If.close", "c a a", "y"), scope("If.close", "c y y", "z"), scope("If.close", "c w w", "u")]
    assert found(*chain, a=(F, [2])) == {"y": (F, [2]), "z": (F, [2]), "u": (N64, [9])}
    assert found(*chain, a=(F, [2]), w=(F, [4]))["u"] == (F, [4]), "what is known goes before"
    assert found(op("Relu", "a", "y"), a=(F, [2])) == {}
    assert found(scope("If.close", "c a a", "_"), a=(F, [2])) == {}


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        *(([None, 3], [2, 3], True), (["N", 3], [2, 3], True), ([None, 3], ["N", 3], True), ([2, 3], [2, 3], False)),
        *(([2, 3], ["N", 3], False), (["N", 3], ["M", 3], False), ([None, 3], ["N", "M"], False), ([], [], False)),
        *((["N", "M"], [None, 3], False), (["N", "M", "K"], [None, 3, 3], True)),
    ],
)
def test_news_is_what_leaves_less_open(before: list[Any], after: list[Any], news: bool) -> None:
    """A name leaves half as much open as nothing at all."""
    shapes = found(scope("Loop.open", "n c a", "i g s", states=1), a=(F, after), s=(F, before), i=(N64, []), g=(B, []))
    assert shapes == ({"s": (F, after)} if news else {})


def test_a_result_of_branches_is_that_of_both_or_of_the_one_that_is_taken() -> None:
    closing = scope("If.close", "c a b d e", "y z")
    known: Any = {"a": (F, [1, 2]), "b": (N64, [3]), "d": (F, [2]), "e": (N64, [4])}
    assert found(closing, **known) == {"y": (F, [1, 2])}
    assert found(closing, values={"c": True}, **known) == {"y": (F, [1, 2]), "z": (N64, [3])}
    assert found(closing, values={"c": [False]}, **known) == {"y": (F, [2]), "z": (N64, [4])}
    assert found(closing, values={"c": [True, False]}, **known)["z"] == (N64, [4]), "where all of it holds"
    assert found(closing, values={"a": True}, **known) == {"y": (F, [1, 2])}


def test_what_is_carried_begins_as_it_is_given() -> None:
    known: Any = {"a": (F, [2]), "b": (F, [3])}
    counted = scope("Loop.open", "n c a b", "i g s u r", states=2)
    assert found(counted, **known) == {"i": (N64, []), "g": (B, []), "s": (F, [2]), "u": (F, [3])}
    assert found(scope("Scan.open", "a b", "s u r", states=2), **known) == {"s": (F, [2]), "u": (F, [3])}
    assert found(scope("Scan.open", "a b", "s u", states=2), b=(F, [3])) == {"u": (F, [3])}


@pytest.mark.parametrize(
    ("axis", "piece"), [(0, [3, 4]), (1, [2, 4]), (2, [2, 3]), (-1, [2, 3]), (-3, [3, 4]), (3, None), (-4, None)]
)
def test_a_slice_is_its_input_without_the_axis(axis: int, piece: list[int] | None) -> None:
    shapes = found(scope("Scan.next", "q x", "p s", axes=[0, axis]), x=(F, [2, 3, 4]))
    assert shapes == ({} if piece is None else {"s": (F, piece)})


def test_an_axis_is_counted_from_either_end() -> None:
    assert [_axis(k, 2) for k in range(-3, 4)] == [None, 0, 1, 0, 1, None, None]
    assert [_axis(k, 0) for k in (-1, 0, 1)] == [None] * 3


CLOSED = "i g s u r q on t v p o"
"""Of two states and two rooms: counter, condition, states, rooms; the condition's next, their next, two pieces."""


@pytest.mark.parametrize(
    ("trips", "length"), [(-3, 0), (0, 0), (5, 5), (UNBOUNDED - 1, UNBOUNDED - 1), (UNBOUNDED, None)]
)
def test_what_a_loop_gathers_is_as_long_as_its_trip_count(trips: int, length: int | None) -> None:
    closing = scope("Loop.close", f"n {CLOSED}", "y z a b", states=2, rooms=2)
    known: Any = {"s": (F, [2]), "u": (N64, [3]), "p": (F, [4, 5]), "o": (B, []), "t": (F, [7]), "v": (F, [8])}
    shapes = found(closing, values={"n": trips}, **known)
    whole: Any = {"a": (F, [length, 4, 5]), "b": (B, [length])}
    assert shapes == {"y": (F, [2]), "z": (N64, [3]), **whole, "r": whole["a"], "q": whole["b"]}


def test_what_is_not_wanted_or_not_known_is_not_told() -> None:
    closing = scope("Loop.close", "n i g s _ q on t p o", "_ _ b", states=1, rooms=2)
    known: Any = {"s": (F, [2]), "p": (F, [4])}
    assert found(closing, values={"n": 3}, **known) == {}
    assert found(closing, values={"n": 3}, **known, o=(B, [])) == {"b": (B, [3]), "q": (B, [3])}
    assert found(closing, **known, b=(B, [6])) == {"q": (B, [6])}


@pytest.mark.parametrize(
    ("axis", "axes", "measured", "whole"),
    [
        *((0, [0, -2], [6, 2], ([6, 4, 5], [3, 6, 7])), (1, [2, 1], [6, 2], ([4, 5, 2], [3, 2, 7]))),
        *((-1, [-1, 0], [6, "T"], ([4, 5, "T"], ["T", 3, 7])), (2, [0, 0], [6, 2], ([None, 4, 5], [None, 3, 7]))),
        *((0, [3, -4], [6, 2], (None, None)), (0, [0, 0], None, ([None, 4, 5], [None, 3, 7]))),
    ],
)
def test_what_a_scan_gathers_is_as_long_as_what_it_slices(
    axis: int, axes: list[int], measured: Any, whole: Any
) -> None:
    closing = scope("Scan.close", "s u r q t v p o x", "y z a b", states=2, rooms=2, measured="x", axis=axis, axes=axes)
    known: Any = {"s": (F, [2]), "u": (N64, [3]), "p": (F, [4, 5]), "o": (B, [3, 7])}
    shapes = found(closing, **known, **({} if measured is None else {"x": (F, measured)}))
    first, second = ((kind, dims) for kind, dims in zip((F, B), whole, strict=True))
    rooms = {"a": first, "r": first, "b": second, "q": second}
    assert shapes == {
        "y": (F, [2]),
        "z": (N64, [3]),
        **{name: room for name, room in rooms.items() if room[1] is not None},
    }


# --- branches that are never taken -------------------------------------------------------------------------------


def branched() -> Flat:
    rows = [
        (op("Relu", "x", "a"), Origin("i/then", 0, (branch(0, True),))),
        (op("Neg", "x", "b"), Origin("i/else", 0, (branch(0, False),))),
        (op("Exp", "b", "d"), Origin("i/else/j/then", 0, (branch(0, False), branch(1, True)))),
        (scope("If.close", "e d b", "f", number=1), Origin("i/else/j", 1, (branch(0, False),))),
        (scope("If.close", "c a x b f", "y _", number=0), Origin("i", 0)),
        (op("Not", "c", "z"), Origin("", 1)),
        (scope("Loop.open", "c", "k", states=0), Origin("l", 2)),
        (scope("If.close", "k y z", "q", number=2), Origin("m", 3)),
    ]
    return Flat(model([node for node, _ in rows], [], []), tuple(origin for _, origin in rows))


def lines(flat: Flat) -> list[str]:
    both = zip(flat.model.graph.node, flat.origins, strict=True)
    return [
        f"{at.scope}#{at.position} {n.op_type} {' '.join(n.input)} → {' '.join(n.output)} {n.name}" for n, at in both
    ]


def test_a_branch_that_is_never_taken_is_left_out_with_all_inside() -> None:
    whole = branched()
    rest = ["#1 Not c → z ", "l#2 Loop.open c → k ", "m#3 If.close k y z → q "]
    for values, then in (({"c": True}, True), ({"c": [False]}, False), ({"c": [True, False]}, False)):
        left = without_dead_branches(whole, {name: np.array(value) for name, value in values.items()})
        taken = ["i/then#0 Relu x → a ", "i#0 Identity a → y i/taken_0"]
        other = [
            *("i/else#0 Neg x → b ", "i/else/j/then#0 Exp b → d ", "i/else/j#1 If.close e d b → f "),
            "i#0 Identity b → y i/taken_0",
        ]
        assert lines(left) == [*(taken if then else other), *rest]
    both = without_dead_branches(whole, {"c": np.array(False), "e": np.array(False)})
    assert lines(both)[1:3] == ["i/else/j#1 Identity b → f i/else/j/taken_0", "i#0 Identity b → y i/taken_0"]
    assert len(whole.model.graph.node) == 8
    for values in ({}, {"a": np.array(True), "z": np.array(True)}):
        assert without_dead_branches(whole, values) is whole


# --- what must agree ---------------------------------------------------------------------------------------------


def checked(node: onnx.NodeProto, shape: dict[str, Any], without: str = "") -> bool:
    dtype = {name: "float32" for name in shape if name != without}
    flat = Flat(helper.make_model(helper.make_graph([node], "g", [], [])), (Origin("at", 0),))
    return check_scopes(flat, shape, dtype, {"T": 3}, "m.onnx")


LOOP = scope("Loop.close", "n i g s u r on t v p", "y z a", states=2, rooms=1)
SCAN = scope("Scan.close", "s u r t v p x", "y z a", states=2, rooms=1)


@pytest.mark.parametrize("node", [LOOP, SCAN], ids=["loop", "scan"])
def test_a_state_is_of_one_shape_from_one_iteration_to_the_next(node: onnx.NodeProto) -> None:
    """Axes of size 1 tell them apart too, and so does a name that stands at the other's size."""
    alike = {"s": (2,), "t": (2,), "u": ("T", 4), "v": ("T", 4), "p": (7,), "r": (5, 7), "on": (), "x": (5,)}
    assert checked(node, alike)
    for name, other in (("t", (1, 2)), ("v", (3, 4)), ("u", (3, 4)), ("v", ("T", 1, 4)), ("s", (3,))):
        with pytest.raises(InvalidIrShapes, match="its state changes from one iteration to the next") as caught:
            checked(node, alike | {name: other})
        assert caught.value.diagnostics["tensor"] == ("t" if name in "st" else "v")
        assert checked(node, alike | {name: other}, without=name)
        assert checked(node, {key: size for key, size in (alike | {name: other}).items() if key != name})
    kinds = dict.fromkeys(alike, "float32") | {"t": "int32"}
    flat = Flat(helper.make_model(helper.make_graph([node], "g", [], [])), (Origin("at", 0),))
    with pytest.raises(InvalidIrShapes, match="int32"):
        check_scopes(flat, alike, kinds, {"T": 3}, "m.onnx")
    with_type_alone = dict.fromkeys(alike, "float32")
    assert check_scopes(flat, {"s": (9,)}, with_type_alone, {"T": 3}, "m.onnx")


def test_a_trip_count_of_the_model_goes_before_what_is_said_of_it() -> None:
    node = scope("Loop.close", "n", "y", at_most=7)
    assert [trips_of(node, {"n": np.array(n)}) for n in (3, [4], [[9]])] == [3, 4, 9]
    assert trips_of(node, {"n": np.array([1, 2])}) == UNBOUNDED
    assert trips_of(node, {}) == 7
    assert trips_of(scope("Loop.close", "_", "y"), {"": np.array(3)}) == UNBOUNDED
