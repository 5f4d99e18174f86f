"""Find the bytes of an ONNX model's constants by tensor id.

The model is flattened as for a plan, so its ids are those of the graph. The bytes of a constant are in the model, in a
range of a file in the model's folder (external data), or computed from a fixed shape or by onnx's reference evaluator.
"""

from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto, numpy_helper

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.onnx.onnx_inference import evaluate, shape_result
from tmmu_core.formats.onnx.onnx_model import SHAPE_OPERATORS, check_weight_paths, tensors_of
from tmmu_core.formats.onnx.onnx_reader import flattened
from tmmu_core.formats.onnx.onnx_shapes import DTYPES
from tmmu_core.graph import dtypes
from tmmu_core.graph.constants import ByteReader, Constants, in_file, in_memory, path_in_folder
from tmmu_core.graph.model import Graph

MAX_DEPTH = 64  # maximum length of a chain of computed constants
TAG = "tmmu.bytes:"  # prefix of the documentation string that identifies a tensor after inlining and flattening


def constants(data: Any, graph: Graph, path: Path | None, name: str = "") -> Constants:
    """Return the constants of ``graph``. ``data``: the model; ``path``: its file. Raises ``UnreadableInput``."""
    try:
        model = ModelProto.FromString(bytes(data))
    except DecodeError as error:
        raise _damaged(name) from error
    check_weight_paths(model)
    stored: list[TensorProto] = []
    for proto in tensors_of(model):
        stored.append(deepcopy(proto))
        proto.doc_string = f"{TAG}{len(stored) - 1}"
    reader = _ConstantReader(flattened(model).model, stored, graph, path, name)
    ids = [t.id for t in graph.tensors if t.role in ("parameter", "constant") and t.view is None]
    return Constants({tensor_id: reader.byte_reader(tensor_id) for tensor_id in ids})


class _ConstantReader:
    def __init__(self, flat: ModelProto, stored: list[TensorProto], graph: Graph, path: Path | None, name: str) -> None:
        self.stored = stored  # the model's tensors, at the index in their tag
        self.path, self.name = path, name
        self.opsets = list(flat.opset_import)
        self.weights = {weight.name: weight for weight in flat.graph.initializer}
        self.writer_of = {output: node for node in flat.graph.node for output in node.output if output}
        static = [tensor for tensor in graph.tensors if not any(isinstance(dim, str) for dim in tensor.shape)]
        self.static_shapes = {tensor.id: tuple([int(dim) for dim in tensor.shape]) for tensor in static}

    def byte_reader(self, name: str) -> ByteReader:
        proto = self._proto(name)
        return self._bytes(proto) if proto is not None else lambda: in_memory(_packed(self._array(name, {})))

    def _proto(self, name: str) -> TensorProto | None:
        """Return the tensor of a weight or ``Constant`` node; ``None`` if the model computes the value."""
        node = None if name in self.weights else self.writer_of.get(name)
        if node is not None and node.op_type == "Constant" and [a.name for a in node.attribute] == ["value"]:
            return node.attribute[0].t
        return self.weights.get(name)

    def _bytes(self, proto: TensorProto) -> ByteReader:
        """Return the reader of a tensor of the flat model. The bytes of a tensor with a tag are in ``stored``."""
        if proto.doc_string.startswith(TAG):
            proto = self.stored[int(proto.doc_string.removeprefix(TAG))]
        size = dtypes.tensor_bytes(proto.dims, DTYPES[proto.data_type])
        if proto.data_location != TensorProto.EXTERNAL:
            if not proto.HasField("raw_data"):
                return lambda: in_memory(_packed(self._stored_array(proto)))
            if len(proto.raw_data) != size:
                raise self._wrong_size(proto, size, f"has {len(proto.raw_data):,} bytes of it")
            return partial(in_memory, proto.raw_data)
        entries = {entry.key: entry.value for entry in proto.external_data}
        folder = self.path.parent if self.path else None
        path = path_in_folder(folder, entries.get("location", ""), f"the weight {proto.name!r}")
        try:
            start, count = int(entries.get("offset", "0")), int(entries.get("length", size))
        except ValueError as error:
            raise _damaged(self.name) from error
        if start < 0 or count != size:
            raise self._wrong_size(proto, size, f"declares {count:,} bytes at byte {start} of {path.name[:80]!r}")
        return partial(in_file, path, start, size)

    def _wrong_size(self, proto: TensorProto, size: int, problem: str) -> UnreadableInput:
        what = f"the weight {proto.name!r} needs {size:,} bytes, but the model {problem}."
        return UnreadableInput(what, source=self.name, hint="Save the model and its weights again.")

    def _stored_array(self, proto: TensorProto) -> Any:
        try:
            return numpy_helper.to_array(proto)
        except ValueError as error:  # the numbers do not fill the shape
            raise _damaged(self.name) from error

    def _array(self, name: str, known: dict[str, Any], depth: int = 0) -> Any:
        """Return the value of a constant, and add it to ``known`` (name → value). Raises ``UnreadableInput``."""
        if name in known:
            return known[name]
        proto, node = self._proto(name), self.writer_of.get(name)
        if proto is not None:
            copy = TensorProto(data_type=proto.data_type, dims=proto.dims)
            copy.raw_data = b"".join(self._bytes(proto)())
            results = {name: numpy_helper.to_array(copy)}
        elif node is None or depth > MAX_DEPTH:
            raise _not_computed(name)
        elif node.op_type in SHAPE_OPERATORS and node.input[0] in self.static_shapes:
            results = shape_result(node, self.static_shapes[node.input[0]])
        else:
            try:
                operands = {operand: self._array(operand, known, depth + 1) for operand in node.input if operand}
                results = dict(zip(node.output, evaluate(node, operands, self.opsets), strict=False))
            except UnreadableInput:
                raise
            except Exception as error:  # any error of numpy
                raise _not_computed(name) from error
        known.update(results)
        return known[name]


def _packed(array: Any) -> bytes:
    """Return the bytes of an array as a tensor stores them: elements smaller than a byte share bytes."""
    return bytes(numpy_helper.from_array(np.asarray(array)).raw_data)


def _not_computed(name: str) -> UnreadableInput:
    what = f"the constant {name!r} is computed in the model by operators that cannot be evaluated."
    return UnreadableInput(what, "Export the model with constant folding, or fold its constants with an optimizer.")


def _damaged(name: str) -> UnreadableInput:
    return UnreadableInput("the ONNX model is cut off or damaged.", source=name, hint="Copy the file again.")
