"""Which format of a finished plan these bytes are of: why they are *not* of one, or ``""`` when they are.

A file that begins like a format and is then damaged counts as that format, so that its reader can say where.
"""

from __future__ import annotations

import msgspec

from tmmu_core.errors import UnreadableInput
from tmmu_core.graph import document
from tmmu_core.plan.formats import checkpoint, files, pickled, trace
from tmmu_core.plan.model import PLAN_SCHEMA
from tmmu_core.planners import instances

PARQUET_MAGIC = b"PAR1"
MEMORY_EVENTS = "memory_allocation"
"""The category of the events that ExecuTorch's profiler writes of memory."""


def not_trace(data: bytes) -> str:
    """Why this is no trace (seed §7)."""
    no_header = 'its first record is no "allocation_header"'
    kind = document.kind(data)
    if not kind:
        return "it begins neither like a JSON object nor like a CBOR map" if data else "the file is empty"
    if kind == "cbor":
        if b"allocation_header" not in data[:4096]:
            return no_header
    elif b"allocation_header" not in data[: data.find(b"\n") + 1 or len(data)]:
        return no_header
    try:
        return "" if trace.is_trace(data) else no_header
    except UnreadableInput:
        # Damaged in its first record, which says what it was meant to be: let the reader name the place.
        return "" if b"allocation_header" in data[:256] else no_header


def not_plan(data: bytes) -> str:
    """Why this is no plan file (contract §9)."""
    if document.kind(data) == "":
        return "it begins neither like a JSON object nor like a CBOR map" if data else "the file is empty"
    no_schema = f'its "schema" is not "{PLAN_SCHEMA}"'
    if b"tmmu_plan/" not in data:
        return no_schema
    try:
        return "" if files.is_plan(data) else no_schema
    except (UnreadableInput, msgspec.DecodeError):
        # Damaged, but it says what it was meant to be near its beginning: let the reader name the place.
        return "" if b"tmmu_plan/" in data[:256] else no_schema


def not_checkpoint(data: bytes) -> str:
    """Why this is no checkpoint (seed §10)."""
    if document.kind(data) != "cbor":
        return "it does not begin like a CBOR map" if data else "the file is empty"
    no_schema = f'its "schema" is not "{checkpoint.CHECKPOINT_SCHEMA}"'
    if b"tmmu_checkpoint/" not in data:
        return no_schema
    try:
        return "" if checkpoint.is_checkpoint(data) else no_schema
    except UnreadableInput:
        # The schema is the last key of a checkpoint: a damaged one is still recognised by it.
        return "" if b"tmmu_checkpoint/" in data[-256:] else no_schema


def not_parquet(data: bytes) -> str:
    """Why this is no Parquet file."""
    return "" if data[:4] == PARQUET_MAGIC else f"it does not begin with {PARQUET_MAGIC.decode()}"


def not_instance(data: bytes) -> str:
    """Why this is no packing instance: a CSV whose first line names its columns."""
    if not data:
        return "the file is empty"
    if document.kind(data):
        return "it begins like a JSON object or a CBOR map"
    line = data.removeprefix(document.BYTE_ORDER_MARK).lstrip(b"\r\n").partition(b"\n")[0][:4096]
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return "it is not text"
    cells = _cells(text, ",")
    if cells[:3] == ["tensor_id", "arena", "logical_slot"]:
        return "it holds the rows of a plan without its head, which cannot be read back; keep plans as JSON or CBOR"
    if _names_columns(cells):
        return ""
    parted = next((called for mark, called in _OTHER_MARKS.items() if _names_columns(_cells(text, mark))), "")
    if parted:
        return f"its first line parts the columns by {parted}, not by commas"
    return f"its first line does not name the columns {', '.join(instances.NEEDED)}"


_OTHER_MARKS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def _cells(line: str, mark: str) -> list[str]:
    return [cell.strip().strip('"').lower() for cell in line.split(mark)]


def _names_columns(cells: list[str]) -> bool:
    return len({instances.NAMES[cell] for cell in cells if cell in instances.NAMES}) >= 2


def not_executorch(data: bytes) -> str:
    """Why this is no ExecuTorch program."""
    if len(data) < 8:
        return "the file is empty" if not data else "it is too short"
    known = data[4:6] == b"ET" and data[6:8].isdigit()
    return "" if known else "bytes 4 to 8 are not ET12"


def not_executorch_trace(data: bytes) -> str:
    """Why this is no memory trace of ExecuTorch's profiler."""
    if document.kind(data) != "json":
        return "it does not begin like a JSON object" if data else "the file is empty"
    known = b'"traceEvents"' in data[:4096] and MEMORY_EVENTS.encode() in data
    return "" if known else f'it has no "traceEvents" of the category {MEMORY_EVENTS}'


def not_torch_snapshot(data: bytes) -> str:
    """Why this is no snapshot of PyTorch's allocator."""
    if data.startswith(pickled.FIRST):
        known = b"segments" in data or b"device_traces" in data or (b"total_size" in data and b"blocks" in data)
        return "" if known else "the pickle has no segments"
    if data[:64].lstrip().startswith(b"[") and b'"total_size"' in data and b'"blocks"' in data:
        return ""
    if document.kind(data) != "json":
        return "it begins neither like a pickle nor like a JSON object" if data else "the file is empty"
    if b'"device_traces"' in data or (b'"segments"' in data and b'"blocks"' in data):
        return ""
    return 'it has no "segments" with blocks'
