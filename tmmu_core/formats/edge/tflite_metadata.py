"""Write one metadata entry into a TensorFlow Lite model and leave every other byte of it as it is.

A flatbuffer refers forward only: a new root table, its lists of buffers and metadata, and the entry are inserted behind
the file's identifier, and the old bytes follow. Two fields count from the start of the file and are moved with them:
the place of data behind the flatbuffer (``Buffer.offset``) and that of large custom options.
"""

from __future__ import annotations

import struct
from typing import Any

from tmmu_core.base.errors import Misuse

HEAD = 8
"""Bytes before the inserted ones: the reference to the root table, and the identifier."""
FIELDS = 8
"""Fields of the schema's table ``Model``, of four bytes each: the version, and references."""
BUFFERS, METADATA = 4, 6
"""The numbers of two of them."""
GRID = 64
"""The inserted bytes are a multiple of this, which keeps the alignment of everything behind them."""
OFFSET_OF_DATA, OFFSET_OF_OPTIONS = 4 + 2 * 1, 4 + 2 * 9
"""The slots of ``Buffer.offset`` and ``Operator.large_custom_options_offset`` in their tables."""


def with_metadata(data: bytes, name: bytes, value: bytes, source: str = "") -> bytes:
    """Return the model in ``data`` with the metadata ``name`` set to ``value``.

    Raises ``Misuse`` for a model of a newer schema, whose root table has fields that are not known here.
    """
    import tflite

    model = tflite.Model.GetRootAs(data, 0)
    entries = [model.Metadata(k) for k in range(model.MetadataLength())]
    graphs = [model.Subgraphs(k) for k in range(model.SubgraphsLength())]
    for entry in entries:
        held = model.Buffers(entry.Buffer())
        is_shared = any(entry.Buffer() == g.Tensors(i).Buffer() for g in graphs for i in range(g.TensorsLength()))
        if entry.Name() == name and held.DataLength() == len(value) and not is_shared:
            start = held._tab.Vector(held._tab.Offset(4))
            return data[:start] + value + data[start + len(value) :]
    buffers = [model.Buffers(k)._tab for k in range(model.BuffersLength())]
    kept = [entry._tab.Pos for entry in entries if entry.Name() != name]
    new = _inserted(_root_fields(model._tab, source), [table.Pos for table in buffers], kept, name, value)
    moved = bytearray(data[:HEAD] + new + data[HEAD:])
    struct.pack_into("<I", moved, 0, HEAD + 4 + 2 * FIELDS)
    operators = [g.Operators(i)._tab for g in graphs for i in range(g.OperatorsLength())]
    fields = [_field(table, OFFSET_OF_DATA) for table in buffers]
    fields += [_field(table, OFFSET_OF_OPTIONS) for table in operators]
    for at in set(fields) - {0}:
        (place,) = struct.unpack_from("<Q", data, at)
        if place > 1:  # 0 and 1 mean no such data
            struct.pack_into("<Q", moved, at + len(new), place + len(new))
    return bytes(moved)


def _field(table: Any, slot: int) -> int:
    """Return the place of a table's field; 0 if it is absent."""
    found = table.Offset(slot)
    return int(table.Pos + found) if found else 0


def _root_fields(table: Any, source: str) -> list[int]:
    """Return the version, then the places that the root table's fields refer to; 0 for one that is absent."""
    vtable = table.Pos - struct.unpack_from("<i", table.Bytes, table.Pos)[0]
    (size,) = struct.unpack_from("<H", table.Bytes, vtable)
    fields = [_field(table, slot) for slot in range(4, max(size, 4 + 2 * FIELDS), 2)]
    if any(fields[FIELDS:]):
        raise Misuse(
            f"{source or 'the model'} has fields of a newer schema of TensorFlow Lite, which would be lost.",
            "Convert the model with an earlier version of the converter.",
        )
    values = [struct.unpack_from("<I", table.Bytes, at)[0] if at else 0 for at in fields]
    return [values[0], *(value and at + value for at, value in zip(fields[1:], values[1:], strict=True))]


def _inserted(fields: list[int], buffers: list[int], metadata: list[int], name: bytes, value: bytes) -> bytes:
    """Return the new tables, for byte ``HEAD`` of the file. The places of old tables are those in the old file."""
    root = HEAD + 4 + 2 * FIELDS
    buffer_list = root + 4 + 4 * FIELDS
    metadata_list = buffer_list + 8 + 4 * len(buffers)
    entry = metadata_list + 8 + 4 * len(metadata) + 8
    text = entry + 12
    buffer = text + 4 + (len(name) + 4) // 4 * 4 + 8
    content = (buffer + 8 + 4 + 15) // 16 * 16 - 4
    length = (content + 4 + len(value) - HEAD + GRID - 1) // GRID * GRID
    words = bytearray(HEAD + length)

    def put(kind: str, at: int, *values: int | bytes) -> None:
        struct.pack_into(f"<{kind}", words, at, *values)

    places = [old and old + length for old in fields]
    places[BUFFERS], places[METADATA] = buffer_list, metadata_list
    put("HH", HEAD, root - HEAD, 4 + 4 * FIELDS)
    put("iI", root, root - HEAD, fields[0])
    put("H", HEAD + 4, 4)
    for k, place in enumerate(places[1:], 1):
        at = root + 4 + 4 * k
        put("I", at, place and place - at)
        put("H", HEAD + 4 + 2 * k, place and at - root)
    for start, olds, last in ((buffer_list, buffers, buffer), (metadata_list, metadata, entry)):
        put("I", start, len(olds) + 1)
        for at, place in enumerate([*(old + length for old in olds), last], 1):
            put("I", start + 4 * at, place - start - 4 * at)
    put("HHHHiII", entry - 8, 8, 12, 4, 8, 8, text - entry - 4, len(buffers))
    put(f"I{len(name)}s", text, len(name), name)
    put("HHHHiI", buffer - 8, 6, 8, 4, 0, 8, content - buffer - 4)
    put(f"I{len(value)}s", content, len(value), value)
    return bytes(words[HEAD:])
