"""Recognise formats by content: those whose readers are slow to import, and those that cannot be planned.

The latter, also recognised by file name, are weights without a graph, compiled engines and models of other tools.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tmmu_core.base.errors import Rejection, UnreadableInput
from tmmu_core.graph.native import document, native_file
from tmmu_core.plans.model import PLAN_SCHEMA

CHECKPOINT_SCHEMA = "tmmu_checkpoint/1"
GRAPH_FIELD = 7
MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}  # ONNX: number → wire type
MEMORY_EVENTS = "memory_allocation"  # category of the memory events of an ExecuTorch trace

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


def refusal_onnx(data: bytes) -> str:
    """Return why bytes are not an ONNX model; ``""`` if they have a graph, and all fields before it are valid."""
    position, valid_fields = 0, 0
    while position < len(data):
        tag, position = _varint(data, position)
        field, wire_type = tag >> 3, tag & 7
        if MODEL_FIELDS.get(field) != wire_type:
            if not valid_fields:
                return "its first byte does not begin a field of an ONNX model"
            return f"field {field} is not in an ONNX model (fields before it: {valid_fields})"
        if field == GRAPH_FIELD:
            return ""
        length, position = _varint(data, position)
        position += length if wire_type == 2 else 0
        valid_fields += 1
    return "it ends before a graph begins"


def refusal_node_centric(data: bytes) -> str:
    """Return why bytes are not a graph in the node-centric dialect; ``""`` if they probably are."""
    if reason := document.refusal_reason(data):
        return reason
    try:
        fields = document.fields(data)
    except UnreadableInput:
        return "it begins like a document, and is damaged"
    return "" if native_file.is_node_centric(fields) else 'the document has no "nodes" with shapes and ports'


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return ``(value, position after it)`` of a protobuf varint, which may be cut off at the end of the data."""
    value, shift = 0, 0
    while position < len(data) and shift < 64:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            break
    return value, position


def refusal_torch_snapshot(data: bytes) -> str:
    """Return why bytes are not a snapshot of PyTorch's allocator; ``""`` if they have its keys."""
    if data.startswith(b"\x80"):
        known = b"segments" in data or b"device_traces" in data or (b"total_size" in data and b"blocks" in data)
        return "" if known else "the pickle has no segments"
    if data[:64].lstrip().startswith(b"[") and b'"total_size"' in data and b'"blocks"' in data:
        return ""
    if document.kind(data) != "json":
        return "it begins neither like a pickle nor like a JSON object"
    known = b'"device_traces"' in data or (b'"segments"' in data and b'"blocks"' in data)
    return "" if known else 'it has no "segments" with blocks'


def refusal_torch_profile(data: bytes) -> str:
    """Return why bytes are not a trace of PyTorch's profiler with memory events; ``""`` if they are."""
    if document.kind(data) != "json" or b'"traceEvents"' not in data:
        return 'it is not a JSON object with "traceEvents"'
    return "" if b'"[memory]"' in data else 'its "traceEvents" have no "[memory]" event'


def refusal_executorch_trace(data: bytes) -> str:
    """Return why bytes are not a memory trace of ExecuTorch's profiler; ``""`` if they have its keys."""
    if document.kind(data) != "json":
        return "it does not begin like a JSON object"
    known = b'"traceEvents"' in data[:4096] and MEMORY_EVENTS.encode() in data
    return "" if known else f'it has no "traceEvents" of the category {MEMORY_EVENTS}'


def _schema_refusal(data: bytes, schema: str, searched: slice) -> str:
    """Return why a document has no version of ``schema``, else ``""``. ``searched``: where to search a damaged one."""
    kind, refusal = schema.partition("/")[0] + "/", f'its "schema" is not {schema!r}'
    if kind.encode() not in data:
        return refusal
    try:
        stated = document.text_field(data, "schema") or ""
    except (UnreadableInput, msgspec.DecodeError):
        return "" if kind.encode() in data[searched] else refusal
    return "" if stated.startswith(kind) else refusal


def refusal_plan(data: bytes) -> str:
    """Return why bytes are not a plan file (contract §9); ``""`` if they are, even if they are damaged."""
    return document.refusal_reason(data) or _schema_refusal(data, PLAN_SCHEMA, slice(0, 256))


def refusal_checkpoint(data: bytes) -> str:
    """Return why bytes are not a checkpoint (TMMU v2 §10); ``""`` if they are, even if they are damaged."""
    if document.kind(data) != "cbor":
        return "it does not begin like a CBOR map"
    return _schema_refusal(data, CHECKPOINT_SCHEMA, slice(-256, None))  # the schema is the last key of a checkpoint


def refusal_xla_report(data: bytes) -> str:
    """Return why bytes are not a memory usage report; ``""`` if they are."""
    return "" if data.lstrip().startswith(b"Memory Space:") else "it does not begin with Memory Space:"


def _is_log(data: bytes) -> bool:
    """Return whether bytes may be a text log: they do not begin like JSON, CBOR, ONNX or other binary data."""
    return b"\0" not in data[:1024] and not document.kind(data) and data[:1] != b"\x08"  # ONNX models begin with 8


def refusal_vela(data: bytes) -> str:
    """Return why bytes are not an allocation log of Vela; ``""`` if they are."""
    is_known = _is_log(data) and b"Start Time" in data and b"Tensor Size" in data
    return "" if is_known else "it has no table of Vela with Start Time and Tensor Size"


def refusal_tflm(data: bytes) -> str:
    """Return why bytes are not a log of TensorFlow Lite Micro; ``""`` if they are."""
    is_known = _is_log(data) and (b"[RecordingMicroAllocator]" in data or b"first_used=" in data)
    return "" if is_known else "it has no line of TensorFlow Lite Micro's memory planner or allocator"


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
COREML_PARTS = ((ZIP, b".mlmodel"), (ZIP, b".mlpackage/Manifest.json"))
COREML = Unplannable("a Core ML model", NOT_READ, ONNX, (".mlmodel", ".mlpackage", ".mlmodelc"), parts=COREML_PARTS)
SAVED_MODEL = Unplannable(
    *("a TensorFlow SavedModel", NOT_READ, FROM_TENSORFLOW, ("saved_model.pb", "saved_model.pbtxt")),
    parts=((ZIP, b"saved_model.pb"), (b"\x08\x01\x12", b"tensorflow")),
)
MLIR_PARTS = ((b"module ", b"stablehlo."), (b"module ", b"func.func "))
TORCHSCRIPT_PARTS = ((ZIP, b"bytecode.pkl"), (ZIP, b"constants.pkl"), (ZIP, b"/code/"))
TORCH_PARTS = ((ZIP, b"data.pkl"), (b"\x80", b"torch"), (b"\x80", b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"))
GGUF_MAGIC, ENGINE_MAGIC = (b"GGUF", b"FUGG", b"lmgg", b"fmgg", b"tjgg"), (b"ftrt", b"ptrt", b"trtf", b"trtp")
FORMATS = (
    Unplannable("a GGUF model (llama.cpp)", WEIGHTS_ONLY, FROM_WEIGHTS, (".gguf", ".ggml"), GGUF_MAGIC),
    SAFETENSORS,
    Unplannable("an HDF5 file (Keras weights or model)", NOT_READ, FROM_TENSORFLOW, magic=(b"\x89HDF\r\n\x1a\n",)),
    Unplannable("a TensorRT engine", COMPILED, FROM_SOURCE, (".engine", ".trt", ".plan"), ENGINE_MAGIC),
    Unplannable("a Parquet file", NOT_READ, "Write JSON or CBOR: tmmu plan … -o plan.json.", magic=(b"PAR1",)),
    Unplannable("an MLIR program (StableHLO)", UNPLACED, FROM_XLA, (".mlir",), (b"ML\xefR",), MLIR_PARTS),
    Unplannable("an HLO program", UNPLACED, FROM_XLA, (".hlo", ".hlo.pb"), parts=((b"HloModule ", b"ENTRY "),)),
    Unplannable("a TorchScript model", NOT_READ, FROM_TORCH, parts=TORCHSCRIPT_PARTS),
    Unplannable("a PyTorch checkpoint (torch.save)", WEIGHTS_ONLY, FROM_TORCH, (".pth", ".ckpt"), parts=TORCH_PARTS),
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
