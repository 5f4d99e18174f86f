"""The constants' bytes of a model in a file, whatever its format: found here, read when they are asked for."""

from __future__ import annotations

import mmap
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


GZIPPED = b"\x1f\x8b"


def constants_of(path: Path, graph: Graph) -> Constants:
    """The constants of ``graph`` in the file that it was read from; none where its format, or the file, has none.

    Raises ``UnreadableInput`` for a file that is missing or damaged, or that sends outside of its folder.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise UnreadableInput(
            f"the file cannot be opened: {(error.strerror or str(error)).lower()}.", source=str(path)
        ) from error
    if graph.sidecar:
        return sidecar.constants(graph, path, path.name)
    if data[:2] == GZIPPED:
        data, where = unpacking.unpacked_file(path), None
    else:
        where = path
    return _finder(data)(data, graph, where, path.name)


def constants_in(data: bytes, graph: Graph, name: str = "") -> Constants:
    """The same for bytes at hand, gzipped or not; what lies in other files is refused then."""
    if graph.sidecar:
        return sidecar.constants(graph, None, name)
    plain = unpacking.unpack(data, name)
    return _finder(plain)(plain, graph, None, name)


def _finder(data: Any) -> Finder:
    """By the first bytes; a format that is not here holds no bytes."""
    if data[:4] == b"PK\x03\x04":
        return _torch
    if not sniff.not_tflite(data[:8]):
        return _tflite
    return _none if document.kind(data[:64]) or sniff.not_onnx(data) else _onnx
