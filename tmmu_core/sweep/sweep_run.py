"""Run sweep points in this process, or in batches on a Dask cluster, with the same rows.

A batch contains up to :data:`BATCH` points of one source. When a worker dies, Dask retries its batches and gives up
those that lose another worker. Their points are retried at the end, one at a time: a point that loses its worker again
gets an error row.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any
from uuid import uuid4

from tmmu_core.sweep.sweep_points import Done, Point, Source
from tmmu_core.sweep.sweep_worker import refused, work

BATCH_SECONDS = 1.0
"""Seconds between two groups of results in this process."""
BATCH, SHARES = 32, 4
"""Maximum number of points per batch, and the least number of batches per worker where there are enough points."""
DEATHS = 1
"""Number of worker deaths after which Dask drops a batch."""
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
    """Run the points on a cluster; yield batches as they finish. Raises ``ConnectionError`` without a scheduler."""
    from distributed import as_completed

    sweep = uuid4().hex  # unique among the sweeps on one scheduler
    workers = max(1, sum(client.nthreads().values()))
    batches = {f"tmmu-{sweep}-{k}": batch for k, batch in enumerate(_batches(points, workers))}
    futures = [_submit(client, sources, key, batch) for key, batch in batches.items()]
    lost: list[Point] = []
    try:
        for future in as_completed(list(futures)):
            done = _result_of(client, future)
            if isinstance(done, Exception):
                lost += batches[future.key]
            else:
                yield done
        for point in lost:
            futures.append(_submit(client, sources, f"tmmu-{sweep}-alone-{point.number}", (point,)))
            done = _result_of(client, futures[-1])
            if isinstance(done, Exception):
                record = {"code_id": DIED, "message": f"its worker died each time: {type(done).__name__}."}
                done = (Done(point.number, (refused(point, record),), died=True),)
            yield done
    finally:
        for future in futures:
            future.release()


def _submit(client: Any, sources: Sequence[Source], key: str, batch: tuple[Point, ...]) -> Any:
    source = sources[batch[0].source]
    held = client.submit(given, source, key=f"tmmu-source-{source.digest}")  # one task, whichever batch needs it
    return client.submit(work_all, held, batch, key=key)


def _result_of(client: Any, future: Any) -> tuple[Done, ...] | Exception:
    """Return the rows of a batch, or the error of its worker: ``work`` raises nothing."""
    try:
        done: tuple[Done, ...] = future.result()
    except Exception as error:
        if client.status != "running":
            raise ConnectionError("the connection to the scheduler was lost") from error
        return error
    finally:
        future.release()
    return done


def work_all(source: Source, points: tuple[Point, ...]) -> tuple[Done, ...]:
    """Run a batch on its worker."""
    return tuple(work(source, point) for point in points)


def given(source: Source) -> Source:
    """Return the source; the scheduler can recompute this task when a worker is lost."""
    return source


def _batches(points: Sequence[Point], workers: int) -> Iterator[tuple[Point, ...]]:
    """Yield the points in order, in batches of one source."""
    size = max(1, min(BATCH, len(points) // (SHARES * workers)))
    for _, group in groupby(points, lambda point: point.source):
        same = tuple(group)
        yield from (same[at : at + size] for at in range(0, len(same), size))
