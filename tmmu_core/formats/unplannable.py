"""Formats that are recognised and cannot be planned: weights without a graph, compiled engines, other tools' models."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.onnx.onnx_signature import varint

ONNX = "Export the model to ONNX (`.onnx`) or TensorFlow Lite (`.tflite`)."
FROM_TORCH = (
    'Save the model with `torch.export.save(torch.export.export(model, args), "model.pt2")`, or export it to ONNX.'
)
FROM_TENSORFLOW = "Convert the model with `tf.lite.TFLiteConverter` to `.tflite`, or with `tf2onnx` to `.onnx`."
FROM_WEIGHTS = "Export the model that uses these weights to ONNX (`.onnx`) or a PyTorch exported program (`.pt2`)."
FROM_SOURCE = "Open the model that it was built from, as ONNX (`.onnx`), `.tflite` or `.pt2`."
FROM_JAX = "Open XLA's buffer assignment instead: run with `XLA_FLAGS=--xla_dump_to=DIR`."
WEIGHTS_ONLY = "which holds weights but no graph"
COMPILED = "which is compiled: it holds no graph that can be planned"
NOT_READ = "which no reader of this version opens"

HEAD = 1 << 16
"""Bytes at the beginning of a file that identify its format."""


@dataclass(frozen=True)
class Unplannable:
    """A format, the reason why it has no plan, and what to convert it to."""

    title: str
    reason: str
    hint: str
    starts: tuple[bytes, ...] = ()
    """Magic bytes."""
    endings: tuple[str, ...] = ()
    """Endings of file names, for files whose bytes identify no format."""

    def refusal(self, source: str, tried: tuple[tuple[str, str], ...] = ()) -> UnreadableInput:
        """The error of a file of this format; ``tried`` holds the reason of each reader."""
        return UnreadableInput(f"this is {self.title}, {self.reason}.", source=source, hint=self.hint, tried=tried)


GGUF = Unplannable(
    *("a GGUF model (llama.cpp)", WEIGHTS_ONLY, FROM_WEIGHTS),
    *((b"GGUF", b"FUGG", b"lmgg", b"fmgg", b"tjgg"), (".gguf", ".ggml")),
)
SAFETENSORS = Unplannable("a safetensors file", WEIGHTS_ONLY, FROM_WEIGHTS, (), (".safetensors",))
NUMPY = Unplannable(
    *("a NumPy array file", "which holds arrays but no graph", FROM_WEIGHTS, (b"\x93NUMPY",), (".npz", ".npy"))
)
TENSORRT = Unplannable(
    *("a TensorRT engine", COMPILED, FROM_SOURCE, (b"ftrt", b"ptrt", b"trtf", b"trtp"), (".engine", ".trt", ".plan"))
)
RKNN = Unplannable("an RKNN model (Rockchip)", COMPILED, FROM_SOURCE, (b"RKNN",), (".rknn",))
NCNN = Unplannable("an ncnn model", NOT_READ, FROM_SOURCE, (b"7767517\n",))
MLIR = Unplannable(
    *("an MLIR module (StableHLO, TOSA or another dialect)", NOT_READ, FROM_JAX, (b"ML\xefR",), (".mlir", ".mlirbc"))
)
COREML = Unplannable("a Core ML model", NOT_READ, ONNX, (), (".mlmodel", ".mlpackage", ".mlmodelc"))
KERAS = Unplannable("a Keras model", NOT_READ, FROM_TENSORFLOW, (), (".keras",))
HDF5 = Unplannable("an HDF5 file (Keras weights or model)", NOT_READ, FROM_TENSORFLOW, (), (".h5", ".hdf5"))
TORCH_WEIGHTS = Unplannable("a PyTorch checkpoint (`torch.save`)", WEIGHTS_ONLY, FROM_TORCH, (), (".pth", ".ckpt"))
FROZEN_GRAPH = Unplannable("a TensorFlow GraphDef", NOT_READ, FROM_TENSORFLOW, (), (".pb",))
TORCHSCRIPT = Unplannable("a TorchScript model", NOT_READ, FROM_TORCH)
SAVED_MODEL = Unplannable("a TensorFlow SavedModel", NOT_READ, FROM_TENSORFLOW)
TFJS = Unplannable("a TensorFlow.js model", NOT_READ, FROM_TENSORFLOW)
OPENVINO = Unplannable("an OpenVINO model", NOT_READ, FROM_SOURCE)
PICKLE = Unplannable("a Python pickle", "which holds no graph that can be read without running it", FROM_TORCH)

NAMED = (GGUF, SAFETENSORS, NUMPY, COREML, KERAS, HDF5, TENSORRT, RKNN, MLIR, NCNN, TORCH_WEIGHTS, FROZEN_GRAPH)
"""Formats with magic bytes or endings of file names."""
Test = tuple[Unplannable, object]
"""A format, and whether a file is of it."""


def _first(tests: Iterable[Test]) -> Unplannable | None:
    return next((found for found, is_so in tests if is_so), None)


def by_magic(data: bytes) -> Unplannable | None:
    """Return the format whose first bytes no readable format has; ``None`` for another one."""
    is_hdf5, header = data.startswith(b"\x89HDF\r\n\x1a\n"), data[8 : 8 + HEAD]
    has_length = 2 <= int.from_bytes(data[:8], "little") < 1 << 32
    has_tensors = header.startswith(b"{") and (b'"data_offsets"' in header or b'"__metadata__"' in header)
    return _first(
        [
            *((format_, format_.starts and data.startswith(format_.starts)) for format_ in NAMED),
            (KERAS, is_hdf5 and (b"keras_version" in data or b"model_config" in data)),
            (HDF5, is_hdf5),
            (SAFETENSORS, has_length and has_tensors),
        ]
    )


def recognised(data: bytes, name: str = "") -> Unplannable | None:
    """Return the unplannable format of bytes that no reader takes, else of the name; ``None`` for an unknown one."""
    lower = name.lower().removesuffix(".gz")
    by_name = _first((format_, format_.endings and lower.endswith(format_.endings)) for format_ in NAMED)
    return by_magic(data) or _first([*_zip(data), *_text(data), *_protobuf(data), *_pickle(data)]) or by_name


def recognised_folder(folder: Path) -> Unplannable | None:
    """Return the unplannable format that is a folder; ``None`` for another folder."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError:  # the reader that opens the folder reports it
        return None
    return _first(
        [
            (SAVED_MODEL, {"saved_model.pb", "saved_model.pbtxt"} & names),
            (KERAS, "keras_metadata.pb" in names),
            (COREML, folder.suffix in (".mlpackage", ".mlmodelc") or {"Manifest.json", "Data"} <= names),
            (SAFETENSORS, any(name.endswith(".safetensors") for name in names)),
        ]
    )


def _zip(data: bytes) -> list[Test]:
    try:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist() if data.startswith(b"PK\x03\x04") else []
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, OSError, ValueError, NotImplementedError, EOFError):
        return []
    last = {name.rpartition("/")[2] for name in names if not name.endswith("/")}
    return [
        (NUMPY, names and all(name.endswith(".npy") for name in names)),
        (TORCHSCRIPT, last & {"bytecode.pkl", "constants.pkl"} or any("/code/" in name for name in names)),
        (TORCH_WEIGHTS, "data.pkl" in last),
        (KERAS, "model.weights.h5" in last),
        (COREML, any(name.endswith((".mlmodel", ".mlpackage/Manifest.json")) for name in names)),
        (SAVED_MODEL, "saved_model.pb" in last),
    ]


def _text(data: bytes) -> list[Test]:
    head = data[:HEAD].lstrip()
    first = head.split(b"\n", 1)[0]
    return [
        (TFJS, head.startswith(b"{") and b'"modelTopology"' in head and b'"weightsManifest"' in data),
        (OPENVINO, head.startswith(b"<") and b"<net " in head and b"<layers" in head),
        (MLIR, first.startswith((b"module ", b"module{", b"func.func ", b"#loc")) and b"{" in head),
    ]


_COREML_KINDS = 200
"""The first field number of a Core ML model's kind; an ONNX model has none as large."""


def _protobuf(data: bytes) -> list[Test]:
    """Core ML, a SavedModel or a GraphDef, by the numbers of the outer fields."""
    saved = b"saved_model_main_op" in data or (data.startswith(b"\x08\x01\x12") and b"tensorflow" in data)
    frozen = data.startswith(b"\x0a") and (b"Placeholder" in data[:HEAD] or b"Const" in data[:HEAD])
    tests: list[Test] = [(SAVED_MODEL, saved), (FROZEN_GRAPH, frozen)]
    at, seen = 0, 0
    while at < len(data) and seen < 8:
        tag, at = varint(data, at)
        field, wire = tag >> 3, tag & 7
        if seen and field >= _COREML_KINDS and wire == 2:
            return [*tests, (COREML, True)]
        if (seen == 0 and (field, wire) != (1, 0)) or wire not in (0, 2):
            break
        length, at = varint(data, at)
        at += length if wire == 2 else 0
        seen += 1
    return tests


def _pickle(data: bytes) -> list[Test]:
    is_pickle = data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    legacy = b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
    has_torch = legacy in data[:64] or b"torch" in data[:HEAD]
    return [(TORCH_WEIGHTS, is_pickle and has_torch), (PICKLE, is_pickle)]
