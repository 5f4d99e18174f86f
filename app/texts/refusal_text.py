"""For the error of an unreadable file: its most likely reader, and why the other readers rejected it."""

from collections.abc import Sequence

from tmmu_core.formats.open_file import GRAPH_READERS, READERS

Tried = Sequence[tuple[str, str]]
"""``(reader, reason why it rejected the file)``, in the order of the attempts."""

_GRAPHS = {reader.name for reader in GRAPH_READERS}


def nearest(tried: Tried, message: str, source: str) -> tuple[str, str] | None:
    """Return the row of the most likely reader, or ``None``.

    The most likely reader is the one whose reason is the error ``message``. Without one, it is a reader of the file's
    extension, graph formats first.
    """
    took = [row for row in tried if row[1] == message]
    if took:
        return took[-1]
    name = source.lower().removesuffix(".gz")
    endings = {reader.name: reader.endings for reader in READERS}
    named = [row for row in tried if any(name.endswith(end) for end in endings.get(row[0], ()) if end != ".gz")]
    return min(named, key=lambda row: row[0] not in _GRAPHS, default=None)


def others(tried: Tried, near: tuple[str, str] | None) -> list[tuple[str, str]]:
    """Return all readers except ``near`` as ``(readers, reason)``, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for row in tried:
        if row != near:
            by_reason.setdefault(row[1], []).append(row[0])
    return [(", ".join(readers), reason) for reason, readers in by_reason.items()]
