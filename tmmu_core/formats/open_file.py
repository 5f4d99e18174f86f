"""Open a file of any known format by its content: graph, packing instance, plan, trace or checkpoint.

``READERS`` is the table of formats. To add a format, write a module with the functions ``refusal(data)`` and
``read(data, name)``, and add a row. The modules are imported on first use. If a module is slow to import, or reads
several formats, :mod:`.signatures` has its ``refusal_NAME``. :func:`constants_of` returns lazily read constants.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec

from tmmu_core.base.errors import InvalidIrShapes, Rejection, UnreadableInput, open_error, source_of_errors
from tmmu_core.formats import signatures
from tmmu_core.formats.csv import instance_csv
from tmmu_core.formats.planfile.trace import Trace
from tmmu_core.graph.checks import dimension_hint, refuse_unused_dims
from tmmu_core.graph.constants import Constants, sidecar_constants
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.graph.native import document
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.model import Plan

Opened = Graph | PlainInstance | Plan | Trace
Kind = Literal["graph", "instance", "plan"]


@dataclass(frozen=True)
class Reader:
    """A format, with the functions that recognise and read it."""

    name: str  # short name, for errors
    title: str  # name of the format in texts
    kind: Kind  # what a file of the format contains
    endings: tuple[str, ...]  # usual endings of file names, for errors only: a file is recognised by its content
    function: str  # ``module:function``, relative to this folder, that reads ``(unpacked bytes, file name)``
    takes_dims: bool = False  # whether ``read`` accepts bounds of named dimensions, from which it infers shapes

    def refusal(self, data: bytes) -> str:
        """Return why unpacked bytes are not of this format; ``""`` if they are, even if they are damaged."""
        signature = getattr(signatures, f"refusal_{self.name.replace('-', '_')}", None)
        return str((signature or _load(f"{self.function.partition(':')[0]}:refusal"))(data))

    def read(self, data: bytes, name: str, *dims: Mapping[str, Dim]) -> Any:
        """Return the content of unpacked bytes. Raises ``TmmuError``; the caller adds the file to it."""
        try:
            return _load(self.function)(data, name, *dims)
        except RecursionError as error:  # decoders accept deeper nesting than recursive functions
            raise UnreadableInput("the file is nested too deeply.", hint="Check the program that wrote it.") from error


def _load(address: str) -> Any:
    path, _, attribute = address.partition(":")
    return getattr(import_module(path, __package__), attribute)


_JSON, _DOCUMENT, _TXT, _LOG = (".json", ".gz"), (".json", ".cbor", ".gz"), (".txt", ".gz"), (".txt", ".log", ".gz")
_PICKLE = (".pickle", ".pkl", *_JSON)
_SNAPSHOT, _PROFILE = "PyTorch allocator snapshot", "PyTorch profiler trace with memory events"
_PACKING = "structured packing problem (DSA with reuse penalties)"

READERS: tuple[Reader, ...] = (
    Reader("trace", "TMMU trace", "plan", (".jsonl", ".cborseq", ".gz"), ".planfile.trace:read_trace"),
    Reader("torch-snapshot", _SNAPSHOT, "instance", _PICKLE, ".pytorch.snapshot.torch_snapshot:read"),
    Reader("executorch-trace", "ExecuTorch memory trace", "instance", _JSON, ".edge.executorch:read_trace"),
    Reader("torch-profile", _PROFILE, "instance", _JSON, ".pytorch.snapshot.kineto_trace:read"),
    Reader("plan", "plan file", "plan", _DOCUMENT, ".planfile.plan_file:from_document"),
    Reader("checkpoint", "TMMU checkpoint", "plan", (".cbor", ".gz"), ".planfile.plan_file:restore"),
    Reader("structured-problem", _PACKING, "instance", _JSON, ".structured_problem:read"),
    Reader("native", "TMMU graph", "graph", _DOCUMENT, "..graph.native.native_file:decode"),
    Reader("node-centric", "node-centric graph", "graph", _DOCUMENT, "..graph.native.native_file:decode_node_centric"),
    Reader("torch", "PyTorch exported program", "graph", (".pt2",), ".pytorch.torch_module:read", takes_dims=True),
    Reader("executorch", "ExecuTorch program", "instance", (".pte",), ".edge.executorch:read"),
    Reader("tflite", "TensorFlow Lite model", "graph", (".tflite",), ".edge.tflite:read"),
    Reader("xla", "XLA buffer assignment with its live ranges", "instance", _TXT, ".xla.xla_dump:read"),
    Reader("xla-report", "XLA memory usage report", "instance", _TXT, ".xla.xla_program:read_report"),
    Reader("vela", "Vela allocation log", "instance", _LOG, ".edge.arena_logs:read_vela"),
    Reader("tflm", "TensorFlow Lite Micro arena log", "instance", _LOG, ".edge.arena_logs:read_tflm"),
    Reader("instance", "packing instance", "instance", (".csv", ".gz"), ".csv.instance_csv:read_csv"),
    # The last one, because the first bytes of many text files are valid in an ONNX model.
    Reader("onnx", "ONNX model", "graph", (".onnx",), ".onnx.onnx_reader:read", takes_dims=True),
)
"""Every format, in the order in which they are tried."""
GRAPH_READERS = tuple(reader for reader in READERS if reader.kind == "graph")
UNRECOGNISED = "Unrecognised file format."


def read_any(
    data: bytes, name: str = "", dims: Mapping[str, int] | None = None, readers: Sequence[Reader] = READERS
) -> Opened:
    """Return the content of a file; a graph at the sizes ``dims``. Raises ``UnreadableInput``, ``InvalidIrShapes``."""
    with source_of_errors(name):
        plain = document.unpack(data)
        if not plain:
            raise UnreadableInput("the file is empty.", hint="Write the file again.")
        if (unplannable_format := signatures.by_magic(plain)) is not None:
            raise unplannable_format.refusal()
        if signatures.refusal_torch_snapshot(plain):  # no limit for a snapshot, which has millions of values
            document.refuse_many_values(plain, 0 if plain is data else len(data))
        opened = _read_by_content(plain, name, readers)
    return read_at(opened, dims, data, name) if isinstance(opened, Graph) and dims else opened


def _read_by_content(plain: bytes, name: str, readers: Sequence[Reader]) -> Opened:
    tried: list[Rejection] = []
    for k, reader in enumerate(readers):
        if reason := reader.refusal(plain):
            tried.append((reader.name, reason))
            continue
        try:
            return reader.read(plain, name)
        except (UnreadableInput, InvalidIrShapes) as error:
            _refuse_later_version(plain)
            if isinstance(error, InvalidIrShapes):
                raise
            others = [(other.name, other.refusal(plain) or "an earlier reader matches") for other in readers[k + 1 :]]
            error.tried = error.tried or (*tried, (reader.name, error.message), *others)
            raise
    _refuse_later_version(plain)
    if (unplannable_format := signatures.recognised(plain, name)) is not None:
        raise unplannable_format.refusal(tuple(tried))
    is_table = bool(instance_csv.columns_of(plain))
    hint = instance_csv.OTHER_NAMES if is_table else "Open a model as ONNX, .tflite or .pt2, or a native graph."
    raise UnreadableInput(UNRECOGNISED, tried=tuple(tried), hint=hint)


def nearest_reader(tried: Sequence[Rejection], message: str, source: str) -> Rejection | None:
    """Return the row of the most likely reader: with the reason ``message``, else a matching ending (graphs first)."""
    if with_message := [row for row in tried if row[1] == message]:
        return with_message[-1]
    name = source.lower().removesuffix(".gz")
    reader_of = {reader.name: reader for reader in READERS}
    matching = [row for row in tried if name.endswith(tuple({*reader_of[row[0]].endings} - {".gz"}))]
    return min(matching, key=lambda row: reader_of[row[0]].kind != "graph", default=None)


def other_readers(tried: Sequence[Rejection], near: Rejection | None) -> list[tuple[str, str]]:
    """Return ``(readers, reason)`` of all readers except that of the row ``near``, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for row in tried:
        if row != near:
            by_reason.setdefault(row[1], []).append(row[0])
    return [(", ".join(readers), reason) for reason, readers in by_reason.items()]


def _refuse_later_version(data: bytes) -> None:
    fields: Mapping[str, Any] = {}
    with contextlib.suppress(UnreadableInput, msgspec.DecodeError):
        fields = document.fields(data) if document.kind(data) else {}
    document.refuse_later_version(fields)


def refuse_unplannable(path: Path) -> None:
    """Raise ``UnreadableInput`` if the first bytes of a file show an unplannable format. Reads only these bytes."""
    if os.path.isfile(path) and os.access(path, os.R_OK):
        with contextlib.suppress(OSError), path.open("rb") as file:  # the reader of the whole file reports the error
            unplannable_format = signatures.by_magic(file.read(signatures.HEAD))
            if unplannable_format is not None:
                raise unplannable_format.refusal(source=path.name)


def read_graph(data: bytes, name: str = "") -> Graph:
    """Return the graph in a file's bytes, gzipped or not. Raises the errors of :func:`read_any`."""
    graph = read_any(data, name, readers=GRAPH_READERS)
    assert isinstance(graph, Graph)
    return graph


def read_within(data: bytes, envelopes: Mapping[str, Dim], name: str = "") -> Graph:
    """Read a graph; ``envelopes``: bounds of its dimensions. Raises ``InvalidIrShapes`` for unknown or unused names."""
    with source_of_errors(name):
        plain = document.unpack(data)
        reader = next((reader for reader in GRAPH_READERS if not reader.refusal(plain)), None)
        graph = reader.read(plain, name, envelopes) if reader and reader.takes_dims else read_graph(data, name)
    unknown = next((dim for dim in envelopes if dim not in graph.dims), None)
    if unknown is not None:
        hint = dimension_hint(unknown, graph.dims)
        what, path = f"the graph has no dimension {unknown!r}.", f"$.dims.{unknown}"
        raise InvalidIrShapes(what, hint=hint, reason="unknown_dim", path=path, node_id="")
    refuse_unused_dims(graph, envelopes)
    assumed = {dim: size for dim, size in graph.assumed.items() if dim not in envelopes}
    return msgspec.structs.replace(graph, dims={**graph.dims, **envelopes}, assumed=assumed)


def read_at_sizes(data: bytes, sizes: Mapping[str, int], name: str = "") -> Graph:
    """Read a graph with the given sizes of named dimensions. Raises the errors of :func:`read_within`."""
    return read_within(data, {dim: Dim(size, size) for dim, size in sizes.items()}, name)


def read_at(graph: Graph, point: Mapping[str, int], data: bytes, name: str = "") -> Graph:
    """Return ``graph``; if a size in ``point`` is outside of the assumed bounds, read the graph again from ``data``."""
    sizes = {dim: size for dim, size in point.items() if dim in graph.assumed and size >= 0}
    if all(graph.dims[dim].min <= size <= graph.dims[dim].max for dim, size in sizes.items()):
        return graph
    return read_at_sizes(data, sizes, name)


def constants_of(path: Path, graph: Graph) -> Constants:
    """Return the constants of ``graph`` in the file at ``path``, if its format has any. Raises ``UnreadableInput``."""
    try:
        if graph.sidecar:
            return sidecar_constants(graph, path)
        data = document.mapped_file(path)
        # A decompressed file (``bytes``) has no path from which a reader can read ranges later.
        return _constants(data, graph, None if isinstance(data, bytes) else path, path.name)
    except OSError as error:
        raise open_error(error, path) from error


def constants_in(data: bytes, graph: Graph, name: str = "") -> Constants:
    """Return the constants in ``data``, gzipped or not. Raises ``UnreadableInput`` for constants in other files."""
    if graph.sidecar:
        return sidecar_constants(graph, None)
    return _constants(document.unpack(data, name), graph, None, name)


def _constants(data: Any, graph: Graph, path: Path | None, name: str) -> Constants:
    head = data[:64]  # identifies the format
    if head.startswith(signatures.ZIP):
        module = ".pytorch.exported_program.pt2_graph"
    elif not _load(".edge.tflite:refusal")(head):
        module = ".edge.tflite"
    elif document.kind(head) or signatures.refusal_onnx(data):
        return Constants({})
    else:
        module = ".onnx.onnx_weights"
    with source_of_errors(name):
        constants: Constants = _load(f"{module}:constants")(data, graph, path, name)
    return constants
