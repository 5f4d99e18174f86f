"""Read ONNX models: infer shapes, separate weights from activations, classify operators by their effect on memory.

Steps:

1. External data is never opened, and large weights are dropped: only their shapes matter.
2. Local functions are inlined. The bodies of If, Loop and Scan are flattened at their node (:mod:`.onnx_scopes`);
   branches that are never taken are removed. Other subgraphs, sequences, optionals, maps, strings and sparse weights
   are refused.
3. Open sizes of the inputs become ``dims`` with bounds, and are ``assumed``: a batch is 1 (bounds 1 to 8), any other
   is 512 (1 to 512). A size that is a product of one or two names and a number (``2 * N``) is written as these
   dimensions. Any other size is inferred at the assumed dimensions, which are then fixed: the model is read again for
   other sizes (:mod:`.onnx_shapes`). Shapes that inference does not find come from onnxruntime
   (:mod:`.onnx_shape_run`), and the nodes note that.
4. Nodes that depend on no graph input are folded: ``Constant``, ``ConstantOfShape``, operators on weights alone, and
   the shape of a tensor with a fixed shape. Folded values that are read have the role ``constant``, as have
   initialisers of integers and booleans (shapes, indices). Floating-point initialisers have the role ``parameter``.
5. Unread optional outputs are dropped; nodes without a unique name are called ``<operator>_<position in the file>``.
6. ``inplace`` is set for every node (:mod:`.onnx_graph`), views are views, and the order is that of the file.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from math import prod
from typing import Any

import msgspec
import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tmmu_core.base import limits
from tmmu_core.base.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.formats.onnx import onnx_shape_run
from tmmu_core.formats.onnx.onnx_constant_folding import KEPT_ELEMENTS
from tmmu_core.formats.onnx.onnx_graph import Builder
from tmmu_core.formats.onnx.onnx_model import (
    check_places,
    first_line,
    inlined,
    tensors_of,
    without_places,
    write_defaults,
)
from tmmu_core.formats.onnx.onnx_scope_shapes import check_scopes, without_dead_branches, write_trip_limits
from tmmu_core.formats.onnx.onnx_scopes import SCOPE, Flat, flatten, graphs
from tmmu_core.formats.onnx.onnx_shapes import (
    BATCH_ENVELOPE,
    LENGTH_ENVELOPE,
    Facts,
    Sizes,
    decided,
    infer,
    named_dims,
    refuse_type,
)
from tmmu_core.graph.assumed_sizes import dims_text
from tmmu_core.graph.model import Dim, Graph

__all__ = ["BATCH_ENVELOPE", "LENGTH_ENVELOPE", "read"]

LOG = logging.getLogger("tmmu")

OWN_WEIGHTS_FROM = 4
"""IR version since which a weight need not be an input. Inference enforces it, writers do not."""
_DATA_FIELDS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def read(data: bytes, name: str = "", envelopes: Mapping[str, Dim] | None = None) -> Graph:
    """Return the graph of a model. ``envelopes`` are bounds of named dimensions that replace the defaults.

    Raises ``UnreadableInput`` for damaged and refused models, ``InvalidIrShapes`` for an unknown shape (reason
    ``unknown_shape``) or an operand that nothing defines (``unknown_tensor``).
    """
    model = _parse(data, name)
    try:
        return _read(data, model, name, dict(envelopes or {}))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        _check_model(data, name)
        raise AssertionError("the ONNX importer failed on a valid model") from error


def _read(data: bytes, model: onnx.ModelProto, name: str, envelopes: dict[str, Dim]) -> Graph:
    flat = flattened(model, name)
    write_defaults(flat.model)
    sizes = named_dims(flat.model, envelopes)
    sizes.dims |= {count: dim for count, dim in write_trip_limits(flat, envelopes).items() if count not in sizes.dims}
    facts = infer(flat.model, sizes, name)
    try:
        try:
            return _built(flat, facts, sizes, name)
        except InvalidIrShapes as error:
            if error.diagnostics.get("reason") != "unknown_shape":
                raise
            return _completed(data, flat, facts, sizes, error)
    except InvalidIrShapes as error:
        if sizes.assumed and "--dims" not in error.hint:
            error.hint += f" Open sizes of the model were assumed. Change them: --dims {dims_text(sizes.assumed)}"
        raise


def _built(flat: Flat, facts: Facts, sizes: Sizes, name: str, *, hold: bool = False) -> Graph:
    """Return the graph; with ``hold``, its assumed dimensions are fixed: at other sizes its shapes are unknown."""
    agree = check_scopes(flat, facts.shape, facts.dtype, sizes.point(), name)
    if not agree:
        sizes.hold(sizes.dims)  # valid at the assumed sizes, maybe not at others
    graph = Builder(flat, facts, sizes, name).build()
    if hold:
        sizes.hold(sizes.dims)
    return msgspec.structs.replace(graph, dims=sizes.dims)


def _completed(data: bytes, flat: Flat, facts: Facts, sizes: Sizes, error: InvalidIrShapes) -> Graph:
    """Return the graph with shapes from onnxruntime, symbolic before measured; else raise an error with the reason.

    Branches that no run took are impossible at these sizes. They are omitted, and the name of the graph states it.
    """
    name = str(error.diagnostics.get("source", ""))
    way = onnx_shape_run.missing_option()
    if way:
        error.hint += f" Or measure it in a run of the model: {way}"
        raise error
    known = onnx_shape_run.symbolic(flat.model, sizes.point())
    if known:
        onnx_shape_run.complete(flat, facts, known, "symbolic")
        with suppress(InvalidIrShapes):
            return _built(flat, facts, sizes, name, hold=True)
    LOG.info(
        "%s does not state all shapes: it is run with onnxruntime on generated inputs, %s s at most (--no-run forbids)",
        name or "the model",
        limits.ceiling(limits.RUN_SECONDS),
    )
    run = onnx_shape_run.measure(data, flat, onnx_shape_run.points_to_try(sizes))
    if not run.failed and run.point != sizes.point():
        sizes.assume(run.point)
        facts = infer(flat.model, sizes, name)
    onnx_shape_run.complete(flat, facts, run.known, "measured")
    try:
        return _built(flat, facts, sizes, name, hold=True)
    except InvalidIrShapes as last:
        if run.failed:
            last.hint += f" A run of the model does not give it either: {run.failed.rstrip('.')}."
        if not run.taken:
            raise
    flat = without_dead_branches(flat, {condition: np.array(taken) for condition, taken in run.taken.items()})
    facts = infer(flat.model, sizes, name)
    onnx_shape_run.complete(flat, facts, run.known, "measured")
    graph, count = _built(flat, facts, sizes, name, hold=True), len(run.taken)
    note = f"{graph.name} ({count} branch{'es'[: 2 * (count > 1)]} as one run took {'them' if count > 1 else 'it'})"
    return msgspec.structs.replace(graph, name=note)


def flattened(model: onnx.ModelProto, name: str = "") -> Flat:
    """Return the model without weights' data, functions, subgraphs and dead branches. Changes ``model``.

    Raises ``UnreadableInput`` for unsupported parts.
    """
    _drop_weights(model)
    model.ir_version = max(model.ir_version, OWN_WEIGHTS_FROM)
    model = inlined(model, name)
    _refuse_unsupported(model, name)
    flat = flatten(model, name)
    return without_dead_branches(flat, decided(flat.model, name))


def _check_model(data: bytes, name: str) -> None:
    """Raise ``UnreadableInput`` with the first error of the onnx package's checker, if it finds one."""
    try:
        onnx.checker.check_model(without_places(onnx.ModelProto.FromString(data)))  # it would open the files
    except Exception as error:  # ValidationError, or any error of damaged bytes
        raise UnreadableInput(
            f"the ONNX model is not valid: {first_line(error)}",
            source=name,
            hint="Check the model with onnx.checker.check_model(model), and export it again.",
        ) from error


# --- the model ---------------------------------------------------------------------------------------------------


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise UnreadableInput(
            f"the ONNX model is cut off or damaged (it has {len(data)} bytes).",
            source=name,
            hint="Copy the file again.",
        ) from error
    texts = (text for _, graph in graphs(model.graph) for text in _texts(graph))
    fault = ""
    if not model.graph.node:
        fault = "the ONNX model has no nodes."
    elif not all(isinstance(text, str) for text in texts):
        fault = "the ONNX model is damaged: a name in it is not UTF-8."
    else:
        check_places(model, name)
        if not model.opset_import:
            fault = "the ONNX model names no operator set (opset_import)."
    if fault:
        raise UnreadableInput(fault, source=name, hint="Export the model again.")
    return model


def _texts(graph: onnx.GraphProto) -> Iterator[Any]:
    """Yield every name in a graph; a name that is not UTF-8 is bytes."""
    yield graph.name
    for node in graph.node:
        yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    values = chain(graph.input, graph.output, graph.value_info, graph.initializer)
    yield from (value.name for value in values)


def _drop_weights(model: onnx.ModelProto) -> None:
    """Delete the values of large weights, so that inference does not process them."""
    for weight in tensors_of(model):
        if prod(weight.dims) > KEPT_ELEMENTS:
            for data_field in _DATA_FIELDS:
                weight.ClearField(data_field)


def _refuse_unsupported(model: onnx.ModelProto, name: str) -> None:
    """Raise ``UnreadableInput`` for unsupported elements of the model."""
    for place, graph in graphs(model.graph):
        if graph.sparse_initializer:
            raise UnreadableInput(
                f'the weight "{graph.sparse_initializer[0].values.name}" is sparse.',
                source=name,
                place=f"{place}.sparse_initializer[0]",
                hint="Export the model with dense weights.",
            )
        for k, node in enumerate(graph.node):
            if node.domain == SCOPE:
                raise UnreadableInput(
                    f'the operator {node.op_type} is of the set "{SCOPE}", which is reserved for flattened bodies.',
                    source=name,
                    place=f"{place}.node[{k}]",
                    hint="Give the operator set another name.",
                )
        for value_info in (*graph.input, *graph.value_info, *graph.output):
            refuse_type(value_info, name)
    if not model.graph.output:
        raise UnreadableInput("the ONNX graph has no outputs.", source=name, hint="Export the model again.")
