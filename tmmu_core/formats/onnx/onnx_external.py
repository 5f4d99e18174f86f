"""Check the paths of external weights of an ONNX model.

Planning needs no weight's bytes, so no such file is opened. A path outside of the model's folder is refused all the
same: a runtime that loads the model later would follow it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

from tmmu_core.base.errors import UnreadableInput

_OUTSIDE = re.compile(r"[/\\]|[A-Za-z]:|(?:.*[/\\])?\.\.(?:[/\\]|$)", re.S)


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the weights and constants of a graph and its bodies."""
    waiting = [graph]
    while waiting:
        here = waiting.pop()
        yield from here.initializer
        for sparse in here.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        for node in here.node:
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors)
                waiting += [attribute.g, *attribute.graphs]


def check_places(model: onnx.ModelProto, name: str) -> None:
    """Raise ``UnreadableInput`` for weights with an absolute path or a path that contains ``..``."""
    for tensor in tensors_of(model.graph):
        for entry in tensor.external_data:
            if entry.key == "location" and _OUTSIDE.match(entry.value):
                raise UnreadableInput(
                    f'the weight "{tensor.name}" lies outside the model\'s folder: "{entry.value[:80]}".',
                    source=name,
                    hint="Save the model with its weights beside it, under a relative path.",
                )


def without_places(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove all paths of external files from ``model``, and return it."""
    for tensor in tensors_of(model.graph):
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT
    return model
