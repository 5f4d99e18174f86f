"""What the readers of ONNX know of sizes, function by function: by eye, or beside the plainest that says the same."""

from __future__ import annotations

from math import prod
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.graph.test_onnx import model, op, value
from tmmu_core.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.graph.importers import onnx_shapes
from tmmu_core.graph.importers.onnx_declared import Known
from tmmu_core.graph.importers.onnx_shapes import Sizes
from tmmu_core.graph.model import Dim

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def sized(**shapes: Any) -> list[onnx.ValueInfoProto]:
    return [value(name, shape) for name, shape in shapes.items()]


# --- dimensions --------------------------------------------------------------------------------------------------


def test_every_size_of_an_input_that_is_no_number_is_a_dimension() -> None:
    inputs = sized(
        a=["first", 3, "second", 0], b=["second", "first"], c=[None, "?"], d=["side", "MyBatch", "N", "B", "b", "said"]
    )
    inputs = sized(w=["weights", 4]) + inputs + sized(e=["side", "held"])
    inputs[1].type.tensor_type.shape.dim.add(dim_value=-1)
    proto = model([], inputs, [], {"w": np.zeros((1, 4), np.float32)})
    sizes = onnx_shapes.named_dims(proto, {"said": Dim(2, 5), "held": Dim(0, 0), "nobody": Dim(1, 2)})
    one, long = Dim(1, 8), Dim(1, 512)
    assert sizes.dims == {
        "first": long,
        "second": long,
        "a.4": long,
        "c.0": one,
        "c.1": long,
        "side": one,
        "MyBatch": one,
        "N": one,
        "B": one,
        "b": long,
        "said": Dim(2, 5),
        "held": Dim(0, 0),
    }
    assert sizes.assumed == {
        "first": 512,
        "second": 512,
        "a.4": 512,
        "c.0": 1,
        "c.1": 512,
        "side": 1,
        "MyBatch": 1,
        "N": 1,
        "B": 1,
        "b": 512,
    }
    assert list(sizes.dims) == [*list(sizes.assumed)[:10], "said", "held"]
    named = [[dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in proto.graph.input]
    assert named[1] == ["first", 3, "second", 0, "a.4"]
    assert named[3] == ["c.0", "c.1"]


def test_what_nobody_gave_a_name_is_forgotten_where_it_is_no_inputs() -> None:
    proto = model([], [], sized(y=["?", 0, "rows", "seen", 2, None]))
    proto.graph.value_info.extend(sized(h=["-1", "seen", "more"]))
    proto.graph.value_info[0].type.tensor_type.shape.dim.add(dim_value=-1)
    sizes = onnx_shapes.named_dims(proto, {"seen": Dim(1, 3), "?": Dim(1, 3), "more": Dim(2, 3)})
    assert sizes == Sizes({"seen": Dim(1, 3), "more": Dim(2, 3)}, {})
    y, h = (
        [helper.printable_dim(d) for d in i.type.tensor_type.shape.dim]
        for i in (*proto.graph.output, *proto.graph.value_info)
    )
    assert (y, h) == (["?", "0", "rows", "seen", "2", "?"], ["?", "seen", "more", "?"])
    assert [onnx_shapes.size_nobody_gives(proto, name, {"seen": Dim()}) for name in ("y", "h", "z")] == [
        "rows",
        "more",
        "",
    ]


def test_dimensions_stand_where_they_are_assumed_and_else_at_their_upper_end() -> None:
    sizes = Sizes({"a": Dim(1, 8), "b": Dim(2, 5), "c": Dim(0, 7), "d": Dim(1, 512)}, {"a": 1, "c": 0, "d": 512})
    assert sizes.point() == {"a": 1, "b": 5, "c": 0, "d": 512}
    sizes.stand_at({"a": 2, "b": 3, "c": 1, "d": 513})
    assert sizes.assumed == {"a": 2, "c": 1, "d": 513}
    assert sizes.dims == {"a": Dim(1, 512), "b": Dim(2, 5), "c": Dim(1, 8), "d": Dim(1, 513)}
    sizes.hold(["a", "b", "d"])
    assert sizes.dims == {"a": Dim(2, 2), "b": Dim(2, 5), "c": Dim(1, 8), "d": Dim(513, 513)}


@pytest.mark.parametrize(
    ("dims", "assumed", "points"),
    [
        ({}, {}, []),
        ({"a": Dim(3, 3)}, {}, [(3,)]),
        ({"a": Dim(2, 7)}, {}, [(7,), (4,), (2,)]),
        ({"a": Dim(2, 7)}, {"a": 4}, [(4,), (7,), (2,)]),
        ({"a": Dim(2, 7)}, {"a": 3}, [(3,), (7,), (4,), (2,)]),
        ({"a": Dim(1, 2), "b": Dim(0, 1)}, {"b": 0}, [(2, 0), (1, 0), (2, 1)]),
    ],
)
def test_one_dimension_after_the_other_stands_elsewhere(dims: Any, assumed: Any, points: list[tuple[int, ...]]) -> None:
    assert onnx_shapes._points(Sizes(dims, assumed)) == [dict(zip(dims, point, strict=True)) for point in points]


def factors_plainly(sizes: list[Any], points: list[dict[str, int]]) -> tuple[int | str, ...] | None:
    """Every number of no, one or two names is tried."""
    if not sizes or any(not isinstance(size, int) for size in sizes):
        return None
    names = list(points[0])
    twos = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    for chosen in ((), *((name,) for name in names), *twos):
        for number in range(max(sizes) + 1):
            if all(size == number * prod(point[n] for n in chosen) for size, point in zip(sizes, points, strict=True)):
                return chosen if chosen and number == 1 else (*chosen, number)
    return None


def test_a_size_is_a_number_of_at_most_two_names_or_nothing_is_said() -> None:
    random = Random(1)
    assert onnx_shapes._factors([], []) is None
    assert onnx_shapes._factors([0, 4], [{"a": 0}, {"a": 4}]) is None, "where it stands it tells nothing"
    for _ in range(600):
        names = "abc"[: random.randint(1, 3)]
        points = [{name: random.randint(k > 0, 4) for name in names} for k in (1, 0, 0, 0)[: random.randint(1, 4)]]
        said = random.choices(names, k=random.randint(0, 3))
        number = random.randint(0, 3)
        sizes: list[Any] = [number * prod(point[name] for name in set(said)) for point in points]
        k = random.randrange(len(sizes))
        sizes[k] = random.choice([*[sizes[k]] * 4, sizes[k] + 1, None, "a"])
        assert onnx_shapes._factors(sizes, points) == factors_plainly(sizes, points), (sizes, points)


def test_a_size_moves_with_what_stands_elsewhere_where_it_is_another() -> None:
    points = [{"a": 1, "b": 2, "c": 3}, {"a": 4, "b": 2, "c": 3}, {"a": 1, "b": 5, "c": 3}, {"a": 1, "b": 2, "c": 0}]
    assert onnx_shapes._moving([7, 7, 8, None], points) == {"b", "c"}
    assert onnx_shapes._moving([7, 9, 7, 7], points) == {"a"}
    assert onnx_shapes._moving([7, 7, 7, 7], points) == set()


def test_a_size_is_asked_for_where_the_rank_is_the_same() -> None:
    known: Known = {"x": (1, [4, None, "N"]), "s": (1, [])}
    asked = [("x", 0, 3), ("x", 1, 3), ("x", 2, 3), ("x", 0, 2), ("x", 0, 4), ("y", 0, 1), ("s", 0, 1)]
    assert [onnx_shapes._size(known, *each) for each in asked] == [4, None, "N", None, None, None, None]


# --- what inference tells ----------------------------------------------------------------------------------------


def inferring(monkeypatch: pytest.MonkeyPatch, named: Known, at: Any) -> onnx.ModelProto:
    """A model of the input x: [N, M], of which inference tells ``named``, and ``at(N, M)`` where both are fixed."""
    proto = model([], sized(x=["N", "M"]), [], {"w": np.zeros((2, 3), np.int64)})

    def inferred(asked: onnx.ModelProto, name: str) -> Known:
        assert name == "from"
        n, m = asked.graph.input[0].type.tensor_type.shape.dim
        return named if n.dim_param else at(n.dim_value, m.dim_value)

    monkeypatch.setattr(onnx_shapes, "_inferred", inferred)
    return proto


def test_a_shape_keeps_its_names_and_what_has_none_is_told_from_several_points(monkeypatch: pytest.MonkeyPatch) -> None:
    named: Known = {
        "kept": (1, ["N", 5, "M"]),
        "foreign": (7, ["K"]),
        "open": (1, [None]),
        "fixed": (1, [None, 2]),
        "odd": (1, [None]),
        "other rank": (1, ["N"]),
        "another then": (1, [None]),
        "unknown": (1, [None]),
        "half": (1, ["N", None]),
        "words": (STRING, ["N"]),
        "named alone": (1, ["M"]),
        "open alone": (1, [None]),
        "both": (1, [None]),
        "M": (1, [None]),
        "gone": (1, [None]),
    }

    def at(n: int, m: int) -> Known:
        found: Known = {
            "kept": (1, [n, 5, m]),
            "foreign": (7, [2 * n]),
            "open": (1, [n]),
            "fixed": (1, [7, 2]),
            "odd": (1, [9 if n != 6 else 11]),
            "other rank": (1, [2, n]),
            "another then": (1, [n] * (1 + (n == 2))),
            "unknown": (1, [None]),
            "half": (1, [n, None]),
            "words": (STRING, [n]),
            "here alone": (7, [n, 6, 5 * m]),
            "both": (1, [n * m]),
            "M": (1, [m]),
        }
        return found | ({"here first": (1, [n])} if n == 4 else {"gone": (1, [n])})

    proto = inferring(monkeypatch, named, at)
    sizes = Sizes({"N": Dim(2, 6), "M": Dim(3, 3)}, {"N": 4})
    facts = onnx_shapes.infer(proto, sizes, "from")
    assert facts.shape == {
        "kept": ("N", 5, "M"),
        "foreign": ("N", 2),
        "open": ("N",),
        "fixed": (7, 2),
        "odd": (9,),
        "w": (2, 3),
        "here first": (4,),
        "other rank": (2, "N"),
        "another then": (4,),
        "words": ("N",),
        "here alone": ("N", 6, 15),
        "named alone": ("M",),
        "both": ("N", 3),
        "M": (3,),
    }
    kinds = dict.fromkeys({*named, "here alone", "here first", "w"} - {"words"}, "float32")
    assert facts.dtype == kinds | dict.fromkeys(("foreign", "here alone", "w"), "int64")
    assert facts.derived == {"odd", "another then", "here first"}
    assert sizes.dims == {"N": Dim(4, 4), "M": Dim(3, 3)}


def test_without_dimensions_numbers_are_what_inference_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = inferring(monkeypatch, {"a": (1, [3, 0]), "b": (1, ["N"]), "c": (1, [None])}, None)
    facts = onnx_shapes.infer(proto, Sizes(), "from")
    assert (facts.shape, facts.derived) == ({"a": (3, 0), "w": (2, 3)}, set())


def test_a_model_must_be_possible_where_it_stands_and_may_be_impossible_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def at(n: int, m: int) -> Known:
        if n == impossible:
            raise InvalidIrShapes("no", hint="", reason="shape_inference")
        return {"y": (1, [n])}

    proto = inferring(monkeypatch, {}, at)
    impossible = 2
    assert onnx_shapes.infer(proto, Sizes({"N": Dim(2, 6), "M": Dim(1, 1)}), "from").shape["y"] == (6,)
    impossible = 6
    with pytest.raises(InvalidIrShapes, match="no"):
        onnx_shapes.infer(proto, Sizes({"N": Dim(2, 6), "M": Dim(1, 1)}), "from")


def test_a_weight_of_words_has_no_size() -> None:
    proto = model([], [], [])
    for element, says in ((STRING, "STRING"), (99, "number 99")):
        proto.graph.initializer.append(TensorProto(name="w", data_type=element, dims=[2]))
        with pytest.raises(UnreadableInput, match=f'"w" holds elements of the type {says},'):
            onnx_shapes.infer(proto, Sizes(), "from")
        del proto.graph.initializer[:]


def test_what_is_bound_is_the_named_and_what_is_foreign_is_forgotten() -> None:
    proto = model([], sized(x=["N", 2, None, "K"]), sized(y=["K", "M"]))
    proto.graph.value_info.extend(sized(h=["M", "N", 0]))
    bound = onnx_shapes.bind(proto, {"N": 0, "M": 7})
    assert onnx_shapes.declared_by(bound) == {"x": (1, [0, 2, None, None]), "h": (1, [7, 0, 0]), "y": (1, [None, 7])}
    assert onnx_shapes.declared_by(proto)["x"] == (1, ["N", 2, None, "K"])


def test_what_a_model_says_of_its_values() -> None:
    proto = model([], sized(x=[3]), [value("scalar", []), value("shapeless", None)])
    proto.graph.output.add(name="untyped").type.tensor_type.shape.dim.add(dim_value=4)
    assert onnx_shapes.declared_by(proto) == {"x": (1, [3]), "scalar": (1, [])}


def test_shapes_are_told_in_the_place_of_what_was_said() -> None:
    proto = model([], [], sized(y=[1], z=[2]))
    proto.graph.value_info.extend(sized(a=[3], b=[4]))
    assert onnx_shapes.telling(proto, {}) is proto
    changed = onnx_shapes.telling(proto, {"z": (7, [5]), "b": (7, ["N", None]), "c": (1, [])})
    assert [info.name for info in changed.graph.output] == ["y", "z"]
    assert [info.name for info in changed.graph.value_info] == ["a", "b", "c"]
    assert onnx_shapes.declared_by(changed) == {
        "a": (1, [3]),
        "b": (7, ["N", None]),
        "c": (1, []),
        "y": (1, [1]),
        "z": (7, [5]),
    }
    assert onnx_shapes.declared_by(proto)["z"] == (1, [2])


def test_what_is_missing_is_what_a_node_writes_without_a_fixed_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = model([op("Split", "x", "a _ b")], [], [])
    whole: Known = {"a": (1, []), "b": (1, [0, 2])}
    cases: list[Known] = [whole, {"a": (1, [])}, {**whole, "a": (1, ["N"])}, {**whole, "b": (1, [2, None])}, {}]
    assert [onnx_shapes._missing(proto, known) for known in cases] == [False, True, True, True, True]
    monkeypatch.setattr(onnx_shapes, "LONG_VECTOR", 3)
    sizes: list[list[int | str | None]] = [[3], [4], ["N"], [None], [4, 4], []]
    assert [onnx_shapes._long_vectors({"s": (1, []), "v": (1, size)}) for size in sizes] == [False, True, *[False] * 4]


def test_inference_goes_on_as_long_as_it_is_told_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose result nobody knows, and one more value carried out at each turn: as many turns as there may be."""
    asked: list[bool] = []
    turns = 0

    def once(proto: onnx.ModelProto, name: str, *, propagate: bool) -> Known:
        asked.append(propagate)
        return dict(known_now)

    def carried(proto: onnx.ModelProto, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto | None:
        nonlocal turns
        turns += 1
        seen.append(shapes)
        if turns > carries:
            return None
        smaller = onnx.ModelProto()
        smaller.CopyFrom(proto)
        smaller.graph.name += "'"
        return smaller

    def scoped(proto: onnx.ModelProto, *given: Any) -> Known:
        insides.append(proto.graph.name.count("'"))
        return dict(inner)

    monkeypatch.setattr(onnx_shapes, "_once", once)
    monkeypatch.setattr(onnx_shapes, "with_values", carried)
    monkeypatch.setattr(onnx_shapes, "scope_shapes", scoped)
    monkeypatch.setattr(onnx_shapes, "ROUNDS", 3)
    closing = helper.make_node("Loop.close", [], ["y"], domain="tmmu.scope")
    plain = model([op("Relu", "x", "y")], [], [], {"w": np.zeros((2, 1), np.float32)})
    looped = model([closing], [], [], {"w": np.zeros((2, 1), np.float32)})
    whole, shut, long = {"y": (1, [2])}, {"y": (1, [None])}, {"y": (1, [None]), "v": (7, [2**20 + 1])}
    rows: list[Any] = []
    for proto, known, most, more in (
        (plain, whole, 9, {}),
        (plain, shut, 0, {}),
        (plain, shut, 2, {}),
        (plain, shut, 99, {}),
        (plain, long, 1, {}),
        (looped, whole, 0, {}),
        (looped, whole, 99, {}),
        (looped, shut, 0, {"y": (1, [4])}),
        (plain, shut, 0, {"y": (1, [4])}),
    ):
        known_now: Any = known
        inner: Any = more
        carries = most
        seen: list[Any] = []
        insides: list[int] = []
        asked, turns = [], 0
        found, _ = onnx_shapes.inferred_with_values(proto, "from")
        rows.append(("".join("-+"[each] for each in asked), turns, found.get("y"), seen[:1]))
        assert insides == [min(turn, carries) for turn in range(1, turns + 1) if proto is looped]
    fixed = {"w": (2, 1)}
    assert rows == [
        ("-", 0, (1, [2]), []),
        ("-+", 1, (1, [None]), [fixed]),
        ("-+++", 3, (1, [None]), [fixed]),
        ("-++++", 3, (1, [None]), [fixed]),
        ("--", 2, (1, [None]), [{"v": (2**20 + 1,), **fixed}]),
        ("-+", 1, (1, [2]), [{"y": (2,), **fixed}]),
        ("-++++++", 5, (1, [2]), [{"y": (2,), **fixed}]),
        ("-++++++", 5, (1, [None]), [fixed]),
        ("-+", 1, (1, [None]), [fixed]),
    ]


def test_a_value_is_a_tensor_of_elements_of_one_size() -> None:
    onnx_shapes.refuse_type(onnx.ValueInfoProto(name="v"), "from")
    onnx_shapes.refuse_type(value("v", None, FLOAT), "from")
    with pytest.raises(UnreadableInput, match="of the type STRING"):
        onnx_shapes.refuse_type(value("v", [2], STRING), "from")
    said = {"sequence": "a sequence", "optional": "an optional", "map": "a map", "sparse_tensor": "a sparse tensor"}
    for kind, says in {**said, "opaque": "opaque_type"}.items():
        info = onnx.ValueInfoProto(name="v")
        getattr(info.type, f"{kind}_type").SetInParent()
        with pytest.raises(UnreadableInput, match=f'"v" is {says}, which') as caught:
            onnx_shapes.refuse_type(info, "from")
        assert caught.value.source == "from"


def test_what_cannot_be_inferred_is_told_in_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any, **how: Any) -> None:
        raise RuntimeError("\n no way\nbehind")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", fails)
    with pytest.raises(InvalidIrShapes, match="cannot be inferred: no way Check") as caught:
        onnx_shapes._once(model([], [], []), "from", propagate=False)
    assert (caught.value.diagnostics["reason"], caught.value.diagnostics["source"]) == ("shape_inference", "from")


def test_of_a_node_that_is_not_as_its_operator_says_the_rest_is_told() -> None:
    """Numbers of two kinds are added, and floats are said to be integers: what follows is inferred all the same."""
    nodes = [op("Add", "x n", "y"), op("Relu", "x", "z"), op("Relu", "x", "u")]
    proto = model(nodes, [*sized(x=[3]), value("n", [3], INT64)], [*sized(u=None), value("z", [3], INT64)])
    assert onnx_shapes._once(proto, "from", propagate=False)["u"] == (1, [3])


def test_a_condition_is_decided_where_its_value_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [helper.make_node("If.close", [name, "wrong"], ["y"], domain="tmmu.scope") for name in ("a", "b")]
    weights = {name: np.array([True]) for name in ("b", "c", "wrong")}
    proto = model(nodes, [], [], weights)
    monkeypatch.setattr(onnx_shapes, "inferred_with_values", lambda model, name: ({}, model))
    assert list(onnx_shapes.decided(proto, "from")) == ["b"]
    del proto.graph.node[:]
    monkeypatch.delattr(onnx_shapes, "inferred_with_values")
    assert onnx_shapes.decided(proto, "from") == {}, "nothing is inferred for nobody"
