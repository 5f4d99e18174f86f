"""Read the columns of a plain CSV with numpy: no quotes, no blanks, no empty cells, one column of ids, else digits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tmmu_core.planners.problem import I64

LONGEST = 18
"""Digits of a number that is read here, so that no number exceeds a limit of the format."""


def plain_columns(data: bytes, where: Mapping[str, int]) -> tuple[list[str], dict[str, I64]] | None:
    """Return ``(ids, column by name)``, rows in the order of the file; ``None`` if the table is not plain.

    ``where``: name → position of each column of the first line, which is skipped.
    """
    if "gaps" in where or any(mark in data for mark in (b'"', b" ", b"\t", b"\r", b"\0")):
        return None
    body = data.partition(b"\n")[2].rstrip(b"\n")
    try:
        cells = body.decode().replace("\n", ",").split(",")
    except UnicodeDecodeError:
        return None
    width, codes = len(where), np.frombuffer(body + b"\n", np.uint8)
    ends = np.flatnonzero((codes == ord(",")) | (codes == ord("\n")))
    if not body or len(ends) % width:
        return None
    is_line = (codes[ends] == ord("\n")).reshape(-1, width)
    ids = cells[where["id"] :: width]
    if is_line[:, :-1].any() or not is_line[:, -1].all() or len(set(ids)) < len(ids) or "" in ids:
        return None
    if not all(map(str.isprintable, ids)):  # str.strip removes more than these blanks
        return None
    starts = np.concatenate([[0], ends[:-1] + 1])
    columns: dict[str, I64] = {}
    for name in where.keys() - {"id"}:
        column = _numbers(codes, starts[where[name] :: width], ends[where[name] :: width])
        if column is None:
            return None
        columns[name] = column
    return ids, columns


def _numbers(codes: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> I64 | None:
    """Return the decimal numbers in ``codes[start:end]``; ``None`` if one is empty, too long or not of digits."""
    lengths = ends - starts
    if lengths.min() < 1 or lengths.max() > LONGEST:
        return None
    found = np.zeros(len(starts), np.int64)
    for place in range(int(lengths.max())):
        here = place < lengths
        digits = codes[starts[here] + place].astype(np.int64) - ord("0")
        if digits.min() < 0 or digits.max() > 9:
            return None
        found[here] = found[here] * 10 + digits
    return found
