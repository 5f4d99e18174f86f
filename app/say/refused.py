"""What is said of bytes that no reader takes: the reader nearest to them first, the others in few lines. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tmmu_core.plan.formats.reading import GRAPH_READERS, READERS

Tried = Sequence[tuple[str, str]]
"""``(reader, reason)``, in the order in which they were asked."""

_GRAPHS = {reader.name for reader in GRAPH_READERS}


def nearest(tried: Tried, message: str, source: str) -> tuple[str, str] | None:
    """The row of the reader that a person would blame; ``None`` where nothing points at one.

    That is the reader that took the bytes and gave up on them, whose reason is the error itself. Where none took them,
    it is the one whose ending the file's name has: a graph's before a plan's, for graphs are what is brought most.
    """
    took = [row for row in tried if row[1] == message]
    if took:
        return took[-1]
    name = source.lower().removesuffix(".gz")
    endings = {reader.name: reader.endings for reader in READERS}
    named = [row for row in tried if any(name.endswith(end) for end in endings.get(row[0], ()) if end != ".gz")]
    return min(named, key=lambda row: row[0] not in _GRAPHS, default=None)


def others(tried: Tried, near: tuple[str, str] | None) -> list[tuple[str, str]]:
    """The rest as ``(readers, reason)``: those that give one and the same reason share a line."""
    by_reason: dict[str, list[str]] = {}
    for row in tried:
        if row != near:
            by_reason.setdefault(row[1], []).append(row[0])
    return [(", ".join(readers), reason) for reason, readers in by_reason.items()]
