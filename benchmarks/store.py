"""Measure the times and the size of a store: ``python -m benchmarks.store [--runs N] [--url URL]``.

The store gets N runs of 200 models on two branches; one run in ten has a new plan. The plans are plans of ResNet-50
that differ in a number. Rows are inserted in bulk, so that the planner is not measured. The time of one recording is
measured separately, with the function of ``tmmu record``.
"""

import argparse
import hashlib
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from tests.support.paths import read_graph_file
from tmmu_core.formats.planfile.plan_file import to_cbor
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan
from tmmu_core.store.open_store import PLANS, RUNS
from tmmu_core.store.runs import Label, Run, run_of
from tmmu_core.store.store import Store

ROOT = Path(__file__).resolve().parents[1]
MODELS, NEW_IN = 200, 10
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = 5_000


def simulated(runs: int, models: int, model: Run) -> Iterator[tuple[dict[str, Any], bytes | None]]:
    """Yield ``(row of a run, content of its plan, or None if the plan is stored)``."""
    content = b""
    for k in range(runs):
        new = None
        if k % NEW_IN == 0 or not content:
            content = hashlib.sha256(f"plan {k}".encode()).digest()
            new = content
        at = (BEGIN + timedelta(milliseconds=86_400_000 * k // runs)).isoformat(timespec="microseconds")
        run = replace(
            model,
            model=f"model{k % models:03}",
            commit=f"{k // models:08x}",
            branch="main" if k % 3 else "topic",
            at=at.replace("+00:00", "Z"),
            extent_bytes=model.extent_bytes + 4096 * (k // (models * NEW_IN)),
            content=content,
        )
        yield {**vars(run), "key": run.key, "arenas": msgspec.json.encode(run.arenas).decode()}, new


def fill(store: Store, size: tuple[int, int], model: Run, document: bytes) -> None:
    data = zlib.compress(document)
    rows: list[dict[str, Any]] = []
    plans: list[dict[str, Any]] = []
    for k, (row, new) in enumerate(simulated(*size, model)):
        rows.append(row)
        if new is not None:
            plans.append({"content": new, "bytes": len(document), "packed": data + new})
        if len(rows) == BATCH or k == size[0] - 1:
            with store.writing() as connection:
                if plans:
                    connection.execute(PLANS.insert(), plans)
                connection.execute(RUNS.insert(), rows)
            rows, plans = [], []


def seconds(work: Callable[[], Any], times: int = 3) -> str:
    """Return the best wall and CPU seconds of several calls."""
    clock, processor = float("inf"), float("inf")
    for _ in range(times):
        begun, used = time.perf_counter(), time.process_time()
        work()
        clock, processor = min(clock, time.perf_counter() - begun), min(processor, time.process_time() - used)
    return f"{clock:.4f} s ({processor:.4f} s of the processor)"


def measure(url: str, runs: int, models: int) -> list[tuple[str, str]]:
    plan = plan_graph(read_graph_file(ROOT / "sample_graphs" / "resnet50.tmmu.json.gz")).plan
    document = to_cbor(plan)
    store = Store.at(url, create=True)
    run = run_of(plan, Label("resnet50", "0", BEGIN), hashlib.sha256(document).digest())
    if store.series():  # a filled store is measured as it is
        runs = sum(line.runs for line in store.series())
        return [("runs, already in the store", f"{runs:,}"), *_size(store, url, runs), *_answers(store, plan)]
    begun, used = time.perf_counter(), time.process_time()
    fill(store, (runs, models), run, document)
    filled, processor = time.perf_counter() - begun, time.process_time() - used
    found = [
        ("a plan (ResNet-50): its file as CBOR, packed", f"{len(document):,} B, {len(zlib.compress(document)):,} B"),
        ("runs, plans of their own content", f"{runs:,}, {-(-runs // NEW_IN):,}"),
        ("written in bulk", f"{filled:.0f} s ({processor:.0f} s of the processor), {runs / filled:,.0f} runs/s"),
    ]
    return [*found, *_size(store, url, runs), *_answers(store, plan)]


def _size(store: Store, url: str, runs: int) -> list[tuple[str, str]]:
    if not url.startswith("sqlite"):
        return []
    size = sum(path.stat().st_size for path in Path(store.engine.url.database or "").parent.glob("*.db*"))
    return [("on the disk", f"{size / 2**20:,.0f} MiB, {size / runs:,.0f} B/run")]


def _answers(store: Store, plan: Plan) -> list[tuple[str, str]]:
    found = []
    found.append((f"every model with its last change, {len(store.series()):,} lines", seconds(store.series)))
    model = "model007"
    found.append((f"the history of a model, {len(store.runs(model)):,} runs", seconds(lambda: store.runs(model))))
    found.append(("its latest 100 runs", seconds(lambda: store.runs(model, last=100))))
    found.append(("store:model007@main", seconds(lambda: store.resolve(f"{model}@main"))))
    kept = iter(range(10**6))

    def record() -> None:
        for _ in range(20):
            label = Label("late", f"c{next(kept)}", BEGIN)
            store.record(replace(plan, ir_name=f"late {label.commit}"), label)

    found.append(("20 recordings of plans of new bytes, each synced to the disk", seconds(record)))
    store.close()
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=100_000, help="number of runs [100000]")
    options.add_argument("--url", default=None, help="URL of an empty or filled store [a temporary SQLite file]")
    options.add_argument("--models", type=int, default=MODELS, help="number of models [200]")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        for what, figure in measure(given.url or f"sqlite:///{folder}/store.db", given.runs, given.models):
            print(f"{what:<60}  {figure}")


if __name__ == "__main__":
    main()
