"""``tmmu convert``: a model of any format to a native graph file."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.console import FINE, STREAM, UsageFault, note, read_input, write_output
from app.cli.options import AsJson, Out, Source, open_any
from app.say import words
from tmmu_core.graph import native
from tmmu_core.graph.assumed import assumed_at, told
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.plan.formats.reading import read_within

Envelopes = Annotated[
    str | None,
    typer.Option(metavar="B=1:8,T=512", help="Bounds for the named dimensions, both included, or one size."),
]


def command(model: Source, output: Out = STREAM, dims: Envelopes = None, json: AsJson = False) -> int:
    """Convert a model (ONNX, node-centric, native) to a native graph file: .json or .cbor, .gz of either.

    A model's open sizes come without bounds and are assumed (batch 1 of 1 to 8, others 512): --dims gives them.
    """
    graph = open_any(model) if dims is None else read_within(read_input(model), _envelopes(dims), model)
    if not isinstance(graph, Graph):
        raise UsageFault(f"{model} does not hold a graph.", 'Plans and traces are converted by "tmmu export".')
    name = output or STREAM
    data = native.encode_json(graph) if name == STREAM else native.encode(graph, name)
    counts = f"{words.count(len(graph.nodes), 'node')}, {words.count(len(graph.tensors), 'tensor')}"
    write_output(name, data, "the graph")
    if name != STREAM:
        note(counts)
        if graph.assumed:
            note(told(assumed_at(graph)))
    return FINE


def _envelopes(text: str) -> dict[str, Dim]:
    """``B=1:8,T=512`` to an envelope for each name. Raises :class:`UsageFault`."""
    found: dict[str, Dim] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, separator, bounds = part.rpartition("=")
        low, _, high = bounds.partition(":")
        numbers = [number.strip() for number in (low, high or low)]
        if not separator or not name.strip() or not all(number.isascii() and number.isdigit() for number in numbers):
            raise UsageFault(f"{part!r} is no bound of a dimension.", "Write B=1:8 for a range, or B=8.")
        least, most = map(int, numbers)
        if least > most:
            raise UsageFault(f"{part!r} has no size in it.", "Write the smaller bound first.")
        found[name.strip()] = Dim(least, most)
    return found
