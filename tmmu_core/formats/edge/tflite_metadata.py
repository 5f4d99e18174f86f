"""Write one metadata entry into a TensorFlow Lite model and leave every other byte of it as it is.

A flatbuffer refers forward only, and its builder writes from the end to the start. So the old bytes are given to a
builder as what it wrote last; it puts a new root table, its lists of buffers and metadata, and the entry before them.
Two fields count from the start of the file and are moved with the old bytes: the place of data behind the flatbuffer
(``Buffer.offset``) and that of large custom options.
"""

import struct
from typing import Any

from tmmu_core.base.errors import Misuse

HEAD = 8
"""Bytes before the inserted ones: the reference to the root table, and the identifier."""
FIELDS = 8
"""Fields of the schema's table ``Model``: the version, and references."""
BUFFERS, METADATA = 4, 6
"""The numbers of two of them."""
GRID = 64
"""The inserted bytes are a multiple of this, which keeps the alignment of everything behind them."""
DATA_ALIGNMENT = 16
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
    kept = [entry._tab for entry in entries if entry.Name() != name]
    moved = bytearray(_extended(model, [buffers, kept], name, value, source))
    inserted = len(moved) - len(data)
    operators = [g.Operators(i)._tab for g in graphs for i in range(g.OperatorsLength())]
    for table, slot in [*((each, OFFSET_OF_DATA) for each in buffers), *((o, OFFSET_OF_OPTIONS) for o in operators)]:
        at = table.Pos + table.Offset(slot)
        (place,) = struct.unpack_from("<Q", data, at) if at > table.Pos else (0,)
        if place > 1:  # 0 and 1 mean no such data
            struct.pack_into("<Q", moved, at + inserted, place + inserted)
    return bytes(moved)


def _extended(model: Any, lists: list[list[Any]], name: bytes, value: bytes, source: str) -> bytes:
    """Return the file with new tables before the old ones; ``lists`` are the buffers and metadata that stay."""
    import flatbuffers
    import tflite

    root, old = model._tab, bytes(model._tab.Bytes[HEAD:])
    vtable = root.Pos - struct.unpack_from("<i", root.Bytes, root.Pos)[0]
    (vtable_bytes,) = struct.unpack_from("<H", root.Bytes, vtable)
    if any(root.Offset(slot) for slot in range(4 + 2 * FIELDS, vtable_bytes, 2)):
        raise Misuse(
            f"{source or 'the model'} has fields of a newer schema of TensorFlow Lite, which would be lost.",
            "Convert the model with an earlier version of the converter.",
        )
    builder = flatbuffers.Builder(0)
    padding = -(HEAD + len(old)) % GRID  # a builder aligns to the end
    builder.Bytes = bytearray(old + bytes(padding))
    end = HEAD + len(builder.Bytes)

    def list_of(tables: list[Any], last: int) -> int:
        builder.StartVector(4, len(tables) + 1, 4)
        for offset in [last, *(end - table.Pos for table in reversed(tables))]:
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    builder.StartVector(1, len(value), DATA_ALIGNMENT)
    for byte in reversed(value):
        builder.PrependByte(byte)
    content = builder.EndVector()
    tflite.BufferStart(builder)
    tflite.BufferAddData(builder, content)
    buffer = tflite.BufferEnd(builder)
    text = builder.CreateString(name)
    tflite.MetadataStart(builder)
    tflite.MetadataAddName(builder, text)
    tflite.MetadataAddBuffer(builder, len(lists[0]))
    entry = tflite.MetadataEnd(builder)
    new = {BUFFERS: list_of(lists[0], buffer), METADATA: list_of(lists[1], entry)}
    builder.StartObject(FIELDS)
    builder.PrependUint32Slot(0, model.Version(), 0)
    for field in range(1, FIELDS):
        at = root.Offset(4 + 2 * field)
        builder.PrependUOffsetTRelativeSlot(field, new.get(field, end - root.Indirect(root.Pos + at) if at else 0), 0)
    builder.Prep(GRID, HEAD)
    builder.Finish(builder.EndObject(), b"TFL3")
    return bytes(builder.Output()[: len(builder.Output()) - padding])
