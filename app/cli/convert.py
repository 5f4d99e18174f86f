"""``tmmu convert``: a model of any format to a native graph file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from app.cli.console import FINE, STREAM, UsageFault, note, read_input, write_output
from app.cli.options import AsJson, Out, Source, open_any
from app.say import words
from tmmu_core.graph import native
from tmmu_core.graph import sidecar as native_sidecar
from tmmu_core.graph.assumed import assumed_at, in_words
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.plan.formats import table
from tmmu_core.plan.formats.constants import constants_of
from tmmu_core.plan.formats.reading import read_within
from tmmu_core.plan.making.pairs import read_pairs
from tmmu_core.planners import instances
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.writing import alone_in, replace_file_by_parts

Envelopes = Annotated[
    str | None,
    typer.Option(metavar="B=1:8,T=512", help="Bounds for the named dimensions, both included, or one size."),
]

Columns = Annotated[
    str | None,
    typer.Option(metavar="size=BYTES,lower=FROM", help="The file is a table, CSV or JSON, with these columns."),
]


Sidecar = Annotated[
    str | None,
    typer.Option("--sidecar", metavar="FILE", help="Also write the constants' bytes, safetensors beside the graph."),
]


def command(
    model: Source,
    output: Out = STREAM,
    dims: Envelopes = None,
    columns: Columns = None,
    sidecar: Sidecar = None,
    json: AsJson = False,
) -> int:
    """Convert a model (ONNX, node-centric, native) to a native graph file: .json or .cbor, .gz of either.

    Lives without a graph (an allocator's snapshot, an XLA dump, with --columns any table) become an instance, .csv.

    A model's open sizes come without bounds and are assumed (batch 1 of 1 to 8, others 512): --dims gives them.
    """
    if columns is not None:
        return _write_instance(table.read(read_input(model), _columns(columns), model), output or STREAM)
    graph = open_any(model) if dims is None else read_within(read_input(model), _envelopes(dims), model)
    if isinstance(graph, PlainInstance):
        return _write_instance(graph, output or STREAM)
    if not isinstance(graph, Graph):
        raise UsageFault(f"{model} does not hold a graph.", 'Plans and traces are converted by "tmmu export".')
    name = output or STREAM
    if sidecar is None:
        _write_graph(graph, name)
    else:
        _check_sidecar(model, name, sidecar)
        with _alone_beside(sidecar):  # who reads one of the two takes the other for its own
            _write_graph(_with_sidecar(graph, model, sidecar), name)
    counts = f"{words.count(len(graph.nodes), 'node')}, {words.count(len(graph.tensors), 'tensor')}"
    if name != STREAM:
        note(counts)
        if graph.assumed:
            note(in_words(assumed_at(graph)))
    return FINE


def _write_graph(graph: Graph, name: str) -> None:
    write_output(name, native.encode_json(graph) if name == STREAM else native.encode(graph, name), "the graph")


def _check_sidecar(model: str, output: str, sidecar: str) -> None:
    if STREAM in (model, output) or Path(sidecar).resolve().parent != Path(output).resolve().parent:
        raise UsageFault("a sidecar lies beside its graph.", "Give a model's file, -o GRAPH, and a name in its folder.")


@contextmanager
def _alone_beside(sidecar: str) -> Iterator[None]:
    """Inside, nobody else writes a graph with its sidecar into the folder. Raises :class:`UsageFault` without it."""
    with ExitStack() as held:
        try:
            held.enter_context(alone_in(Path(sidecar).resolve().parent))
        except OSError as error:
            raise UsageFault(f"{sidecar} cannot be written: {(error.strerror or str(error)).lower()}.") from error
        yield


def _with_sidecar(graph: Graph, model: str, sidecar: str) -> Graph:
    """The graph naming the sidecar, which is written. Raises :class:`UsageFault` and ``UnreadableInput``."""
    path = Path(sidecar)
    held = constants_of(Path(model), graph)
    if not held:
        raise UsageFault(f"{model} holds no bytes of constants.", "Leave --sidecar out.")
    try:
        written = replace_file_by_parts(path, native_sidecar.written(graph, held))
    except OSError as error:
        raise UsageFault(f"{sidecar} cannot be written: {(error.strerror or str(error)).lower()}.") from error
    note(f"wrote the constants' bytes to {sidecar} ({words.short_bytes(written)})")
    return msgspec.structs.replace(graph, sidecar=path.name)


def _write_instance(found: PlainInstance, name: str) -> int:
    offsets = None if found.packing is None else found.packing.offset
    write_output(name, instances.write_csv(found.problem, offsets).encode(), "the instance")
    for line in (*found.notes, words.count(len(found.problem), "storage")) if name != STREAM else ():
        note(line)
    return FINE


def _columns(text: str) -> dict[str, str]:
    """``size=bytes,lower=from`` to the table's name of each field. Raises :class:`UsageFault`."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(field.strip() and own.strip() for field, _, own in pairs):
        raise UsageFault(f"{text!r} names no columns.", table.HINT)
    return {field.strip(): own.strip() for field, _, own in pairs}


def _envelopes(text: str) -> dict[str, Dim]:
    """``B=1:8,T=512`` to an envelope for each name. Raises :class:`UsageFault`."""
    found: dict[str, Dim] = {}
    try:
        pairs = read_pairs(text)
    except ValueError as error:
        raise UsageFault(f"--dims: {error}", "Write B=1:8,T=512.") from None
    for name, bounds in pairs:
        part = text if name is None else f"{name}={bounds}"
        low, _, high = bounds.partition(":")
        numbers = [number.strip() for number in (low, high or low)]
        if name is None or not all(number.isascii() and number.isdigit() for number in numbers):
            raise UsageFault(f"{part!r} is no bound of a dimension.", "Write B=1:8 for a range, or B=8.")
        least, most = map(int, numbers)
        if least > most:
            raise UsageFault(f"{part!r} has no size in it.", "Write the smaller bound first.")
        found[name] = Dim(least, most)
    return found
