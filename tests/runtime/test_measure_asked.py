"""What is asked of the runtimes that are measured and what is made of their answers, without them: from a script."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.graph.test_onnx import model, op, value
from tmmu_core.errors import UnreadableInput
from tmmu_core.runtime import measure as measuring
from tmmu_core.runtime import onnx_run
from tmmu_core.runtime.measure import EAGER, EXECUTORCH, LITERT, ONNXRUNTIME, Figures, Measured

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize(
    ("which", "room", "dims"),
    [
        *((LITERT, "_litert", ()), (EXECUTORCH, "_executorch", ()), (EAGER, "_eager", ({"N": 2},))),
        (ONNXRUNTIME, "_onnxruntime", ({"N": 2},)),
    ],
)
def test_each_runtime_is_asked_in_its_own_way(
    which: str, room: str, dims: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read and never run at other sizes is not told of them."""
    asked: list[Any] = []
    monkeypatch.setattr(measuring, "runtime_of", lambda data: which)
    for name in ("_litert", "_executorch", "_eager", "_onnxruntime"):
        monkeypatch.setattr(measuring, name, lambda *given, name=name: asked.append((name, *given)))
    measuring.measure(b"data", "m", {"N": 2})
    measuring.measure(b"data", "m")
    without = {"_eager": ({},), "_onnxruntime": (None,)}.get(room, ())
    assert asked == [(room, b"data", "m", *dims), (room, b"data", "m", *without)]


def relu(shape: list[int | str | None], times: int = 1) -> bytes:
    names = [*(f"h{k}" for k in range(times - 1)), "y"]
    nodes = [op("Relu", before, name) for before, name in zip(["x", *names], names, strict=False)]
    return model(nodes, [value("x", shape)], [value("y", None)]).SerializeToString()


class Child:
    """Answers of the measured process: how memory grew with its arena and without it, and the model that it runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rewritten: bytes) -> None:
        self.grown: dict[bool, Any] = {True: [10, 3, 70], False: [1, 4, 9]}
        self.rewritten = rewritten
        self.asked: list[Any] = []
        monkeypatch.setattr(measuring, "_ask", self)
        monkeypatch.setattr(onnx_run, "runtime", lambda: None)
        monkeypatch.setattr(sys, "platform", "linux")

    def __call__(self, request: bytes, name: str) -> bytes:
        head, _, taken = request.partition(b"\n")
        asked = json.loads(head)
        self.asked.append((asked, taken))
        if not asked:
            return b"{}\n" + self.rewritten
        assert asked["pattern"] is asked["arena"]
        return json.dumps(self.grown[asked["arena"]]).encode()


def as_grown(child: Child) -> Child:
    child.grown = {key: each if isinstance(each, dict) else {"grown": each} for key, each in child.grown.items()}
    return child


def test_onnxruntimes_arena_is_its_first_run_and_its_pattern_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    data = relu(["N", 3])
    child = as_grown(Child(monkeypatch, relu([1, 5])))
    found = measuring.measure(data, "m.onnx")
    assert found == Measured(
        *("m.onnx", ONNXRUNTIME, 13, {"arena": 10, "pattern": 3, "no_arena": 4}),
        *(Figures(12, 12, 12), Figures(20, 20, 20), {"N": 1}),
    )
    inputs = [["x", "float32", [1, 3]]]
    asked = [{"inputs": inputs, "arena": arena, "pattern": arena} for arena in (True, False)]
    assert child.asked == [(asked[0], data), (asked[1], data), ({}, data)]
    assert found.planned == Figures(20, 20, 20)
    child.rewritten = relu(["N", 3])
    found = measuring.measure(data, "m.onnx", {"N": 64})
    assert (found.given, found.run, found.sizes) == (Figures(768, 768, 768), Figures(768, 768, 768), {"N": 64})
    assert child.asked[3][0]["inputs"] == [["x", "float32", [64, 3]]]
    assert measuring.measure(relu(["N", "T"]), "m.onnx", {"N": 4}).sizes == {"N": 4, "T": 512}
    child.rewritten = b"what nobody reads"
    found = measuring.measure(data, "m.onnx")
    assert (found.run, found.planned) == (None, Figures(12, 12, 12))
    child.grown[True] = {"failed": "no such kernel."}
    with pytest.raises(UnreadableInput, match=r"onnxruntime does not run the model: no such kernel\.\n?Give") as caught:
        measuring._grown(data, "m.onnx", [], arena=True)
    assert caught.value.source == "m.onnx"
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnreadableInput, match="measured through Linux's /proc"):
        measuring.measure(data, "m.onnx")


def test_litert_says_what_its_arena_holds_beyond_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"arena": 100, "tensors": 60, "scratch": 7}
    asked: list[Any] = []
    monkeypatch.setattr(measuring, "find_spec", lambda name: asked.append(name) or object())
    monkeypatch.setattr(measuring, "_answer", lambda *given: asked.append(given) or answer)
    data = (DATA / "tflite" / "hello_world_int8.tflite").read_bytes()
    found = measuring.measure(data, "m.tflite")
    assert (found.theirs, found.runtime, found.run, found.sizes) == (100, LITERT, None, {})
    assert found.figures == {"arena": 100, "beyond_tensors": 40, "scratch_tensors": 7}
    assert (found.given.bound, found.given.inputs) == (144, 1)
    assert asked == [
        "ai_edge_litert",
        ("tmmu_core.runtime.measure_litert", data, "m.tflite", "LiteRT does not run the model"),
    ]


def test_eager_says_what_was_allocated_beside_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"allocated": 100, "tensors": 60, "steps": [60, 9]}
    asked: list[Any] = []
    monkeypatch.setattr(measuring, "find_spec", lambda name: asked.append(name) or object())
    monkeypatch.setattr(measuring, "_answer", lambda *given: asked.append(given) or answer)
    data = (DATA / "torch" / "open_sizes.pt2").read_bytes()
    found = measuring.measure(data, "m.pt2")
    assert (found.theirs, found.runtime, found.run, found.steps) == (100, EAGER, None, (60, 9))
    assert found.figures == {"allocated": 100, "tensors": 60, "scratch": 40}
    module, request, *rest = asked[1]
    assert (asked[0], module, rest) == (
        "torch",
        "tmmu_core.runtime.torch_eager",
        ["m.pt2", "PyTorch does not run the program"],
    )
    symbols, _, behind = request.partition(b"\n")
    assert behind == data
    assert (json.loads(symbols), found.sizes) == ({}, {"x.0": 4, "y.0": 6})
    smaller = measuring.measure(data, "m.pt2", {"x.0": 2})
    assert smaller.sizes == {"x.0": 2, "y.0": 6}
    assert list(json.loads(asked[3][1].partition(b"\n")[0]).values()) == [2]
    assert smaller.given.inputs < found.given.inputs == 176


def test_an_executorch_programs_arena_is_read_and_its_inputs_are_its_own() -> None:
    found = measuring.measure((DATA / "given" / "executorch_small.pte").read_bytes(), "small.pte")
    assert (found.theirs, found.figures, found.run, found.sizes) == (22_616, {"planned": 22_616}, None, {})
    assert found.given == Figures(22_608, 22_608, 768)
