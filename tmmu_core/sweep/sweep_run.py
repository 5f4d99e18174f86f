"""Run sweep points in this process, or in batches on a Dask cluster, with the same rows.

A batch contains as many points of one source as take about :data:`BATCH_SECONDS`. When a worker dies, Dask retries its
batches and gives up those that lose another worker. Their points are retried at the end, one at a time: a point that
loses its worker again gets an error row.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from tmmu_core.sweep.sweep_points import Done, Point, Source
from tmmu_core.sweep.sweep_worker import refused, work

BATCH_SECONDS = 1.0
AHEAD = 3
"""Batches per worker that are submitted in advance."""
MOST = 1024
"""Most points per batch."""
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
            with _reached(scheduler) as client:
                client.wait_for_workers(1, timeout=60)
                yield client
            return
        own = LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        )
        with own, Client(own) as client:
            yield client


def _reached(scheduler: str) -> Any:
    from distributed import Client

    try:
        return Client(scheduler, timeout=20)
    except (ValueError, ImportError) as error:
        raise ConnectionError(f"invalid address: {error}") from error


def run_on(client: Any, sources: Sequence[Source], points: Sequence[Point]) -> Iterator[tuple[Done, ...]]:
    """Run the points on a cluster; yield batches as they finish."""
    yield from _BatchQueue(client, sources, points).out()


def work_all(source: Source, points: tuple[Point, ...]) -> tuple[tuple[Done, ...], float]:
    """Run a batch on its worker; return the results and the seconds."""
    begun = time.perf_counter()
    return tuple(work(source, point) for point in points), time.perf_counter() - begun


def given(source: Source) -> Source:
    """Return the source; the scheduler can recompute this task when a worker is lost."""
    return source


class _BatchQueue:
    """Submits batches and collects their results."""

    def __init__(self, client: Any, sources: Sequence[Source], points: Sequence[Point]) -> None:
        self._client, self._sources = client, sources
        self._waiting, self._alone = deque(points), deque[Point]()
        self._out: dict[str, tuple[Point, ...]] = {}
        self._held: dict[int, Any] = {}
        self._name = uuid4().hex  # unique among the sweeps on one scheduler
        self._size, self._workers, self._looked = 1.0, 1, 0.0
        self._submitted = 0
        self._suspect: Point | None = None
        """The point that is out with nothing beside it."""

    def out(self) -> Iterator[tuple[Done, ...]]:
        from distributed import as_completed

        coming = as_completed()
        try:
            self._hand_out(coming)
            for future in coming:
                batch = self._out.pop(future.key)
                answer = self._answer(future, batch)
                future.release()
                self._hand_out(coming)
                if answer:
                    yield answer
        finally:
            for future in [*coming.futures, *self._held.values()]:
                future.release()

    def _answer(self, future: Any, batch: tuple[Point, ...]) -> tuple[Done, ...]:
        try:
            done, seconds = future.result()
        except Exception as error:  # raised by the worker: work() raises nothing
            return self._retry(batch, error)
        # Move half-way to the size of BATCH_SECONDS: one slow point must not make all batches small.
        fitting = len(batch) * BATCH_SECONDS / max(seconds, 1e-4)
        self._size = max(1.0, min(MOST, (self._size + min(fitting, 4 * self._size)) / 2))
        answer: tuple[Done, ...] = done
        return answer

    def _retry(self, batch: tuple[Point, ...], error: Exception) -> tuple[Done, ...]:
        if self._client.status != "running":
            raise ConnectionError("the connection to the scheduler was lost") from error
        if batch != (self._suspect,):
            self._alone.extend(batch)
            return ()
        (point,) = batch
        message = f"its worker died each time: {type(error).__name__}."
        return (Done(point.number, (refused(point, {"code_id": DIED, "message": message}),), died=True),)

    def _hand_out(self, coming: Any) -> None:
        if time.monotonic() - self._looked > 2:
            self._workers = max(1, sum(self._client.nthreads().values()))
            self._looked = time.monotonic()
        while self._waiting and len(self._out) < AHEAD * self._workers:
            self._submit(self._next(), coming)
        if self._alone and not self._out:
            self._suspect = self._alone.popleft()
            self._submit((self._suspect,), coming)

    def _submit(self, batch: tuple[Point, ...], coming: Any) -> None:
        at = batch[0].source
        if at not in self._held:
            source = self._sources[at]
            self._release_sources()
            self._held[at] = self._client.submit(given, source, key=f"tmmu-source-{source.digest}")
        self._submitted += 1
        key = f"tmmu-{self._name}-{self._submitted}-{batch[0].number}-{len(batch)}"
        self._out[key] = batch
        coming.add(self._client.submit(work_all, self._held[at], batch, key=key))

    def _release_sources(self) -> None:
        """Release sources that no submitted batch uses."""
        needed = {batch[0].source for batch in self._out.values()}
        for at in [at for at in self._held if at not in needed]:
            self._held.pop(at).release()

    def _next(self) -> tuple[Point, ...]:
        # Batches shrink at the end, so that workers finish together.
        share = max(1, len(self._waiting) // (2 * self._workers))
        batch = [self._waiting.popleft()]
        while self._waiting and len(batch) < min(int(self._size), share) and self._waiting[0].source == batch[0].source:
            batch.append(self._waiting.popleft())
        return tuple(batch)
