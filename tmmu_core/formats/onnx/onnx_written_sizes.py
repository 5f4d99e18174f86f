"""Find the sizes for which a model is written, where the assumed sizes contradict it.

Exporters leave the sizes of an input open although the model runs with one of them only: PyTorch writes the size of the
example into a reshape that it cannot trace; a classifier has a matrix for one size. A table that is looked up at the
positions 0 … n − 1 limits n to its rows.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import onnx

from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.formats.onnx.onnx_model import VIEWS, attribute_of, operator_name
from tmmu_core.formats.onnx.onnx_scope_shapes import elements_of
from tmmu_core.formats.onnx.onnx_shape_run import points_to_try
from tmmu_core.formats.onnx.onnx_shapes import Facts, Sizes, bind, infer
from tmmu_core.graph.assumed_sizes import dims_text
from tmmu_core.graph.model import Dim

BROADCASTS = ("Add", "Sub", "Mul", "Div")  # operators whose operands have equal sizes, or a size of 1
MOST_POINTS = 32  # maximum number of combinations of sizes that are tried


def at_written_sizes(model: onnx.ModelProto, facts: Facts, sizes: Sizes) -> tuple[Facts, list[str]]:
    """Set ``sizes`` to ones with which the model runs; return the shapes, and notes. Raises ``InvalidIrShapes``."""
    notes = []
    found = _lengths_of_tables(model, facts, sizes.dims) | _sizes_of_reshapes(model, facts, sizes.dims)
    for dim, (bounds, node) in found.items():  # bounds of one size: from a reshape
        given, most, is_fixed = sizes.dims[dim], bounds.max, bounds.min == bounds.max
        size = f"{dim} = {most}" if is_fixed else f"{dim} up to {most}"
        text = f'the model runs only with {size}, for which the node "{node}" is written'
        if dim not in sizes.assumed and max(given.min, bounds.min) > min(given.max, most):
            hint = f"Export the model again with {dim} as a dynamic size, or give --dims {dims_text({dim: most})}."
            path = f"$.dims.{dim}"
            raise InvalidIrShapes(f"{text}.", hint=hint, reason="dim_out_of_envelope", path=path, node_id=node)
        if is_fixed:
            sizes.assumed.pop(dim, None)
        elif dim in sizes.assumed:
            sizes.assumed[dim] = min(sizes.assumed[dim], most)
        sizes.dims[dim] = bounds if is_fixed else Dim(given.min, most)
        notes.append(f"{text}.")
    facts = infer(model, sizes) if notes else facts
    if not sizes.assumed or not _contradict(model, facts, sizes):
        return facts, notes
    beside = {dim: size for dim, size in _sizes_of_sums(model, facts) if dim in sizes.assumed}
    default, *others = points_to_try(sizes)[:MOST_POINTS]
    for point in (default, default | beside, *others):
        fixed = Sizes({name: Dim(size, size) for name, size in point.items()})
        if not _contradict(model, infer(bind(model, point), fixed), fixed):
            if point == default:
                break
            sizes.assume(point)
            sizes.fix(sizes.dims)
            return infer(model, sizes), notes
    return facts, notes


def _sizes_of_reshapes(model: onnx.ModelProto, facts: Facts, dims: Collection[str]) -> dict[str, tuple[Dim, str]]:
    """Return dimension → (the only size with which a reshape can run, as bounds; the reshape)."""
    found: dict[str, tuple[Dim, str]] = {}
    for node in model.graph.node:
        ends = [facts.shape.get(name, ()) for name in (*node.input[:1], *node.output)]
        if operator_name(node) != "Reshape" or () in ends:
            continue
        (number, names), (result, kept) = map(elements_of, ends)
        changed = list((Counter(names) - Counter(kept)).elements())
        if len(changed) == 1 and len(kept) == len(names) - 1 and changed[0] in dims and number and not result % number:
            size = result // number
            found.setdefault(changed[0], (Dim(size, size), node.name or node.output[0]))
    return found


def _lengths_of_tables(model: onnx.ModelProto, facts: Facts, dims: Mapping[str, Dim]) -> dict[str, tuple[Dim, str]]:
    """Return dimension → (bounds from 0 to the rows of a table of positions, the node that looks them up)."""
    tables = {weight.name: weight.dims[0] for weight in model.graph.initializer if weight.dims}
    positions: dict[str, str] = {}  # positions 0, 1, … → the dimension that has their number
    found: dict[str, tuple[Dim, str]] = {}
    for node in model.graph.node:
        operator = operator_name(node)
        if operator == "Range" and facts.shape.get(node.output[0], ())[:1] in [(dim,) for dim in dims]:
            positions[node.output[0]] = str(facts.shape[node.output[0]][0])
        elif operator in (*VIEWS, "Cast", "Expand") and node.input[0] in positions:
            positions[node.output[0]] = positions[node.input[0]]
        elif operator == "Gather" and node.input[1] in positions and not attribute_of(node, "axis"):
            dim, rows = positions[node.input[1]], tables.get(node.input[0], 0)
            if 0 < rows < dims[dim].max:
                found.setdefault(dim, (Dim(0, rows), node.name or node.output[0]))
    return found


def _sizes_of_sums(model: onnx.ModelProto, facts: Facts) -> Iterator[tuple[str, int]]:
    """Yield each open dimension that is added to, or multiplied by, one with a size of more than 1; and the size."""
    for node in model.graph.node:
        if operator_name(node) in BROADCASTS:
            ends = [facts.shape.get(name, ())[::-1] for name in node.input]
            for a, b in (*zip(*ends, strict=False), *zip(*ends[::-1], strict=False)):
                if isinstance(a, str) and isinstance(b, int) and b > 1:
                    yield a, b


def _contradict(model: onnx.ModelProto, facts: Facts, sizes: Sizes) -> bool:
    """Return whether a reshape, sum or product cannot run with the shapes at the default sizes."""
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
            if node.input[1] in constants if result is None else elements_of(left) != elements_of(result):
                return True
        elif not left or not (right := shape_of(node.input[1])):
            continue
        elif operator in BROADCASTS:
            if any(a != b and 1 not in (a, b) for a, b in zip(left[::-1], right[::-1], strict=False)):
                return True
        else:
            turned = [bool(attribute_of(node, name)) for name in ("transA", "transB")]
            if left[-2 if turned[0] else -1] != right[-1 if turned[1] or len(right) == 1 else -2]:
                return True
    return False
