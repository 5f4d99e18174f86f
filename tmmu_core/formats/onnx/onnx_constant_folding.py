"""Fold the small constants that an ONNX model computes for its shapes; never a weight or an activation.

A node is evaluated if its operands are known and small (shapes, axes, masks of shapes) and its results are small too.
The reference evaluator of the onnx package evaluates one node at a time.
"""

from collections.abc import Mapping
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tmmu_core.formats.onnx.onnx_model import MEASURES, VIEWS, Known, fixed_shape, with_nodes
from tmmu_core.graph.operators import operator_of

KEPT_ELEMENTS = 1024
"""Values of up to this many elements are kept and folded: shapes, axes, pads, sizes, small tables."""

Array = NDArray[Any]

OPEN = -(2**63)
"""Marks an open size in a vector of sizes."""
SELECTIONS = frozenset({"Concat", "Gather", "Identity", "Slice", "Squeeze", "Unsqueeze"})
"""Operators that select elements of a vector of sizes: a fixed size in their result does not depend on open sizes."""


def with_values(model: onnx.ModelProto, found: Known) -> onnx.ModelProto | None:
    """Return the model with every foldable node replaced by its results; ``None`` if there is none.

    ``found`` are the shapes known so far. A node without a known result shape is folded only if its result is small.
    """
    shapes = {value: shape for value in found if (shape := fixed_shape(found, value)) is not None}
    shapes |= {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    known = written_values(model)
    partial: dict[str, Array] = {}
    nodes: list[onnx.NodeProto] = []
    folded: dict[str, Array] = {}
    opsets = list(model.opset_import)
    for node in model.graph.node:
        results = _evaluated(node, known, shapes, opsets)
        if results is None:
            results = _selected_sizes(node, known, partial, found, opsets)
            if any(OPEN in array for array in results.values()):
                partial |= results
                results = {}
        if results:
            known |= results
            folded |= results
        else:
            nodes.append(node)
    if not folded:
        return None
    smaller = with_nodes(model, nodes)
    smaller.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in folded.items())
    infos = [info for info in smaller.graph.value_info if info.name not in folded]
    del smaller.graph.value_info[:]
    smaller.graph.value_info.extend(infos)
    return smaller


def written_values(model: onnx.ModelProto) -> dict[str, Array]:
    """Return the small initialisers that are complete in the file, by name."""
    found = {}
    for weight in model.graph.initializer:
        if prod(weight.dims) <= KEPT_ELEMENTS and weight.data_location != TensorProto.EXTERNAL:
            with suppress(TypeError, ValueError):  # no type, or fewer bytes than its shape needs
                found[weight.name] = numpy_helper.to_array(weight)
    return found


def _evaluated(
    node: onnx.NodeProto, known: dict[str, Array], shapes: dict[str, tuple[int, ...]], opsets: list[Any]
) -> dict[str, Array] | None:
    """Return the node's results by name; ``None`` if it cannot be folded."""
    operator = node.op_type
    if node.domain or (operator_of(operator).is_random and operator not in VIEWS):
        return None
    if operator in MEASURES:
        return measured(node, shapes)
    operands = {name: known.get(name) for name in node.input if name}
    arrays = {name: array for name, array in operands.items() if array is not None}
    if len(arrays) != len(operands) or _grows(node, arrays, shapes):
        return None
    try:
        values = reference(node, arrays, opsets)
    except Exception:  # any error of numpy; the node is kept
        return None
    results = {name: np.asarray(array) for name, array in zip(node.output, values, strict=False) if name}
    return results if all(array.size <= KEPT_ELEMENTS for array in results.values()) else None


def measured(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array] | None:
    """Return the result of a ``Shape`` or ``Size`` node if its operand's shape is fixed."""
    shape = shapes.get(node.input[0])
    if shape is None:
        return None
    ends = {attribute.name: attribute.i for attribute in node.attribute}
    size = np.array(shape[ends.get("start", 0) : ends.get("end")], np.int64)
    return {node.output[0]: np.array(prod(shape), np.int64) if node.op_type == "Size" else size}


def _selected_sizes(
    node: onnx.NodeProto, known: dict[str, Array], partial: dict[str, Array], found: Known, opsets: list[Any]
) -> dict[str, Array]:
    """Return the result of a node that reads or selects sizes, with ``OPEN`` for open ones; empty for another node."""
    if node.op_type == "Shape" and not node.domain and node.input[0] in found:
        sizes = [dim if isinstance(dim, int) else OPEN for dim in found[node.input[0]][1]]
        return measured(node, {node.input[0]: tuple(sizes)}) or {}
    if node.op_type not in SELECTIONS or node.domain:
        return {}
    vectors = node.input if node.op_type == "Concat" else node.input[:1]
    operands = {name: known.get(name, partial.get(name) if name in vectors else None) for name in node.input if name}
    arrays = {name: array for name, array in operands.items() if array is not None}
    if len(arrays) == len(operands) and sum(arrays[name].size for name in node.input if name) <= KEPT_ELEMENTS:
        with suppress(Exception):  # any error of numpy
            return dict(zip(node.output, map(np.asarray, reference(node, arrays, opsets)), strict=False))
    return {}


def _grows(node: onnx.NodeProto, operands: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> bool:
    """Return whether the result may have more than ``KEPT_ELEMENTS`` elements."""
    written = [shapes[name] for name in node.output if name in shapes]
    if len(written) == len([name for name in node.output if name]):
        return any(prod(shape) > KEPT_ELEMENTS for shape in written)
    return node.op_type not in ("Constant", "NonZero", "Unique", "Compress")


def reference(node: onnx.NodeProto, operands: dict[str, Array], opsets: list[Any]) -> list[Any]:
    """Return the results of one node on ``operands``. Raises any error of the evaluator or numpy."""
    from onnx.reference import ReferenceEvaluator  # slow to import

    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in operands.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "one", inputs, outputs)
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))
    values = iter(evaluator.run(None, operands))
    return [next(values) if name else None for name in node.output]
