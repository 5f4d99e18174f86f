"""Recognise ONNX models, PyTorch snapshots, and traces of PyTorch and ExecuTorch, without loading their readers."""

from tmmu_core.graph.native import document

GRAPH_FIELD = 7
MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}  # number → wire type
MEMORY_EVENTS = "memory_allocation"  # category of the memory events of an ExecuTorch trace


def refusal_onnx(data: bytes) -> str:
    """Return why bytes are not an ONNX model; ``""`` if they have a graph, and only a model's fields before it."""
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
