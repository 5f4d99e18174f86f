"""Snapshots of all ranks of a job: one summary per file, read one after another in several processes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from tmmu_core.base.errors import TmmuError
from tmmu_core.formats.pytorch.snapshot import snapshot_signature
from tmmu_core.formats.pytorch.snapshot.reserved_memory import reserved_over_time
from tmmu_core.formats.pytorch.snapshot.snapshot_events import MEMORY_PER_BYTE
from tmmu_core.formats.pytorch.snapshot.torch_snapshot import (
    BEFORE_TRACE,
    BIRTH,
    DEATH,
    SIZE,
    fullest_device,
    label_of,
    stacks_and_categories,
)
from tmmu_core.plans.model import CATEGORIES

MEMORY_BYTES = 3 << 30
"""Memory of all processes together."""
PARALLEL_FROM = 1 << 26
"""Bytes of all files from which several processes are started."""
SIGNATURE_BYTES = 1 << 12
_RANK = re.compile(r"rank[_-]?(\d+)|(\d+)(?=\D*$)")


@dataclass(frozen=True)
class RankSummary:
    """One rank's snapshot, in bytes."""

    rank: int
    file: str
    peak: int = 0
    reserved: int = 0
    lines: dict[tuple[str, str], int] = field(default_factory=dict)
    """Live bytes at the peak by (line, category)."""
    error: str = ""
    """Why the file could not be read."""


def snapshot_files(folder: Path) -> list[tuple[int, Path]]:
    """Return ``(rank, path)`` of the snapshots in a folder by rank.

    The rank is the number after ``rank`` in the name, else its last number, else the position by name. Empty if
    ``folder`` is no readable folder.
    """
    found = []
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except (OSError, ValueError):
        return []
    for position, path in enumerate(files):
        try:
            with path.open("rb") as file:
                start = file.read(SIGNATURE_BYTES)
        except OSError:
            continue
        if snapshot_signature.refuses(start):
            continue
        found.append((rank_of(path.name, position), path))
    return sorted(found)


def rank_of(name: str, position: int) -> int:
    """Return the rank in a file's name; ``position`` without a number in it."""
    match = _RANK.search(name)
    return int(match[1] or match[2]) if match else position


def summarise(rank: int, path: Path) -> RankSummary:
    """Return the summary of a file; one that cannot be read has only an error."""
    try:
        return summary_of(rank, path.read_bytes(), path.name)
    except OSError as error:
        return RankSummary(rank, path.name, error=str(error).splitlines()[0])


def summary_of(rank: int, data: bytes, name: str) -> RankSummary:
    """Return the summary of a snapshot's bytes; of damaged ones only an error."""
    try:
        snapshot, device, _ = fullest_device(data, name)
    except TmmuError as error:
        return RankSummary(rank, name, error=str(error).splitlines()[0])
    stack, kinds = stacks_and_categories(device, snapshot.stacks)
    step, peak = device.peak
    rows = device.rows
    lines: dict[tuple[str, str], int] = {}
    for row in np.flatnonzero((rows[BIRTH] <= step) & (step < rows[DEATH])).tolist():
        label = label_of(int(stack[row]), int(rows[BEFORE_TRACE, row]), snapshot.stacks.lines)
        key = label, CATEGORIES[kinds.code[row]]
        lines[key] = lines.get(key, 0) + int(rows[SIZE, row])
    return RankSummary(rank, name, peak, reserved_over_time(device.events, device.segments).peak[1], lines)


def summaries(files: Sequence[tuple[int, Path]]) -> Iterator[RankSummary]:
    """Yield the summary of each file, in order."""
    workers = workers_for([path.stat().st_size for _, path in files])
    if workers < 2:
        yield from (summarise(rank, path) for rank, path in files)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for (rank, path), job in [(one, pool.submit(summarise, *one)) for one in files]:
            try:
                yield job.result()
            except BrokenProcessPool:
                yield RankSummary(rank, path.name, error="the process that read it was ended, perhaps out of memory")


def workers_for(sizes: Sequence[int]) -> int:
    """Return the number of processes for files of these bytes: as many as their memory allows; 1 for small files."""
    most = MEMORY_BYTES // (max(sizes, default=0) * MEMORY_PER_BYTE + 1)
    return 1 if sum(sizes) < PARALLEL_FROM else max(1, min(os.cpu_count() or 1, len(sizes), most))


def first_difference(base: RankSummary, other: RankSummary) -> tuple[str, str, int] | None:
    """Return ``(line, category, bytes in other − bytes in base)`` of the largest difference; ``None`` without one."""
    changes = [(*key, other.lines.get(key, 0) - base.lines.get(key, 0)) for key in {**base.lines, **other.lines}]
    found = max(changes, key=lambda change: (abs(change[2]), change[:2]), default=None)
    return found if found is not None and found[2] else None
