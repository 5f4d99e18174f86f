"""The child that reads a Parquet plan. pyarrow ends its process at some damaged files, and must not end ours.

Started by :mod:`.parquet`, under its limits. The file comes on standard input; an :class:`Answer` goes to standard
output, as MessagePack.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from tmmu_core.child import address_space, bound
from tmmu_core.once import learned
from tmmu_core.plan.formats.documents import RowDocument

HEAD_KEY = b"tmmu_plan"
"""Where a parquet file keeps everything but the rows."""
AT_A_TIME = 1 << 15
"""Rows that are made Python's at a time."""
_NUMBER = re.compile(r"(?<=`\$\[)\d+")

Word = Literal["rows", "unreadable", "no plan", "values", "unpacked", "memory"]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What a file holds, or why it is not read."""

    word: Word
    why: str = ""
    head: bytes | None = None
    rows: list[RowDocument] = []
    """None where there is no head."""


learned(Answer)


def main(arguments: Sequence[str]) -> None:
    """Answer. ``arguments``: seconds, bytes of memory, values, and bytes unpacked that are allowed."""
    seconds, memory, values, unpacked = map(int, arguments)
    import pyarrow.parquet

    assert pyarrow.parquet  # what it takes to be there is not the file's
    bound(seconds, address_space() + memory)
    found = answer(sys.stdin.buffer.read(), values, unpacked)
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))


def answer(data: bytes, values: int, unpacked: int) -> Answer:
    """Read a file that holds at most so many values and bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Neither threads nor the dataset layer: their pool may still be running when the process ends.
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        large = past(file.metadata, values, unpacked)
        if large:
            return Answer(large)
        table = file.read(use_threads=False)
        table.validate(full=True)  # texts are UTF-8, offsets inside
        head = (table.schema.metadata or {}).get(HEAD_KEY)
        return Answer("rows", head=head, rows=[] if head is None else _rows(table))
    except msgspec.ValidationError as error:
        return Answer("no plan", str(error))
    except MemoryError:
        return Answer("memory")
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, ValueError) as error:
        return Answer("unreadable", str(error).encode("utf-8", "replace").decode())


def past(metadata: Any, values: int, unpacked: int) -> Literal["values", "unpacked", ""]:
    """Which limit a file says it would pass: a row said a million times is small. What it takes may be more."""
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    columns = [group.column(k) for group in groups for k in range(group.num_columns)]
    if sum(column.num_values for column in columns) > values:
        return "values"
    return "unpacked" if sum(column.total_uncompressed_size for column in columns) > unpacked else ""


def _rows(table: Any) -> list[RowDocument]:
    rows: list[RowDocument] = []
    for start in range(0, table.num_rows, AT_A_TIME):
        try:
            rows += msgspec.convert(table.slice(start, AT_A_TIME).to_pylist(), list[RowDocument])
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(_NUMBER.sub(lambda k: str(int(k[0]) + start), str(error))) from error  # noqa: B023
    return rows
