"""Recognise ONNX models, and snapshots and traces of PyTorch and ExecuTorch, without loading their readers."""

from tmmu_core.graph.native import document

GRAPH_FIELD = 7
MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}  # number → wire type
MEMORY_EVENTS = "memory_allocation"  # category of the memory events of an ExecuTorch trace


def refuses_onnx(data: bytes) -> str:
    """Return why bytes are not an ONNX model; ``""`` if a graph follows, and all fields before it are of a model."""
    at, seen = 0, 0
    while at < len(data):
        tag, at = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        if MODEL_FIELDS.get(field) != wire:
            if not seen:
                return "its first byte begins no field of an ONNX model"
            return f"field {field} is not in an ONNX model (fields before it: {seen})"
        if field == GRAPH_FIELD:
            return ""
        length, at = _varint(data, at)
        at += length if wire == 2 else 0
        seen += 1
    return "it ends before a graph begins"


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return ``(value, position after it)`` of a protobuf varint; a truncated one stops at the end of the data."""
    value, shift = 0, 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return value, at


def refuses_snapshot(data: bytes) -> str:
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


def refuses_profile(data: bytes) -> str:
    """Return why bytes are not a trace of PyTorch's profiler with memory events; ``""`` if they have both."""
    if document.kind(data) != "json" or b'"traceEvents"' not in data:
        return 'it is not a JSON object with "traceEvents"'
    return "" if b'"[memory]"' in data else 'its "traceEvents" have no "[memory]" event'


def refuses_executorch_trace(data: bytes) -> str:
    """Return why bytes are not a memory trace of ExecuTorch's profiler; ``""`` if they have its keys."""
    if document.kind(data) != "json":
        return "it does not begin like a JSON object"
    known = b'"traceEvents"' in data[:4096] and MEMORY_EVENTS.encode() in data
    return "" if known else f'it has no "traceEvents" of the category {MEMORY_EVENTS}'
