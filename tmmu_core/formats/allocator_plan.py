"""Build packing instances from live ranges and offsets: common parts of the readers of other tools' plans."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX, UnreadableInput
from tmmu_core.graph.native import document
from tmmu_core.planners.problem import Packing, PlainInstance, Problem
from tmmu_core.plans.figures.live_bytes import peak_of_ranges

LAST_BYTE = 2**62  # upper limit of offsets, sizes and steps


@dataclass(slots=True)
class LiveRange:
    """One live range: steps ``[birth, death)``, bytes ``[offset, offset + size)``."""

    id: str
    birth: int
    death: int
    size: int
    offset: int
    role: str = "activation"
    alignment: int = 1
    arena: str = "arena"


def with_unique_ids(lives: Iterable[LiveRange]) -> list[LiveRange]:
    """Return the live ranges after giving repeated ids a number (``x``, ``x #2``, …), in place."""
    ids: set[str] = set()
    last: dict[str, int] = {}
    numbered = list(lives)
    for life in numbered:
        name = life.id
        while life.id in ids:
            last[name] = last.get(name, 1) + 1
            life.id = f"{name} #{last[name]}"
        ids.add(life.id)
    return numbered


def arena_names(memories: Iterable[int]) -> dict[int, str]:
    """Return number → arena name of each memory: ``memory 1``, …; ``arena`` if there is only one memory."""
    numbers = set(memories)
    return {number: f"memory {number}" if len(numbers) > 1 else "arena" for number in numbers}


def is_log(data: bytes) -> bool:
    """Return whether bytes may be a text log: no zero byte at the start, no document, no ONNX model (first byte 8)."""
    return b"\0" not in data[:1024] and not document.kind(data) and data[:1] != b"\x08"


def file_name(path: str) -> str:
    """Return a file's name without its folder and ``.gz``."""
    return path.replace("\\", "/").rpartition("/")[2].removesuffix(".gz")


def stem_of(path: str) -> str:
    """Return a file's name without its folder and its ending."""
    name = file_name(path)
    return name.rpartition(".")[0] or name


def instance_of(
    name: str, lives: Iterable[LiveRange], notes: Sequence[str] = (), *, placed: bool = True
) -> PlainInstance:
    """Return the instance of live ranges, with a packing if they are ``placed``. Raises ``UnreadableInput``."""
    rows = sorted(lives, key=lambda life: (life.arena, life.birth, -life.size, life.id))  # texts sort as UTF-8 bytes
    refuse_beyond_last_byte(sum(life.size for life in rows), *(life.offset + life.size for life in rows))
    arenas = [(arena, list(own)) for arena, own in groupby(rows, key=lambda life: life.arena)] or [("arena", rows)]
    first, *others = [Problem(arena, **columns_of(own), roles=tuple([r.role for r in own])) for arena, own in arenas]
    packing = Packing(np.array([life.offset for life in rows], np.uint64)) if placed else None
    return PlainInstance(name, first, packing, tuple(notes), others=tuple(others))


def columns_of(rows: Sequence[Any]) -> dict[str, Any]:
    """Return the id, live range, size and alignment of rows as the fields of a :class:`Problem`."""
    dtypes = {"birth": np.int64, "death": np.int64, "size": np.uint64, "alignment": np.uint64}
    columns = {name: np.array([getattr(row, name) for row in rows], dtype) for name, dtype in dtypes.items()}
    return {"ids": tuple([row.id for row in rows]), **columns}


def normative_order(ids: Sequence[str], birth: NDArray[np.int64], size: NDArray[Any]) -> NDArray[np.int64]:
    """Return the row numbers of an instance, sorted by birth, −bytes and id bytes."""
    by_id = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)  # texts sort as their UTF-8 bytes
    return by_id[np.lexsort((U64_MAX - size[by_id].astype(np.uint64), birth[by_id]))]


def refuse_beyond_last_byte(*byte_counts: int) -> None:
    """Raise ``UnreadableInput`` if a sum of sizes, or the end of a buffer, exceeds :data:`LAST_BYTE`."""
    if max(byte_counts) > LAST_BYTE:
        what = f"all buffers together have more than {LAST_BYTE} bytes, or a buffer ends beyond that byte."
        raise UnreadableInput(what, hint="Export the plan again.")


def peak_of(lives: Sequence[LiveRange]) -> tuple[int, int]:
    """Return ``(step, bytes)`` of the first step with the most live bytes; ``(0, 0)`` without live ranges."""
    columns = columns_of(lives)
    end = int(columns["death"].max(initial=0))
    return peak_of_ranges(columns["birth"], columns["death"], columns["size"], end)
