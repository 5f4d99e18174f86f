"""Infer what the onnx package does not infer: small constants, and shapes of scope nodes (:mod:`.onnx_scopes`).

The results of nodes that compute small constants, such as shapes, axes and sizes, become initialisers. A ``Shape`` or
``Size`` node is folded if the sizes that it reads are fixed. Any other standard operator is folded if it is not random,
its operands are known and its results are small. Scope nodes have no ONNX schema.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.onnx.onnx_model import SHAPE_OPERATORS, VIEWS, TypedShape, attribute_of, typed_shape, with_nodes
from tmmu_core.formats.onnx.onnx_scopes import UNBOUNDED, Flat, Origin, branch_results, carried_of, is_scope
from tmmu_core.graph.model import Dim
from tmmu_core.graph.operators import operator_of

MAX_FOLDED_ELEMENTS = 1024  # maximum number of elements of a folded value

Array = NDArray[Any]

DYNAMIC = -(2**63)  # marks a dynamic size in a shape or a vector of sizes
SELECTIONS = frozenset({"Concat", "Gather", "Identity", "Slice", "Squeeze", "Unsqueeze"})  # copy elements of vectors
SMALL_RESULTS = SELECTIONS | {"Constant", "NonZero", "Unique", "Compress"}  # small if the operands are
Values = Mapping[str, Array]
AnyShape = tuple[Any, Sequence[int | str | None]]  # element type or dtype, and dimensions
InferredShapes = Iterator[tuple[str, TypedShape | None]]  # (value, its shape or ``None`` if that is unknown)
AT_MOST = "at_most"  # attribute of ``Loop.close``: the user's maximum for a trip count that is not constant


def fold_constants(model: onnx.ModelProto, known: Mapping[str, TypedShape]) -> onnx.ModelProto | None:
    """Return the model with the results of foldable nodes as initialisers; ``None`` without foldable nodes."""
    shapes = {name: tuple([d if isinstance(d, int) else DYNAMIC for d in dims]) for name, (_, dims) in known.items()}
    shapes |= {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    values = small_weights(model)
    dynamic_values: set[str] = set()  # vectors with DYNAMIC: ``Shape`` writes them, ``SELECTIONS`` read and write them
    nodes: list[onnx.NodeProto] = []
    folded: dict[str, Array] = {}
    opsets = list(model.opset_import)

    def evaluated(node: onnx.NodeProto) -> dict[str, Array]:
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

    for node in model.graph.node:
        results = evaluated(node)
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
            with suppress(KeyError, TypeError, ValueError):  # it has no known type, or fewer bytes than its shape
                values[weight.name] = numpy_helper.to_array(weight)
    return values


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


def scope_shapes(model: onnx.ModelProto, known: Mapping[str, TypedShape], values: Values) -> dict[str, TypedShape]:
    """Return the shapes of scope nodes and their readers that have fewer unknown dimensions than in ``known``."""
    new: dict[str, TypedShape] = {}
    weights = {weight.name: (weight.data_type, list(weight.dims)) for weight in model.graph.initializer}
    shapes = ChainMap[str, TypedShape](new, dict(known), weights)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for node in model.graph.node:
        inferred: Iterable[tuple[str, TypedShape | None]] = ()
        if is_scope(node):
            inferred = _RULES[node.op_type](node, shapes.get, values)  # lazy: a rule reads shapes that it yielded
        elif not new.keys().isdisjoint(node.input):  # not by inference of the whole model: too slow for many scopes
            with suppress(Exception):  # it is no standard operator, an operand has no shape, or inference fails
                schema = defs.get_schema(node.op_type, versions.get(node.domain, 0), node.domain)
                types = {name: helper.make_tensor_type_proto(*shapes[name]) for name in node.input if name}
                data = {name: numpy_helper.from_array(values[name]) for name in types if name in values}
                results = shape_inference.infer_node_outputs(schema, node, types, data)
                tensors = [(name, kind.tensor_type) for name, kind in results.items()]
                inferred = [(name, typed_shape(tensor)) for name, tensor in tensors if tensor.HasField("shape")]
        for name, shape in inferred:
            previous = shapes.get(name)
            if name and shape is not None and (previous is None or _unknowns(shape) < _unknowns(previous)):
                new[name] = shape
    return new


def _unknowns(shape: TypedShape) -> int:
    """Return a count of the dimensions that are not numbers; an unnamed one counts twice."""
    return sum(2 if dim is None else isinstance(dim, str) for dim in shape[1])


def equal_sizes(a: AnyShape | None, b: AnyShape | None) -> bool:
    """Return whether two shapes are equal, or are known and have equal bytes for all sizes of the named dimensions."""
    if a is None or b is None:
        return False
    return a == b or (a[0] == b[0] and None not in (*a[1], *b[1]) and elements_of(a[1]) == elements_of(b[1]))


def elements_of(dims: Sequence[int | str | None]) -> tuple[int, list[str]]:
    """Return ``(product of the fixed sizes, sorted names of the other dimensions)``; no names if the product is 0."""
    number = prod(dim for dim in dims if isinstance(dim, int))
    return number, sorted(dim for dim in dims if isinstance(dim, str)) if number else []


def _if_close(node: onnx.NodeProto, shape_of: Any, values: Values) -> InferredShapes:
    """Yield the shapes of the branch that a constant condition selects, else of ``then`` if both have equal sizes."""
    condition = values.get(node.input[0])
    for output, (then, otherwise) in zip(node.output, branch_results(node), strict=True):
        if condition is not None:
            yield output, shape_of(then if condition.all() else otherwise)
        elif equal_sizes(shape_of(then), shape_of(otherwise)):
            yield output, shape_of(then)


def _open(node: onnx.NodeProto, shape_of: Any, _: Values) -> InferredShapes:
    states = attribute_of(node, "states")
    first = len(node.input) - states
    if node.op_type == "Loop.open":
        yield node.output[0], (TensorProto.INT64, [])
        yield node.output[1], (TensorProto.BOOL, [])
    for i in range(states):
        yield node.output[first + i], shape_of(node.input[first + i])


def _next(node: onnx.NodeProto, shape_of: Any, _: Values) -> InferredShapes:
    """Yield the shapes of the slices: those of the inputs without the scanned axis."""
    for scanned, slice_name, axis in zip(node.input, node.output, attribute_of(node, "axes", []), strict=True):
        shape = shape_of(scanned)
        k = None if shape is None else _from_front(axis, len(shape[1]))
        if k is not None:
            yield slice_name, (shape[0], [*shape[1][:k], *shape[1][k + 1 :]])


def write_trip_limits(flat: Flat, envelopes: Mapping[str, Dim]) -> dict[str, Dim]:
    """Set maximum trip counts from ``envelopes`` (name of the trip count or loop → range); return those used."""
    used: dict[str, Dim] = {}
    for node, origin in zip(flat.model.graph.node, flat.origins, strict=True):
        name = (node.input[0] or origin.scope) if is_scope(node, "Loop.close") else ""
        if name in envelopes and 0 < envelopes[name].max < UNBOUNDED:
            node.attribute.append(helper.make_attribute(AT_MOST, envelopes[name].max))
            used[name] = envelopes[name]
    return used


def _close(node: onnx.NodeProto, shape_of: Any, values: Values) -> InferredShapes:
    """Yield the shapes of the final states, and of the stacked outputs and their buffers: one slice per iteration."""
    carried = carried_of(node)
    axes: Iterable[int] = repeat(0)
    trip_count: int | str | None
    if is_scope(node, "Loop.close"):  # the trip count is constant, bounded by the user, or unknown
        constant = values.get(node.input[0]) if node.input[0] else None
        limit = attribute_of(node, AT_MOST, UNBOUNDED)
        if constant is not None:
            limit = int(constant.item()) if constant.size == 1 else UNBOUNDED
        trip_count = max(0, limit) if limit < UNBOUNDED else None
    else:  # the trip count is the length of the first scanned input
        axes = attribute_of(node, "axes", [])
        scanned = shape_of(attribute_of(node, "scanned").decode())
        k = None if scanned is None else _from_front(attribute_of(node, "axis"), len(scanned[1]))
        trip_count = None if k is None else scanned[1][k]
    for state, output in zip(carried.states, node.output, strict=False):
        yield output, shape_of(state)
    outputs = node.output[len(carried.states) :]
    for buffer, slice_name, axis, output in zip(carried.stacked, carried.slices, axes, outputs, strict=False):
        shape = shape_of(slice_name)
        k = None if shape is None else _from_front(axis, len(shape[1]) + 1)
        if k is not None:
            yield output, (shape[0], [*shape[1][:k], trip_count, *shape[1][k:]])
        yield buffer, shape_of(output)


_RULES: dict[str, Any] = {"If.close": _if_close, "Scan.next": _next, "Loop.open": _open, "Scan.open": _open}
_RULES |= {"Loop.close": _close, "Scan.close": _close}


def _from_front(axis: int, rank: int) -> int | None:
    """Return an axis, which may be negative, as an index from 0; ``None`` if it is out of range."""
    return axis % rank if -rank <= axis < rank else None


def without_dead_branches(flat: Flat, values: Values) -> Flat:
    """Return the model without the branches that never run. ``values``: condition → its value, if it is known."""
    nodes = list(zip(flat.model.graph.node, flat.origins, strict=True))
    closings = [(node, origin) for node, origin in nodes if is_scope(node, "If.close") and node.input[0] in values]
    taken = {origin.scope: bool(values[node.input[0]].all()) for node, origin in closings}  # scope of an If → condition
    dead = {f"{scope}/{'else' if condition else 'then'}" for scope, condition in taken.items()}
    if not dead:
        return flat
    kept: list[tuple[onnx.NodeProto, Origin]] = []
    for node, origin in nodes:
        if not dead.isdisjoint(origin.branches):
            continue
        if not (is_scope(node, "If.close") and origin.scope in taken):
            kept.append((node, origin))
            continue
        for i, (output, (then, otherwise)) in enumerate(zip(node.output, branch_results(node), strict=True)):
            if output:
                result = then if taken[origin.scope] else otherwise
                identity = helper.make_node("Identity", [result], [output], name=f"{origin.scope}/taken_{i}")
                kept.append((identity, origin))
    return Flat(with_nodes(flat.model, [node for node, _ in kept]), tuple([origin for _, origin in kept]))


def check_scopes(flat: Flat, shape: Mapping[str, Any], dtype: Mapping[str, str], point: Mapping[str, int]) -> bool:
    """Return whether values that share a buffer in a scope have equal sizes for all sizes of the dimensions.

    Raises ``InvalidIrShapes`` (reason ``scope_shape``) if a state changes its shape or dtype, or the results of two
    branches have different sizes at ``point``. Unknown shapes are skipped: the graph builder refuses them.
    """
    always_equal = True
    for node, origin in zip(flat.model.graph.node, flat.origins, strict=True):
        is_branch = is_scope(node, "If.close")
        pairs, problem = branch_results(node) if is_branch else [], "its branches have results of different sizes"
        if is_scope(node, "Loop.close", "Scan.close"):
            carried = carried_of(node)
            pairs = list(zip(carried.states, carried.results, strict=True))
            problem = "its state changes its shape or dtype from one iteration to the next"
        for first, second in pairs:
            if not all(name in shape and name in dtype for name in (first, second)):
                continue
            a, b = ((dtype[name], shape[name]) for name in (first, second))
            if a == b or (is_branch and equal_sizes(a, b)):
                continue
            always_equal = False
            if is_branch and equal_sizes(*[(kind, [point.get(dim, dim) for dim in dims]) for kind, dims in (a, b)]):
                continue
            texts = [f"{kind}{list(dims)}" for kind, dims in (a, b)]
            operator = node.op_type.partition(".")[0]
            what = f"the operator {operator} ({origin.scope!r}): {problem} ({first!r} is {texts[0]}, "
            what += f"{second!r} is {texts[1]}), but they share one buffer."
            hint = "Give both values the same shape, with padding, or simplify the model."
            raise InvalidIrShapes(what, hint=hint, reason="scope_shape", tensor=second, node_id=origin.scope)
    return always_equal
