"""How the child that asks onnxruntime is started and heard, at which sizes it tries, and where its answers go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import helper

from tests.graph.test_onnx import model, op, value
from tests.graph.test_onnx_flat import ENDS, STATES, body
from tmmu_core import limits
from tmmu_core.errors import UnreadableInput
from tmmu_core.graph.importers import onnx_complete
from tmmu_core.graph.importers.onnx_complete import MEASURED, WAIT, complete, missing, points_to_try
from tmmu_core.graph.importers.onnx_scopes import Flat, flatten
from tmmu_core.graph.importers.onnx_shapes import Facts, Sizes
from tmmu_core.graph.model import Dim
from tmmu_core.runtime import measure as measuring


class Process:
    """``subprocess.run`` that ends as it is told to, and keeps how it was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends: Any = None
        self.called: Any = None
        monkeypatch.setattr(subprocess, "run", self)

    def __call__(self, command: list[str], **how: Any) -> Any:
        self.called = command, how
        if isinstance(self.ends, Exception):
            raise self.ends
        code, out = self.ends
        return SimpleNamespace(returncode=code, stdout=out)


def test_a_child_that_says_nothing_in_its_time_or_memory_is_told_by_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    monkeypatch.setattr(sys, "path", ["", "a", "b"])

    def answered(*ends: Any) -> dict[str, Any]:
        process.ends = ends[0] if len(ends) == 1 else ends
        return onnx_complete._ask(b"request")

    with limits.raised({"run-seconds": 7, "run-bytes": 99}):
        assert answered(0, b'{"a": 1}') == answered(signal.SIGKILL, b'{"a": 1}') == {"a": 1}
        command, how = process.called
        late = [
            answered(-signal.SIGXCPU, b'{"a": 1}'),
            answered(-signal.SIGKILL, b""),
            answered(subprocess.TimeoutExpired("", 1)),
        ]
        lost = [answered(1, b""), answered(OSError()), answered(-signal.SIGSEGV, b"{")]
    assert command == [sys.executable, "-m", "tmmu_core.graph.importers.onnx_measure", "7", "99"]
    assert how.pop("env") == {**os.environ, "PYTHONPATH": os.pathsep.join("ab")}
    assert how == {"input": b"request", "capture_output": True, "timeout": 7 * WAIT, "check": False}
    assert late == [{"failed": "the run took more than 7 seconds of processor time (--max-run-seconds)"}] * 3
    assert lost == [{"failed": "the run ended without an answer, perhaps for memory (--max-run-bytes)"}] * 3


def test_a_measuring_child_gives_its_memory_back_at_once_and_says_something(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    monkeypatch.setattr(sys, "path", ["", "a", "b"])
    process.ends = 0, b"answer"
    assert measuring._ask(b"request", "m.onnx") == b"answer"
    command, how = process.called
    assert command == [sys.executable, "-m", "tmmu_core.runtime.measure_child"]
    given = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TRIM_THRESHOLD_": "0", "PYTHONPATH": os.pathsep.join("ab")}
    assert how.pop("env") == {**os.environ, **given}
    assert how == {"input": b"request", "capture_output": True, "timeout": measuring.SECONDS, "check": False}
    measuring._ask(b"", "m.onnx", "another")
    assert process.called[0][2] == "another"
    silent = "ended without an answer"
    for ends, says in (((0, b""), silent), ((1, b"answer"), silent), ((1, b""), silent)):
        process.ends = ends
        with pytest.raises(UnreadableInput, match=says) as caught:
            measuring._ask(b"", "m.onnx")
        assert caught.value.source == "m.onnx"
    process.ends = subprocess.TimeoutExpired("", 1)
    with pytest.raises(UnreadableInput, match=f"took more than {measuring.SECONDS} seconds"):
        measuring._ask(b"", "m.onnx")


# --- where it is tried -------------------------------------------------------------------------------------------


def test_lengths_are_tried_at_usual_sizes_one_then_two_then_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """``d`` is past the three that are varied, ``g`` is given, ``n`` counts things side by side, ``s`` stands lower."""
    monkeypatch.setattr(onnx_complete, "USUAL_LENGTHS", (48, 512, 7))
    monkeypatch.setattr(onnx_complete, "MOST_LENGTHS", 3)
    assumed = {"c": 512, "b": 512, "a": 512, "d": 512, "n": 1, "s": 9}
    sizes = Sizes({**{name: Dim(1, 512) for name in "abcdngs"}}, assumed)
    stands = dict.fromkeys("abcdg", 512) | {"n": 1, "s": 9}
    chosen = ["a", "b", "c", "ab", "ac", "bc", "abc"]
    moved = [stands | dict.fromkeys(names, size) for names in chosen for size in (48, 7)]
    assert points_to_try(sizes) == [stands, *moved]
    assert points_to_try(Sizes({"n": Dim(1, 8)}, {"n": 1})) == [{"n": 1}]
    assert points_to_try(Sizes()) == [{}]


# --- where its answers go ----------------------------------------------------------------------------------------


def test_each_node_is_called_by_a_number_and_its_results_as_they_are_flat() -> None:
    deep = body([op("Exp", "x", "h")], [], ["h"])
    turned = body(
        [op("Identity", "go", "on"), op("Add", "s _", "t _"), op("If", "d", "q", then_branch=deep, else_branch=deep)],
        STATES,
        ["on", "u", "q", "t"],
    )
    nodes = [
        op("Split", "x", "a _ b"),
        op("Loop", "n c a b", "y _ p", name="loop", body=turned),
        op("Own.close", "x", "z", domain="own", name="same"),
        op("Identity", "x", "w", name="own.copy"),
        op("Relu", "x", "v", name="other.copy"),
    ]
    proto = model(nodes, ENDS, [])
    flat = flatten(onnx.ModelProto.FromString(proto.SerializeToString()))
    named = dict(onnx_complete._name_nodes(proto.graph, flat))
    assert named == {
        "#1": ["a", "b"],
        "#2": ["loop/on"],
        "#3": ["loop/t"],
        "#4": ["loop/If_2/else/h"],
        "#5": ["loop/If_2/then/h"],
        "#6": ["loop/q"],
        "#7": ["y", "p"],
        "#8": ["z"],
        "#9": [],
        "#10": ["v"],
    }
    assert [node.name for node in proto.graph.node] == ["#1", "#7", "#8", "#9", "#10"]


def test_what_is_told_is_taken_where_nothing_was_known_and_scopes_follow() -> None:
    nodes = [op("Own", "x", f"{name} _") for name in ("whole", "shaped", "typed", "new", "odd", "unknown", "e")]
    nodes.append(helper.make_node("If.close", ["c", "new", "e"], ["y"], domain="tmmu.scope"))
    nodes.append(helper.make_node("If.close", ["c", "y", "y"], ["z"], domain="tmmu.scope"))
    flat = Flat(model(nodes, [], []), ())
    facts = Facts({"whole": (2,), "shaped": (3,), "x": ("N", 1)}, {"whole": "float32", "typed": "int8", "x": "float32"})
    assert missing(flat, facts) == ["shaped", "typed", "new", "odd", "unknown", "e", "y", "z"]
    run: Any = {name: (7, [4, 5]) for name in ("whole", "shaped", "typed", "new", "e", "nobodys")}
    complete(flat, facts, {**run, "odd": (8, [4])}, MEASURED)
    taken = dict.fromkeys(("shaped", "typed", "new", "e", "y", "z"), (4, 5))
    assert facts.shape == {"whole": (2,), "x": ("N", 1), **taken}
    kinds = {"whole": "float32", "x": "float32", "typed": "int8"}
    assert facts.dtype == {**kinds, **dict.fromkeys(("shaped", "new", "e", "y", "z"), "int64")}
    assert facts.derived == set(taken)
    assert facts.origin == dict.fromkeys(taken, "measured")


@pytest.mark.parametrize(("kind", "shape"), [(7, ["N", 2]), (7, [None, 2]), (8, [3, 2])])
def test_of_what_follows_for_scopes_whole_tensors_of_a_size_are_taken(
    kind: int, shape: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are sizes; what is open, of words or known already is left."""
    asked = []

    def follows(model: Any, known: Any, values: Any) -> Any:
        asked.append(dict(known))
        return {"y": (kind, shape), "z": (kind, [1])}

    monkeypatch.setattr(onnx_complete, "scope_shapes", follows)
    facts = Facts({"z": (1,)}, {"z": "int64"})
    complete(Flat(model([op("Own", "x", "y")], [value("x", [2])], []), ()), facts, {}, MEASURED)
    whole = kind == 7 and None not in shape
    assert facts.shape == {"z": (1,), **({"y": tuple(shape)} if whole else {})}
    assert asked[0] == {"z": (7, [1])}
    assert asked[1:] == ([{"z": (7, [1]), "y": (7, shape)}] if whole else [])
    assert json.dumps(sorted(facts.derived)) == ('["y"]' if whole else "[]")
