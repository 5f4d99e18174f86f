"""The most likely reader of an unreadable file, and the reasons of the readers that rejected it."""

from collections.abc import Sequence

from tmmu_core.formats.open_file import GRAPH_READERS, READERS

Tried = Sequence[tuple[str, str]]  # (reader, reason why it rejected the file), in the order of the attempts

_GRAPH_READERS = {reader.name for reader in GRAPH_READERS}


def nearest(tried: Tried, message: str, source: str) -> tuple[str, str] | None:
    """Return the row of the most likely reader: its reason is ``message``, or else it reads the file's extension."""
    with_message = [row for row in tried if row[1] == message]
    if with_message:
        return with_message[-1]
    name = source.lower().removesuffix(".gz")
    extensions = {reader.name: tuple(end for end in reader.endings if end != ".gz") for reader in READERS}
    matching = [row for row in tried if name.endswith(extensions.get(row[0], ()))]
    return min(matching, key=lambda row: row[0] not in _GRAPH_READERS, default=None)


def others(tried: Tried, near: tuple[str, str] | None) -> list[tuple[str, str]]:
    """Return ``(readers, reason)`` of all readers except that of the row ``near``, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for row in tried:
        if row != near:
            by_reason.setdefault(row[1], []).append(row[0])
    return [(", ".join(readers), reason) for reason, readers in by_reason.items()]
