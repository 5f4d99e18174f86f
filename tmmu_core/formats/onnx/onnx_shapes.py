"""Infer the shapes of an ONNX model with named dimensions; derive unnamed sizes by inference at several points.

A point is a size for each named dimension. The onnx package infers the shapes. If it stops because a shape is
*computed* (``Range``, ``Where``), :mod:`.onnx_inference` computes the shape and inference continues.
"""

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from math import prod
from typing import Any

import onnx
from onnx import TensorProto, shape_inference

from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput, first_line
from tmmu_core.formats.onnx.onnx_inference import Array, fold_constants, scope_shapes, small_weights
from tmmu_core.formats.onnx.onnx_model import TypedShapes, typed_shape, with_shapes
from tmmu_core.formats.onnx.onnx_scopes import is_scope
from tmmu_core.graph import dtypes
from tmmu_core.graph.model import Dim, ShapeFrom

Shape = tuple[int | str, ...]

BATCH_ENVELOPE, LENGTH_ENVELOPE = Dim(1, 8), Dim(1, 512)  # assumed bounds of a batch, and of any other named dimension

DTYPES: dict[int, str] = {
    number: name
    for word, number in TensorProto.DataType.items()
    if (name := dtypes.canonical({"FLOAT": "float32", "DOUBLE": "float64"}.get(word, word)))
}
"""ONNX element type → dtype. Types without a size (UNDEFINED, STRING) are missing."""
UNNAMED = frozenset({"?", "-1", "*", "None", "none", "unk", "unknown"})  # each occurrence is a dimension of its own
ROUNDS = 64  # maximum rounds of inference and folding for computed shapes; each scope node adds two
LONG_VECTOR = 1 << 20  # with a longer vector, data propagation is off, because it computes each element


@dataclass
class Facts:
    """The known shapes and dtypes, by value."""

    shape: dict[str, Shape] = field(default_factory=dict)
    dtype: dict[str, str] = field(default_factory=dict)
    origin: dict[str, ShapeFrom] = field(default_factory=dict)  # value → source of a shape that onnxruntime gives
    derived: set[str] = field(default_factory=set)  # values with a size that is known at the assumed sizes only


@dataclass
class Sizes:
    """The named dimensions of a model, and an assumed size for each one that the user has not given."""

    dims: dict[str, Dim] = field(default_factory=dict)
    assumed: dict[str, int] = field(default_factory=dict)

    def point(self) -> dict[str, int]:
        """Return the default size of every dimension."""
        return {name: self.assumed.get(name, dim.max) for name, dim in self.dims.items()}

    def assume(self, point: Mapping[str, int]) -> None:
        """Replace the assumed sizes by those of ``point``, with bounds that include them."""
        for name in self.assumed:
            self.assumed[name] = point[name]
            self.dims[name] = Dim(1, max(point[name], (BATCH_ENVELOPE if point[name] == 1 else LENGTH_ENVELOPE).max))

    def fix(self, names: Collection[str]) -> None:
        """Fix the dimensions in ``names`` that have an assumed size."""
        self.dims.update({name: Dim(size, size) for name, size in self.assumed.items() if name in names})


def named_dims(model: onnx.ModelProto, envelopes: Mapping[str, Dim]) -> Sizes:
    """Return the named dimensions with their bounds. Changes ``model``: names every dynamic size of an input.

    An unnamed size of an input gets the name ``<input>.<axis>``; unnamed sizes of other values are cleared. A dimension
    is a batch if it is only axis 0, or if its name contains "batch". If no name does, B and N are batches too. A batch
    is assumed to be 1, any other dimension to be its upper bound. A size that no input has is a dimension if
    ``envelopes`` has its name.
    """
    weights = {weight.name for weight in model.graph.initializer}
    axes: dict[str, set[int]] = {}
    for value_info in model.graph.input:
        if value_info.name in weights:
            continue
        for axis, dim in enumerate(value_info.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                continue
            if not dim.dim_param or dim.dim_param in UNNAMED:
                dim.dim_param = f"{value_info.name}.{axis}"
            axes.setdefault(dim.dim_param, set()).add(axis)
    for _, dim in _declared_sizes(model):
        if dim.dim_param in UNNAMED or dim.dim_value < 0:
            dim.Clear()
    sizes = Sizes()
    batch_names = () if any("batch" in name.lower() for name in axes) else ("B", "N")
    for name, used_axes in axes.items():
        is_batch = used_axes == {0} or "batch" in name.lower() or name in batch_names
        sizes.dims[name] = envelopes.get(name) or (BATCH_ENVELOPE if is_batch else LENGTH_ENVELOPE)
        if name not in envelopes:
            sizes.assumed[name] = sizes.dims[name].min if is_batch else sizes.dims[name].max
    names = [dim.dim_param for _, dim in _declared_sizes(model)]
    sizes.dims |= {name: envelopes[name] for name in dict.fromkeys(names) if name in envelopes}
    return sizes


def _declared_sizes(model: onnx.ModelProto) -> Iterator[tuple[str, Any]]:
    for value_info in (*model.graph.value_info, *model.graph.output):
        for dim in value_info.type.tensor_type.shape.dim:
            yield value_info.name, dim


def undefined_size(model: onnx.ModelProto, value: str, dims: Mapping[str, Dim]) -> str:
    """Return the first declared size name of ``value`` that ``dims`` lacks; ``""`` if none."""
    sizes = [dim.dim_param for name, dim in _declared_sizes(model) if name == value]
    return next((size for size in sizes if size and size not in dims), "")


def infer(model: onnx.ModelProto, sizes: Sizes) -> Facts:
    """Return the shapes. If :func:`_factors` cannot express a size, fix the assumed dimensions on which it depends."""
    named = _infer_with_declared(model)[0]
    written = (value for node in model.graph.node for value in node.output if value)
    dims = [dim for value in written for dim in (named[value][1] if value in named else [None])]
    is_open = any(not isinstance(dim, int) and dim not in sizes.dims for dim in dims)
    points = [sizes.point()] if is_open and sizes.dims else []  # the default sizes, then one size changed at a time
    for name, dim_bounds in sizes.dims.items() if points else ():
        others = dict.fromkeys((dim_bounds.max, (dim_bounds.min + dim_bounds.max) // 2, dim_bounds.min))
        points += [points[0] | {name: size} for size in others if size != points[0][name]]
    at_points: list[TypedShapes] = []
    for point in points:
        try:
            at_points.append(_infer_with_declared(bind(model, point))[0])
        except InvalidIrShapes:
            if not at_points:
                raise
            at_points.append({})  # these sizes contradict each other
    at_default = at_points[0] if at_points else named
    facts = Facts()
    fixed: set[str] = set()
    for value in dict.fromkeys((*named, *at_default)):
        element, shape = named.get(value) or at_default[value]
        if element in DTYPES:
            facts.dtype[value] = DTYPES[element]
        if value in at_default and len(at_default[value][1]) != len(shape):  # use the rank at the default sizes
            shape = [None] * len(at_default[value][1])
        resolved: list[Any] = []
        for axis, dim in enumerate(shape):
            if dim in sizes.dims or (isinstance(dim, int) and value in named):
                resolved.append(dim)
                continue
            shapes = [known[value][1] if value in known else [] for known in at_points]
            sizes_at = [found[axis] if len(found) == len(shape) else None for found in shapes]
            factors = _factors(sizes_at, points)
            if factors is None and sizes_at and isinstance(sizes_at[0], int):
                factors = (sizes_at[0],)
                facts.derived.add(value)
                fixed.update(_changing(sizes_at, points))
            if factors is None:
                break
            resolved += factors
        else:
            facts.shape[value] = tuple(resolved)
    sizes.fix(fixed)
    for weight in model.graph.initializer:
        _refuse_element(f"the weight {weight.name!r}", weight.data_type)
        facts.shape[weight.name], facts.dtype[weight.name] = tuple(weight.dims), DTYPES[weight.data_type]
    return facts


def bind(model: onnx.ModelProto, point: dict[str, int]) -> onnx.ModelProto:
    """Return the model with the dimensions of ``point`` fixed; other names are cleared, so that they are inferred."""
    bound = deepcopy(model)
    for value_info in (*bound.graph.input, *bound.graph.value_info, *bound.graph.output):
        for dim in value_info.type.tensor_type.shape.dim:
            if dim.dim_param in point:
                dim.dim_value = point[dim.dim_param]
            elif dim.dim_param:
                dim.Clear()
    return bound


def _factors(sizes: list[int | str | None], points: list[dict[str, int]]) -> tuple[int | str, ...] | None:
    """Return a size as factors: up to two dimensions and a number (``("N", 2)``); ``None`` without such factors."""
    first = sizes[0] if sizes else None
    if not isinstance(first, int):
        return None
    chosen = _changing(sizes, points)
    products = [prod(point[name] for name in chosen) for point in points]
    number = first // max(1, products[0])
    if len(chosen) > 2 or sizes != [number * product for product in products]:
        return None
    return (*chosen, number) if number != 1 or not chosen else chosen


def _changing(sizes: list[int | str | None], points: list[dict[str, int]]) -> tuple[str, ...]:
    """Return the dimensions on which a size depends. Each point differs from the first in one dimension."""
    changed = [point for size, point in zip(sizes, points, strict=True) if size != sizes[0]]
    return tuple(dict.fromkeys(name for point in changed for name in point if point[name] != points[0][name]))


def conditions(model: onnx.ModelProto) -> dict[str, Array]:
    """Return the values of branch conditions that are constant for all sizes of the dimensions."""
    names = [node.input[0] for node in model.graph.node if is_scope(node, "If.close")]
    values = small_weights(_infer_with_declared(model)[1]) if names else {}
    return {name: values[name] for name in names if name in values}


def _infer_with_declared(model: onnx.ModelProto) -> tuple[TypedShapes, onnx.ModelProto]:
    """Return the shapes of a model, and the model with folded values among its weights."""
    # Declared shapes of node outputs are used only for sizes that inference leaves open. They may be out of date: users
    # change the batch of the inputs only, because runtimes compute all other shapes.
    written = {value for node in model.graph.node for value in node.output}
    bare, declared = deepcopy(model), declared_by(model)
    for value in (*bare.graph.value_info, *bare.graph.output):
        if value.name in written:
            value.type.tensor_type.ClearField("shape")
    known, folded = _infer_and_fold(bare)
    still_open = [name for name in declared if name in written and (name not in known or None in known[name][1])]
    used: TypedShapes = {}
    for name in still_open:
        element, shape = known.get(name, declared[name])
        if len(shape) == len(declared[name][1]):  # else the inferred rank is correct
            sizes = zip(shape, declared[name][1], strict=True)
            shape = [size if size is not None else written_size for size, written_size in sizes]
        used[name] = element, shape
    return _infer_and_fold(with_shapes(bare, used)) if used else (known, folded)


def _infer_and_fold(model: onnx.ModelProto) -> tuple[TypedShapes, onnx.ModelProto]:
    """Alternate inference and constant folding while they find something new. Return the shapes and the model."""
    known = _infer_once(model)
    scopes = sum(is_scope(node) for node in model.graph.node)
    has_range = any(node.op_type == "Range" for node in model.graph.node)
    for _ in range(ROUNDS + 2 * scopes):
        shapes = (known.get(value, (0, [None]))[1] for node in model.graph.node for value in node.output if value)
        if not scopes and all(isinstance(size, int) for shape in shapes for size in shape):
            break
        folded = fold_constants(model, known)
        current = folded or model
        inner = scope_shapes(current, known, small_weights(current)) if scopes else {}
        if folded is None and not inner:
            break
        model = with_shapes(current, inner)
        lengths = [shape[0] for _, shape in known.values() if len(shape) == 1]
        is_long = any(isinstance(size, int) and size > LONG_VECTOR for size in lengths)
        known |= _infer_once(model, propagate=not (has_range or is_long))
        known |= {weight.name: (weight.data_type, list(weight.dims)) for weight in model.graph.initializer}
    return known, model


def _infer_once(model: onnx.ModelProto, *, propagate: bool = False) -> TypedShapes:
    try:
        inferred = shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=propagate)
    except Exception as error:  # InferenceError, ValueError and RuntimeError
        what = f"the shapes of the ONNX model cannot be inferred: {first_line(error)}"
        hint = "Check the model with onnx.checker.check_model(model, full_check=True)."
        raise InvalidIrShapes(what, hint=hint, reason="shape_inference") from error
    for value_info in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        refuse_type(value_info)
    known = declared_by(inferred)
    if any(isinstance(dim, str) for _, shape in known.values() for dim in shape):
        own = {dim for _, shape in declared_by(model).values() for dim in shape}
        for _, shape in known.values():  # inference names dynamic sizes "unk__0"
            shape[:] = [dim if isinstance(dim, int) or dim in own else None for dim in shape]
    return known


def declared_by(model: onnx.ModelProto) -> TypedShapes:
    """Return the shapes that the model declares."""
    known: TypedShapes = {}
    for value_info in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        tensor = value_info.type.tensor_type
        if tensor.elem_type and tensor.HasField("shape"):
            known[value_info.name] = typed_shape(tensor)
    return known


def refuse_type(value_info: onnx.ValueInfoProto) -> None:
    """Raise ``UnreadableInput`` for a value that is not a tensor, or has elements without a fixed size."""
    kind = value_info.type.WhichOneof("value")
    if kind not in (None, "tensor_type"):
        what = f"{value_info.name!r} has the type {kind}, which has no size: only tensors are planned."
        raise UnreadableInput(what, hint="Export the model with tensors only.")
    if value_info.type.tensor_type.elem_type:
        _refuse_element(f"{value_info.name!r}", value_info.type.tensor_type.elem_type)


def _refuse_element(value: str, element: int) -> None:
    if element not in DTYPES:
        kind = TensorProto.DataType.Name(element) if element in TensorProto.DataType.values() else f"number {element}"
        what = f"{value} has elements of the type {kind}, which have no fixed size."
        raise UnreadableInput(what, hint="Remove the text processing from the model.")
