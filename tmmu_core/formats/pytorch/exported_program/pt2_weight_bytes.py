"""The bytes of an exported program's weights, by tensor id: ranges of its archive's members."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.formats.pytorch.exported_program.pt2_archive import COPY, members_of, read_program
from tmmu_core.formats.pytorch.exported_program.pt2_graph import storages_of
from tmmu_core.graph.constants import CHUNK, Constants, Piece, cut_short
from tmmu_core.graph.model import Graph


@dataclass(frozen=True)
class InMember:
    """Bytes ``[start, start + length)`` of a member of a zip archive, in a file or in memory."""

    archive: Path | bytes
    member: str
    start: int
    length: int

    def chunks(self) -> Iterator[bytes]:
        """The bytes in order."""
        try:
            with zipfile.ZipFile(_opened(self.archive)) as archive, archive.open(self.member) as file:
                file.seek(self.start)
                left = self.length
                while left:
                    data = file.read(min(CHUNK, left))
                    if not data:
                        raise cut_short(f'the member "{self.member}"', self.start + self.length, file.tell())
                    left -= len(data)
                    yield data
        except (OSError, KeyError, zipfile.BadZipFile, RuntimeError, EOFError, ValueError) as error:
            raise UnreadableInput(f'the member "{self.member}" cannot be read: {error}.', hint=COPY) from error


def _opened(archive: Path | bytes) -> Any:
    return archive if isinstance(archive, Path) else io.BytesIO(archive)


def constants(data: Any, graph: Graph, where: Path | None, name: str = "") -> Constants:
    """The parameters, buffers and lifted constants of ``graph`` whose bytes the archive holds as such.

    Raises ``UnreadableInput`` where the archive is damaged.
    """
    archive = where or bytes(data)
    members = members_of(_opened(archive), name)
    ids = {tensor.id for tensor in graph.tensors}
    pieces: dict[str, Piece] = {}
    for called, (storage, start, length) in storages_of(read_program(archive, name)).items():
        if called in members and storage in ids:
            pieces[storage] = InMember(archive, members[called], start, length)
    return Constants(pieces)
