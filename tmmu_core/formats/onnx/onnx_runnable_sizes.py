"""Correct assumed sizes with which a model cannot run.

An exporter may declare a dimension as dynamic although the model runs with one size only: a reshape contains the size
of PyTorch's example input, or a classifier has a matrix for one size. A table that a model reads at the positions
0 … n − 1 limits n to its number of rows.
"""

from collections import Counter
from collections.abc import Mapping

import onnx

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.onnx.onnx_inference import elements_of
from tmmu_core.formats.onnx.onnx_model import VIEWS, attribute_of, operator_name
from tmmu_core.formats.onnx.onnx_shape_run import points_to_try
from tmmu_core.formats.onnx.onnx_shapes import Facts, Sizes, bind, infer
from tmmu_core.graph.checks import dims_text
from tmmu_core.graph.model import Dim

BROADCASTS = ("Add", "Sub", "Mul", "Div")  # operators whose operands have equal sizes, or a size of 1
MAX_POINTS = 32  # maximum number of points (:func:`points_to_try`) that are tried


def make_runnable(model: onnx.ModelProto, facts: Facts, sizes: Sizes) -> tuple[Facts, list[str]]:
    """Change ``sizes`` so that the model can run. Return the shapes, and notes. Raises ``InvalidIrShapes``."""
    notes = []
    for dim, (bounds, node) in _limits_of_dims(model, facts, sizes.dims).items():
        current, largest, is_fixed = sizes.dims[dim], bounds.max, bounds.min == bounds.max
        size = f"{dim} = {largest}" if is_fixed else f"{dim} up to {largest}"
        text = f"the model runs only with {size}, because of the constants of node {node!r}"
        if dim not in sizes.assumed and max(current.min, bounds.min) > min(current.max, largest):
            hint = f"Export the model again with {dim} as a dynamic size, or give --dims {dims_text({dim: largest})}."
            path = f"$.dims.{dim}"
            raise InvalidIrShapes(f"{text}.", hint=hint, reason="dim_out_of_envelope", path=path, node_id=node)
        if is_fixed:
            sizes.assumed.pop(dim, None)
        elif dim in sizes.assumed:
            sizes.assumed[dim] = min(sizes.assumed[dim], largest)
        sizes.dims[dim] = bounds if is_fixed else Dim(current.min, largest)
        notes.append(f"{text}.")
    facts = infer(model, sizes) if notes else facts
    if not sizes.assumed or _can_run(model, facts, sizes):
        return facts, notes
    sizes_in_broadcasts: dict[str, int] = {}  # dimension → size above 1 on the same axis of the other operand
    for operation in model.graph.node:
        if operator_name(operation) in BROADCASTS:
            shapes = [facts.shape.get(name, ())[::-1] for name in operation.input]
            for a, b in (*zip(*shapes, strict=False), *zip(*shapes[::-1], strict=False)):
                if a in sizes.assumed and isinstance(b, int) and b > 1:
                    sizes_in_broadcasts[str(a)] = b
    default, *others = points_to_try(sizes)[:MAX_POINTS]
    for point in (default, default | sizes_in_broadcasts, *others):
        fixed = Sizes({name: Dim(size, size) for name, size in point.items()})
        if _can_run(model, infer(bind(model, point), fixed), fixed):
            if point == default:  # the assumed sizes are right: inference with bounds was only less exact
                break
            sizes.assume(point)
            sizes.fix(sizes.dims)
            return infer(model, sizes), notes
    return facts, notes


def _limits_of_dims(model: onnx.ModelProto, facts: Facts, dims: Mapping[str, Dim]) -> dict[str, tuple[Dim, str]]:
    """Return dimension → (bounds, node): the only size that a reshape permits, else 0 to the number of table rows."""
    rows_of = {weight.name: weight.dims[0] for weight in model.graph.initializer if weight.dims}
    positions: dict[str, str] = {}  # value that contains 0 … n − 1 → the dimension n
    of_tables: dict[str, tuple[Dim, str]] = {}
    of_reshapes: dict[str, tuple[Dim, str]] = {}
    for node in model.graph.node:
        operator = operator_name(node)
        range_shape = facts.shape.get(node.output[0], ()) if operator == "Range" else ()
        if range_shape and range_shape[0] in dims:
            positions[node.output[0]] = str(range_shape[0])
        elif operator in (*VIEWS, "Cast", "Expand") and node.input[0] in positions:
            positions[node.output[0]] = positions[node.input[0]]
        elif operator == "Gather" and node.input[1] in positions and not attribute_of(node, "axis"):
            dim, rows = positions[node.input[1]], rows_of.get(node.input[0], 0)
            if 0 < rows < dims[dim].max:
                of_tables.setdefault(dim, (Dim(0, rows), node.name or node.output[0]))
        shapes = [facts.shape.get(name, ()) for name in (*node.input[:1], *node.output)]
        if operator == "Reshape" and () not in shapes:
            # If the result has all named dimensions of the operand but one, the fixed sizes determine that one.
            (factor, names), (result_factor, result_names) = map(elements_of, shapes)
            missing = list((Counter(names) - Counter(result_names)).elements())
            is_one = len(missing) == 1 and len(result_names) == len(names) - 1 and missing[0] in dims
            if is_one and factor and not result_factor % factor:
                size = result_factor // factor
                of_reshapes.setdefault(missing[0], (Dim(size, size), node.name or node.output[0]))
    return of_tables | of_reshapes


def _can_run(model: onnx.ModelProto, facts: Facts, sizes: Sizes) -> bool:
    """Return whether the shapes at reshapes, broadcasts and matrix products are consistent at the default sizes."""
    point = sizes.point()
    constants = {weight.name for weight in model.graph.initializer}
    constants.update(name for node in model.graph.node if node.op_type == "Constant" for name in node.output)

    def shape_of(name: str) -> list[int | str] | None:
        return [point.get(str(dim), dim) for dim in facts.shape[name]] if name in facts.shape else None

    for node in model.graph.node:
        operator = operator_name(node)
        if operator not in ("Reshape", "MatMul", "Gemm", *BROADCASTS) or (left := shape_of(node.input[0])) is None:
            continue
        if operator == "Reshape":
            result = shape_of(node.output[0])
            # Inference gives no shape if the constant shape is impossible.
            is_wrong = node.input[1] in constants if result is None else elements_of(left) != elements_of(result)
            if is_wrong:
                return False
        elif not left or not (right := shape_of(node.input[1])):
            continue
        elif operator in BROADCASTS:
            if any(a != b and 1 not in (a, b) for a, b in zip(left[::-1], right[::-1], strict=False)):
                return False
        else:
            is_transposed = [bool(attribute_of(node, name)) for name in ("transA", "transB")]
            if left[-2 if is_transposed[0] else -1] != right[-1 if is_transposed[1] or len(right) == 1 else -2]:
                return False
    return True
