"""Recognise allocator snapshots and profiler traces of PyTorch without loading their readers."""

from tmmu_core.graph.native import document


def refuses(data: bytes) -> str:
    """Return why bytes are not a snapshot of PyTorch's allocator; ``""`` if they are."""
    if data.startswith(b"\x80"):
        known = b"segments" in data or b"device_traces" in data or (b"total_size" in data and b"blocks" in data)
        return "" if known else "the pickle has no segments"
    if data[:64].lstrip().startswith(b"[") and b'"total_size"' in data and b'"blocks"' in data:
        return ""
    if document.kind(data) != "json":
        return "it begins neither like a pickle nor like a JSON object" if data else "the file is empty"
    known = b'"device_traces"' in data or (b'"segments"' in data and b'"blocks"' in data)
    return "" if known else 'it has no "segments" with blocks'


def refuses_profile(data: bytes) -> str:
    """Return why bytes are not a profiler trace with memory events; ``""`` if they are."""
    if data.lstrip()[:1] != b"{" or b'"traceEvents"' not in data:
        return 'it is not a JSON object with "traceEvents"'
    return "" if b'"[memory]"' in data else 'its "traceEvents" have no "[memory]" event'
