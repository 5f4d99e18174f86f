"""The sidecar of a native graph file: the constants' bytes in one safetensors file in the same folder.

::

    8 bytes, little-endian: the length of the head
    the head, JSON: {"w": {"dtype": "F32", "shape": [8, 4], "data_offsets": [0, 128]}, …}
    the bytes, each tensor at its offsets, counted from the end of the head
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


def constants(graph: Graph, where: Path | None) -> Constants:
    """Return the constants in the sidecar of ``graph``, a file at ``where``. Raises ``UnreadableInput``."""
    path = path_in_folder(where.parent if where else None, graph.sidecar, "the sidecar")
    head, start = _head(path)
    pieces = {}
    for tensor in graph.tensors:
        if tensor.id in head:
            begin, end = head[tensor.id].data_offsets
            if not 0 <= begin <= end:
                what = f'the sidecar is damaged: "{tensor.id}" is at bytes {begin} to {end}.'
                raise UnreadableInput(what, source=str(path), hint="Copy the file again.")
            pieces[tensor.id] = partial(in_file, path, start + begin, end - begin)
    return Constants(pieces)


def _head(path: Path) -> tuple[dict[str, _Entry], int]:
    """Return the entries of a sidecar by tensor id, and the position of the first byte after the head."""
    length = int.from_bytes(b"".join(in_file(path, 0, 8)), "little")
    if length > limits.ceiling(limits.UNPACKED_BYTES):
        raise limits.limit_error(limits.UNPACKED_BYTES, "the sidecar's head", str(path))
    data = b"".join(in_file(path, 8, length))
    try:
        found = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        return {k: msgspec.json.decode(v, type=_Entry) for k, v in found.items() if k != "__metadata__"}, 8 + length
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what, hint = f"the sidecar is not a safetensors file: {error}.", "Write it with tmmu convert."
        raise UnreadableInput(what, source=str(path), hint=hint) from error


def parts(graph: Graph, values: Constants) -> Iterator[bytes]:
    """Yield the bytes of a sidecar: the head, then the ``values``. Raises ``UnreadableInput`` after a wrong length."""
    head: dict[str, Any] = {}
    at = 0
    stored = [tensor for tensor in graph.tensors if tensor.id in values]
    for tensor in stored:
        shape = [graph.dims[dim].max if isinstance(dim, str) else dim for dim in tensor.shape]
        size = dtypes.tensor_bytes(shape, tensor.dtype)
        word = DTYPES.get(tensor.dtype)
        head[tensor.id] = {"dtype": word or "U8", "shape": shape if word else [size], "data_offsets": [at, at + size]}
        at += size
    lead = msgspec.json.encode(head)
    lead += b" " * (-len(lead) % 8)
    yield len(lead).to_bytes(8, "little") + lead
    for tensor in stored:
        begin, end = head[tensor.id]["data_offsets"]
        length = 0
        for data in values.chunks(tensor.id):
            length += len(data)
            yield data
        if length != end - begin:
            what = f'the tensor "{tensor.id}" has {end - begin:,} bytes, but its constant has {length:,}.'
            raise UnreadableInput(what, hint="Export the model again.")
