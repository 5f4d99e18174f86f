"""What is asked of onnxruntime and what is made of its answers, without it: the child answers from a script."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.graph.test_onnx import model, op, value
from tmmu_core.graph.importers import onnx as onnx_importer
from tmmu_core.graph.importers import onnx_complete
from tmmu_core.graph.importers.onnx_complete import Run
from tmmu_core.graph.importers.onnx_scope_shapes import bodies
from tmmu_core.graph.importers.onnx_scopes import SCOPE, Flat

UNTYPED = TensorProto.UNDEFINED


class Child:
    """Answers as it is told to, and keeps what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answer: Any) -> None:
        self.requests: list[bytes] = []
        self.answer = answer
        monkeypatch.setattr(onnx_complete, "_ask", self)

    def __call__(self, request: bytes) -> dict[str, Any]:
        self.requests.append(request)
        return self.answer

    def asked(self) -> Any:
        """The first line of what it was asked last."""
        return json.loads(self.requests[-1].partition(b"\n")[0])


@pytest.mark.parametrize(
    ("sympy", "operators", "asked"),
    [(True, [], True), (False, [], False), (True, ["Loop.close"], False), (False, ["Loop.close"], False)],
)
def test_symbols_are_asked_for_where_sympy_is_and_no_scope(
    sympy: bool, operators: list[str], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Child(monkeypatch, symbols={"y": [1, [3, 2]]})
    monkeypatch.setattr(onnx_complete, "find_spec", lambda name: object() if sympy and name == "sympy" else None)
    nodes = [op("Relu", "x", "y"), *(op(each, "y", "z", domain=SCOPE) for each in operators)]
    proto = model(nodes, [value("x", ["N", 2])], [value("y", None)])
    assert onnx_complete.symbolic(proto, {"N": 3}) == ({"y": (1, [3, 2])} if asked else {})
    assert len(child.requests) == asked
    if asked:
        bound = onnx.ModelProto.FromString(child.requests[0].removeprefix(b"{}\n"))
        assert [dim.dim_value for dim in bound.graph.input[0].type.tensor_type.shape.dim] == [3, 2]
    child.answer = {"failed": "why"}
    assert onnx_complete.symbolic(proto, {}) == {}


def measured(proto: onnx.ModelProto, points: list[dict[str, int]]) -> Run:
    data = proto.SerializeToString()
    return onnx_complete.measure(data, onnx_importer.flattened(onnx.ModelProto.FromString(data)), points)


def chain(*inputs: onnx.ValueInfoProto) -> onnx.ModelProto:
    """``x → h → y``, with a weight that is an input too before all others."""
    given = [value("w", [2]), *(inputs or (value("x", ["N", 2]),))]
    return model([op("Relu", "x", "h"), op("Neg", "h", "y")], given, [value("y", None)], {"w": np.ones(2, np.float32)})


def event(node: str, *shape: int) -> list[Any]:
    return [node, [["float", list(shape)]]]


def test_what_all_runs_wrote_alike_is_known_at_the_point_that_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [event("#1", 4), event("#2", 4, 2)]
    child = Child(monkeypatch, runs=[first, [event("#1", 5), event("#2", 4, 2)], [event("#1", 4)]], point=1)
    points = [{"N": 3}, {"N": 7}]
    assert measured(chain(), points) == Run({"N": 7}, {"y": (1, [4, 2])})
    assert child.asked() == {"inputs": [["x", "float32", ["N", 2]]], "points": points}
    child.answer = {"runs": [first], "point": 0}
    assert measured(chain(), []) == Run({}, {"h": (1, [4]), "y": (1, [4, 2])})
    assert child.asked()["points"] == [{}]
    child.answer = {"failed": "for a reason"}
    assert measured(chain(), points) == Run(failed="for a reason")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        *(([value("x", None)], "has no size to run with"), ([value("x", [2], UNTYPED)], "has no size to run with")),
        *(([value("x", [2]), value("q", None)], '"q" has no size'), ([value("x", [])], "")),
    ],
)
def test_a_model_runs_where_every_input_has_a_size(
    given: list[onnx.ValueInfoProto], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Child(monkeypatch, failed="asked")
    found = measured(chain(*given), [{}]).failed
    assert why in found
    assert (found == "asked") is (why == "")
    assert len(child.requests) == (why == "")


@pytest.mark.parametrize(("past", "why"), [(0, "asked"), (1, 'the input "x" is too large to run with')])
def test_an_input_is_as_large_as_a_model_may_be(past: int, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first point that is tried, and of all its sizes."""
    Child(monkeypatch, failed="asked")
    monkeypatch.setattr(onnx_complete, "MOST_MODEL_BYTES", 3000)
    assert measured(chain(), [{"N": 1500 + past}, {"N": 9999}]).failed == why
    assert measured(chain(value("x", [3000 + past])), [{}]).failed == why


@pytest.mark.parametrize("past", [0, 1])
def test_a_model_is_as_large_as_it_may_be(past: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Child(monkeypatch, failed="asked")
    size = len(chain(value("x", [2])).SerializeToString())
    monkeypatch.setattr(onnx_complete, "MOST_MODEL_BYTES", size - past)
    found = measured(chain(value("x", [2])), [{}]).failed
    assert found == (f"the model is larger than {size - 1} bytes" if past else "asked")


def test_an_if_has_two_bodies_and_a_loop_one() -> None:
    scopes = ("If.open", "If.close", "Loop.open", "Loop.close", "Scan.close", "If.close", "copy")
    nodes = [*(op(each, "a", "b", domain=SCOPE) for each in scopes), op("Other.close", "a", "b", domain="own")]
    proto = model(nodes, [], [])
    assert bodies(Flat(proto, ())) == 6
    assert bodies(Flat(model([], [], []), ())) == 0
