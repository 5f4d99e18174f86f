"""The front door: a file's bytes, of whatever format, to a :class:`~tmmu_core.graph.model.Graph`.

``READERS`` is the one table. A reader is found by content, never by the file's name: each is asked in turn why the
bytes are *not* its own, and the first with nothing to say reads them. To add a format, write a module with a function
``(bytes, name) -> Graph`` and a line in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tmmu_core.errors import InvalidIrShapes, UnreadableInput
from tmmu_core.graph import document, native
from tmmu_core.graph.importers import node_centric, sniff, torch
from tmmu_core.graph.model import Dim, Graph


@dataclass(frozen=True)
class Reader:
    """One format: how it is told from the others, and how it is read."""

    name: str
    """A word for tables and errors."""
    title: str
    """What a person calls the format."""
    endings: tuple[str, ...]
    """Usual endings of a file name, for upload dialogs only."""
    refuses: Callable[[bytes], str]
    """Why these (unpacked) bytes are not of this format; ``""`` when they are."""
    read: Callable[[bytes, str], Graph]
    """``(unpacked bytes, file name) -> graph``; raises ``TmmuError``."""


def _read_onnx(data: bytes, name: str, envelopes: Mapping[str, Dim] | None = None) -> Graph:
    from tmmu_core.graph.importers import onnx  # the onnx package takes a while to load, so only for those who need it

    return onnx.read(data, name, envelopes)


def _read_tflite(data: bytes, name: str) -> Graph:
    from tmmu_core.graph.importers.tflite import read

    return read(data, name)


READERS: tuple[Reader, ...] = (
    Reader("native", "TMMU graph", (".json", ".cbor", ".gz"), sniff.not_native, native.decode),
    Reader(
        "node-centric", "UML_Model_IR, node-centric", (".json", ".cbor", ".gz"), sniff.not_ports, node_centric.decode
    ),
    Reader("torch", "PyTorch exported program", (".pt2",), torch.refuses, torch.read),
    Reader("tflite", "TensorFlow Lite model", (".tflite",), sniff.not_tflite, _read_tflite),
    Reader("onnx", "ONNX model", (".onnx",), sniff.not_onnx, _read_onnx),
)


def read_graph(data: bytes, name: str = "") -> Graph:
    """The graph in a file's bytes, gzipped or not. ``name`` is the file's: for errors, and for a graph without one.

    Raises ``UnreadableInput`` naming each reader tried with its reason, and whatever the reader that takes the bytes
    raises (``InvalidIrShapes`` and its kin).
    """
    plain = document.unpack(data, name)
    tried: list[tuple[str, str]] = []
    for reader in READERS:
        reason = reader.refuses(plain)
        if reason:
            tried.append((reader.name, reason))
            continue
        try:
            return reader.read(plain, name)
        except UnreadableInput as error:
            error.source = error.source or name
            others = [
                (other.name, other.refuses(plain) or "another reader took it") for other in READERS[len(tried) + 1 :]
            ]
            error.tried = error.tried or (*tried, (reader.name, error.message), *others)
            raise
    raise UnreadableInput(
        "the file is empty." if not plain else "no reader knows this content.",
        source=name,
        tried=tuple(tried),
        hint="Give a graph in one of these formats: " + ", ".join(reader.title for reader in READERS) + ".",
    )


def read_within(data: bytes, envelopes: Mapping[str, Dim], name: str = "") -> Graph:
    """The graph in a file's bytes, its named dimensions within ``envelopes`` instead of those it comes with.

    Only for a model of a format that gives no bounds of its own is that more than other numbers: its sizes are told
    from the bounds. Raises as :func:`read_graph`, and ``InvalidIrShapes`` (reason ``unknown_dim``) for a name that the
    graph does not have.
    """
    plain = document.unpack(data, name)
    foreign = next((reader for reader in READERS if not reader.refuses(plain)), None)
    if foreign is not None and foreign.name == "onnx":
        graph = _read_onnx(plain, name, envelopes)
    else:
        graph = read_graph(data, name)
    unknown = next((dim for dim in envelopes if dim not in graph.dims), None)
    if unknown is not None:
        raise InvalidIrShapes(
            f'the graph names no dimension "{unknown}".',
            hint=f"It names {', '.join(sorted(graph.dims))}." if graph.dims else "All its shapes are fixed.",
            reason="unknown_dim",
            path=f"$.dims.{unknown}",
            node_id="",
        )
    return msgspec.structs.replace(graph, dims={**graph.dims, **envelopes})


def read_graph_file(path: str | Path) -> Graph:
    """The graph in the file at ``path``; errors as :func:`read_graph`, and ``UnreadableInput`` for a missing file."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableInput(
            f"the file cannot be opened: {(error.strerror or str(error)).lower()}.",
            source=str(path),
            hint="Check the name and the rights.",
        ) from error
    return read_graph(data, path.name)
