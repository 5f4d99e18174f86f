"""Any file that can be opened, by content: a graph, a plain instance, a plan, a trace, a checkpoint.

``READERS`` is the one table, for the command line, the explorer and the library alike. Each reader is asked in turn why
the bytes are *not* its own; the first with nothing to say reads them, and when all have something to say, the refusal
names them all. To add a format, write a module with a function ``(bytes, name) -> what it holds`` and a line here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec
import numpy as np

from tmmu_core.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.graph import document, native, unpacking
from tmmu_core.graph.importers import node_centric, sniff
from tmmu_core.graph.model import Dim, Graph
from tmmu_core.plan.formats import checkpoint, files, parquet, table, trace
from tmmu_core.plan.formats import sniff as sniff_plans
from tmmu_core.plan.formats.trace import Trace
from tmmu_core.plan.model import Plan
from tmmu_core.planners import instances
from tmmu_core.planners.problem import Packing, PlainInstance, Problem

Opened = Graph | PlainInstance | Plan | Trace


@dataclass(frozen=True)
class Reader:
    """One format: how it is told from the others, and how it is read."""

    name: str
    """A word for tables and errors."""
    title: str
    """What a person calls the format."""
    holds: Literal["graph", "instance", "plan"]
    endings: tuple[str, ...]
    """Usual endings of a file name, for upload dialogs only."""
    refuses: Callable[[bytes], str]
    """Why these (unpacked) bytes are not of this format; ``""`` when they are."""
    read: Callable[[bytes, str], Opened]
    """``(unpacked bytes, file name) -> what it holds``; raises ``TmmuError``."""
    within: Callable[[bytes, str, Mapping[str, Dim]], Graph] | None = None
    """The same with envelopes of named dimensions, where the format tells its sizes from them."""
    stream: Callable[[BinaryIO, int, str], Opened] | None = None
    """``(file, its bytes' number, its name)``: the same of a file that need not lie in memory whole."""


def _read_onnx(data: bytes, name: str, envelopes: Mapping[str, Dim] | None = None) -> Graph:
    from tmmu_core.graph.importers import onnx  # the onnx package takes a while to load, so only for those who need it

    return onnx.read(data, name, envelopes)


def _read_tflite(data: bytes, name: str) -> Graph:
    from tmmu_core.graph.importers.tflite import read

    return read(data, name)


def _stem(name: str) -> str:
    """A file's name without its folder, so that a plan is called the same wherever its instance lies."""
    return name.replace("\\", "/").rpartition("/")[2].removesuffix(".gz")


def _read_instance(data: bytes, name: str) -> PlainInstance:
    found = instances.read_csv(data, source=name)
    packing = None if found.offset is None else Packing(offset=found.offset)
    return PlainInstance(_stem(name).removesuffix(".csv"), found.problem, packing, found.notes)


def _read_xla(data: bytes, name: str) -> PlainInstance:
    from tmmu_core.graph.importers import xla

    dump = xla.read(data, name)
    row_of = {buffer.id: i for i, buffer in enumerate(dump.buffers)}

    def column(field: str) -> list[int]:
        return [getattr(buffer, field) for buffer in dump.buffers]

    problem = Problem(
        arena="arena",
        ids=tuple(row_of),
        birth=np.array(column("birth"), np.int64),
        death=np.array(column("death"), np.int64),
        size=np.array(column("size"), np.uint64),
        alignment=np.ones(len(row_of), np.uint64),
        handoff_from=np.array([row_of.get(buffer.takes_over, -1) for buffer in dump.buffers], np.int64),
        roles=tuple([buffer.role for buffer in dump.buffers]),
    )
    packing = Packing(offset=np.array(column("offset"), np.uint64))
    return PlainInstance(_stem(name).removesuffix(".txt"), problem, packing, dump.notes, dump.made)


def _later(module: str, function: str) -> Callable[..., Any]:
    """A function of a module that is loaded when it is first called: most files are of the first formats asked."""

    def called(*given: Any) -> Any:
        return getattr(import_module(module), function)(*given)

    return called


def _both(module: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return _later(module, "refuses"), _later(module, "read")


_TORCH, _XLA = "tmmu_core.graph.importers.torch", "tmmu_core.graph.importers.xla"
_EXECUTORCH, _SNAPSHOT = (f"tmmu_core.plan.formats.{name}" for name in ("executorch", "torch_snapshot"))
_REPORT, _VELA, _TFLM = (f"tmmu_core.plan.formats.{name}" for name in ("xla_report", "vela", "tflm"))

_BEGINNING = 1 << 16
"""So many bytes of a file say whether it is of a format that is read as it comes."""
_GRAPH = (".json", ".cbor", ".gz")

READERS: tuple[Reader, ...] = (
    Reader("trace", "trace", "plan", (".jsonl", ".cborseq", ".gz"), sniff_plans.not_trace, trace.read_trace),
    Reader(
        *("torch-snapshot", "PyTorch allocator snapshot", "instance", (".pickle", ".pkl", ".json", ".gz")),
        *(sniff_plans.not_torch_snapshot, _later(_SNAPSHOT, "read"), None, _later(_SNAPSHOT, "read_file")),
    ),
    Reader(
        *("executorch-trace", "ExecuTorch memory trace", "instance", (".json", ".gz")),
        *(sniff_plans.not_executorch_trace, _later(_EXECUTORCH, "read_trace")),
    ),
    Reader("plan", "plan file", "plan", _GRAPH, sniff_plans.not_plan, files.from_document),
    Reader("checkpoint", "checkpoint", "plan", (".cbor", ".gz"), sniff_plans.not_checkpoint, checkpoint.restore),
    Reader("parquet", "plan as parquet", "plan", (".parquet",), sniff_plans.not_parquet, parquet.from_parquet),
    Reader("native", "TMMU graph", "graph", _GRAPH, sniff.not_native, native.decode),
    Reader("node-centric", "UML_Model_IR, node-centric", "graph", _GRAPH, sniff.not_ports, node_centric.decode),
    Reader("torch", "PyTorch exported program", "graph", (".pt2",), *_both(_TORCH), _later(_TORCH, "read")),
    Reader(
        *("executorch", "ExecuTorch program", "instance", (".pte",)),
        *(sniff_plans.not_executorch, _later(_EXECUTORCH, "read")),
    ),
    Reader("tflite", "TensorFlow Lite model", "graph", (".tflite",), sniff.not_tflite, _read_tflite),
    Reader(
        "xla",
        "XLA buffer assignment with its live ranges",
        "instance",
        (".txt", ".gz"),
        _later(_XLA, "refuses"),
        _read_xla,
    ),
    Reader("xla-report", "XLA memory usage report", "instance", (".txt", ".gz"), *_both(_REPORT)),
    Reader("vela", "Vela allocation log", "instance", (".txt", ".log", ".gz"), *_both(_VELA)),
    Reader("tflm", "TensorFlow Lite Micro arena log", "instance", (".txt", ".log", ".gz"), *_both(_TFLM)),
    Reader("instance", "packing instance", "instance", (".csv", ".gz"), sniff_plans.not_instance, _read_instance),
    # Last: its protobuf begins like many a text.
    Reader("onnx", "ONNX model", "graph", (".onnx",), sniff.not_onnx, _read_onnx, _read_onnx),
)
"""Every format, in the order in which they are asked."""
_STREAMED = READERS[: 1 + max(k for k, reader in enumerate(READERS) if reader.stream)]
"""Those that are read as they come, and those that are asked before."""
GRAPH_READERS = tuple(reader for reader in READERS if reader.holds == "graph")


def endings() -> tuple[str, ...]:
    """The usual endings of all formats, each once, for upload dialogs."""
    return tuple(dict.fromkeys(ending for reader in READERS for ending in reader.endings))


def read_any(data: bytes, name: str = "", readers: Sequence[Reader] = READERS) -> Opened:
    """What a file's bytes hold, gzipped or not; ``name`` is the file's, for errors and for what has no name itself.

    Gives a :class:`Graph`, a :class:`PlainInstance`, a :class:`Plan` (from a plan file or a checkpoint) or a
    :class:`Trace`. Raises ``UnreadableInput`` naming every reader tried with its reason, and what the reader that
    takes the bytes raises (``InvalidIrShapes`` and its kin).
    """
    plain = unpacking.unpack(data, name)
    if b"allocation_header" in plain or sniff_plans.not_torch_snapshot(plain):  # a snapshot is read without its values
        document.refuse_many_values(plain, name, 0 if plain is data else len(data))
        try:
            document.refuse_nested(plain, name)
        except UnreadableInput as error:
            error.tried = tuple((reader.name, "it is nested too deeply") for reader in readers)
            raise
    tried: list[tuple[str, str]] = []
    for k, reader in enumerate(readers):
        reason = reader.refuses(plain)
        if reason:
            tried.append((reader.name, reason))
            continue
        try:
            return reader.read(plain, name)
        except UnreadableInput as error:
            error.source = error.source or name
            later = [(other.name, other.refuses(plain) or "another reader took it") for other in readers[k + 1 :]]
            error.tried = error.tried or (*tried, (reader.name, error.message), *later)
            raise
    raise UnreadableInput(
        "the file is empty." if not plain else "no reader knows this content.",
        source=name,
        tried=tuple(tried),
        hint=instances.OTHER_NAMES
        if {"lower", "upper", "size"} <= table.likely(table.columns_of(plain, name)).keys()
        else "Give one of: " + ", ".join(reader.title for reader in readers) + ".",
    )


def read_streamed(path: Path, name: str) -> Opened | None:
    """What a file holds whose beginning says that it is of a format that is read as it comes; ``None`` of any other.

    Of a file that cannot be opened ``None`` too: whoever reads it whole says why. Raises as :func:`read_any`.
    """
    try:
        if not os.path.isfile(path):
            return None
        with unpacking.of_one_moment(path) as (file, size):
            begins = file.read(_BEGINNING)
            reader = next((reader for reader in _STREAMED if not reader.refuses(begins)), None)
            if size is None or reader is None or reader.stream is None:
                return None
            file.seek(0)
            return reader.stream(file, size, name)
    except OSError:
        return None


def read_graph(data: bytes, name: str = "") -> Graph:
    """The graph in a file's bytes, gzipped or not. Raises as :func:`read_any` does."""
    graph = read_any(data, name, GRAPH_READERS)
    assert isinstance(graph, Graph)
    return graph


def read_within(data: bytes, envelopes: Mapping[str, Dim], name: str = "") -> Graph:
    """The graph in a file's bytes, its named dimensions within ``envelopes`` instead of those it comes with.

    Only for a model of a format that gives no bounds of its own is that more than other numbers: its sizes are told
    from the bounds. Raises as :func:`read_graph`, and ``InvalidIrShapes`` (reason ``unknown_dim``) for a name that the
    graph does not have.
    """
    plain = unpacking.unpack(data, name)
    foreign = next((reader for reader in GRAPH_READERS if not reader.refuses(plain)), None)
    graph = foreign.within(plain, name, envelopes) if foreign and foreign.within else read_graph(data, name)
    unknown = next((dim for dim in envelopes if dim not in graph.dims), None)
    if unknown is not None:
        raise InvalidIrShapes(
            f'the graph names no dimension "{unknown}".',
            hint=f"It names {', '.join(sorted(graph.dims))}." if graph.dims else "All its shapes are fixed.",
            reason="unknown_dim",
            path=f"$.dims.{unknown}",
            node_id="",
        )
    assumed = {dim: size for dim, size in graph.assumed.items() if dim not in envelopes}
    return msgspec.structs.replace(graph, dims={**graph.dims, **envelopes}, assumed=assumed)


def read_at(graph: Graph, point: Mapping[str, int], data: bytes, name: str = "") -> Graph:
    """``graph``, read from ``data``, once more where ``point`` leaves the envelopes that its reader assumed.

    Sizes that follow from an assumed one are then told at that very size. Raises as :func:`read_within`.
    """
    given = {dim: Dim(size, size) for dim, size in point.items() if dim in graph.assumed and size >= 0}
    if all(graph.dims[dim].min <= size.min <= graph.dims[dim].max for dim, size in given.items()):
        return graph
    return read_within(data, given, name)


def read_graph_file(path: str | Path) -> Graph:
    """The graph in the file at ``path``; errors as :func:`read_graph`, and ``UnreadableInput`` for a missing file."""
    path = Path(path)
    try:
        data = unpacking.read_whole(path)
    except OSError as error:
        raise UnreadableInput(
            f"the file cannot be opened: {(error.strerror or str(error)).lower()}.",
            source=str(path),
            hint="Check the name and the rights.",
        ) from error
    return read_graph(data, path.name)
