"""Common functions of the readers of other tools' plans: build packing instances from live ranges and offsets."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX, UnreadableInput
from tmmu_core.planners.problem import Packing, PlainInstance, Problem
from tmmu_core.plans.figures.live_bytes import peak_of_ranges

MAX_VALUE = 2**62  # maximum offset, size or step that a reader accepts


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


def arena_names(memories: Iterable[int]) -> dict[int, str]:
    """Return memory number → arena name: ``memory 1``, …, or ``arena`` if there is only one memory."""
    numbers = set(memories)
    return {number: f"memory {number}" if len(numbers) > 1 else "arena" for number in numbers}


def file_name(path: str) -> str:
    """Return a file's name without its folder and ``.gz``."""
    return path.replace("\\", "/").rpartition("/")[2].removesuffix(".gz")


def stem_of(path: str) -> str:
    """Return a file's name without its folder and its ending."""
    name = file_name(path)
    return name.rpartition(".")[0] or name


def instance_of(
    name: str, live_ranges: Sequence[LiveRange], notes: Sequence[str] = (), *, placed: bool = True
) -> PlainInstance:
    """Number repeated ids in ``live_ranges``; return the instance, packed if ``placed``. Raises ``UnreadableInput``."""
    used_ids: set[str] = set()
    last_number: Counter[str] = Counter()
    for live_range in live_ranges:
        own_id = live_range.id
        while live_range.id in used_ids:  # ``x``, ``x #2``, …
            last_number[own_id] += 1
            live_range.id = f"{own_id} #{last_number[own_id] + 1}"
        used_ids.add(live_range.id)
    rows = sorted(live_ranges, key=lambda row: (row.arena, row.birth, -row.size, row.id))
    refuse_too_many_bytes(sum(row.size for row in rows), *(row.offset + row.size for row in rows))
    rows_of = {arena: list(group) for arena, group in groupby(rows, key=lambda row: row.arena)} or {"arena": rows}
    problems = [Problem(key, **columns_of(own), roles=tuple([r.role for r in own])) for key, own in rows_of.items()]
    packing = Packing(np.array([row.offset for row in rows], np.uint64)) if placed else None
    return PlainInstance(name, problems[0], packing, tuple(notes), others=tuple(problems[1:]))


def columns_of(rows: Sequence[Any]) -> dict[str, Any]:
    """Return the id, live range, size and alignment of rows as the fields of a :class:`Problem`."""
    dtypes = {"birth": np.int64, "death": np.int64, "size": np.uint64, "alignment": np.uint64}
    columns = {name: np.array([getattr(row, name) for row in rows], dtype) for name, dtype in dtypes.items()}
    return {"ids": tuple([row.id for row in rows]), **columns}


def normative_order(ids: Sequence[str], birth: NDArray[np.int64], size: NDArray[Any]) -> NDArray[np.int64]:
    """Return the row numbers of an instance, sorted by birth, then size (largest first), then id bytes."""
    by_id = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)  # texts sort as their UTF-8 bytes
    return by_id[np.lexsort((U64_MAX - size[by_id].astype(np.uint64), birth[by_id]))]


def refuse_too_many_bytes(total: int, *ends: int) -> None:
    """Raise ``UnreadableInput`` if the total size of all buffers, or the end of one, exceeds :data:`MAX_VALUE`."""
    if max((total, *ends)) > MAX_VALUE:
        what = f"the total size of all buffers, or the end of one of them, is more than {MAX_VALUE} bytes."
        raise UnreadableInput(what, hint="Export the plan again.")


def peak_of(live_ranges: Sequence[LiveRange]) -> int:
    """Return the live bytes at the peak; 0 without live ranges."""
    columns = columns_of(live_ranges)
    return peak_of_ranges(columns["birth"], columns["death"], columns["size"], int(columns["death"].max(initial=0)))[1]
