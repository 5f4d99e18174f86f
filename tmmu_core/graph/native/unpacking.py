"""Read the bytes of files, and decompress gzip within limits."""

import errno
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
CHUNK = 1 << 16
"""Compressed bytes per step."""
AT_ONCE = 1 << 24
"""Maximum number of decompressed bytes per step."""
LONGEST_STREAM = 1 << 29
"""Maximum number of bytes read from a pipe or a device without a configured limit: /dev/zero has no end."""


def read_whole(path: Path) -> bytes:
    """Return a file's bytes. Raises ``OSError``, and ``UnreadableInput`` for a pipe with more than the limit."""
    try:
        with path.open("rb") as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read() if is_file else read_stream(file, str(path))
    except ValueError as error:  # the name contains a null character
        raise OSError(errno.EINVAL, "invalid file name") from error


def read_stream(stream: BinaryIO, source: str) -> bytes:
    """Return the bytes of a pipe or a device. Raises ``UnreadableInput`` for more than the limit."""
    most, data = limits.ceiling(limits.UNPACKED_BYTES, LONGEST_STREAM), io.BytesIO()
    while part := stream.read(1 << 20):
        if data.tell() + len(part) > most:
            raise limits.past(limits.UNPACKED_BYTES, "the stream", source, most)
        data.write(part)
    return data.getvalue()


def unpack(data: bytes, source: str = "") -> bytes:
    """Return ``data``, decompressed if it is gzipped. Raises ``UnreadableInput`` for damaged data."""
    if not data.startswith(GZIP_MAGIC):
        return data
    ceiling = limits.ceiling(limits.UNPACKED_BYTES)
    out, at = bytearray(), 0
    while data.startswith(GZIP_MAGIC, at):
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            packed = member.unconsumed_tail or data[at : at + CHUNK]
            if not packed:
                place, what = f"byte {len(data)}", "the gzip stream is cut off."
                raise UnreadableInput(what, source=source, place=place, hint="Copy the file again.")
            at += 0 if member.unconsumed_tail else len(packed)
            try:
                out += member.decompress(packed, min(AT_ONCE, ceiling + 1 - len(out)))
            except zlib.error as error:
                what = f"the gzip stream is damaged ({error})."
                raise UnreadableInput(what, source=source, hint="Copy the file again.") from error
            if len(out) > ceiling:
                raise limits.past(limits.UNPACKED_BYTES, "the gzipped file", source)
        at -= len(member.unused_data)
    return bytes(out)


def mapped_file(path: Path) -> Any:
    """Return the bytes of a file: mapped into memory, or decompressed by :func:`unpack` if it is gzipped."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return unpack(data[:], path.name) if data[:2] == GZIP_MAGIC else data


def pack(data: bytes) -> bytes:
    """Return gzipped data; the header has no time, name or system, so equal data give equal bytes."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = deflate.compress(data) + deflate.flush()
    header = GZIP_MAGIC + b"\x08\x00" + bytes(4) + b"\x02\xff"
    return header + body + zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
