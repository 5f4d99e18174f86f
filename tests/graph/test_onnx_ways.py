"""Which way a model goes from its bytes to a graph: what is tried behind what, and what is said in the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.graph.test_onnx import model, op, read, tensors, value
from tests.graph.test_onnx_scopes import body, loop_model
from tmmu_core.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.graph.importers import onnx as importer
from tmmu_core.graph.importers import onnx_complete, onnx_functions
from tmmu_core.graph.importers.onnx_complete import Run
from tmmu_core.graph.importers.onnx_scope_shapes import AT_MOST
from tmmu_core.graph.importers.onnx_shapes import Facts, Sizes
from tmmu_core.graph.model import Dim, Graph

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL


def failure(reason: str, hint: str = "") -> InvalidIrShapes:
    return InvalidIrShapes(reason, hint=hint, reason=reason, source="m.onnx")


PLAIN = model([op("Relu", "x", "y")], [value("x", [2])], [value("y", [2])])


# --- whose fault it is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [KeyError, IndexError, TypeError, ValueError])
def test_a_fault_is_the_models_where_its_checker_says_so_and_else_the_programs(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any) -> Graph:
        raise kind("within")

    monkeypatch.setattr(importer, "_read", fails)
    with pytest.raises(AssertionError, match="on a model without a fault") as ours:
        importer.read(PLAIN.SerializeToString(), "m.onnx")
    assert isinstance(ours.value.__cause__, kind)
    broken = model([op("Relu", "nobodys", "y")], [value("x", [2])], [value("y", [2])])
    with pytest.raises(UnreadableInput, match="the ONNX model is not valid: ") as theirs:
        importer.read(broken.SerializeToString(), "m.onnx")
    assert theirs.value.source == "m.onnx"


def test_envelopes_are_those_that_are_given_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(importer, "_read", lambda data, model, name, envelopes: asked.append((name, envelopes)))
    importer.read(PLAIN.SerializeToString())
    importer.read(PLAIN.SerializeToString(), "m.onnx", {"N": Dim(1, 2)})
    assert asked == [("", {}), ("m.onnx", {"N": Dim(1, 2)})]


# --- what is tried behind what -----------------------------------------------------------------------------------


class Script:
    """The rooms of the importer, each of which answers as it is told to: a graph, or the reason that it fails for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
        self.answers = list(answers)
        self.said: list[Any] = []
        self.larger = self.known = True
        self.bars = ""
        self.run = Run()
        monkeypatch.setattr(importer, "_built", self.built)
        monkeypatch.setattr(importer, "by_the_largest", lambda *given: self.note("largest") and self.larger)
        monkeypatch.setattr(importer, "infer", lambda *given: self.note("infer") and Facts())
        monkeypatch.setattr(importer, "without_dead_branches", self.without)
        monkeypatch.setattr(onnx_complete, "barred", lambda: self.bars)
        monkeypatch.setattr(onnx_complete, "symbolic", lambda *given: {"y": (1, [2])} if self.known else {})
        monkeypatch.setattr(onnx_complete, "measure", lambda *given: self.note("run") and self.run)
        monkeypatch.setattr(onnx_complete, "complete", lambda flat, facts, known, origin: self.note(origin))

    def note(self, what: Any) -> bool:
        self.said.append(what)
        return True

    def without(self, flat: Any, values: Any) -> Any:
        if values:
            self.note({name: array.item() for name, array in values.items()})
        return flat

    def built(self, *given: Any) -> Graph:
        self.note("build")
        answer = self.answers.pop(0)
        if not answer:
            return Graph(name="g", dims={"N": Dim(1, 8)})
        raise failure(answer)

    def read(self) -> tuple[list[Any], Any]:
        """What was done, and the graph or the reason."""
        self.said = []
        sizes = Sizes({"N": Dim(1, 8), "T": Dim(2, 3)}, {"N": 4})
        flat = importer.flattened(onnx.ModelProto.FromString(PLAIN.SerializeToString()))
        try:
            graph = importer._completed(b"", flat, Facts(), sizes, failure("unknown_shape"))
        except InvalidIrShapes as error:
            return self.said, error
        return self.said, (graph.name, graph.dims, sizes.assumed)


HELD = {"N": Dim(4, 4), "T": Dim(2, 3)}


def test_symbols_are_asked_before_a_run_and_what_is_told_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, "")
    assert script.read() == (["symbolic", "build"], ("g", HELD, {"N": 4}))
    script.answers, script.run = ["unknown_shape", ""], Run({"N": 4, "T": 3})
    assert script.read() == (["symbolic", "build", "run", "measured", "build"], ("g", HELD, {"N": 4}))
    script.known, script.answers = False, [""]
    assert script.read() == (["run", "measured", "build"], ("g", HELD, {"N": 4}))


def test_where_the_model_ran_elsewhere_it_is_inferred_there(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, "")
    script.known, script.run = False, Run({"N": 9, "T": 3})
    there = {"N": Dim(9, 9), "T": Dim(2, 3)}
    assert script.read() == (["run", "infer", "measured", "build"], ("g", there, {"N": 9}))
    script.answers, script.run = [""], Run({"N": 9, "T": 3}, failed="no")
    assert script.read() == (["run", "measured", "build"], ("g", HELD, {"N": 4}))


def test_branches_that_no_run_took_are_left_out_and_the_name_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, "unknown_shape", "")
    script.known, script.run = False, Run({"N": 4, "T": 3}, taken={"c": True})
    done = ["run", "measured", "build", {"c": True}, "infer", "measured", "build"]
    assert script.read() == (done, ("g (1 branch as one run took it)", HELD, {"N": 4}))
    script.answers, script.run = ["scope_shape", ""], Run({"N": 4, "T": 3}, taken={"c": True, "d": False})
    done[3] = {"c": True, "d": False}
    assert script.read() == (done, ("g (2 branches as one run took them)", HELD, {"N": 4}))
    script.answers = ["unknown_shape", "two_producers"]
    said, error = script.read()
    assert (said, error.diagnostics["reason"]) == (done, "two_producers")
    assert error.hint.endswith("give others: --dims N=4")


def test_a_refusal_says_why_no_run_told_it(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, "unknown_shape", "unknown_shape")
    script.run = Run(failed="it is Tuesday.")
    said, error = script.read()
    assert said == ["symbolic", "build", "run", "measured", "build"]
    assert " A run of the model does not tell it either: it is Tuesday. Sizes that" in error.hint
    script.run, script.answers = Run({"N": 4, "T": 3}), ["unknown_shape", "unknown_shape"]
    assert "A run" not in script.read()[1].hint
    script.bars = "turn it on"
    said, error = script.read()
    assert said == []
    assert " Or let one run of the model tell it: turn it on Sizes that" in error.hint


@pytest.mark.parametrize(
    ("answers", "larger", "done", "says"),
    [
        *(([""], True, ["build"], "g"), (["two_producers"], True, ["build"], "two_producers")),
        *((["scope_shape", ""], True, ["build", "largest", "build"], "g"),),
        *((["scope_shape"], False, ["build", "largest"], "scope_shape"),),
        *((["scope_shape", "scope_shape"], True, ["build", "largest", "build"], "scope_shape"),),
        *((["unknown_shape"], True, ["build", "completed"], "g"),),
        *((["scope_shape", "unknown_shape"], True, ["build", "largest", "build", "completed"], "g"),),
    ],
)
def test_a_state_that_changes_is_planned_by_the_largest_and_what_is_unknown_is_asked(
    answers: list[str], larger: bool, done: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch, *answers)
    script.larger = larger
    monkeypatch.setattr(importer, "_completed", lambda *given: script.note("completed") and Graph(name="g"))
    monkeypatch.setattr(importer, "infer", lambda *given: Facts())
    proto = model([op("Relu", "x", "y")], [value("x", ["N"])], [value("y", None)])
    if says == "g":
        graph = importer.read(proto.SerializeToString(), "m.onnx")
        assert graph.name == says
        assert graph.dims == ({} if done[-1] == "completed" else {"N": Dim(1, 1 if "largest" in done else 8)})
    else:
        with pytest.raises(InvalidIrShapes, match=says) as caught:
            importer.read(proto.SerializeToString(), "m.onnx")
        assert caught.value.diagnostics["reason"] == says
        assert caught.value.hint.endswith("--dims N=1")
    assert script.said == done


@pytest.mark.parametrize(
    ("assumed", "hint", "after"),
    [
        ({}, "Do.", "Do."),
        ({"N": 4}, "Do.", "Do. Sizes that the model leaves open were assumed; give others: --dims N=4"),
        ({"N": 4}, "Say --dims K=1.", "Say --dims K=1."),
        ({}, "Say --dims K=1.", "Say --dims K=1."),
    ],
)
def test_sizes_that_were_assumed_are_told_once(assumed: dict[str, int], hint: str, after: str) -> None:
    error = failure("why", hint)
    assert importer._with_dims(error, Sizes({"N": Dim(1, 8)}, assumed)) is error
    assert error.hint == after


def test_a_trip_count_is_a_dimension_unless_one_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """``n`` is how often the loop runs, and is bounded by what is said of it; as a size it is bounded once."""
    inner = body(
        [op("Tanh", "s", "t"), op("Identity", "go", "on")],
        [value("i", [], 7), value("go", [], BOOL), value("s", None)],
        ["on", "t", "t"],
    )
    proto = loop_model(inner, outputs="y ps")
    graph = importer.read(proto.SerializeToString(), "m.onnx", {"n": Dim(1, 6)})
    assert (graph.dims, tensors(graph)["ps"].shape) == ({"n": Dim(1, 6)}, (6, 2, 3))
    proto.graph.input.append(value("q", ["n", 3]))
    seen: list[Any] = []
    monkeypatch.setattr(importer, "say_trips", lambda flat, envelopes: {"n": Dim(9, 9), "m": Dim(1, 2)})
    monkeypatch.setattr(importer, "_built", lambda flat, facts, sizes, name: seen.append(sizes.dims) or Graph())
    importer.read(proto.SerializeToString(), "m.onnx")
    assert seen == [{"n": Dim(1, 8), "m": Dim(1, 2)}]
    assert AT_MOST == "at_most"


@pytest.mark.parametrize("said", [None, ["N", 4]])
def test_sizes_are_held_where_branches_agree_there_alone(said: Any) -> None:
    """Whether the model says the size of what comes out of them or not."""
    weights = {"w": np.ones((1, 4), np.float32)}
    alike, one = body([op("Exp", "x", "r")], [], ["r"]), body([op("Exp", "w", "r")], [], ["r"], weights)
    for other, held in ((alike, False), (one, True)):
        flow = op("If", "c", "y", then_branch=body([op("Neg", "x", "r")], [], ["r"]), else_branch=other)
        graph = read(model([flow], [value("x", ["N", 4]), value("c", [], BOOL)], [value("y", said)]))
        assert graph.dims == {"N": Dim(1, 1 if held else 8)}


# --- what a file is ----------------------------------------------------------------------------------------------


def test_a_model_without_nodes_or_sets_or_outputs_is_none() -> None:
    for proto, says in (
        (onnx.ModelProto(), "has no nodes"),
        (model([], [value("x", [2])], []), "has no nodes"),
        (model([op("Relu", "x", "y")], [value("x", [2])], []), "has no outputs"),
    ):
        with pytest.raises(UnreadableInput, match=says) as caught:
            importer.read(proto.SerializeToString(), "m.onnx")
        assert caught.value.source == "m.onnx"
    bare = onnx.ModelProto()
    bare.CopyFrom(PLAIN)
    del bare.opset_import[:]
    with pytest.raises(UnreadableInput, match="names no operator set"):
        importer.read(bare.SerializeToString(), "m.onnx")
    with pytest.raises(UnreadableInput, match=r"cut off or damaged \(it has 9 bytes\)"):
        importer.read(PLAIN.SerializeToString()[:9], "m.onnx")


def test_sparse_weights_and_values_of_other_kinds_are_refused_wherever_they_stand() -> None:
    def within(inner: onnx.GraphProto) -> onnx.ModelProto:
        flow = op("If", "c", "y", then_branch=inner, else_branch=inner)
        return model([flow], [value("c", [], BOOL)], [value("y", None)])

    inner = body([op("Relu", "x", "r")], [], ["r"])
    inner.sparse_initializer.add().values.name = "w"
    with pytest.raises(UnreadableInput, match='the weight "w" is sparse') as caught:
        importer.read(within(inner).SerializeToString(), "m.onnx")
    assert caught.value.place == "graph.node[0].else_branch.sparse_initializer[0]"
    for field in ("input", "value_info", "output"):
        inner = body([op("Relu", "x", "r")], [], ["r"])
        kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
        getattr(inner, field).append(helper.make_value_info("q", kind))
        with pytest.raises(UnreadableInput, match='"q" is a sequence'):
            importer.read(within(inner).SerializeToString(), "m.onnx")


def test_every_name_of_a_graph_is_one_of_its_texts() -> None:
    node = op("Relu", "a b", "c", name="n", domain="d", alpha=1, beta=2)
    graph = helper.make_graph(
        [node], "g", [value("i", [1])], [value("o", [1])], [numpy_helper.from_array(np.ones(1), "w")]
    )
    graph.value_info.append(value("v", [1]))
    assert list(importer._texts(graph)) == ["g", "Relu", "d", "n", "a", "b", "c", "alpha", "beta", "i", "o", "v", "w"]


def test_values_of_weights_are_kept_up_to_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the graph, in a body and in attributes, whichever field holds them; what is none stays as it is."""
    monkeypatch.setattr(importer, "KEPT_ELEMENTS", 3)

    def weights(name: str) -> list[TensorProto]:
        fields = (("float_data", 1), ("int32_data", 6), ("int64_data", 7), ("double_data", 11), ("uint64_data", 13))
        typed = [helper.make_tensor(f"{name}{f}{n}", kind, [n], [1] * n) for f, kind in fields for n in (3, 4)]
        raw = [numpy_helper.from_array(np.ones(shape, np.int8), f"{name}{shape}") for shape in ((3,), (4,), (2, 2), ())]
        return [*typed, *raw]

    inner = body([op("Constant", "", "k", value=weights("k")[1])], [], ["k"])
    inner.initializer.extend(weights("b"))
    flow = op("If", "c", "y", then_branch=inner, else_branch=body([], [], ["x"]))
    proto = model(
        [op("Constant", "", "v", value=weights("v")[3]), flow, op("Constant", "", "s", value=weights("s")[2])], [], []
    )
    proto.graph.initializer.extend(weights("w"))
    importer._drop_weights(proto)
    both = [*proto.graph.initializer, *proto.graph.node[1].attribute[1].g.initializer]
    both += [proto.graph.node[0].attribute[0].t, proto.graph.node[2].attribute[0].t]
    both.append(proto.graph.node[1].attribute[1].g.node[0].attribute[0].t)
    assert len(both) == 31
    for weight in both:
        numbers = sum(len(getattr(weight, name)) for name in importer._DATA_FIELDS)
        assert (numbers > 0) == (np.prod(list(weight.dims), dtype=int) <= 3), weight.name


def test_a_model_is_of_the_version_from_which_weights_are_no_inputs_at_least() -> None:
    for version, after in ((3, 4), (4, 4), (8, 8)):
        proto = onnx.ModelProto()
        proto.CopyFrom(PLAIN)
        proto.ir_version = version
        assert importer.flattened(proto).model.ir_version == after


def test_a_function_that_cannot_be_written_out_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = helper.make_function("own", "Twice", ["a"], ["b"], [op("Add", "a a", "b")], [helper.make_opsetid("", 17)])
    proto = model([op("Twice", "x", "y", domain="own")], [value("x", [2])], [value("y", [2])], functions=[twice])

    def fails(given: onnx.ModelProto) -> onnx.ModelProto:
        raise RuntimeError("\nfirst\nsecond")

    monkeypatch.setattr(onnx_functions.inliner, "inline_local_functions", fails)
    with pytest.raises(UnreadableInput, match='"own::Twice" cannot be inlined: first') as caught:
        onnx_functions.inlined(proto, "m.onnx")
    assert caught.value.source == "m.onnx"
    assert onnx_functions.inlined(PLAIN, "m.onnx") is PLAIN
