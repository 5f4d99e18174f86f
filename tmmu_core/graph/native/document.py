"""Read the bytes of files, decompress gzip within limits, and decode JSON and CBOR to typed values.

Errors name the place if it is known. ``UnreadableInput``: invalid JSON (with line, column, byte) or CBOR (byte).
``InvalidIrShapes``: a wrong field, with the JSON path, the field, and its node or tensor.
"""

import codecs
import errno
import gc
import gzip
import io
import json
import mmap
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import cbor2
import msgspec

from tmmu_core.base import limits, strict
from tmmu_core.base.errors import U64_MAX, InvalidIrShapes, UnreadableInput

T = TypeVar("T")

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 20  # number of bytes that are read or decompressed at once
TEXT_HEAD = 1024  # a file is binary if one of its first 1,024 bytes is NUL
LONGEST_STREAM = 1 << 29  # default limit of the bytes of a pipe or a device: /dev/zero has no end
CBOR_SELF_DESCRIBED = b"\xd9\xd9\xf7"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MAX_DEPTH = 200  # maximum nesting depth of lists and maps
_CONTAINERS = bytes(range(0x80, 0xC0))  # bytes that can begin a list or a map in CBOR
_SCHEMA = re.compile(r"\b(uml_model_ir|tmmu_[a-z]+)\b\D{0,24}(\d{1,9}(?:\.\d+)*)")
_TO_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
CBOR_FAULTS = (cbor2.CBORDecodeError, ValueError, OverflowError, MemoryError, RecursionError)
_NOT_UTF8 = "this is not JSON: a text in it is not UTF-8."

_REASONS: tuple[tuple[str, str, str], ...] = (
    ("object contains unknown field", "unknown_field", "Remove the field, or correct its name."),
    ("object missing required field", "missing_field", "Add the field."),
    ("invalid enum value", "unknown_value", "Use a value that the JSON Schema lists: tmmu schema."),
    ("", "wrong_type", "Give a value of the expected type: see tmmu schema."),
)
"""Start of a message of :func:`strict.wrong_field`, reason, hint."""


def read_whole(path: Path) -> bytes:
    """Return the bytes of a file, a pipe or a device. Raises ``OSError`` and the errors of :func:`read_stream`."""
    try:
        with path.open("rb") as file:
            return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else read_stream(file, str(path))
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
    """Return ``data`` without gzip and without the UTF-8 byte order mark of a text. Raises ``UnreadableInput``."""
    if data.startswith(GZIP_MAGIC):
        try:
            with gzip.open(io.BytesIO(data)) as stream:
                data = _read_within(stream, limits.ceiling(limits.UNPACKED_BYTES), "the decompressed file", source)
        except (EOFError, OSError, zlib.error) as error:
            what = "cut off" if isinstance(error, EOFError) else f"damaged ({error})"
            raise UnreadableInput(f"the gzip stream is {what}.", source=source, hint="Copy the file again.") from error
    return data if b"\0" in data[:TEXT_HEAD] else data.removeprefix(codecs.BOM_UTF8)


def mapped_file(path: Path) -> Any:
    """Return the bytes of a file as a memory map; of a gzipped file, decompressed bytes; of an empty file, ``b""``."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return unpack(data[:], path.name) if data[:2] == GZIP_MAGIC else data


def pack(data: bytes) -> bytes:
    """Return gzipped data; the header has no time, name or system, so that equal data give equal bytes."""
    packed = zlib.compress(data, 9, wbits=31)
    return packed[:9] + b"\xff" + packed[10:]  # byte 9 is the system


@contextmanager
def paused_gc() -> Iterator[None]:
    """Pause the garbage collector: it would scan a million new rows dozens of times, and rows have no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def kind(data: bytes) -> str:
    """Return ``"json"`` (``{`` after blanks, or a UTF-16 mark), ``"cbor"`` (a map) or ``""``, by the first bytes."""
    if data.lstrip(b" \t\r\n").startswith(b"{") or data.startswith(UTF16_MARKS):
        return "json"
    first = data[: len(CBOR_SELF_DESCRIBED) + 1].removeprefix(CBOR_SELF_DESCRIBED)
    return "cbor" if first and 0xA0 <= first[0] <= 0xBF else ""


def refusal_reason(data: bytes) -> str:
    """Return why bytes are not a document; ``""`` if they begin like a JSON object or a CBOR map."""
    return "" if kind(data) else "it begins neither like a JSON object nor like a CBOR map"


def refuse_many_values(data: bytes, compressed_bytes: int = 0) -> None:
    """Raise ``UnreadableInput`` for a document or a text with more values than the limit, before it is decoded.

    ``compressed_bytes``: size of the file if it is compressed, else 0. One byte, such as an empty list in CBOR, can
    need sixty bytes in memory. The number of values is estimated: in CBOR from the length and from bytes that can begin
    a list or a map, else from commas, opening brackets and lines.
    """
    # The default grows with the file: two values per byte of a compressed file, else one value per two bytes.
    default = max(limits.VALUES.default, 2 * compressed_bytes if compressed_bytes else len(data) // 2)
    ceiling = limits.ceiling(limits.VALUES, default)
    if len(data) <= ceiling:
        return
    if kind(data) == "cbor":
        count = len(data) // 4 + len(data) - len(data.translate(None, _CONTAINERS))
    elif b"\0" in data[:TEXT_HEAD]:  # binary, so neither a document nor a text
        return
    else:
        count = sum(map(data.count, (b",", b"[", b"{", b"\n")))
    if count > ceiling:
        raise limits.limit_error(limits.VALUES, "the file", allowed=ceiling)


def fields(data: bytes) -> dict[str, Any]:
    """Return the top-level fields of a document; values of JSON are not decoded. Raises ``UnreadableInput``."""
    if kind(data) == "json":
        return _decode_json(data, dict[str, msgspec.Raw])
    value = _cbor_value(data)
    return {key: inner for key, inner in value.items() if isinstance(key, str)} if isinstance(value, dict) else {}


def check_version(found: Any, known: str, place: str = "$.schema") -> None:
    """Refuse a given schema other than ``known``. Call this before decoding: another version may rename fields."""
    if found in (None, "", known):
        return
    refuse_later_version({place.removeprefix("$."): found})
    hint = f"This version reads {known!r}."
    raise UnreadableInput(f"the schema {strict.shown(found)} is not known.", place=place, hint=hint)


def refuse_later_version(fields: Mapping[str, Any]) -> None:
    """Raise ``UnreadableInput`` if one of the top-level fields names a schema of a later version.

    A later version may rename the field, so all fields with ``schema`` or ``version`` in their name are checked. The
    version is the number after the name of a schema. If the file has ``tensors`` and ``nodes``, or a field
    ``ir_schema…`` or ``tmmu_…``, a value that is only a whole number is also a version.
    """
    is_ours = {"tensors", "nodes"} <= fields.keys() or any(key.startswith(("ir_schema", "tmmu_")) for key in fields)
    for key, value in fields.items():
        if not re.search(r"(\b|_)(schema|version)", key):
            continue
        text = bytes(value)[:200].decode("utf-8", "replace") if isinstance(value, msgspec.Raw) else str(value)[:200]
        text = text.strip('"')
        named = _SCHEMA.search(text)
        version = named[2] if named else text if is_ours and text.isdecimal() else ""
        if version and [int(part) for part in version.split(".")] > [1, 0, 0]:
            hint = "This program reads schema version 1. Install a newer TMMU Plan Explorer."
            message = f"a later version of TMMU Plan Explorer wrote this file: its schema is {text:.80}."
            raise UnreadableInput(message, place=f"$.{key}", hint=hint)


def text_field(data: bytes, key: str) -> str | None:
    """Return a top-level text of a document, or ``None`` if there is none. Other values of JSON are not decoded."""
    value = fields(data).get(key)
    if isinstance(value, msgspec.Raw):
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = msgspec.json.decode(value)
    return value if isinstance(value, str) else None


def decode(data: bytes, document_type: type[T], noun: str = "graph") -> T:
    """Decode a document; ``noun`` is its kind in an error record. Raises ``UnreadableInput``, ``InvalidIrShapes``."""
    try:
        if kind(data) == "cbor":
            value = _cbor_value(data)
            _cbor_value.cache_clear()
            return msgspec.convert(value, document_type)
        value = _decode_json(data, document_type)
        refuse_repeated_keys(data)
        return value
    except msgspec.ValidationError as error:
        what, path = strict.wrong_field(error)
        reason, general_hint = next((reason, hint) for start, reason, hint in _REASONS if what.startswith(start))
        hint = strict.field_hint(error, document_type) or general_hint
        refusal = InvalidIrShapes(f"{path}: {what}.", hint=hint, reason=reason, path=path, document=noun)
        if match := re.match(r"\$\.(tensors|nodes)\[(\d+)\]", path):
            row: Any = None
            with suppress(msgspec.ValidationError):  # the document has another fault: report no id
                whole = _cbor_value(data) if kind(data) == "cbor" else _decode_json(data, dict[str, Any])
                row = whole[match[1]][int(match[2])]
            subject = match[1].removesuffix("s")
            key, diagnostic = ("id", "tensor") if subject == "tensor" else ("node_id", "node_id")
            if isinstance(row, dict) and isinstance(row.get(key), str):
                refusal.diagnostics.setdefault(diagnostic, row[key])
                refusal.message = f"{path} (the {subject} {row[key]!r}): {what}."
        raise refusal from error


def _decode_json(data: bytes, document_type: Any) -> Any:
    if data.startswith(UTF16_MARKS):
        raise UnreadableInput("this text is UTF-16.", hint="Save the file as UTF-8.")
    refuse_long_numbers(data)
    try:
        return msgspec.json.decode(data, type=document_type)
    except msgspec.ValidationError as error:
        if " - at `" not in str(error):
            # The top level has the wrong type. Decode it untyped, because a syntax error has priority.
            _decode_json(data, Any)
        raise
    except msgspec.DecodeError as error:
        message, position, hint = str(error), len(data), "Correct the text at that place."
        if match := re.search(r" \(byte (\d+)\)", message):
            what, position = message[: match.start()].removeprefix("JSON is malformed: "), int(match[1])
        else:
            what = "the text ends in the middle of a value" if data.strip() else "the file is empty"
            hint = "The file is incomplete: save or download it again."
        raise UnreadableInput(f"this is not JSON: {what}.", place=_place(data, position), hint=hint) from error
    except UnicodeDecodeError as error:
        place = _place(data, max(0, data.find(error.object) + error.start))
        raise UnreadableInput(_NOT_UTF8, place=place, hint="Save the file as UTF-8.") from error
    except RecursionError as error:
        hint = "Check the program that wrote it."
        raise UnreadableInput("this JSON is nested too deeply to be a graph.", hint=hint) from error


def refuse_long_numbers(text: bytes) -> None:
    """Raise ``UnreadableInput`` for a number of 19 or more digits that does not fit into 64 bits (contract §4, §6)."""
    if b"0" * 19 not in text.translate(_TO_ZEROS):  # all numbers are short: the text need not be decoded
        return
    try:
        path, number = next(_long_numbers(msgspec.json.decode(text), "$"), ("", ""))
    except msgspec.ValidationError as error:  # a number that is too large for the decoder
        path, number = str(error).partition(" - at `")[2].rstrip("`") or "$", "a number"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # the decoder of the caller reports it
    if number:
        hint = "Whole numbers lie between −2^63 and 2^64 − 1, other numbers between −1.8e308 and 1.8e308."
        raise UnreadableInput(f"{number} takes more than 64 bits.", place=path, hint=hint)


def _long_numbers(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, int) and not -(1 << 63) <= value <= U64_MAX:
        yield path, strict.shown(value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _long_numbers(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for k, inner in enumerate(value):
            yield from _long_numbers(inner, f"{path}[{k}]")


def refuse_repeated_keys(data: bytes) -> None:
    """Refuse JSON text with an object that contains a key twice: readers differ in which of the two values they use."""
    try:
        json.loads(data, object_pairs_hook=_require_unique_keys)
    except UnicodeDecodeError as error:  # in a field that the decoder skipped
        raise UnreadableInput(_NOT_UTF8, place=_place(data, error.start), hint="Save the file as UTF-8.") from error
    except (RecursionError, ValueError) as error:
        raise UnreadableInput(f"this is not JSON: {error}.", hint="Check the program that wrote it.") from error


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> None:
    """Raise ``UnreadableInput`` for an object with a key twice. Returns nothing, so that no object is kept."""
    if len(dict(pairs)) != len(pairs):
        ((name, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise UnreadableInput(f"an object contains the key {strict.shown(name)} twice.", hint="Remove one of the two.")


def _place(data: bytes, position: int) -> str:
    line = data.count(b"\n", 0, position) + 1
    column = len(data[data.rfind(b"\n", 0, position) + 1 : position].decode("utf-8", "replace")) + 1
    return f"line {line}, column {column}, byte {position}"


def _no_tag(*_: Any) -> Any:
    raise ValueError("it contains a tag, which plans and graphs do not have")


_TAG_HOOKS = dict.fromkeys(
    (*range(6), 25, *range(28, 31), *range(35, 38), 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799), _no_tag
)
"""Hooks that reject tags that cbor2 would decode: shared values, bignums, patterns, dates."""


def next_cbor(stream: io.BytesIO) -> Any:
    """Return the next CBOR value of ``stream``. Raises one of :data:`CBOR_FAULTS`, also for a tag (contract §6)."""
    strict_keys: dict[str, Any] = {"allow_duplicate_keys": False, "strict_hashable_types": True}
    return cbor2.load(stream, tag_hook=_no_tag, semantic_decoders=_TAG_HOOKS, max_depth=MAX_DEPTH, **strict_keys)


@lru_cache(maxsize=1)
def _cbor_value(data: bytes) -> Any:
    """Return the value of a CBOR document. It is cached, because a file is first recognised, then read."""
    stream = io.BytesIO(data)
    stream.seek(len(CBOR_SELF_DESCRIBED) if data.startswith(CBOR_SELF_DESCRIBED) else 0)
    try:
        with paused_gc():
            value = next_cbor(stream)
    except cbor2.CBORDecodeEOF as error:
        what, place = "this is not CBOR: the data ends in the middle of a value.", f"byte {len(data)}"
        raise UnreadableInput(what, place=place, hint="Copy the file again.") from error
    except CBOR_FAULTS as error:
        what, place = f"this CBOR cannot be read: {error.__cause__ or error}.", f"byte {stream.tell()}"
        raise UnreadableInput(what, place=place, hint="Write the file again.") from error
    if more := len(data) - stream.tell():
        place, hint = f"byte {stream.tell()}", "A graph file contains one map and no further bytes."
        raise UnreadableInput(f"the file contains {more:,} B after the CBOR value.", place=place, hint=hint)
    return value
