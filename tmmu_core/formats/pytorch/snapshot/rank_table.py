"""Summarise the snapshot of each rank of a job. Several processes read the files if the total size is large."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from tmmu_core.base.errors import TmmuError, source_of_errors
from tmmu_core.formats import signatures
from tmmu_core.formats.pytorch.snapshot.snapshot_events import MEMORY_PER_BYTE
from tmmu_core.formats.pytorch.snapshot.torch_snapshot import read_history

MEMORY_BYTES = 3 << 30  # maximum memory of all processes together
MIN_PARALLEL_BYTES = 1 << 26  # several processes are started if all files together have at least this size
SIGNATURE_BYTES = 1 << 12  # bytes of a file that are read to detect a snapshot
_RANK = re.compile(r"rank[_-]?(\d+)|(\d+)(?=\D*$)")


@dataclass(frozen=True)
class RankSummary:
    """Peaks of one rank's snapshot, in bytes."""

    rank: int
    file: str
    peak: int = 0
    reserved: int = 0  # peak of the bytes that the allocator reserved
    lines: Mapping[tuple[str, str], int] = field(default_factory=dict)  # ``(line, category)`` → live bytes at the peak
    error: str = ""  # why the file could not be read; ``""`` if it was read


def snapshot_files(folder: Path) -> list[tuple[int, Path]]:
    """Return sorted ``(rank, path)`` of a folder's snapshots. The rank is a number in the name, else the position."""
    snapshots = []
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except (OSError, ValueError):
        return []
    for position, path in enumerate(files):
        with suppress(OSError), path.open("rb") as file:
            if not signatures.refusal_torch_snapshot(file.read(SIGNATURE_BYTES)):
                rank = _RANK.search(path.name)
                snapshots.append((int(rank[1] or rank[2]) if rank else position, path))
    return sorted(snapshots)


def _summary(rank: int, path: Path) -> RankSummary:
    try:
        with source_of_errors(path.name):
            history, _ = read_history(path.read_bytes())
    except (TmmuError, OSError) as error:
        return RankSummary(rank, path.name, error=str(error).splitlines()[0])
    step, peak = history.peak
    lines: Counter[tuple[str, str]] = Counter()
    for row in history.live_at(step).tolist():
        lines[history.name("line", row), history.categories[row]] += int(history.size[row])
    return RankSummary(rank, path.name, peak, history.reserved.peak[1], lines)


def summaries(files: Sequence[tuple[int, Path]]) -> Iterator[RankSummary]:
    """Yield the summary of each file, in order."""
    workers = workers_for([path.stat().st_size for _, path in files])
    if workers < 2:
        yield from (_summary(rank, path) for rank, path in files)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        jobs = [pool.submit(_summary, rank, path) for rank, path in files]
        for (rank, path), job in zip(files, jobs, strict=True):
            try:
                yield job.result()
            except BrokenProcessPool:
                yield RankSummary(rank, path.name, error="the process that read it ended, perhaps out of memory")


def workers_for(sizes: Sequence[int]) -> int:
    """Return how many processes can read files of ``sizes`` (bytes) in :data:`MEMORY_BYTES`; 1 for small files."""
    max_workers = MEMORY_BYTES // (max(sizes, default=0) * MEMORY_PER_BYTE + 1)
    return 1 if sum(sizes) < MIN_PARALLEL_BYTES else max(1, min(os.cpu_count() or 1, len(sizes), max_workers))


def largest_difference(base: RankSummary, other: RankSummary) -> tuple[str, str, int] | None:
    """Return ``(line, category, bytes in other − bytes in base)`` of the largest difference; ``None`` without one."""
    changes = [(*key, other.lines.get(key, 0) - base.lines.get(key, 0)) for key in {**base.lines, **other.lines}]
    return max(filter(lambda change: change[2], changes), key=lambda change: (abs(change[2]), change[:2]), default=None)
