"""ONNX models: shapes inferred, weights told from activations, operators told apart by what they do to memory.

What becomes of a model, in this order:

1. External data is never opened and large weights are dropped at once: only their shapes matter.
2. Local functions are inlined. The bodies of If, Loop and Scan are laid flat at their node (see ``onnx_scopes.py``); a
   branch that is never taken is left out. Other subgraphs, sequences, optionals, maps, strings and sparse weights are
   refused by name.
3. Sizes that the inputs leave open become ``dims`` with an envelope, and are ``assumed``: a batch is 1 (of 1 to 8),
   anything else 512 (of 1 to 512). A size that is the product of one or two names and a number (``2 * N``) is written
   as so many dimensions. Any other is told at the sizes where the dimensions stand, and those that it hangs on are held
   there: at other sizes the model is read again. Sizes that the file declares and its operators contradict are put
   right (``onnx_declared.py``). Shapes that inference does not give are asked of onnxruntime (``onnx_complete.py``),
   and the nodes say so.
4. Whatever does not depend on a graph input is folded: ``Constant``, ``ConstantOfShape``, operators on weights alone,
   and the shape of a tensor whose shape is fixed. Folded values that are still read have the role ``constant``; so have
   initialisers of integers and booleans (shape data, indices). Floating-point initialisers have the role
   ``parameter``.
5. Optional outputs that nobody reads are dropped; nodes without a name, or with one that is taken, are called
   ``<operator>_<position in the file>``.
6. ``inplace`` is said for every node (see ``onnx_operators.py``), views are views, and the file's order is the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from math import prod
from typing import Any

import msgspec
import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tmmu_core.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.graph.assumed import dims_text
from tmmu_core.graph.importers import onnx_complete
from tmmu_core.graph.importers.onnx_build import Builder
from tmmu_core.graph.importers.onnx_external import check_places, without_places
from tmmu_core.graph.importers.onnx_functions import inlined
from tmmu_core.graph.importers.onnx_growth import by_the_largest
from tmmu_core.graph.importers.onnx_names import first_line
from tmmu_core.graph.importers.onnx_operators import say_defaults
from tmmu_core.graph.importers.onnx_scope_shapes import check_scopes, say_trips, without_dead_branches
from tmmu_core.graph.importers.onnx_scopes import SCOPE, Flat, flatten, graphs
from tmmu_core.graph.importers.onnx_shapes import (
    BATCH_ENVELOPE,
    LENGTH_ENVELOPE,
    Facts,
    Sizes,
    decided,
    infer,
    named_dims,
    refuse_type,
)
from tmmu_core.graph.importers.onnx_values import HIDDEN, KEPT_ELEMENTS
from tmmu_core.graph.model import Dim, Graph

__all__ = ["BATCH_ENVELOPE", "LENGTH_ENVELOPE", "read"]

OWN_WEIGHTS_FROM = 4
"""The IR version from which on a weight need not be an input too; inference keeps to that, writers do not."""
_DATA_FIELDS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def read(data: bytes, name: str = "", envelopes: Mapping[str, Dim] | None = None) -> Graph:
    """The graph of a model. ``envelopes`` says the bounds of named dimensions where the defaults do not fit.

    Raises ``UnreadableInput`` for bytes that are no model and for what is refused by name, ``InvalidIrShapes`` where a
    shape cannot be known (reason ``unknown_shape``) or an operand is nobody's (``unknown_tensor``).
    """
    model = _parse(data, name)
    try:
        return _read(data, model, name, dict(envelopes or {}))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        _blame_the_model(data, name)
        raise AssertionError("the ONNX importer failed on a model without a fault") from error


def _read(data: bytes, model: onnx.ModelProto, name: str, envelopes: dict[str, Dim]) -> Graph:
    flat = flattened(model, name)
    say_defaults(flat.model)
    sizes = named_dims(flat.model, envelopes)
    sizes.dims |= {count: dim for count, dim in say_trips(flat, envelopes).items() if count not in sizes.dims}
    facts = infer(flat.model, sizes, name)
    try:
        return _built(flat, facts, sizes, name)
    except InvalidIrShapes as error:
        failed = error
    if failed.diagnostics.get("reason") == "scope_shape":
        try:
            if by_the_largest(flat, facts, sizes, name):
                return _held(_built(flat, facts, sizes, name), sizes)
        except InvalidIrShapes as error:
            failed = error
    if failed.diagnostics.get("reason") != "unknown_shape":
        raise _with_dims(failed, sizes)
    return _completed(data, flat, facts, sizes, failed)


def _built(flat: Flat, facts: Facts, sizes: Sizes, name: str) -> Graph:
    if not check_scopes(flat, facts.shape, facts.dtype, sizes.point(), name):
        sizes.hold(sizes.dims)  # what holds where the dimensions stand need not hold elsewhere
    return Builder(flat, facts, sizes, name).build()


def _completed(data: bytes, flat: Flat, facts: Facts, sizes: Sizes, error: InvalidIrShapes) -> Graph:
    """The graph with the shapes that onnxruntime tells, its symbols before its run; else ``error`` with the reason."""
    name = str(error.diagnostics.get("source", ""))
    way = onnx_complete.barred()
    if way:
        error.hint += f" Or let one run of the model tell it: {way}"
        raise _with_dims(error, sizes)
    known = onnx_complete.symbolic(flat.model, sizes.point())
    if known:
        onnx_complete.complete(flat, facts, known, onnx_complete.SYMBOLIC)
        with suppress(InvalidIrShapes):
            return _held(_built(flat, facts, sizes, name), sizes)
    run = onnx_complete.measure(data, flat, onnx_complete.points_to_try(sizes))
    if not run.failed and run.point != sizes.point():
        sizes.stand_at(run.point)
        facts = infer(flat.model, sizes, name)
    onnx_complete.complete(flat, facts, run.known, onnx_complete.MEASURED)
    try:
        return _held(_built(flat, facts, sizes, name), sizes)
    except InvalidIrShapes as last:
        if run.taken:
            return _as_run(flat, run, sizes, name)
        if run.failed:
            last.hint += f" A run of the model does not tell it either: {run.failed.rstrip('.')}."
        raise _with_dims(last, sizes) from None


def _as_run(flat: Flat, run: onnx_complete.Run, sizes: Sizes, name: str) -> Graph:
    """The graph without the branches that no run took, which are impossible at these sizes; its name says so."""
    conditions = {condition: np.array(taken) for condition, taken in run.taken.items()}
    flat = without_dead_branches(flat, conditions)
    facts = infer(flat.model, sizes, name)
    onnx_complete.complete(flat, facts, run.known, onnx_complete.MEASURED)
    try:
        graph = _held(_built(flat, facts, sizes, name), sizes)
    except InvalidIrShapes as error:
        raise _with_dims(error, sizes) from None
    count = len(conditions)
    note = f"{graph.name} ({count} branch{'es'[: 2 * (count > 1)]} as one run took {'them' if count > 1 else 'it'})"
    return msgspec.structs.replace(graph, name=note)


def _held(graph: Graph, sizes: Sizes) -> Graph:
    """The graph with its assumed dimensions held where they stand, for at other sizes its shapes are not known."""
    sizes.hold(sizes.dims)
    return msgspec.structs.replace(graph, dims=sizes.dims)


def _with_dims(error: InvalidIrShapes, sizes: Sizes) -> InvalidIrShapes:
    """The error with the sizes that were assumed, and how others are given."""
    if sizes.assumed and "--dims" not in error.hint:
        error.hint += f" Sizes that the model leaves open were assumed; give others: --dims {dims_text(sizes.assumed)}"
    return error


def flattened(model: onnx.ModelProto, name: str = "") -> Flat:
    """The model without weights' data, functions, subgraphs and branches that are never taken. Changes ``model``.

    Raises ``UnreadableInput`` for what is refused by name.
    """
    _drop_weights(model)
    model.ir_version = max(model.ir_version, OWN_WEIGHTS_FROM)
    model = inlined(model, name)
    _refuse_by_name(model, name)
    flat = flatten(model, name)
    return without_dead_branches(flat, decided(flat.model, name))


def _blame_the_model(data: bytes, name: str) -> None:
    """Raise ``UnreadableInput`` with what the onnx package's checker finds wrong; return if it finds nothing."""
    try:
        onnx.checker.check_model(without_places(onnx.ModelProto.FromString(data)))  # it would look for the files
    except Exception as error:  # ValidationError for a rule, but damaged bytes fail in many ways
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
    if not model.graph.node:
        raise UnreadableInput("the ONNX model has no nodes.", source=name, hint="Export the model again.")
    if not all(isinstance(text, str) for _, graph in graphs(model.graph) for text in _texts(graph)):
        raise UnreadableInput(
            "the ONNX model is damaged: a name in it is not UTF-8.", source=name, hint="Copy the file again."
        )
    check_places(model, name)
    if not model.opset_import:
        raise UnreadableInput(
            "the ONNX model names no operator set (opset_import).", source=name, hint="Export the model again."
        )
    return model


def _texts(graph: onnx.GraphProto) -> Iterator[Any]:
    """Every name in a graph; one that is not UTF-8 comes as bytes."""
    yield graph.name
    for node in graph.node:
        yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    values = chain(graph.input, graph.output, graph.value_info, graph.initializer)
    yield from (value.name for value in values)


def _drop_weights(model: onnx.ModelProto) -> None:
    """Keep the shapes of large weights and forget their values: inference then costs nothing for them."""
    weights: list[onnx.TensorProto] = []
    for _, graph in graphs(model.graph):
        weights += graph.initializer
        for node in graph.node:
            weights += [attribute.t for attribute in node.attribute if attribute.type == onnx.AttributeProto.TENSOR]
    for weight in weights:
        if prod(weight.dims) > KEPT_ELEMENTS:
            for data_field in _DATA_FIELDS:
                weight.ClearField(data_field)


def _refuse_by_name(model: onnx.ModelProto, name: str) -> None:
    """Refuse what has no place in a graph of tensors, naming it."""
    for place, graph in graphs(model.graph):
        if graph.sparse_initializer:
            raise UnreadableInput(
                f'the weight "{graph.sparse_initializer[0].values.name}" is sparse.',
                source=name,
                place=f"{place}.sparse_initializer[0]",
                hint="Export the model with dense weights.",
            )
        for k, node in enumerate(graph.node):
            if node.domain in (SCOPE, HIDDEN):
                raise UnreadableInput(
                    f'the operator {node.op_type} is of the set "{node.domain}", which is kept for what stands in the '
                    "place of bodies and ranges here.",
                    source=name,
                    place=f"{place}.node[{k}]",
                    hint="Give the operator set another name.",
                )
        for value_info in (*graph.input, *graph.value_info, *graph.output):
            refuse_type(value_info, name)
    if not model.graph.output:
        raise UnreadableInput("the ONNX graph has no outputs.", source=name, hint="Export the model again.")
