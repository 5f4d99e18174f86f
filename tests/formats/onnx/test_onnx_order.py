"""A model with its nodes in another order: valid for ONNX, unchanged otherwise, and less memory in onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from app.cli.main import run
from benchmarks.onnx_nets import branches
from tests.formats.onnx.test_onnx import model, op, value
from tmmu_core.base.errors import Misuse
from tmmu_core.formats.onnx.onnx_model import with_order
from tmmu_core.formats.open_file import read_graph
from tmmu_core.runtime.measure.measure_model import measure, run_onnx

NET = branches()
INPUT = ["x", "float32", [1, 32, 64, 64]]


def exported(data: bytes, folder: Path, *options: str) -> bytes:
    source, target = folder / "model.onnx", folder / "out.onnx"
    source.write_bytes(data)
    assert run(["export", str(source), "--to", "onnx", "-o", str(target), *options]) == 0
    return target.read_bytes()


def parts(data: bytes) -> tuple[onnx.ModelProto, list[bytes]]:
    """Return a model without its nodes, and the nodes."""
    read = onnx.ModelProto.FromString(data)
    nodes = [node.SerializeToString(deterministic=True) for node in read.graph.node]
    del read.graph.node[:]
    return read, nodes


def test_only_the_order_of_nodes_changes_and_the_peak_falls(tmp_path: Path) -> None:
    made = onnx.ModelProto.FromString(NET)
    made.metadata_props.add(key="author", value="us")
    data = made.SerializeToString()
    out = exported(data, tmp_path)
    onnx.checker.check_model(onnx.ModelProto.FromString(out))
    (rest, before), (kept, after) = parts(data), parts(out)
    assert kept == rest
    assert sorted(before) == sorted(after)
    assert before != after
    assert measure(out, "out.onnx", in_order=True).given.bound < measure(data, "m.onnx", in_order=True).given.bound / 2


def test_order_of_the_file_gives_the_same_file() -> None:
    graph = read_graph(NET, "model.onnx")
    assert with_order(NET, graph, graph.execution_order) == NET


def test_constants_come_before_their_readers_and_bodies_stay(tmp_path: Path) -> None:
    """The branches of If read ``a``; the constant is not in the graph that is planned."""
    info = [value("r", [4])]
    then, other = (helper.make_graph([op(code, "a", "r")], code, [], info) for code in ("Relu", "Neg"))
    nodes = [
        op("Constant", "", "c", value=helper.make_tensor("c", TensorProto.FLOAT, [4], [1.0] * 4)),
        op("Exp", "x", "b"),
        op("Add", "x c", "a"),
        op("Shape", "b", "s"),
        op("If", "f", "i", then_branch=then, else_branch=other),
        op("Add", "b i", "y"),
    ]
    ends = [value("x", [4]), value("f", [], TensorProto.BOOL)]
    data = model(nodes, ends, [value("y", [4])]).SerializeToString()
    graph = read_graph(data, "model.onnx")
    late = sorted(graph.execution_order, key=lambda name: name.startswith("Exp"))
    order = [*late[:-2], late[-1], late[-2]]
    written = onnx.ModelProto.FromString(with_order(data, graph, order))
    onnx.checker.check_model(written)
    assert [node.op_type for node in written.graph.node] == ["Constant", "Add", "If", "Exp", "Shape", "Add"]


def test_order_that_the_model_cannot_run_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [op("Neg", "x", "p"), op("Shape", "p", "s"), op("Reshape", "u s", "r")]
    ends = [value("x", [4]), value("u", [4])], [value("p", [4]), value("r", [4])]
    data = model(nodes, *ends).SerializeToString()
    graph = read_graph(data, "model.onnx")
    with caplog.at_level("INFO", "tmmu"):
        assert with_order(data, graph, graph.execution_order[::-1]) == data
    assert "the model computes 'p' before 'r'" in caplog.text


def test_order_of_a_fitted_graph_and_of_a_plan_are_written(tmp_path: Path) -> None:
    source, fitted, plan = (str(tmp_path / name) for name in ("model.onnx", "fitted.tmmu.json", "plan.json"))
    best = exported(NET, tmp_path)
    assert run(["fit", source, "--capacity", "activations=6MiB", "--allow", "planner,order", "-o", fitted]) == 0
    assert exported(NET, tmp_path) == best
    assert run(["export", fitted, "--model", source, "--to", "onnx", "-o", str(tmp_path / "of_fit.onnx")]) == 0
    assert (tmp_path / "of_fit.onnx").read_bytes() == best
    assert run(["plan", source, "-o", plan]) == 0
    assert run(["export", plan, "--model", source, "--to", "onnx", "-o", str(tmp_path / "of_plan.onnx")]) == 0
    assert (tmp_path / "of_plan.onnx").read_bytes() == NET


def test_an_order_of_another_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = model([op("Relu", "x", "y")], [value("x", [4])], [value("y", [4])]).SerializeToString()
    with pytest.raises(Misuse, match="is in one of them only") as refused:
        with_order(NET, read_graph(NET, "model.onnx"), read_graph(other, "other.onnx").execution_order)
    assert "--allow planner,order,inplace" in refused.value.hint  # without nodes that a fit adds
    source, plan, out = tmp_path / "other.onnx", tmp_path / "plan.json", tmp_path / "out.onnx"
    source.write_bytes(other)
    (tmp_path / "model.onnx").write_bytes(NET)
    assert run(["plan", str(source), "-o", str(plan)]) == 0
    assert run(["export", str(plan), "--model", str(tmp_path / "model.onnx"), "--to", "onnx", "-o", str(out)]) == 2
    assert "is not a plan of the model" in capsys.readouterr().err
    assert not out.exists()


def test_weights_in_other_files_stay_beside_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "model.onnx"
    onnx.save(onnx.ModelProto.FromString(NET), source, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert run(["export", str(source), "--to", "onnx", "-o", str(tmp_path / "out.onnx")]) == 0
    feeds = {"x": np.ones(INPUT[2], np.float32)}
    one, two = (onnxruntime.InferenceSession(tmp_path / name).run(None, feeds)[0] for name in (source.name, "out.onnx"))
    assert np.array_equal(one, two)
    (tmp_path / "other").mkdir()
    assert run(["export", str(source), "--to", "onnx", "-o", str(tmp_path / "other" / "out.onnx")]) == 2
    assert "w.bin" in capsys.readouterr().err


@pytest.mark.slow
def test_onnxruntime_holds_fewer_bytes_in_the_new_order(tmp_path: Path) -> None:
    new = exported(NET, tmp_path)
    before, after = (run_onnx(data, [INPUT], arena=False, in_order=True) for data in (NET, new))
    assert after["outputs"] == before["outputs"]
    assert max(after["resident_growth"]) < max(before["resident_growth"]) / 2
