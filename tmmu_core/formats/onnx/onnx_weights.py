"""Locate the bytes of an ONNX model's constants by tensor id; they are read on use.

Parsing the model would load all its weights. Its wire format is scanned instead, and large fields of numbers are
replaced by their location. The remaining skeleton is flattened as for planning, so that ids are equal. The bytes of a
constant are:

* a field of numbers in the model's file: a range of it, or numbers converted to bytes;
* external data: a range of a file in the model's folder;
* folded from other constants: computed by the reference evaluator of the onnx package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, numpy_helper

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.onnx.onnx_constant_folding import measured, reference
from tmmu_core.formats.onnx.onnx_external import check_places
from tmmu_core.formats.onnx.onnx_reader import flattened
from tmmu_core.graph.constants import Constants, Held, InFile, Made, Piece, beside
from tmmu_core.graph.model import Graph

LARGE = 1 << 14
"""Bytes above which a field of numbers stays in the file: more than a table for shapes has."""
DEEPEST = 64
"""Nesting of bodies that is scanned; the onnx package reads no deeper."""
TAG = "tmmu.bytes:"

_DOC_STRING, _RAW = 12, 9
_NUMBERS = {4: "<f4", 5: "<i4", 7: "<i8", _RAW: "", 10: "<f8", 11: "<u8"}
"""Fields of a tensor that hold its numbers → their layout in memory."""
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "function": {7: "node"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
}
"""Message → its fields that lead to tensors."""
_NARROW = {
    TensorProto.INT32: "<i4",
    **dict.fromkeys((TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.INT16, TensorProto.UINT16), "<u2"),
}
"""Element types stored as 32-bit numbers → layout in memory; one byte for all others."""


def constants(data: Any, graph: Graph, where: Path | None, name: str = "") -> Constants:
    """Return the constants of ``graph``, read from ``data``: bytes, or a map of the file at ``where``.

    Raises ``UnreadableInput`` if the model is damaged or refers to a file outside of its folder.
    """
    reading = _Reading(data, where, name)
    wanted = [t.id for t in graph.tensors if t.role in ("parameter", "constant") and t.view is None]
    shapes = {t.id: t.shape for t in graph.tensors}
    return Constants(reading.pieces(wanted, shapes))


@dataclass
class _Stored:
    """A tensor of the model: its small fields, and the location of its large one."""

    proto: TensorProto
    field: int = 0
    start: int = 0
    length: int = 0


@dataclass
class _Reading:
    data: Any
    where: Path | None
    name: str
    stored: dict[str, _Stored] = field(default_factory=dict)
    """By the tag that a tensor keeps through inlining and flattening."""

    def pieces(self, wanted: list[str], shapes: Mapping[str, tuple[int | str, ...]]) -> dict[str, Piece]:
        places: dict[int, tuple[int, int, int]] = {}
        skeleton = b"".join(_without_numbers(memoryview(self.data), "model", 0, 0, places))
        try:
            model = onnx.ModelProto.FromString(skeleton)
        except DecodeError as error:
            raise _damaged(self.name) from error
        check_places(model, self.name)
        for number, proto in enumerate(_tensors(model)):
            kept = TensorProto()
            kept.CopyFrom(proto)
            at = proto.doc_string.rpartition(TAG)[2] if TAG in proto.doc_string else ""
            self.stored[str(number)] = _Stored(kept, *places[int(at)]) if at else _Stored(kept)
            proto.doc_string = f"{TAG}{number}"
        flat = flattened(model, self.name).model
        weights = {weight.name: weight for weight in flat.graph.initializer}
        known: dict[str, Piece] = {key: self._piece(weight) for key, weight in weights.items()}
        writer_of = {name: node for node in flat.graph.node for name in node.output if name}
        made = _Folded(writer_of, shapes, list(flat.opset_import), self._piece, weights)
        return {name: known[name] if name in known else made.piece(name) for name in wanted}

    def _piece(self, proto: TensorProto) -> Piece:
        """Return the location of the bytes of a tensor of the model, found by its tag, or of a folded one."""
        tag = proto.doc_string.removeprefix(TAG)
        stored = self.stored[tag] if proto.doc_string.startswith(TAG) else _Stored(proto)
        proto = stored.proto
        if proto.data_location == TensorProto.EXTERNAL:
            return self._external(proto)
        if stored.field == _RAW:
            if self.where is not None:
                return InFile(self.where, stored.start, stored.length)
            return Held(memoryview(self.data), stored.start, stored.length)
        if stored.field:
            return Made(lambda: self._converted(stored))
        if proto.HasField("raw_data"):
            return Held(proto.raw_data)
        return Made(lambda: _plain(proto))

    def _external(self, proto: TensorProto) -> Piece:
        entries = {entry.key: entry.value for entry in proto.external_data}
        what = f'the weight "{proto.name}"'
        path = beside(self.where.parent if self.where else None, entries.get("location", ""), what)
        try:
            start, length = int(entries.get("offset", "0")), entries.get("length")
            count = None if length is None else int(length)
        except ValueError as error:
            raise _damaged(self.name) from error
        if start < 0 or (count is not None and count < 0):
            raise _damaged(self.name)
        return InFile(path, start, count)

    def _converted(self, stored: _Stored) -> bytes:
        """Parse a large field of numbers that is not raw, and return it as bytes."""
        numbers = bytes(memoryview(self.data)[stored.start : stored.start + stored.length])
        proto = TensorProto()
        proto.MergeFromString(_tag(stored.field, 2) + _varint(len(numbers)) + numbers)
        proto.data_type = stored.proto.data_type
        return _plain(proto)


def _plain(proto: TensorProto) -> bytes:
    """Return the bytes of a tensor whose numbers are in a typed field."""
    for name, kind, stored in (
        ("float_data", "<f4", "<f4"),
        ("int32_data", "<i8", _NARROW.get(proto.data_type, "<u1")),
        ("int64_data", "<i8", "<i8"),
        ("double_data", "<f8", "<f8"),
        ("uint64_data", "<u8", "<u4" if proto.data_type == TensorProto.UINT32 else "<u8"),
    ):
        values = getattr(proto, name)
        if len(values):
            return np.array(values, kind).astype(stored).tobytes()
    return bytes(proto.raw_data)


@dataclass
class _Folded:
    """Constants that depend on no graph input."""

    writer_of: Mapping[str, onnx.NodeProto]
    shapes: Mapping[str, tuple[int | str, ...]]
    opsets: list[Any]
    piece_of: Any
    weights: Mapping[str, TensorProto]

    def piece(self, name: str) -> Piece:
        written = self._written(name)
        if written is not None:
            piece: Piece = self.piece_of(written)
            return piece
        return Made(lambda: np.ascontiguousarray(self._array(name, 0)).tobytes())

    def _written(self, name: str) -> TensorProto | None:
        """Return the tensor with this name: a weight, or the value of a ``Constant`` node."""
        node = self.writer_of.get(name)
        if node is not None and node.op_type == "Constant" and [a.name for a in node.attribute] == ["value"]:
            return node.attribute[0].t
        return self.weights.get(name)

    def _array(self, name: str, depth: int) -> Any:
        node = self.writer_of.get(name)
        if node is None or depth > DEEPEST:
            raise _not_computed(name)
        known = ((key, tuple(dim for dim in shape if isinstance(dim, int))) for key, shape in self.shapes.items())
        fixed = {key: sizes for key, sizes in known if len(sizes) == len(self.shapes[key])}
        results = measured(node, fixed) if node.op_type in ("Shape", "Size") else None
        if results is None:
            try:
                arrays = {operand: self._operand(operand, depth) for operand in node.input if operand}
                values = reference(node, arrays, self.opsets)
            except UnreadableInput:
                raise
            except Exception as error:  # any error of numpy
                raise _not_computed(name) from error
            results = dict(zip(node.output, values, strict=False))
        return np.asarray(results[name])

    def _operand(self, name: str, depth: int) -> Any:
        written = self._written(name)
        if written is None:
            return self._array(name, depth + 1)
        whole = TensorProto(data_type=written.data_type, dims=written.dims)
        whole.raw_data = b"".join(self.piece_of(written).chunks())
        return numpy_helper.to_array(whole)


def _not_computed(name: str) -> UnreadableInput:
    return UnreadableInput(
        f'the constant "{name}" is computed in the model by operators that cannot be evaluated.',
        hint="Let an optimiser fold the model's constants, or export it again with constant folding.",
    )


# --- the wire format -----------------------------------------------------------------------------------------------


def _without_numbers(
    view: memoryview, message: str, depth: int, base: int, places: dict[int, tuple[int, int, int]]
) -> Iterator[bytes]:
    """Yield the message without its large fields of numbers; ``places`` collects (field, start in the file, length)."""
    inside = _INSIDE.get(message, {})
    at = 0
    while at < len(view):
        begin = at
        key, at = _read_varint(view, at)
        number, wire = key >> 3, key & 7
        if wire != 2:
            at = _after(view, at, wire)
            yield bytes(view[begin:at])
            continue
        length, at = _read_varint(view, at)
        if at + length > len(view):
            raise _damaged("")
        body = view[at : at + length]
        if message == "tensor" and number in _NUMBERS and length > LARGE:
            places[len(places)] = (number, base + at, length)
            tag = f"{TAG}{len(places) - 1}".encode()
            yield _tag(_DOC_STRING, 2) + _varint(len(tag)) + tag
        elif message == "tensor" and number == _DOC_STRING:
            pass  # the tag must be the only one
        elif number in inside and depth < DEEPEST * 4:
            inner = b"".join(_without_numbers(body, inside[number], depth + 1, base + at, places))
            yield _tag(number, 2) + _varint(len(inner)) + inner
        else:
            yield bytes(view[begin : at + length])
        at += length


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(view) and shift < 64:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise _damaged("")


def _after(view: memoryview, at: int, wire: int) -> int:
    if wire == 0:
        return _read_varint(view, at)[1]
    if wire in (1, 5) and at + (8 if wire == 1 else 4) <= len(view):
        return at + (8 if wire == 1 else 4)
    raise _damaged("")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Yield every dense tensor: weights and constants, in bodies and functions too."""
    waiting: list[Any] = [model.graph, *model.functions]
    while waiting:
        here = waiting.pop()
        yield from getattr(here, "initializer", ())
        for node in here.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                waiting += [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _damaged(name: str) -> UnreadableInput:
    return UnreadableInput("the ONNX model is cut off or damaged.", source=name, hint="Copy the file again.")
