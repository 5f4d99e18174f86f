"""Lazy access to the bytes of a model's constants, and the sidecar of a native graph file.

A :data:`ByteReader` reads or computes a constant's bytes. :class:`Constants` has such a function for each tensor id.

A sidecar is a safetensors file in the folder of the graph file::

    8 bytes, little-endian: the length of the header
    the header, JSON: {"w": {"dtype": "F32", "shape": [8, 4], "data_offsets": [0, 128]}, …}
    the bytes, each tensor at its offsets, counted from the end of the header
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput, open_error
from tmmu_core.base.strict import register_types
from tmmu_core.graph import dtypes
from tmmu_core.graph.model import Graph

CHUNK = 1 << 20  # maximum number of bytes per chunk
ByteReader = Callable[[], Iterator[bytes]]  # yields a constant's bytes in chunks; raises ``UnreadableInput``
SAFETENSORS_DTYPES = {"bool": "BOOL", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}
SAFETENSORS_DTYPES |= {f"float{width}": f"F{width}" for width in (16, 32, 64)}
SAFETENSORS_DTYPES |= {f"{kind}int{n}": f"{'U' if kind else 'I'}{n}" for kind in ("", "u") for n in (8, 16, 32, 64)}
"""dtype → its name in safetensors; another dtype is written as ``U8``."""


def in_memory(data: bytes | memoryview, start: int = 0, length: int | None = None) -> Iterator[bytes]:
    """Yield the bytes ``data[start : start + length]``; without a length, all bytes from ``start``."""
    end = len(data) if length is None else start + length
    if end > len(data):
        raise truncation_error("the file", end, len(data))
    for at in range(start, end, CHUNK):
        yield bytes(data[at : min(at + CHUNK, end)])


def in_file(path: Path, start: int, length: int) -> Iterator[bytes]:
    """Yield the bytes ``[start, start + length)`` of a file."""
    try:
        with path.open("rb") as file:
            file_bytes, end = file.seek(0, 2), start + length
            if end > file_bytes:
                raise truncation_error(path.name, end, file_bytes)
            file.seek(start)
            for at in range(start, end, CHUNK):
                yield file.read(min(CHUNK, end - at))
    except OSError as error:
        raise open_error(error, path, "Copy it to the folder of the model, with the name in the model.") from error


class Constants(Mapping[str, bytes]):
    """Tensor id → its bytes, read on each access; :meth:`chunks` reads them in parts."""

    def __init__(self, readers: Mapping[str, ByteReader]) -> None:
        self._readers = dict(readers)

    @classmethod
    def of(cls, values: Mapping[str, bytes] | None) -> "Constants":
        """Return ``values``, tensor id → bytes, as constants; no constants for ``None``."""
        if isinstance(values, Constants):
            return values
        return cls({name: partial(in_memory, data) for name, data in (values or {}).items()})

    def __getitem__(self, tensor_id: str) -> bytes:
        return b"".join(self.chunks(tensor_id))

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, tensor_id: object) -> bool:
        return tensor_id in self._readers

    def chunks(self, tensor_id: str) -> Iterator[bytes]:
        """Yield the constant's bytes in order, at most ``CHUNK`` at once. Raises ``UnreadableInput``."""
        try:
            yield from self._readers[tensor_id]()
        except UnreadableInput as error:
            if repr(tensor_id) not in error.message:
                error.message = f"the bytes of {tensor_id!r}: {error.message}"
            raise


def path_in_folder(folder: Path | None, location: str, what: str) -> Path:
    """Return the path of ``location`` in ``folder``. Raises ``UnreadableInput`` for a path outside, or no folder."""
    if folder is None:
        message = f"{what} is in another file, {location[:80]!r}, and only the model was given."
        raise UnreadableInput(message, hint="Give the model as a file in its folder, not as a stream or an upload.")
    folder = folder.resolve()
    path = folder if "\0" in location else (folder / location).resolve()
    if not path.is_relative_to(folder) or path == folder:
        message = f"{what} is outside the model's folder: {location[:80]!r}."
        raise UnreadableInput(message, hint="Save the weights in the folder of the model, with a relative path.")
    return path


def truncation_error(what: str, needed: int, length: int) -> UnreadableInput:
    """Return the error for the file ``what``, which has only ``length`` of the ``needed`` bytes."""
    return UnreadableInput(f"{what} is cut off: it has {length:,} bytes of {needed:,}.", hint="Copy the file again.")


class _Entry(msgspec.Struct, frozen=True):  # of the header of a sidecar
    data_offsets: tuple[int, int]


register_types(_Entry)


def sidecar_constants(graph: Graph, graph_file: Path | None) -> Constants:
    """Return the constants in the sidecar of ``graph``, in the folder of ``graph_file``. Raises ``UnreadableInput``."""
    path = path_in_folder(graph_file.parent if graph_file else None, graph.sidecar, "the sidecar")
    length = int.from_bytes(b"".join(in_file(path, 0, 8)), "little")
    if length > limits.ceiling(limits.UNPACKED_BYTES):
        raise limits.limit_error(limits.UNPACKED_BYTES, "the sidecar's header", str(path))
    try:
        raw = msgspec.json.decode(b"".join(in_file(path, 8, length)), type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        header = {name: msgspec.json.decode(entry, type=_Entry) for name, entry in raw.items()}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what, hint = f"the sidecar is not a safetensors file: {error}.", "Write it with tmmu convert."
        raise UnreadableInput(what, source=str(path), hint=hint) from error
    readers = {}
    for tensor in graph.tensors:
        if tensor.id in header:
            begin, end = header[tensor.id].data_offsets
            if not 0 <= begin <= end:
                what = f"the sidecar is damaged: {tensor.id!r} is at bytes {begin} to {end}."
                raise UnreadableInput(what, source=str(path), hint="Copy the file again.")
            readers[tensor.id] = partial(in_file, path, 8 + length + begin, end - begin)
    return Constants(readers)


def sidecar_parts(graph: Graph, values: Constants) -> Iterator[bytes]:
    """Yield the bytes of a sidecar: header and ``values``. Raises ``UnreadableInput`` if a constant's size is wrong."""
    header: dict[str, Any] = {}
    begin = 0
    for tensor in (tensor for tensor in graph.tensors if tensor.id in values):
        shape = [graph.dims[dim].max if isinstance(dim, str) else dim for dim in tensor.shape]
        size, dtype = dtypes.tensor_bytes(shape, tensor.dtype), SAFETENSORS_DTYPES.get(tensor.dtype)
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
