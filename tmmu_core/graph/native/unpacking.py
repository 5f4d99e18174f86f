"""A file's bytes: of one moment, and unpacked within the limits where they are gzipped.

What they say is decoded in :mod:`tmmu_core.graph.native.document`.
"""

from __future__ import annotations

import errno
import gzip
import io
import mmap
import os
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 16
"""Packed bytes that are given to the unpacker at a time."""
AT_ONCE = 1 << 24
"""Bytes that are unpacked in one go."""
LONGEST_STREAM = 1 << 29
"""Bytes that are read of a pipe or a device, where no limit is set: /dev/zero has no end."""


def read_whole(path: Path) -> bytes:
    """A file's bytes, of one moment. Raises as :func:`of_one_moment`."""
    with of_one_moment(path) as (file, size):
        data = read_stream(file, str(path)) if size is None else file.read()
        if size is not None and len(data) != size:
            raise _changed(path)
    return data


def read_stream(stream: BinaryIO, source: str) -> bytes:
    """The bytes of a pipe or a device, which nobody knows the number of. Raises ``UnreadableInput`` past the limit."""
    most, data = limits.ceiling(limits.UNPACKED_BYTES, LONGEST_STREAM), io.BytesIO()
    while part := stream.read(1 << 20):  # asked for all at once, Python makes room for all
        if data.tell() + len(part) > most:
            raise limits.past(limits.UNPACKED_BYTES, "what is no plain file", source, most)
        data.write(part)
    return data.getvalue()


@contextmanager
def of_one_moment(path: Path) -> Iterator[tuple[BinaryIO, int | None]]:
    """A file to read, and its bytes' number (of a pipe none). Raises ``OSError``, ``UnreadableInput`` if it changed.

    A file that is put in the place of another (as everything is written here) is no such change: what was opened stays
    whole. One that is written over in its place could be read half old and half new. That is seen by its size and its
    times: that of its content can be put back by whoever writes, that of its entry cannot. What is written in the same
    size within one tick of the system's clock is not seen; what is planned and hashed is then what was read, all the
    same, for a file is read once.
    """
    try:
        opened = path.open("rb")
    except ValueError as error:  # a name with a NUL in it
        raise OSError(errno.EINVAL, "no file can be called so") from error
    with opened as file:
        before = os.fstat(file.fileno())
        plain = stat.S_ISREG(before.st_mode)
        yield file, before.st_size if plain else None
        after = os.fstat(file.fileno())
    changed = (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)
    if (
        before.st_nlink == after.st_nlink
    ):  # a file that was replaced meanwhile has another entry's time, and its content
        changed |= before.st_ctime_ns != after.st_ctime_ns
    if plain and changed:
        raise _changed(path)


def _changed(path: Path) -> UnreadableInput:
    return UnreadableInput(
        "the file changed while it was read.", source=str(path), hint="Try again when it has been written."
    )


def unpack(data: bytes, source: str = "") -> bytes:
    """Undo gzip where ``data`` is gzipped, else give it back. Raises ``UnreadableInput`` when it is damaged."""
    if not data.startswith(GZIP_MAGIC):
        return data
    ceiling = limits.ceiling(limits.UNPACKED_BYTES)
    out, at = bytearray(), 0
    while data.startswith(GZIP_MAGIC, at):
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            packed = member.unconsumed_tail or data[at : at + CHUNK]
            if not packed:
                raise UnreadableInput(
                    "the gzip stream is cut off.", source=source, place=f"byte {len(data)}", hint="Copy the file again."
                )
            at += 0 if member.unconsumed_tail else len(packed)
            try:
                out += member.decompress(packed, min(AT_ONCE, ceiling + 1 - len(out)))
            except zlib.error as error:
                raise UnreadableInput(
                    f"the gzip stream is damaged ({error}).", source=source, hint="Copy the file again."
                ) from error
            if len(out) > ceiling:
                raise limits.past(limits.UNPACKED_BYTES, "the gzipped file", source)
        at -= len(member.unused_data)
    return bytes(out)


def unpacked_file(path: Path) -> Any:
    """The bytes of a gzipped file, on disk and not in memory, for as long as anybody holds them.

    Raises ``UnreadableInput`` where it is damaged, or unpacks to more than the limit.
    """
    ceiling = limits.ceiling(limits.UNPACKED_BYTES)

    def parts(packed: BinaryIO) -> Iterator[bytes]:
        size = 0
        while data := packed.read(1 << 20):
            size += len(data)
            if size > ceiling:
                raise limits.past(limits.UNPACKED_BYTES, "the gzipped file", path.name)
            yield data

    try:
        with gzip.open(path) as packed:
            return _on_disk(parts(packed))  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableInput(
            f"the gzip stream is cut off or damaged: {error}.", source=str(path), hint="Copy the file again."
        ) from error


def copied_file(path: Path) -> Any:
    """The bytes of a file, of one moment, on disk and not in memory, for as long as anybody holds them.

    A copy: who looks at a map of a file that another process cuts short is killed for it. Raises as
    :func:`of_one_moment`.
    """
    with of_one_moment(path) as (file, _):
        return _on_disk(iter(lambda: file.read(1 << 20), b""))


def _on_disk(parts: Iterable[bytes]) -> Any:
    """Bytes in a file without a name, as a map of it."""
    with tempfile.TemporaryFile() as plain:
        size = sum(map(plain.write, parts))
        plain.flush()
        return mmap.mmap(plain.fileno(), 0, access=mmap.ACCESS_READ) if size else b""


def pack(data: bytes) -> bytes:
    """Gzip with nothing in the header that depends on when or where: no time, no name, no system."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = deflate.compress(data) + deflate.flush()
    header = GZIP_MAGIC + b"\x08\x00" + bytes(4) + b"\x02\xff"
    return header + body + zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
