"""Dynamic sizes are assumed, reported or given; shapes that inference does not find are measured by a run."""

import json
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tmmu_core as tmmu
from app.cli.main import run
from tests.formats.onnx.test_onnx import FLOAT, model, op, read, tensors, value
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.onnx import onnx_shape_run
from tmmu_core.formats.open_file import read_at, read_within
from tmmu_core.graph.checks import assumed_at, assumed_text
from tmmu_core.graph.model import Dim
from tmmu_core.graph.native import native_file
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.plans.canonical import ir_hash
from tmmu_core.plans.making.engine import plan_graph

BOOL = TensorProto.BOOL


def relu(shape: list[int | str | None], out: list[int | str | None] | None = None) -> onnx.ModelProto:
    return model([op("Relu", "x", "y")], [value("x", shape)], [value("y", out)])


def pooled() -> onnx.ModelProto:
    """Return a model with a size that is not a product of names: ⌊(T − 3) / 2⌋ + 1."""
    node = op("MaxPool", "x", "y", kernel_shape=[3], strides=[2])
    return model([node], [value("x", ["N", 1, "T"])], [value("y", None)])


# --- assumed sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "assumed"),
    [(["batch_size", "N"], {"batch_size": 1, "N": 512}), (["N", 16, 8], {"N": 1}), ([16, "N"], {"N": 1})],
)
def test_n_is_no_batch_beside_another_batch_dimension(shape: list[int | str | None], assumed: dict[str, int]) -> None:
    assert read(relu(shape)).assumed == assumed


def test_assumed_sizes_are_in_the_notes_and_the_repr_of_a_plan() -> None:
    plan = tmmu.plan(relu(["batch_size", 4]).SerializeToString())
    assert "batch_size = 1" in plan.notes["assumed"]
    assert plan.notes["assumed"] in repr(plan)
    assert "batch_size = 1" in plan._repr_html_()


def test_given_size_is_not_assumed() -> None:
    graph = read_within(relu(["N", "T"]).SerializeToString(), {"T": Dim(7, 7)}, "model.onnx")
    assert (graph.assumed, graph.dims["T"]) == ({"N": 1}, Dim(7, 7))


def test_size_that_a_reshape_needs_is_used_or_required() -> None:
    to = {"to": np.array([7, 2])}
    whole = model([op("Reshape", "x to", "y", name="r")], [value("x", ["T", 2])], [value("y", None)], to)
    assert ((graph := read(whole)).dims["T"], graph.assumed, len(graph.notes)) == (Dim(7, 7), {}, 1)
    assert "T = 7" in graph.notes[0]
    nodes = [op("Shape", "x", "s", start=1), op("Squeeze", "s", "n"), op("Range", "zero n one", "i")]
    weights = {"zero": np.array(0), "one": np.array(1), "w": np.zeros((9, 2), "f4")}
    table = model([*nodes, op("Gather", "w i", "y")], [value("x", [1, "T"])], [value("y", None)], weights)
    assert ((graph := read(table)).dims["T"], graph.assumed) == (Dim(1, 9), {"T": 9})
    for file, text, wrong in ((whole, "T = 7", Dim(8, 9)), (table, "T up to 9", Dim(10, 12))):
        with pytest.raises(InvalidIrShapes, match=text):
            read_within(file.SerializeToString(), {"T": wrong}, "m.onnx")


@pytest.mark.parametrize("to", [[0, -1], [-1, 196], [1, 196]])
def test_size_of_a_classifier_is_found(to: list[int]) -> None:
    pool = op("MaxPool", "x", "p", kernel_shape=[16, 16], strides=[16, 16])
    nodes, weights = [pool, op("Reshape", "p to", "r"), op("Gemm", "r w", "y", transB=1)], np.zeros((10, 196), "f4")
    ends = [value("x", ["N", 1, "H", "W"])], [value("y", None)]
    assert read(model(nodes, *ends, {"to": np.array(to), "w": weights})).assumed == {"N": 1, "H": 224, "W": 224}


@pytest.mark.parametrize(("last", "length"), [(1, 512), (2, 2), (16, 16)])
def test_size_of_a_table_of_positions_is_found(last: int, length: int) -> None:
    ends = [value("x", ["N", "T", 2])], [value("y", None)]
    graph = read(model([op("Add", "x p", "y")], *ends, {"p": np.zeros((last, 2), np.float32)}))
    assert graph.assumed == {"N": 1, "T": length}


def test_note_has_the_option_that_changes_the_sizes() -> None:
    graph = read(relu(["N", "T"]))
    assert assumed_text(graph).endswith("--dims N=1,T=512")
    assert assumed_at(graph, {"T": 9}) == {"N": 1}
    assert assumed_text(graph, {"N": 1, "T": 9}) == ""


@pytest.mark.parametrize(("size", "pooled_size"), [(9, 4), (512, 255), (4097, 2048)])
def test_model_is_read_again_at_another_size(size: int, pooled_size: int) -> None:
    graph = read_at(read(pooled()), {"T": size}, pooled().SerializeToString())
    assert tensors(graph)["y"].shape == ("N", 1, pooled_size)


# --- notes and errors --------------------------------------------------------------------------------------------


def file_of(proto: onnx.ModelProto, folder: Path) -> str:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return str(path)


def test_first_line_has_the_assumed_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = file_of(relu(["N", "T"]), tmp_path)
    assert run(["plan", name]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("N = 1, T = 512; for other sizes: --dims N=1,T=512")
    assert run(["plan", name, "--dims", "N=4,T=16"]) == 0
    assert "--dims" not in capsys.readouterr().out


def test_json_output_has_the_assumed_sizes_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", file_of(relu(["N", 3]), tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["arenas"]["activations"]["extent_bytes"] == 12
    assert "--dims N=1" in err


def test_dims_beyond_the_assumed_bounds_are_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", file_of(pooled(), tmp_path), "--dims", "N=64,T=9", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["tensors"]
    assert {row["tensor_id"]: row["shape"] for row in rows} == {"x": [64, 1, 9], "y": [64, 1, 4]}


def test_report_has_the_assumed_sizes(tmp_path: Path) -> None:
    name, report = file_of(relu(["N", 3]), tmp_path), tmp_path / "r.html"
    assert run(["report", name, "-o", str(report)]) == 0
    assert "N = 1; for other sizes: --dims N=1" in report.read_text(encoding="utf-8")
    assert run(["report", name, "--dims", "N=2", "-o", str(report)]) == 0
    assert 'id="assumed"' not in report.read_text(encoding="utf-8")


def test_error_about_an_open_size_has_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tmmu_core.base.errors.find_spec", lambda _: None)
    with pytest.raises(InvalidIrShapes) as caught:
        read(model([op("Mystery", "x", "y", domain="own")], [value("x", ["N", "T"])], [value("y", None)]))
    assert "--dims N=1,T=512" in caught.value.hint
    assert "tmmu-plan-explorer[run]" in caught.value.hint


# --- dynamic sizes as exporters write them --------------------------------------------------------------------------


def test_minus_one_in_a_declared_output_is_an_open_size() -> None:
    proto = relu(["N", 3], [-1, 3])
    assert proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value == -1
    assert tensors(read(proto))["y"].shape == ("N", 3)


def test_question_mark_is_no_dimension_name() -> None:
    graph = read(relu(["?", "?"], ["?", "?"]))
    assert graph.assumed == {"x.0": 1, "x.1": 512}
    assert tensors(graph)["y"].shape == ("x.0", "x.1")


def test_rank_that_depends_on_sizes_is_read_at_the_assumed_ones() -> None:
    """``Squeeze`` without axes removes one more axis at a batch of one."""
    nodes = [op("Squeeze", "x", "h"), op("Exp", "h", "y")]
    proto = model(nodes, [value("x", ["N", "T", 1])], [value("y", None)])
    graph = read(proto)
    assert tensors(graph)["y"].shape == (512,)
    assert graph.dims == {"N": Dim(1, 1), "T": Dim(512, 512)}
    assert tensors(read_at(graph, {"N": 4, "T": 9}, proto.SerializeToString()))["y"].shape == (4, 9)


@pytest.mark.parametrize("declared", [[1, 3], [3], [1, 1, 3], [8, 3]])
@pytest.mark.parametrize("batch", [8, "N"])
def test_declared_shape_that_the_inputs_contradict_is_ignored(batch: int | str, declared: list[int]) -> None:
    """Users change the batch of the inputs alone; ``value_info`` and the outputs keep the old one."""
    steps = [op("Relu", "x", "a"), op("MatMul", "a w", "b"), op("Relu", "b", "y")]
    proto = model(steps, [value("x", [batch, 3])], [value("y", [1, 5])], {"w": np.ones((3, 5), np.float32)})
    proto.graph.value_info.append(value("a", declared))
    found = {name: tensor.shape for name, tensor in tensors(read(proto)).items()}
    assert found == {"x": (batch, 3), "w": (3, 5), "a": (batch, 3), "b": (batch, 5), "y": (batch, 5)}


def branches(first: onnx.NodeProto, second: onnx.NodeProto) -> onnx.ModelProto:
    then, otherwise = (helper.make_graph([node], "branch", [], [value("r", None)]) for node in (first, second))
    node = op("If", "c", "z", then_branch=then, else_branch=otherwise)
    ends = [value("x", ["N", 1, 4]), value("c", [], BOOL)]
    return model([node, op("Exp", "z", "y")], ends, [value("y", None)], {"axis": np.array([1], np.int64)})


def test_branches_of_equal_bytes_and_other_rank_share_a_place() -> None:
    assert (graph := read(branches(op("Squeeze", "x axis", "r"), op("Exp", "x", "r")))).dims == {"N": Dim(1, 8)}
    assert verify_plan(plan_graph(graph).plan, graph).ok


# --- runs of the model -------------------------------------------------------------------------------------------


def fused(batch: int | str = 1) -> onnx.ModelProto:
    """Return a convolution that onnxruntime fused with its activation."""
    weights = {"w": np.ones((8, 3, 3, 3), np.float32)}
    node = op("FusedConv", "x w", "h", domain="com.microsoft", activation="Relu", kernel_shape=[3, 3])
    proto = model([node, op("Exp", "h", "y")], [value("x", [batch, 3, 8, 8])], [value("y", None)], weights)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


@pytest.mark.slow
def test_model_of_a_later_ir_version_is_run() -> None:
    proto = fused()
    proto.ir_version = 99
    assert tensors(read(proto))["y"].shape == (1, 8, 6, 6)
    data = proto.SerializeToString()
    assert (
        onnx.ModelProto.FromString(onnx_shape_run.with_supported_ir_version(data)).ir_version
        == onnx_shape_run.MAX_IR_VERSION
    )
    proto.ir_version = 8
    assert onnx_shape_run.with_supported_ir_version(proto.SerializeToString()) == proto.SerializeToString()


@pytest.mark.slow
def test_every_shape_has_its_source_outside_the_hash() -> None:
    proto = fused()
    proto.graph.node.append(op("Reshape", "v to", "u", name="r"))
    proto.graph.input.append(value("v", ["T", 2]))
    proto.graph.output.append(value("u", None))
    proto.graph.initializer.append(numpy_helper.from_array(np.array([7, 2]), "to"))
    graph = read(proto)
    assert graph.notes == ("the model runs only with T = 7, because of the constants of node 'r'.",)
    assert tensors(graph)["y"].shape == (1, 8, 6, 6)
    assert [node.params for node in graph.nodes[:2]] == [{"shapes": "measured"}, {"shapes": "measured"}]
    assert set(graph.shapes_from) == {tensor.id for tensor in graph.tensors}
    assert {graph.shapes_from[name] for name in graph.inputs} == {"declared"}
    assert list(graph.shapes_from.values()).count("measured") == 2
    assert ir_hash(graph) == ir_hash(msgspec.structs.replace(graph, shapes_from={}))
    assert native_file.decode(native_file.encode_json(graph)).shapes_from == graph.shapes_from
    nodes = [op("Relu", "x", "h"), op("Relu", "h", "y")]
    plain = read(model(nodes, [value("x", [4])], [value("y", [4])]))
    assert plain.shapes_from == {"x": "declared", "h": "onnx", "y": "declared"}


@pytest.mark.slow
def test_sizes_of_a_measuring_run_are_fixed() -> None:
    graph = read(fused("N"))
    assert (graph.dims, graph.assumed) == ({"N": Dim(1, 1)}, {"N": 1})
    assert tensors(read_at(graph, {"N": 2}, fused("N").SerializeToString()))["y"].shape == (2, 8, 6, 6)


@pytest.mark.slow
def test_symbolic_inference_is_tried_before_a_run() -> None:
    pytest.importorskip("sympy")
    proto = fused()
    proto.graph.node[0].CopyFrom(op("BiasGelu", "x b", "h", domain="com.microsoft"))
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros(8, np.float32), "b"))
    assert {node.params["shapes"] for node in read(proto).nodes} == {"symbolic"}


@pytest.mark.slow
def test_size_that_differs_between_two_runs_is_data_dependent() -> None:
    nodes = [op("NonZero", "x", "n"), op("Cast", "n", "y", to=FLOAT)]
    with pytest.raises(InvalidIrShapes, match="whose shape cannot be inferred"):
        read(model(nodes, [value("x", [5])], [value("y", None)]))


@pytest.mark.slow
def test_run_finds_the_size_the_model_was_made_for() -> None:
    """Only at a height of 48 can the rows be taken as one."""
    nodes = [op("FusedConv", "x w", "h", domain="com.microsoft", activation="Relu"), op("Reshape", "h shape", "y")]
    weights = {"w": np.ones((3, 3, 1, 1), np.float32), "shape": np.array([-1, 3 * 48 * 8], np.int64)}
    proto = model(nodes, [value("x", ["N", 3, "H", 8])], [value("y", None)], weights)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "H"
    graph = read(proto)
    assert graph.assumed == {"N": 1, "H": 48}
    assert tensors(graph)["h"].shape == (1, 3, 48, 8)


@pytest.mark.slow
def test_unknown_operator_is_rejected_with_the_result_of_the_run() -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        read(model([op("Mystery", "x", "y", domain="own")], [value("x", [2])], [value("y", None)]))
    assert "A run of the model does not give the shape either" in caught.value.hint
