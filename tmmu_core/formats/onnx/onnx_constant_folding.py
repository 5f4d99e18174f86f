"""Fold the nodes of an ONNX model that compute small constants: shapes, axes, sizes and masks of shapes.

A ``Shape`` or ``Size`` node is folded if the shape of its operand is fixed. Any other node is folded if its operands
are known and its results are small. The reference evaluator of the onnx package evaluates one node at a time.
"""

from collections.abc import Mapping
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tmmu_core.formats.onnx.onnx_model import MEASURES, VIEWS, TypedShapes, with_nodes
from tmmu_core.graph.operators import operator_of

KEPT_ELEMENTS = 1024  # maximum number of elements of a value that is kept and folded

Array = NDArray[Any]
FixedShapes = Mapping[str, tuple[int, ...]]

OPEN = -(2**63)  # marks an open size in a shape or a vector of sizes
SELECTIONS = frozenset({"Concat", "Gather", "Identity", "Slice", "Squeeze", "Unsqueeze"})  # copy elements of vectors
LIMITED_RESULTS = SELECTIONS | {"Constant", "NonZero", "Unique", "Compress"}  # operands limit the results


def with_values(model: onnx.ModelProto, known_shapes: TypedShapes) -> onnx.ModelProto | None:
    """Return the model with the results of all foldable nodes as initialisers; ``None`` if no node is foldable."""
    shapes = {
        value: tuple([dim if isinstance(dim, int) else OPEN for dim in dims])
        for value, (_, dims) in known_shapes.items()
    }
    shapes |= {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    values = written_values(model)
    open_values: set[str] = set()  # vectors that contain OPEN; only ``Shape`` and ``SELECTIONS`` write and read them
    nodes: list[onnx.NodeProto] = []
    folded: dict[str, Array] = {}
    opsets = list(model.opset_import)
    for node in model.graph.node:
        results = _evaluated(node, values, open_values, shapes, opsets) or {}
        values |= results
        reads_open = node.op_type == "Shape" or not open_values.isdisjoint(node.input)
        if reads_open and any(OPEN in array for array in results.values()):
            open_values |= results.keys()
        elif results:
            folded |= results
            continue
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
    """Return the small initialisers whose values are in the model, by name."""
    values = {}
    for weight in model.graph.initializer:
        if prod(weight.dims) <= KEPT_ELEMENTS and weight.data_location != TensorProto.EXTERNAL:
            with suppress(TypeError, ValueError):  # no type, or fewer bytes than its shape needs
                values[weight.name] = numpy_helper.to_array(weight)
    return values


def _evaluated(
    node: onnx.NodeProto, values: Mapping[str, Array], open_values: set[str], shapes: FixedShapes, opsets: list[Any]
) -> dict[str, Array] | None:
    """Return the small results of a node by name; ``None`` if it cannot be evaluated."""
    operator = node.op_type
    if node.domain or (operator_of(operator).is_random and operator not in VIEWS):  # Dropout is a view in inference
        return None
    if operator in MEASURES:
        return None if operator == "Size" and OPEN in shapes.get(node.input[0], ()) else measured(node, shapes)
    written = [shapes.get(name, (OPEN,)) for name in node.output if name]
    is_small = all(OPEN not in shape and prod(shape) <= KEPT_ELEMENTS for shape in written)
    if not is_small and operator not in LIMITED_RESULTS:
        return None
    vectors = node.input if operator == "Concat" else node.input[:1]  # other operands are indices, axes or ends
    selectable = vectors if operator in SELECTIONS else ()
    operands = [name for name in node.input if name]
    if not all(name in values and (name in selectable or name not in open_values) for name in operands):
        return None
    try:
        arrays = reference(node, {name: values[name] for name in operands}, opsets)
    except Exception:  # any error of numpy
        return None
    results = {name: np.asarray(array) for name, array in zip(node.output, arrays, strict=True) if name}
    return results if all(array.size <= KEPT_ELEMENTS for array in results.values()) else None


def measured(node: onnx.NodeProto, shapes: FixedShapes) -> dict[str, Array] | None:
    """Return the result of a ``Shape`` or ``Size`` node by name; ``None`` if ``shapes`` lacks its operand."""
    shape = shapes.get(node.input[0])
    if shape is None:
        return None
    ends = {attribute.name: attribute.i for attribute in node.attribute}
    size = np.array(shape[ends.get("start", 0) : ends.get("end")], np.int64)
    return {node.output[0]: np.array(prod(shape), np.int64) if node.op_type == "Size" else size}


def reference(node: onnx.NodeProto, operands: dict[str, Array], opsets: list[Any]) -> list[Any]:
    """Return the results of one node, ``None`` for omitted outputs. Raises any error of the evaluator or numpy."""
    from onnx.reference import ReferenceEvaluator  # slow to import

    element_of = helper.np_dtype_to_tensor_dtype
    inputs = [helper.make_tensor_value_info(name, element_of(a.dtype), a.shape) for name, a in operands.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "one", inputs, outputs)
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))
    values = iter(evaluator.run(None, operands))
    return [next(values) if name else None for name in node.output]
