"""Recognise an ONNX model by its protobuf fields, without loading the onnx package."""

GRAPH_FIELD = 7
MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
"""Field number → protobuf wire type of a ModelProto (0: varint, 2: length-delimited)."""


def refuses(data: bytes) -> str:
    """Return why bytes are not an ONNX model; ``""`` if all fields up to the graph are those of a model."""
    if not data:
        return "the file is empty"
    at, seen = 0, 0
    while at < len(data):
        tag, at = varint(data, at)
        field, wire = tag >> 3, tag & 7
        if MODEL_FIELDS.get(field) != wire:
            if not seen:
                return "its first byte begins no field of an ONNX model"
            return f"field {field} after {seen} others is not in an ONNX model"
        if field == GRAPH_FIELD:
            return ""
        length, at = varint(data, at)
        at += length if wire == 2 else 0
        seen += 1
    return "it ends before a graph begins"


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return ``(value, place after it)`` of a protobuf varint; a truncated one ends with the data."""
    value, shift = 0, 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return value, at
