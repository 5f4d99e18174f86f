"""Formats that are recognised and cannot be planned: weights without a graph, compiled engines, other tools' models."""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from tmmu_core.base.errors import UnreadableInput

ONNX = "Export the model to ONNX (`.onnx`) or TensorFlow Lite (`.tflite`)."
FROM_TORCH = (
    'Save the model with `torch.export.save(torch.export.export(model, args), "model.pt2")`, or export it to ONNX.'
)
FROM_TENSORFLOW = "Convert the model with `tf.lite.TFLiteConverter` to `.tflite`, or with `tf2onnx` to `.onnx`."
FROM_WEIGHTS = "Export the model that uses these weights to ONNX (`.onnx`) or a PyTorch exported program (`.pt2`)."
FROM_SOURCE = "Open the model that it was built from, as ONNX (`.onnx`), `.tflite` or `.pt2`."
FROM_JAX = "Open XLA's buffer assignment instead: run with `XLA_FLAGS=--xla_dump_to=DIR`."

HEAD = 1 << 16
"""Bytes at the beginning of a file that identify its format."""


@dataclass(frozen=True)
class Unplannable:
    """A format, the reason why it has no plan, and what to convert it to."""

    title: str
    reason: str
    hint: str

    def refusal(self, source: str, tried: tuple[tuple[str, str], ...] = ()) -> UnreadableInput:
        """The error of a file of this format; ``tried`` holds the reason of each reader."""
        return UnreadableInput(f"this is {self.title}, {self.reason}.", source=source, hint=self.hint, tried=tried)


WEIGHTS_ONLY = "which holds weights but no graph"
COMPILED = "which is compiled: it holds no graph that can be planned"
NOT_READ = "which no reader of this version opens"

GGUF = Unplannable("a GGUF model (llama.cpp)", WEIGHTS_ONLY, FROM_WEIGHTS)
SAFETENSORS = Unplannable("a safetensors file", WEIGHTS_ONLY, FROM_WEIGHTS)
NUMPY = Unplannable("a NumPy array file", "which holds arrays but no graph", FROM_WEIGHTS)
TORCH_WEIGHTS = Unplannable("a PyTorch checkpoint (`torch.save`)", WEIGHTS_ONLY, FROM_TORCH)
TORCHSCRIPT = Unplannable("a TorchScript model", NOT_READ, FROM_TORCH)
TENSORRT = Unplannable("a TensorRT engine", COMPILED, FROM_SOURCE)
COREML = Unplannable("a Core ML model", NOT_READ, ONNX)
KERAS = Unplannable("a Keras model", NOT_READ, FROM_TENSORFLOW)
HDF5 = Unplannable("an HDF5 file (Keras weights or model)", NOT_READ, FROM_TENSORFLOW)
SAVED_MODEL = Unplannable("a TensorFlow SavedModel", NOT_READ, FROM_TENSORFLOW)
FROZEN_GRAPH = Unplannable("a TensorFlow GraphDef", NOT_READ, FROM_TENSORFLOW)
TFJS = Unplannable("a TensorFlow.js model", NOT_READ, FROM_TENSORFLOW)
OPENVINO = Unplannable("an OpenVINO model", NOT_READ, FROM_SOURCE)
NCNN = Unplannable("an ncnn model", NOT_READ, FROM_SOURCE)
RKNN = Unplannable("an RKNN model (Rockchip)", COMPILED, FROM_SOURCE)
MLIR = Unplannable("an MLIR module (StableHLO, TOSA or another dialect)", NOT_READ, FROM_JAX)
PICKLE = Unplannable("a Python pickle", "which holds no graph that can be read without running it", FROM_TORCH)

STARTS: dict[Unplannable, tuple[bytes, ...]] = {
    GGUF: (b"GGUF", b"FUGG", b"lmgg", b"fmgg", b"tjgg"),
    NUMPY: (b"\x93NUMPY",),
    TENSORRT: (b"ftrt", b"ptrt", b"trtf", b"trtp"),
    RKNN: (b"RKNN",),
    NCNN: (b"7767517\n",),
    MLIR: (b"ML\xefR",),
}
"""Format → magic bytes."""

ENDINGS: dict[Unplannable, tuple[str, ...]] = {
    GGUF: (".gguf", ".ggml"),
    SAFETENSORS: (".safetensors",),
    NUMPY: (".npz", ".npy"),
    COREML: (".mlmodel", ".mlpackage", ".mlmodelc"),
    KERAS: (".keras",),
    HDF5: (".h5", ".hdf5"),
    TENSORRT: (".engine", ".trt", ".plan"),
    RKNN: (".rknn",),
    MLIR: (".mlir", ".mlirbc"),
    TORCH_WEIGHTS: (".pth", ".ckpt"),
    FROZEN_GRAPH: (".pb",),
}
"""Format → endings of file names, for files whose bytes identify none."""


def by_magic(data: bytes) -> Unplannable | None:
    """Return the format whose first bytes no readable format has; ``None`` for another one."""
    return (
        next((found for found, starts in STARTS.items() if data.startswith(starts)), None)
        or _hdf5(data)
        or _safetensors(data)
    )


def recognised(data: bytes, name: str = "") -> Unplannable | None:
    """Return the unplannable format of bytes that no reader takes, else of the name; ``None`` for an unknown one."""
    found = by_magic(data) or next(filter(None, (detect(data) for detect in (_zip, _text, _protobuf, _pickle))), None)
    lower = name.lower().removesuffix(".gz")
    return found or next((by_name for by_name, endings in ENDINGS.items() if lower.endswith(endings)), None)


def recognised_folder(folder: Path) -> Unplannable | None:
    """Return the unplannable format that is a folder; ``None`` for another folder."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError:  # the reader that opens the folder reports it
        return None
    tests = {
        SAVED_MODEL: {"saved_model.pb", "saved_model.pbtxt"} & names,
        KERAS: "keras_metadata.pb" in names,
        COREML: folder.suffix in (".mlpackage", ".mlmodelc") or {"Manifest.json", "Data"} <= names,
        SAFETENSORS: any(name.endswith(".safetensors") for name in names),
    }
    return next((found for found, is_so in tests.items() if is_so), None)


def _zip(data: bytes) -> Unplannable | None:
    try:
        names = zipfile.ZipFile(io.BytesIO(data)).namelist() if data.startswith(b"PK\x03\x04") else []
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, OSError, ValueError, NotImplementedError, EOFError):
        return None
    last = {name.rpartition("/")[2] for name in names if not name.endswith("/")}
    is_script = last & {"bytecode.pkl", "constants.pkl"} or any("/code/" in name for name in names)
    tests = {
        NUMPY: names and all(name.endswith(".npy") for name in names),
        TORCHSCRIPT: is_script,
        TORCH_WEIGHTS: "data.pkl" in last,
        KERAS: "model.weights.h5" in last,
        COREML: any(name.endswith((".mlmodel", ".mlpackage/Manifest.json")) for name in names),
        SAVED_MODEL: "saved_model.pb" in last,
    }
    return next((found for found, is_so in tests.items() if is_so), None)


def _hdf5(data: bytes) -> Unplannable | None:
    if not data.startswith(b"\x89HDF\r\n\x1a\n"):
        return None
    return KERAS if b"keras_version" in data or b"model_config" in data else HDF5


def _safetensors(data: bytes) -> Unplannable | None:
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + HEAD]
    named = b'"data_offsets"' in header or b'"__metadata__"' in header
    return SAFETENSORS if 2 <= length < 1 << 32 and header.startswith(b"{") and named else None


def _text(data: bytes) -> Unplannable | None:
    head = data[:HEAD].lstrip()
    first = head.split(b"\n", 1)[0]
    tests = {
        TFJS: head.startswith(b"{") and b'"modelTopology"' in head and b'"weightsManifest"' in data,
        OPENVINO: head.startswith(b"<") and b"<net " in head and b"<layers" in head,
        MLIR: first.startswith((b"module ", b"module{", b"func.func ", b"#loc")) and b"{" in head,
    }
    return next((found for found, is_so in tests.items() if is_so), None)


_COREML_KINDS = 200
"""The first field number of a Core ML model's kind; an ONNX model has none as large."""


def _protobuf(data: bytes) -> Unplannable | None:
    """Core ML, a SavedModel or a GraphDef, by the numbers of the outer fields."""
    from tmmu_core.formats.onnx.onnx_signature import varint

    if b"saved_model_main_op" in data or (data.startswith(b"\x08\x01\x12") and b"tensorflow" in data):
        return SAVED_MODEL
    if data.startswith(b"\x0a") and (b"Placeholder" in data[:HEAD] or b"Const" in data[:HEAD]):
        return FROZEN_GRAPH
    at, seen = 0, 0
    while at < len(data) and seen < 8:
        tag, at = varint(data, at)
        field, wire = tag >> 3, tag & 7
        if seen and field >= _COREML_KINDS and wire == 2:
            return COREML
        if (seen == 0 and (field, wire) != (1, 0)) or wire not in (0, 2):
            return None
        length, at = varint(data, at)
        at += length if wire == 2 else 0
        seen += 1
    return None


def _pickle(data: bytes) -> Unplannable | None:
    if data[:1] != b"\x80" or data[1:2] not in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return None
    legacy = b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
    return TORCH_WEIGHTS if legacy in data[:64] or b"torch" in data[:HEAD] else PICKLE
