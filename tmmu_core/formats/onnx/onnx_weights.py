"""Find the bytes of an ONNX model's constants by tensor id.

The model is flattened as for planning, so that ids are equal. The bytes of a constant are in the model, in a range of
a file in the model's folder (external data), or computed from other constants by the reference evaluator of the onnx
package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, numpy_helper

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.onnx.onnx_constant_folding import measured, reference
from tmmu_core.formats.onnx.onnx_model import check_places, tensors_of
from tmmu_core.formats.onnx.onnx_reader import flattened
from tmmu_core.graph.constants import Computed, Constants, InFile, InMemory, Piece, beside
from tmmu_core.graph.model import Graph

DEEPEST = 64
"""Longest chain of folded constants."""
TAG = "tmmu.bytes:"
"""Prefix of the documentation string that identifies a tensor through inlining and flattening."""
_NARROW = {
    TensorProto.INT32: "<i4",
    **dict.fromkeys((TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.INT16, TensorProto.UINT16), "<u2"),
}
"""Element types stored as 32-bit numbers → layout in memory; one byte for all others."""


def constants(data: Any, graph: Graph, where: Path | None, name: str = "") -> Constants:
    """Return the constants of ``graph``, read from ``data``: bytes, or a map of the file at ``where``.

    Raises ``UnreadableInput`` if the model is damaged or refers to a file outside of its folder.
    """
    try:
        model = onnx.ModelProto.FromString(bytes(data))
    except DecodeError as error:
        raise _damaged(name) from error
    check_places(model, name)
    reading = _Reading(where, name, [])
    for proto in tensors_of(model):
        kept = TensorProto()
        kept.CopyFrom(proto)
        proto.doc_string = f"{TAG}{len(reading.stored)}"
        reading.stored.append(kept)
    flat = flattened(model, name).model
    weights = {weight.name: weight for weight in flat.graph.initializer}
    writer_of = {output: node for node in flat.graph.node for output in node.output if output}
    shapes = {tensor.id: tensor.shape for tensor in graph.tensors}
    folded = _Folded(writer_of, shapes, list(flat.opset_import), reading.piece, weights)
    wanted = [t.id for t in graph.tensors if t.role in ("parameter", "constant") and t.view is None]
    return Constants({key: reading.piece(weights[key]) if key in weights else folded.piece(key) for key in wanted})


@dataclass
class _Reading:
    where: Path | None
    name: str
    stored: list[TensorProto]
    """The model's tensors with their values, by the number in their tag."""

    def piece(self, proto: TensorProto) -> Piece:
        """Return the bytes of a tensor of the model, found by its tag, or of a folded one."""
        if proto.doc_string.startswith(TAG):
            proto = self.stored[int(proto.doc_string.removeprefix(TAG))]
        if proto.data_location == TensorProto.EXTERNAL:
            return self._external(proto)
        return InMemory(proto.raw_data) if proto.HasField("raw_data") else Computed(lambda: _plain(proto))

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
        return Computed(lambda: np.ascontiguousarray(self._array(name, 0)).tobytes())

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


def _damaged(name: str) -> UnreadableInput:
    return UnreadableInput("the ONNX model is cut off or damaged.", source=name, hint="Copy the file again.")
