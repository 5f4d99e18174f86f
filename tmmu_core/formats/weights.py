"""Find the constants of a graph in the file that it was read from; their bytes are read on use."""

from importlib import import_module
from pathlib import Path
from typing import Any

from tmmu_core.base.errors import source_of_errors, unopened
from tmmu_core.formats import signatures, unplannable
from tmmu_core.formats.edge import tflite
from tmmu_core.graph.constants import Constants
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import document, sidecar, unpacking

HEAD = 64  # number of bytes at the start of a file that identify its format


def constants_of(path: Path, graph: Graph) -> Constants:
    """Return the constants of ``graph`` in the file at ``path``, if its format has any. Raises ``UnreadableInput``."""
    try:
        if graph.sidecar:
            return sidecar.constants(graph, path)
        data = unpacking.mapped_file(path)
        # A decompressed file (``bytes``) has no path from which a reader can read ranges later.
        return _constants(data, graph, None if isinstance(data, bytes) else path, path.name)
    except OSError as error:
        raise unopened(error, path) from error


def constants_in(data: bytes, graph: Graph, name: str = "") -> Constants:
    """Return the constants in ``data``, gzipped or not. Raises ``UnreadableInput`` for constants in other files."""
    if graph.sidecar:
        return sidecar.constants(graph, None)
    return _constants(unpacking.unpack(data, name), graph, None, name)


def _constants(data: Any, graph: Graph, path: Path | None, name: str) -> Constants:
    head = data[:HEAD]
    if head.startswith(unplannable.ZIP):
        module = "pytorch.exported_program.pt2_graph"
    elif not tflite.refuses(head):
        module = "edge.tflite"
    elif document.kind(head) or signatures.refuses_onnx(data):
        return Constants({})
    else:
        module = "onnx.onnx_weights"
    with source_of_errors(name):
        found: Constants = import_module(f"tmmu_core.formats.{module}").constants(data, graph, path, name)
    return found
