"""Read the bytes of files, and decompress gzip within limits."""

import codecs
import errno
import gzip
import io
import mmap
import os
import stat
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from tmmu_core.base import limits
from tmmu_core.base.errors import UnreadableInput

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 20  # number of bytes that are read or decompressed at once
TEXT_HEAD = 1024  # a file is binary if one of its first 1,024 bytes is NUL
LONGEST_STREAM = 1 << 29  # default limit of the bytes of a pipe or a device: /dev/zero has no end


def read_whole(path: Path) -> bytes:
    """Return the bytes of a file, a pipe or a device. Raises ``OSError`` and the errors of :func:`read_stream`."""
    try:
        with path.open("rb") as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read() if is_file else read_stream(file, str(path))
    except ValueError as error:  # the name contains a null character
        raise OSError(errno.EINVAL, "invalid file name") from error


def read_stream(stream: BinaryIO, source: str) -> bytes:
    """Return the bytes of a pipe or a device. Raises ``UnreadableInput`` for more than the limit."""
    return _read_within(stream, limits.ceiling(limits.UNPACKED_BYTES, LONGEST_STREAM), "the stream", source)


def _read_within(stream: Any, max_bytes: int, subject: str, source: str) -> bytes:
    """Return the bytes of a stream. Raises ``UnreadableInput``, about ``subject``, if there are over ``max_bytes``."""
    data = io.BytesIO()
    while part := stream.read(CHUNK):
        if data.tell() + len(part) > max_bytes:
            raise limits.limit_error(limits.UNPACKED_BYTES, subject, source, max_bytes)
        data.write(part)
    return data.getvalue()


def unpack(data: bytes, source: str = "") -> bytes:
    """Return ``data`` without gzip and without the byte order mark of a text. Raises ``UnreadableInput``."""
    if data.startswith(GZIP_MAGIC):
        try:
            with gzip.open(io.BytesIO(data)) as stream:
                data = _read_within(stream, limits.ceiling(limits.UNPACKED_BYTES), "the decompressed file", source)
        except (EOFError, OSError, zlib.error) as error:
            what = "cut off" if isinstance(error, EOFError) else f"damaged ({error})"
            raise UnreadableInput(f"the gzip stream is {what}.", source=source, hint="Copy the file again.") from error
    return data if b"\0" in data[:TEXT_HEAD] else data.removeprefix(codecs.BOM_UTF8)


def mapped_file(path: Path) -> Any:
    """Return the bytes of a file as a memory map, or decompressed by :func:`unpack` if it is gzipped."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return unpack(data[:], path.name) if data[:2] == GZIP_MAGIC else data


def pack(data: bytes) -> bytes:
    """Return gzipped data; the header has no time, name or system, so that equal data give equal bytes."""
    packed = zlib.compress(data, 9, wbits=31)
    return packed[:9] + b"\xff" + packed[10:]  # byte 9 is the system
