"""The constants' bytes of a model in a file, whatever its format: found here, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tmmu_core.errors import UnreadableInput
from tmmu_core.graph import document, sidecar, unpacking
from tmmu_core.graph.constants import Constants
from tmmu_core.graph.importers import sniff
from tmmu_core.graph.model import Graph

Finder = Callable[[Any, Graph, Path | None, str], Constants]


def _onnx(data: Any, graph: Graph, where: Path | None, name: str) -> Constants:
    from tmmu_core.graph.importers.onnx_bytes import constants

    return constants(data, graph, where, name)


def _tflite(data: Any, graph: Graph, where: Path | None, name: str) -> Constants:
    from tmmu_core.graph.importers.tflite import constants

    return constants(data, graph, where, name)


def _torch(data: Any, graph: Graph, where: Path | None, name: str) -> Constants:
    from tmmu_core.graph.importers.pt2_bytes import constants

    return constants(data, graph, where, name)


def _none(data: Any, graph: Graph, where: Path | None, name: str) -> Constants:
    return Constants({})


GZIPPED, ARCHIVED = b"\x1f\x8b", b"PK\x03\x04"
BEGINNING = 64
"""Bytes that tell a document from a model."""


def constants_of(path: Path, graph: Graph) -> Constants:
    """The constants of ``graph`` in the file that it was read from; none where its format, or the file, has none.

    Raises ``UnreadableInput`` for a file that is missing or damaged, or that sends outside of its folder.
    """
    try:
        with path.open("rb") as file:
            begins = file.read(BEGINNING)
        if graph.sidecar:
            return sidecar.constants(graph, path, path.name)
        if begins.startswith(ARCHIVED):  # read through its table, wherever that lies
            return _torch(b"", graph, path, path.name)
        gzipped = begins.startswith(GZIPPED)
        data = unpacking.unpacked_file(path) if gzipped else unpacking.copied_file(path)
        return _finder(data)(data, graph, None if gzipped else path, path.name)
    except OSError as error:
        raise UnreadableInput(
            f"the file cannot be opened: {(error.strerror or str(error)).lower()}.", source=str(path)
        ) from error


def constants_in(data: bytes, graph: Graph, name: str = "") -> Constants:
    """The same for bytes at hand, gzipped or not; what lies in other files is refused then."""
    if graph.sidecar:
        return sidecar.constants(graph, None, name)
    plain = unpacking.unpack(data, name)
    return _finder(plain)(plain, graph, None, name)


def _finder(data: Any) -> Finder:
    """By the first bytes; a format that is not here holds no bytes."""
    begins = data[:BEGINNING]
    if begins.startswith(ARCHIVED):
        return _torch
    if not sniff.not_tflite(begins):
        return _tflite
    return _none if document.kind(begins) or sniff.not_onnx(data) else _onnx
