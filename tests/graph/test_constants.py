"""Constants of each format equal those that the format's own package returns."""

import gzip
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.paths import DATA, read_graph_file
from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.open_file import constants_in, constants_of, read_graph
from tmmu_core.graph.constants import Constants, sidecar_parts
from tmmu_core.graph.native import native_file

SMALL = np.arange(6, dtype=np.float32).reshape(2, 3)
LARGE = np.arange(3 * 4096, dtype=np.float32).reshape(3, 4096)


def onnx_model(*weights: TensorProto, nodes: list[Any] | None = None, width: int = 4096) -> onnx.ModelProto:
    """Return ``y = x · A · B`` with weights ``A`` (2 × 3) and ``B`` (3 × width), or with the given nodes."""
    nodes = nodes or [helper.make_node("MatMul", ["x", "A"], ["h"]), helper.make_node("MatMul", ["h", "B"], ["y"])]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 2]), ("y", [1, width]))
    ]
    return helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], list(weights)))


def saved(folder: Path, model: onnx.ModelProto, **how: Any) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path, **how)
    return path


def read(path: Path) -> Constants:
    return constants_of(path, read_graph_file(path))


def weights() -> tuple[TensorProto, TensorProto]:
    return numpy_helper.from_array(SMALL, "A"), numpy_helper.from_array(LARGE, "B")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (TensorProto.FLOAT, np.linspace(0, 1, 12288, dtype=np.float32)),
        (TensorProto.INT64, np.arange(12288, dtype=np.int64) - 9),
        (TensorProto.INT8, np.arange(12288).astype(np.int8)),
        (TensorProto.UINT16, np.arange(12288).astype(np.uint16)),
        (TensorProto.INT32, np.arange(12288, dtype=np.int32) - 9),
        (TensorProto.DOUBLE, np.linspace(0, 1, 12288)),
        (TensorProto.UINT32, np.arange(12288).astype(np.uint32)),
        (TensorProto.BOOL, np.arange(12288) % 3 == 0),
        (TensorProto.FLOAT16, np.linspace(0, 1, 12288).astype(np.float16)),
    ],
)
def test_weights_in_typed_fields_are_read_as_bytes(tmp_path: Path, kind: int, values: Any) -> None:
    nodes = [helper.make_node("Gather", ["B", "i"], ["z"]), helper.make_node("Cast", ["z"], ["y"], to=1)]
    model = onnx_model(helper.make_tensor("B", kind, [12288], values.tolist()), nodes=nodes)
    model.graph.input[0].name = "i"
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 2
    assert read(saved(tmp_path, model))["B"] == values.tobytes()


def test_external_data_is_read_by_range(tmp_path: Path) -> None:
    path = saved(tmp_path, onnx_model(*weights()), save_as_external_data=True, size_threshold=0, location="w.bin")
    assert "w.bin" in {file.name for file in tmp_path.iterdir()}
    found = read(path)
    assert (found["A"], found["B"]) == (SMALL.tobytes(), LARGE.tobytes())


def external(location: str, **entries: str) -> onnx.ModelProto:
    weight = TensorProto(name="B", data_type=TensorProto.FLOAT, dims=LARGE.shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=value)
    return onnx_model(weights()[0], weight)


@pytest.mark.parametrize(
    ("location", "entries", "problem"),
    [
        ("none.bin", {}, "no such file"),
        ("w\0.bin", {}, "outside the model's folder"),
        ("B.bin", {"length": str(LARGE.nbytes)}, r"'B': B\.bin"),
        ("B.bin", {"offset": str(2 * LARGE.nbytes)}, r"'B': B\.bin"),
        ("B.bin", {"length": "100"}, "'B'.*49,152.* 100 .* 0 .*'B.bin'"),
        ("B.bin", {"offset": "-4"}, "'B'.*49,152.* -4"),
    ],
)
def test_wrong_place_of_a_weight_is_named(tmp_path: Path, location: str, entries: dict[str, str], problem: str) -> None:
    (tmp_path / "B.bin").write_bytes(LARGE.tobytes()[:-1])
    with pytest.raises(UnreadableInput, match=problem):
        read(saved(tmp_path, external(location, **entries)))["B"]


@pytest.mark.parametrize(
    ("field", "problem"), [("raw_data", "needs 24 bytes.* has 23 bytes"), ("float_data", "damaged")]
)
def test_weight_with_fewer_bytes_than_its_shape_is_rejected(tmp_path: Path, field: str, problem: str) -> None:
    weight = weights()[0] if field == "raw_data" else helper.make_tensor("A", TensorProto.FLOAT, (2, 3), range(6))
    if field == "raw_data":
        weight.raw_data = weight.raw_data[:-1]
    else:
        weight.float_data.pop()
    with pytest.raises(UnreadableInput, match=problem):
        read(saved(tmp_path, onnx_model(weight, weights()[1])))["A"]


@pytest.mark.parametrize(("kind", "packed"), [(TensorProto.INT2, b"\x11\x01"), (TensorProto.UINT4, b"\x01\x01\x01")])
def test_elements_smaller_than_a_byte_are_packed(tmp_path: Path, kind: int, packed: bytes) -> None:
    nodes = [helper.make_node("Identity", ["A"], ["z"]), helper.make_node("MatMul", ["x", "B"], ["y"])]
    model = onnx_model(helper.make_tensor("A", kind, [5], [1, 0, 1, 0, 1]), nodes=nodes)
    model.graph.initializer.append(numpy_helper.from_array(LARGE[:2], "B"))
    model.graph.output.extend(helper.make_tensor_value_info(name, kind, [5]) for name in ("A", "z"))
    found = read(saved(tmp_path, model))
    assert (found["A"], found["z"]) == (packed, packed)


def test_weight_without_a_length_has_the_bytes_of_its_shape(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(LARGE.tobytes() + b"next weight")
    assert read(saved(tmp_path, external("w.bin")))["B"] == LARGE.tobytes()


def test_link_out_of_the_model_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(LARGE.tobytes())
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "w.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(UnreadableInput, match="outside the model's folder"):
        read(saved(tmp_path / "in", external("w.bin")))


def test_path_outside_the_model_folder_is_rejected_before_opening(tmp_path: Path) -> None:
    path = saved(tmp_path, external("w.bin"))
    graph = read_graph_file(path)
    saved(tmp_path, external("../w.bin"))
    with pytest.raises(UnreadableInput, match="outside the model's folder"):
        constants_of(path, graph)


def test_folded_constant_is_computed(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["k0"], value=numpy_helper.from_array(LARGE.T.copy())),
        *(helper.make_node("Max", [f"k{i}"] * 2, [f"k{i + 1}"]) for i in range(40)),
        helper.make_node("Transpose", ["k40"], ["B"]),
        helper.make_node("MatMul", ["x", "A"], ["h"]),
        helper.make_node("MatMul", ["h", "B"], ["y"]),
    ]
    found = read(saved(tmp_path, onnx_model(weights()[0], nodes=nodes)))
    assert found["B"] == LARGE.tobytes()


def test_bodies_and_functions_have_their_constants(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Mul", ["h", "scale"], ["z"])],
        "body",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 4096])],
        [numpy_helper.from_array(LARGE[:1], "scale")],
    )
    twice = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [
            helper.make_node("Constant", [], ["two"], value=numpy_helper.from_array(LARGE[1:2])),
            helper.make_node("Mul", ["a", "two"], ["b"]),
        ],
        [helper.make_opsetid("", 20)],
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["h"], domain="own"),
        helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4096]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4096])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends, out),
        functions=[twice],
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("own", 1)],
    )
    path = saved(tmp_path, model)
    graph, found = read_graph_file(path), read(path)
    held = sorted(found[t.id] for t in graph.tensors if t.persistent)
    assert held == sorted([LARGE[:1].tobytes(), LARGE[:1].tobytes(), LARGE[1:2].tobytes()])


def test_tflite_constants_are_those_of_their_buffers() -> None:
    import tflite

    path = DATA / "tflite" / "person_detect.tflite"
    graph, found = read_graph_file(path), read(path)
    model = tflite.Model.GetRootAs(path.read_bytes(), 0)
    theirs = [model.Subgraphs(0).Tensors(i) for i in range(model.Subgraphs(0).TensorsLength())]
    bytes_of = {
        t.Name().decode(): bytes(model.Buffers(t.Buffer()).DataAsNumpy())
        for t in theirs
        if t.Buffer() and model.Buffers(t.Buffer()).DataLength()
    }
    assert {t.id: found[t.id] for t in graph.tensors if t.role == "constant"} == bytes_of


@pytest.mark.torch
def test_weights_of_a_program_are_those_of_its_archive() -> None:
    path = DATA / "torch" / "convolution.pt2"
    graph, found = read_graph_file(path), read(path)
    with zipfile.ZipFile(path) as archive:
        assert found["l.weight"] == archive.read("archive/data/weights/weight_4")
        assert found["cst"] == archive.read("archive/data/constants/tensor_0")
    assert {t.id for t in graph.tensors if t.persistent} == set(found)


def native_with_sidecar(folder: Path, name: str = "w.safetensors") -> Path:
    rows = [
        {"id": "x", "shape": [2, 3], "dtype": "float32", "role": "input"},
        {"id": "A", "shape": [2, 3], "dtype": "float32", "role": "parameter"},
        {"id": "y", "shape": [2, 3], "dtype": "float32"},
    ]
    nodes = [{"node_id": "n", "inputs": ["x", "A"], "outputs": ["y"], "inplace": "none"}]
    document = {"tensors": rows, "nodes": nodes, "inputs": ["x"], "outputs": ["y"], "sidecar": name}
    path = folder / "g.tmmu.json"
    path.write_text(json.dumps(document))
    graph = read_graph_file(path)
    (folder / "w.safetensors").write_bytes(b"".join(sidecar_parts(graph, Constants.of({"A": SMALL.tobytes()}))))
    return path


def test_sidecar_of_a_native_graph_holds_its_bytes(tmp_path: Path) -> None:
    path = native_with_sidecar(tmp_path)
    assert dict(read(path)) == {"A": SMALL.tobytes()}
    lead = (tmp_path / "w.safetensors").read_bytes()
    head = json.loads(lead[8 : 8 + int.from_bytes(lead[:8], "little")])
    assert head == {"A": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}


def test_sidecar_is_in_no_hash_and_survives_writing(tmp_path: Path) -> None:
    graph = read_graph_file(native_with_sidecar(tmp_path))
    assert native_file.normal_form(graph).get("sidecar") is None
    assert read_graph(native_file.encode_json(graph)).sidecar == "w.safetensors"
    with pytest.raises(UnreadableInput, match=r"'A'.* 24 .* 3"):
        b"".join(sidecar_parts(graph, Constants.of({"A": bytes(3)})))


@pytest.mark.parametrize("cut", [4, 12, -1])
def test_truncated_sidecar_is_rejected(tmp_path: Path, cut: int) -> None:
    path = native_with_sidecar(tmp_path)
    whole = (tmp_path / "w.safetensors").read_bytes()
    (tmp_path / "w.safetensors").write_bytes(whole[:cut])
    with pytest.raises(UnreadableInput, match="cut off"):
        dict(read(path))


@pytest.mark.parametrize("name", ["../w.safetensors", "/etc/passwd"])
def test_sidecar_outside_the_folder_is_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(UnreadableInput, match="outside the model's folder"):
        read(native_with_sidecar(tmp_path / "in", name))


def test_model_without_a_folder_cannot_name_another_file(tmp_path: Path) -> None:
    path = native_with_sidecar(tmp_path)
    with pytest.raises(UnreadableInput, match="only the model was given"):
        constants_in(path.read_bytes(), read_graph_file(path))


def most_taken(path: Path) -> tuple[int, Constants]:
    """Return the peak bytes that Python allocates to find the constants and read a chunk of each, and the constants."""
    graph = read_graph_file(path)
    tracemalloc.start()
    try:
        found = constants_of(path, graph)
        for name in found:
            next(found.chunks(name), b"")
        return tracemalloc.get_traced_memory()[1], found
    finally:
        tracemalloc.stop()


def test_large_archive_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.pt2"
    path.write_bytes((DATA / "torch" / "convolution.pt2").read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive/extra/nobody_asks", bytes(1 << 24))
    most, found = most_taken(path)
    assert most < 1 << 22
    assert dict(found) == dict(read(DATA / "torch" / "convolution.pt2"))


def test_gzipped_model_is_decompressed_within_the_limit(tmp_path: Path) -> None:
    wide = np.zeros((3, 1 << 20), np.float32)
    model = onnx_model(weights()[0], numpy_helper.from_array(wide, "B"), width=1 << 20)
    path = tmp_path / "model.onnx.gz"
    path.write_bytes(gzip.compress(model.SerializeToString(), 1))
    found = read(path)
    assert found["A"] == SMALL.tobytes()
    assert len(found["B"]) == wide.nbytes
    with limits.overridden({"unpacked-bytes": 1000}), pytest.raises(UnreadableInput, match="more than 1,000 bytes"):
        constants_of(path, read_graph(model.SerializeToString()))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UnreadableInput, match=r"cut off|damaged"):
        constants_of(path, read_graph(model.SerializeToString()))
