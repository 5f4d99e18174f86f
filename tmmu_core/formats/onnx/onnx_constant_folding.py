"""Fold the nodes of an ONNX model that compute small constants, such as shapes, axes and sizes.

A ``Shape`` or ``Size`` node is folded if the sizes that it reads are fixed. Any other standard operator is folded if it
is not random, its operands are known and its results are small. The onnx package's reference evaluator computes them.
"""

from collections.abc import Mapping
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tmmu_core.formats.onnx.onnx_model import SHAPE_OPERATORS, VIEWS, TypedShapes, with_nodes
from tmmu_core.graph.operators import operator_of

MAX_FOLDED_ELEMENTS = 1024  # maximum number of elements of a folded value

Array = NDArray[Any]

DYNAMIC = -(2**63)  # marks a dynamic size in a shape or a vector of sizes
SELECTIONS = frozenset({"Concat", "Gather", "Identity", "Slice", "Squeeze", "Unsqueeze"})  # copy elements of vectors
SMALL_RESULTS = SELECTIONS | {"Constant", "NonZero", "Unique", "Compress"}  # results not much larger than the operands


def fold_constants(model: onnx.ModelProto, known: TypedShapes) -> onnx.ModelProto | None:
    """Return the model with the results of foldable nodes as initialisers; ``None`` without foldable nodes."""
    shapes = {name: tuple([d if isinstance(d, int) else DYNAMIC for d in dims]) for name, (_, dims) in known.items()}
    shapes |= {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    values = small_weights(model)
    dynamic_values: set[str] = set()  # vectors with DYNAMIC: ``Shape`` writes them, ``SELECTIONS`` read and write them
    nodes: list[onnx.NodeProto] = []
    folded: dict[str, Array] = {}
    opsets = list(model.opset_import)
    for node in model.graph.node:
        results = _evaluated(node, values, dynamic_values, shapes, opsets)
        values |= results
        reads_dynamic = node.op_type == "Shape" or not dynamic_values.isdisjoint(node.input)
        if reads_dynamic and any(DYNAMIC in array for array in results.values()):
            dynamic_values |= results.keys()
        elif results:
            folded |= results
            continue
        nodes.append(node)
    if not folded:
        return None
    folded_model = with_nodes(model, nodes)
    folded_model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in folded.items())
    return folded_model


def small_weights(model: onnx.ModelProto) -> dict[str, Array]:
    """Return name → value of the initialisers that are small and not in external files."""
    values = {}
    for weight in model.graph.initializer:
        if prod(weight.dims) <= MAX_FOLDED_ELEMENTS and weight.data_location != TensorProto.EXTERNAL:
            with suppress(TypeError, ValueError):  # it has no type, or its shape needs more bytes than it has
                values[weight.name] = numpy_helper.to_array(weight)
    return values


def _evaluated(
    node: onnx.NodeProto,
    values: Mapping[str, Array],
    dynamic_values: set[str],
    shapes: Mapping[str, tuple[int, ...]],
    opsets: list[Any],
) -> dict[str, Array]:
    """Return the results of a node by name; no results if they cannot be computed or are not small."""
    operator = node.op_type
    if node.domain or (operator_of(operator).is_random and operator not in VIEWS):  # Dropout is a view in inference
        return {}
    if operator in SHAPE_OPERATORS:
        shape = shapes.get(node.input[0])
        return {} if shape is None or (operator == "Size" and DYNAMIC in shape) else shape_result(node, shape)
    result_shapes = [shapes.get(name, (DYNAMIC,)) for name in node.output if name]
    is_small = all(DYNAMIC not in shape and prod(shape) <= MAX_FOLDED_ELEMENTS for shape in result_shapes)
    copied = node.input if operator == "Concat" else node.input[:1]  # other operands are indices, axes or ends
    may_be_dynamic = copied if operator in SELECTIONS else ()
    operands = [name for name in node.input if name]
    is_known = all(name in values and (name in may_be_dynamic or name not in dynamic_values) for name in operands)
    results: dict[str, Array] = {}
    if is_known and (is_small or operator in SMALL_RESULTS):
        with suppress(Exception):  # any error of numpy
            arrays = evaluate(node, {name: values[name] for name in operands}, opsets)
            results = {name: np.asarray(array) for name, array in zip(node.output, arrays, strict=True) if name}
    return results if all(array.size <= MAX_FOLDED_ELEMENTS for array in results.values()) else {}


def shape_result(node: onnx.NodeProto, shape: tuple[int, ...]) -> dict[str, Array]:
    """Return the result of a ``Shape`` or ``Size`` node by name, from the shape of its operand."""
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    dims = shape[attributes.get("start", 0) : attributes.get("end")]
    return {node.output[0]: np.array(prod(shape) if node.op_type == "Size" else dims, np.int64)}


def evaluate(node: onnx.NodeProto, operands: dict[str, Array], opsets: list[Any]) -> list[Any]:
    """Return the results of one node, ``None`` for omitted outputs. Raises any error of the evaluator or numpy."""
    from onnx.reference import ReferenceEvaluator  # slow to import

    element_of = helper.np_dtype_to_tensor_dtype
    inputs = [helper.make_tensor_value_info(name, element_of(a.dtype), a.shape) for name, a in operands.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "one", inputs, outputs)
    values = iter(ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets)).run(None, operands))
    return [next(values) if name else None for name in node.output]
