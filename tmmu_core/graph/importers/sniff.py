"""Which format these bytes are of: each function says why they are *not* of one, or ``""`` when they are.

Cheap on purpose: no format's own package is loaded to find out that a file is something else. A file that begins like a
format and is then damaged counts as that format, so that its reader can say where the damage is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tmmu_core.errors import UnreadableInput
from tmmu_core.graph import document

DAMAGED = "it begins like a document, and is damaged"
NATIVE_FIELDS = ("ir_schema", "tensors", "nodes")


def not_native(data: bytes) -> str:
    """Why this is no native graph file (contract §8)."""
    fields = _fields(data)
    if not isinstance(fields, dict):
        return "" if fields == DAMAGED else fields  # the native reader says where the damage is
    if "schema" in fields:
        return f"the document is of the schema {_text(fields['schema'])}, not a graph"
    if not any(field in fields for field in NATIVE_FIELDS):
        return "the document has none of the fields " + ", ".join(NATIVE_FIELDS)
    return "its nodes hold shapes and ports, as the node-centric dialect has them" if not _not_ports(fields) else ""


def not_ports(data: bytes) -> str:
    """Why this is no graph in the node-centric dialect (contract §8)."""
    fields = _fields(data)
    return _not_ports(fields) if isinstance(fields, dict) else fields


def _not_ports(fields: dict[str, Any]) -> str:
    if "tensors" in fields:
        return "the document has a list of tensors"
    if "nodes" not in fields:
        return 'the document has no "nodes"'
    if "ir_schema_hash" in fields or _has_ports(fields["nodes"]):
        return ""
    return 'no node has a "shape_out" and no input names a "node_id"'


def not_onnx(data: bytes) -> str:
    """Why this is no ONNX model: a model is a sequence of known fields, the graph (field 7) among them."""
    if not data:
        return "the file is empty"
    at, seen = 0, 0
    while at < len(data):
        tag, at = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        if ONNX_MODEL_FIELDS.get(field) != wire:
            if not seen:
                return "its first byte begins no field of an ONNX model"
            return f"field {field} after {seen} others is none of an ONNX model"
        if field == ONNX_GRAPH_FIELD:
            return ""
        length, at = _varint(data, at)
        at += length if wire == 2 else 0
        seen += 1
    return "it ends before a graph begins"


ONNX_GRAPH_FIELD = 7
ONNX_MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
"""Field number → protobuf wire type of a ModelProto (0 a number, 2 something with a length)."""


TFLITE_IDENTIFIER = b"TFL3"


def not_tflite(data: bytes) -> str:
    """Why this is no TensorFlow Lite model: a flatbuffer says at byte 4 what it is."""
    if not data:
        return "the file is empty"
    return "" if data[4:8] == TFLITE_IDENTIFIER else "bytes 4 to 8 are not TFL3"


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return value, at


def _fields(data: bytes) -> dict[str, Any] | str:
    """The top-level fields, or why there are none."""
    if not document.kind(data):
        return "it begins neither like a JSON object nor like a CBOR map" if data else "the file is empty"
    try:
        return document.fields(data)
    except UnreadableInput:
        return DAMAGED


def _has_ports(nodes: Any) -> bool:
    if isinstance(nodes, msgspec.Raw):
        try:
            nodes = msgspec.json.decode(nodes)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False  # damaged: the native reader says where
    if not isinstance(nodes, list):
        return False
    rows = [node for node in nodes if isinstance(node, dict)]
    return any("shape_out" in node for node in rows) or any(
        isinstance(port, dict) for node in rows for port in node.get("inputs") or ()
    )


def _text(value: Any) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, msgspec.Raw) else f'"{value}"'
