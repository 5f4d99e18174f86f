"""Lazy access to the bytes of a model's constants.

A :data:`ByteReader` reads or computes a constant's bytes. :class:`Constants` maps tensor ids to such functions.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from tmmu_core.base.errors import UnreadableInput, open_error

CHUNK = 1 << 20  # maximum number of bytes per chunk

ByteReader = Callable[[], Iterator[bytes]]  # yields a constant's bytes in chunks; raises ``UnreadableInput``


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
