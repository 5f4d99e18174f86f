"""``tmmu convert``: a model of any format to a native graph file."""

from __future__ import annotations

from app import words
from app.cli.console import FINE, STREAM, UsageFault, note, write_output
from app.cli.options import AsJson, Out, Source, open_any
from tmmu_core.graph import native
from tmmu_core.graph.model import Graph


def command(model: Source, output: Out = STREAM, json: AsJson = False) -> int:
    """Convert a model (ONNX, node-centric, native) to a native graph file: .json or .cbor, .gz of either."""
    graph = open_any(model)
    if not isinstance(graph, Graph):
        raise UsageFault(f"{model} does not hold a graph.", 'Plans and traces are converted by "tmmu export".')
    name = output or STREAM
    data = native.encode_json(graph) if name == STREAM else native.encode(graph, name)
    counts = f"{words.count(len(graph.nodes), 'node')}, {words.count(len(graph.tensors), 'tensor')}"
    write_output(name, data, "the graph")
    if name != STREAM:
        note(counts)
    return FINE
