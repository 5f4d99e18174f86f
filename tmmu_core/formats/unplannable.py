"""Recognise formats that cannot be planned: weights without a graph, compiled engines, models of other tools."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tmmu_core.base.errors import Rejection, UnreadableInput

ONNX = "Export the model to ONNX (.onnx) or TensorFlow Lite (.tflite)."
FROM_TORCH = 'Save it with torch.export.save(torch.export.export(model, args), "model.pt2"), or export it to ONNX.'
FROM_TENSORFLOW = "Convert the model with tf.lite.TFLiteConverter to .tflite, or with tf2onnx to .onnx."
FROM_WEIGHTS = "Export the model that uses these weights to ONNX (.onnx) or a PyTorch exported program (.pt2)."
FROM_SOURCE = "Open the model that it was built from, as ONNX (.onnx), .tflite or .pt2."
FROM_XLA = "Dump XLA with XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text', and open a *-buffer-assignment.txt."
WEIGHTS_ONLY = "which contains weights but no graph"
UNPLACED = "which has no buffer assignment"
COMPILED = "which is compiled and has no graph that can be planned"
NOT_READ = "which no reader of this version opens"

HEAD = 1 << 16  # number of bytes to read from a file to identify its format by :func:`by_magic`
ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class Unplannable:
    """A format that cannot be planned, with the reason and a hint to convert it."""

    title: str
    reason: str
    hint: str
    endings: tuple[str, ...] = ()  # endings of the name of a file or folder of this format
    magic: tuple[bytes, ...] = ()  # first bytes of a file; no reader accepts a file with them
    parts: tuple[tuple[bytes, bytes], ...] = ()  # (first bytes, bytes anywhere) of a file

    def refusal(self, tried: tuple[Rejection, ...] = (), source: str = "") -> UnreadableInput:
        """Return the error for a file of this format; ``tried``: each reader, and why it rejects the file."""
        return UnreadableInput(f"this is {self.title}, {self.reason}.", source=source, hint=self.hint, tried=tried)


SAFETENSORS = Unplannable("a safetensors file", WEIGHTS_ONLY, FROM_WEIGHTS, (".safetensors",))
COREML = Unplannable(
    *("a Core ML model", NOT_READ, ONNX, (".mlmodel", ".mlpackage", ".mlmodelc")),
    parts=((ZIP, b".mlmodel"), (ZIP, b".mlpackage/Manifest.json")),
)
SAVED_MODEL = Unplannable(
    *("a TensorFlow SavedModel", NOT_READ, FROM_TENSORFLOW, ("saved_model.pb", "saved_model.pbtxt")),
    parts=((ZIP, b"saved_model.pb"), (b"\x08\x01\x12", b"tensorflow")),
)
GGUF_MAGIC, ENGINE_MAGIC = (b"GGUF", b"FUGG", b"lmgg", b"fmgg", b"tjgg"), (b"ftrt", b"ptrt", b"trtf", b"trtp")
FORMATS = (
    Unplannable("a GGUF model (llama.cpp)", WEIGHTS_ONLY, FROM_WEIGHTS, (".gguf", ".ggml"), GGUF_MAGIC),
    SAFETENSORS,
    Unplannable("an HDF5 file (Keras weights or model)", NOT_READ, FROM_TENSORFLOW, magic=(b"\x89HDF\r\n\x1a\n",)),
    Unplannable("a TensorRT engine", COMPILED, FROM_SOURCE, (".engine", ".trt", ".plan"), ENGINE_MAGIC),
    Unplannable("a Parquet file", NOT_READ, "Write JSON or CBOR: tmmu plan … -o plan.json.", magic=(b"PAR1",)),
    Unplannable(
        *("an MLIR program (StableHLO)", UNPLACED, FROM_XLA, (".mlir",), (b"ML\xefR",)),
        parts=((b"module ", b"stablehlo."), (b"module ", b"func.func ")),
    ),
    Unplannable("an HLO program", UNPLACED, FROM_XLA, (".hlo", ".hlo.pb"), parts=((b"HloModule ", b"ENTRY "),)),
    Unplannable(
        *("a TorchScript model", NOT_READ, FROM_TORCH),
        parts=((ZIP, b"bytecode.pkl"), (ZIP, b"constants.pkl"), (ZIP, b"/code/")),
    ),
    Unplannable(
        *("a PyTorch checkpoint (torch.save)", WEIGHTS_ONLY, FROM_TORCH, (".pth", ".ckpt")),
        parts=((ZIP, b"data.pkl"), (b"\x80", b"torch"), (b"\x80", b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")),
    ),
    Unplannable("a Keras model", NOT_READ, FROM_TENSORFLOW, (".keras",), parts=((ZIP, b"model.weights.h5"),)),
    COREML,
    SAVED_MODEL,
)
"""The magic of all rows is checked first, then the parts, then the endings. The first match applies."""


def by_magic(data: bytes) -> Unplannable | None:
    """Return the unplannable format that the first bytes of ``data`` identify, if any."""
    header = data[8 : 8 + HEAD]
    if header.startswith(b"{") and 2 <= int.from_bytes(data[:8], "little") < 1 << 32:
        return SAFETENSORS if b'"data_offsets"' in header or b'"__metadata__"' in header else None
    return next((each for each in FORMATS if data.startswith(each.magic)), None)


def recognised(data: bytes, name: str = "") -> Unplannable | None:
    """Return the format of a file that no reader accepts, by its bytes, else by its name. ``None``: unknown."""
    pairs = ((row, start, part) for row in FORMATS for start, part in row.parts)
    by_parts = (row for row, start, part in pairs if data.startswith(start) and part in data)
    return by_magic(data) or next(by_parts, None) or _by_ending(FORMATS, [name.lower().removesuffix(".gz")])


def recognised_folder(folder: Path) -> Unplannable | None:
    """Return SavedModel, Core ML or safetensors if the folder or a file in it has a name of this format."""
    try:
        names = [folder.name, *(entry.name for entry in folder.iterdir())]
        return _by_ending((SAVED_MODEL, COREML, SAFETENSORS), names)
    except OSError:  # the reader that opens the folder reports it
        return None


def _by_ending(formats: Iterable[Unplannable], names: Sequence[str]) -> Unplannable | None:
    return next((each for each in formats if any(name.endswith(each.endings) for name in names)), None)
