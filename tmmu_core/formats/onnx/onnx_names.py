"""Unique node ids, and the message of an error of the onnx package."""

from __future__ import annotations

from collections import Counter


def unique_ids(nodes: list[tuple[int, str, str]]) -> list[str]:
    """Return an id per (position, name, operator): the name if it is unique, else ``<operator>_<position>``, made
    unique.
    """
    times = Counter(name for _, name, _ in nodes)
    taken = {name for name, count in times.items() if name and count == 1}
    ids: list[str] = []
    for position, name, operator in nodes:
        node_id = name if name in taken else f"{operator}_{position}"
        while name not in taken and node_id in taken:
            node_id += "_"
        taken.add(node_id)
        ids.append(node_id)
    return ids


def first_line(error: Exception) -> str:
    """Return the first line of an error, without the trace that the onnx package appends."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
