"""Run sweep points in this process, or in batches on a Dask cluster, with the same rows.

A batch contains up to :data:`BATCH` points of one source. When a worker dies, Dask retries its batches and gives up
those that lose another worker. Their points are retried at the end, one at a time: a point that loses its worker again
gets an error row.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, groupby
from typing import Any
from uuid import uuid4

from tmmu_core.sweep.sweep_points import Done, Point, Source
from tmmu_core.sweep.sweep_worker import refused, work

BATCH_SECONDS = 1.0
"""Seconds between two groups of results in this process."""
AHEAD = 3
"""Batches per worker that are submitted in advance."""
BATCH, SHARES = 32, 4
"""Most points per batch, and the least number of batches per worker where there are enough points."""
DEATHS = 1
"""Worker deaths after which Dask gives up a batch."""
DIED = "WORKER_DIED"
QUIET = {
    "distributed.scheduler.allowed-failures": DEATHS,
    "distributed.admin.large-graph-warning-threshold": "1GB",
    # A look at each worker's stack every 10 ms, for a dashboard that is not there, takes a tenth of what they do.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "5s",
}
"""Dask settings for local workers."""

Runner = Callable[[Sequence[Source], Sequence[Point]], Iterator[tuple[Done, ...]]]


def run_here(sources: Sequence[Source], points: Sequence[Point]) -> Iterator[tuple[Done, ...]]:
    """Run the points in this process, in order; yield results in groups."""
    done: list[Done] = []
    until = time.monotonic() + BATCH_SECONDS
    for point in points:
        done.append(work(sources[point.source], point))
        if time.monotonic() > until:
            yield tuple(done)
            done, until = [], time.monotonic() + BATCH_SECONDS
    if done:
        yield tuple(done)


@contextmanager
def cluster(scheduler: str | None = None, workers: int = 0) -> Iterator[Any]:
    """Open a Dask client: of a running scheduler, or of ``workers`` local processes with one thread each.

    Raises ``OSError`` if the scheduler cannot be reached or has no workers.
    """
    import dask
    from distributed import Client, LocalCluster

    with dask.config.set(QUIET):
        if scheduler is not None:
            try:
                reached = Client(scheduler, timeout=20)
            except (ValueError, ImportError) as error:
                raise ConnectionError(f"invalid address: {error}") from error
            with reached as client:
                client.wait_for_workers(1, timeout=60)
                yield client
            return
        own = LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        )
        with own, Client(own) as client:
            yield client


def run_on(client: Any, sources: Sequence[Source], points: Sequence[Point]) -> Iterator[tuple[Done, ...]]:
    """Run the points on a cluster; yield batches as they finish."""
    from distributed import as_completed

    coming, sweep = as_completed(), uuid4().hex  # unique among the sweeps on one scheduler
    waiting, lost = deque(_batches(points, _workers(client))), deque[Point]()
    out: dict[str, tuple[Point, ...]] = {}
    held: dict[int, Any] = {}
    retried: set[int] = set()
    numbers = count()

    def submit(batch: tuple[Point, ...]) -> None:
        at = batch[0].source
        if at not in held:
            for unused in held.keys() - {other[0].source for other in out.values()}:
                held.pop(unused).release()
            held[at] = client.submit(given, sources[at], key=f"tmmu-source-{sources[at].digest}")
        key = f"tmmu-{sweep}-{next(numbers)}"
        out[key] = batch
        coming.add(client.submit(work_all, held[at], batch, key=key))

    def submit_more() -> None:
        ahead = AHEAD * _workers(client)
        while waiting and len(out) < ahead:
            submit(waiting.popleft())
        if lost and not out:
            submit((lost.popleft(),))

    try:
        submit_more()
        for future in coming:
            batch = out.pop(future.key)
            done: tuple[Done, ...] = ()
            try:
                done = future.result()
            except Exception as error:  # raised by the worker: work() raises nothing
                if client.status != "running":
                    raise ConnectionError("the connection to the scheduler was lost") from error
                if batch[0].number in retried:
                    record = {"code_id": DIED, "message": f"its worker died each time: {type(error).__name__}."}
                    done = (Done(batch[0].number, (refused(batch[0], record),), died=True),)
                else:
                    lost.extend(batch)
                    retried |= {point.number for point in batch}
            future.release()
            submit_more()
            if done:
                yield done
    finally:
        for future in [*coming.futures, *held.values()]:
            future.release()


def work_all(source: Source, points: tuple[Point, ...]) -> tuple[Done, ...]:
    """Run a batch on its worker."""
    return tuple(work(source, point) for point in points)


def given(source: Source) -> Source:
    """Return the source; the scheduler can recompute this task when a worker is lost."""
    return source


def _workers(client: Any) -> int:
    return max(1, sum(client.nthreads().values()))


def _batches(points: Sequence[Point], workers: int) -> Iterator[tuple[Point, ...]]:
    """Yield the points in order, in batches of one source."""
    size = max(1, min(BATCH, len(points) // (SHARES * workers)))
    for _, group in groupby(points, lambda point: point.source):
        same = tuple(group)
        yield from (same[at : at + size] for at in range(0, len(same), size))
