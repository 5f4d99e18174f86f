"""Where a model says that its weights lie: beside it, or nowhere.

No reader opens such a file, for a plan needs no weight's bytes. A place outside the model's folder is refused all the
same, so that whatever runs the model later is not sent there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

from tmmu_core.errors import UnreadableInput

_ELSEWHERE = re.compile(r"[/\\]|[A-Za-z]:|(?:.*[/\\])?\.\.(?:[/\\]|$)", re.S)


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The weights and constants of a graph, those of its bodies included."""
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
    """Raise ``UnreadableInput`` for weights that lie at an absolute path or behind a ``..``."""
    for tensor in tensors_of(model.graph):
        for entry in tensor.external_data:
            if entry.key == "location" and _ELSEWHERE.match(entry.value):
                raise UnreadableInput(
                    f'the weight "{tensor.name}" lies outside the model\'s folder: "{entry.value[:80]}".',
                    source=name,
                    hint="Save the model with its weights beside it, under a relative path.",
                )


def without_places(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model``, changed so that nothing in it names a file."""
    for tensor in tensors_of(model.graph):
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT
    return model
