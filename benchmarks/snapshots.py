"""Compare the reading of snapshots with known true values: ``python -m benchmarks.snapshots [RANKS]``.

The command writes docs/measured/snapshots.md: reserved peaks, categories, differences of two runs, ranks of a job. If
PyTorch is installed, traces of real modules are added (:mod:`.snapshot_recording`).
"""

import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.snapshot_writer import SnapshotWriter, Transformer, transformer_steps
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile.compare_plans import compare
from tmmu_core.formats.pytorch.snapshot.torch_snapshot import History
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners.problem import PlainInstance
from tmmu_core.plans.figures.metrics import totals
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Plan

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measured" / "snapshots.md"
RANKS = 1024
MEMORY_LIMIT = 4 << 30


def traces() -> Iterator[tuple[str, SnapshotWriter]]:
    """Yield named runs with their true values."""
    for name, how in (
        ("default settings", {}),
        ("Python frames only", {"has_cpp_frames": False}),
        ("checkpointed", {"is_checkpointed": True}),
        ("recorded from the second step", {"steps": 3, "start_at_step": 1}),
    ):
        yield f"transformer, {name}", transformer_steps(Transformer(**how))
    try:
        from benchmarks.snapshot_recording import SCENARIOS, record
    except ImportError:
        return
    yield from ((f"PyTorch: {scenario.name}", record(scenario)) for scenario in SCENARIOS)


def opened(document: Any) -> tuple[History, Plan]:
    """Return the history and the recorded plan of a snapshot, verified."""
    found = read_any(pickle.dumps(document), "snapshot.pickle")
    assert isinstance(found, PlainInstance)
    assert isinstance(found.recorded, History)
    plan = make_plan(found, PlanRequest()).plan
    assert verify_plan(plan).ok
    return found.recorded, plan


def right_bytes(history: History, writer: SnapshotWriter) -> tuple[int, int]:
    """Return ``(bytes with the right category, all bytes)`` over the allocations of a trace."""
    recorded = [row for row in range(len(history.ids)) if not history.is_before[row]]
    recorded.sort(key=lambda row: (int(history.birth[row]), history.ids[row]))
    truth = [one for one in writer.truth if one[1]]
    assert [int(history.size[row]) for row in recorded] == [size for _, size in truth]
    right = sum(
        size for row, (category, size) in zip(recorded, truth, strict=True) if history.categories[row] == category
    )
    whole = sum(size for _, size in truth)
    before = Counter(writer.before.values())  # blocks of one size and category are not distinguished
    read = Counter(
        (history.categories[row], int(history.size[row])) for row in range(len(history.ids)) if history.is_before[row]
    )
    right += sum(size * count for (_, size), count in (before & read).items())
    whole += sum(size * count for (_, size), count in before.items())
    return right, whole


def trace_rows() -> Iterator[str]:
    """Yield a row of the first table per run."""
    for name, writer in traces():
        history, plan = opened(writer.document())
        right, whole = right_bytes(history, writer)
        read = totals(plan).reserved_peak_bytes
        yield (
            f"| {name} | {len(history.events.action):,} | {writer.reserved_peak:,} | {read:,} "
            f"| {100 * right / whole:.2f} % |"
        )


def difference_rows() -> Iterator[str]:
    """Yield a row of the second table per pair of runs."""
    base = opened(transformer_steps(Transformer()).document())[1]
    for name, how in (
        ("twice the tokens", {"tokens": 8192}),
        ("float32 instead of bfloat16", {"itemsize": 4}),
        ("checkpointed", {"is_checkpointed": True}),
        ("16 layers instead of 12", {"layers": 16}),
    ):
        other = opened(transformer_steps(Transformer(**how)).document())[1]
        found = compare(base, other)
        grown = totals(other).peak_live_bytes - totals(base).peak_live_bytes
        explained = sum(change.growth_bytes for change in found.lines)
        yield f"| {name} | {grown:+,} | {explained:+,} | {sum(bool(c.growth_bytes) for c in found.lines)} |"


def ranks(folder: Path) -> dict[str, float]:
    """Read the snapshots in a folder; return files, seconds, and an upper bound of the memory of all processes."""
    from tmmu_core.formats.pytorch.snapshot import torch_snapshot

    begun = time.perf_counter()
    files = torch_snapshot.snapshot_files(folder)
    found = list(torch_snapshot.summaries(files))
    seconds = time.perf_counter() - begun
    assert not any(one.error for one in found)
    own, child = (resource.getrusage(who).ru_maxrss << 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    workers = torch_snapshot.workers_for([path.stat().st_size for _, path in files])
    return {"files": len(found), "seconds": seconds, "bytes": own + workers * child, "workers": workers}


def rank_rows(count: int) -> Iterator[str]:
    """Yield a row of the third table for each number of ranks of a job, with a snapshot per rank."""
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(count):
            path = Path(folder) / f"job_rank{rank}.pickle"
            if rank < 4:
                run = Transformer(layers=24, steps=6, tokens=8192 if rank == 2 else 4096)
                path.write_bytes(pickle.dumps(transformer_steps(run).document()))
            else:
                path.hardlink_to(Path(folder) / f"job_rank{rank % 2}.pickle")
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        command = [sys.executable, "-m", "benchmarks.snapshots", "--ranks", folder]
        row = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert row["bytes"] < MEMORY_LIMIT, "the ranks of a job need more memory than the limit"
    yield f"| {row['files']:,} | {size:,} | {row['workers']} | {row['seconds']:.0f} | {row['bytes']:,} |"


TEXT = """# PyTorch snapshots: read and true values

Written by `python -m benchmarks.snapshots`. Reserved bytes, categories and differences of snapshots with known true
values: a transformer written by a model of the allocator, and training steps of real PyTorch modules on the CPU. Their
allocations, frees and stacks are those of PyTorch; their addresses come from the model of the allocator.

## Reserved peak and categories

*True* is the reserved peak of the allocator that wrote the trace, *read* the peak that the reader computes from it.
*Correct* is the part of all allocated bytes with the correct category.

| trace | events | reserved peak: true | read | correct |
|---|---:|---:|---:|---:|
{traces}

## Difference of two runs

Growth of the live peak from the transformer above to another run, and the sum of the changes by line and category.

| change | growth of the peak (B) | explained (B) | lines that changed |
|---|---:|---:|---:|
{differences}

## Ranks of a job

A folder of snapshots as one table (`tmmu plan FOLDER`); four different files, the others are links to them. Memory
is the peak of the parent plus that of the largest worker times the number of workers, an upper limit.

| files | bytes of all files | workers | seconds | memory (B) |
|---:|---:|---:|---:|---:|
{ranks}
"""


def main() -> None:
    """Write the page."""
    if sys.argv[1:2] == ["--ranks"]:
        print(json.dumps(ranks(Path(sys.argv[2]))))
        return
    parts = {
        "traces": "\n".join(trace_rows()),
        "differences": "\n".join(difference_rows()),
        "ranks": "\n".join(rank_rows(int(sys.argv[1]) if sys.argv[1:] else RANKS)),
    }
    PAGE.write_text(TEXT.format(**parts), encoding="utf-8")


if __name__ == "__main__":
    main()
