"""The sidecar of a native graph file: the constants' bytes in one safetensors file in the same folder.

::

    8 bytes, little-endian: the length of the header
    the header, JSON: {"w": {"dtype": "F32", "shape": [8, 4], "data_offsets": [0, 128]}, …}
    the bytes, each tensor at its offsets, counted from the end of the header
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.base.struct_types import register_types
from tmmu_core.graph import dtypes
from tmmu_core.graph.constants import Constants, in_file, path_in_folder
from tmmu_core.graph.model import Graph

DTYPES = {
    **{f"uint{width}": f"U{width}" for width in (8, 16, 32, 64)},
    **{f"int{width}": f"I{width}" for width in (8, 16, 32, 64)},
    **{f"float{width}": f"F{width}" for width in (16, 32, 64)},
    "bool": "BOOL",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
"""dtype → its name in safetensors; another dtype is written as ``U8``."""


class _Entry(msgspec.Struct, frozen=True):
    data_offsets: tuple[int, int]


register_types(_Entry)


def constants(graph: Graph, graph_file: Path | None) -> Constants:
    """Return the constants in the sidecar of ``graph``, in the folder of ``graph_file``. Raises ``UnreadableInput``."""
    path = path_in_folder(graph_file.parent if graph_file else None, graph.sidecar, "the sidecar")
    header, start = _read_header(path)
    readers = {}
    for tensor in graph.tensors:
        if tensor.id in header:
            begin, end = header[tensor.id].data_offsets
            if not 0 <= begin <= end:
                what = f"the sidecar is damaged: {tensor.id!r} is at bytes {begin} to {end}."
                raise UnreadableInput(what, source=str(path), hint="Copy the file again.")
            readers[tensor.id] = partial(in_file, path, start + begin, end - begin)
    return Constants(readers)


def _read_header(path: Path) -> tuple[dict[str, _Entry], int]:
    length = int.from_bytes(b"".join(in_file(path, 0, 8)), "little")
    if length > limits.ceiling(limits.UNPACKED_BYTES):
        raise limits.limit_error(limits.UNPACKED_BYTES, "the sidecar's header", str(path))
    data = b"".join(in_file(path, 8, length))
    try:
        raw = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        return {name: msgspec.json.decode(entry, type=_Entry) for name, entry in raw.items()}, 8 + length
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what, hint = f"the sidecar is not a safetensors file: {error}.", "Write it with tmmu convert."
        raise UnreadableInput(what, source=str(path), hint=hint) from error


def parts(graph: Graph, values: Constants) -> Iterator[bytes]:
    """Yield the bytes of a sidecar: header and ``values``. Raises ``UnreadableInput`` if a constant's size is wrong."""
    header: dict[str, Any] = {}
    begin = 0
    for tensor in (tensor for tensor in graph.tensors if tensor.id in values):
        shape = [graph.dims[dim].max if isinstance(dim, str) else dim for dim in tensor.shape]
        size, dtype = dtypes.tensor_bytes(shape, tensor.dtype), DTYPES.get(tensor.dtype)
        offsets = [begin, begin + size]
        header[tensor.id] = {"dtype": dtype or "U8", "shape": shape if dtype else [size], "data_offsets": offsets}
        begin += size
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % 8)
    yield len(encoded).to_bytes(8, "little") + encoded
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        size, length = end - begin, 0
        for data in values.chunks(name):
            length += len(data)
            yield data
        if length != size:
            what = f"the tensor {name!r} has {size:,} bytes, but its constant has {length:,}."
            raise UnreadableInput(what, hint="Export the model again.")
