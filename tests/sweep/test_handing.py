"""Batches of a sweep on a simulated cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.sweep import sweep_run
from tmmu_core.sweep.sweep_points import Done, Point, Source
from tmmu_core.sweep.sweep_run import BATCH, DIED, given, run_here, run_on, work_all

SOURCES = [Source("a", b"a"), Source("b", b"b"), Source("c", b"c")]


class Clock:
    """Stands still but for what is worked."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


class Future:
    """What was handed out, worked where its answer is asked for."""

    def __init__(self, key: str, ask: Callable[[], Any]) -> None:
        self.key, self.result = key, ask
        self.released = False

    def release(self) -> None:
        self.released = True


class Coming:
    """``as_completed``, first in, first out; it says how many were out when one came back."""

    last: Coming

    def __init__(self) -> None:
        self.futures: deque[Future] = deque()
        self.most = 0
        Coming.last = self

    def add(self, future: Future) -> None:
        self.futures.append(future)
        self.most = max(self.most, len(self.futures))

    def __iter__(self) -> Iterator[Future]:
        while self.futures:
            yield self.futures.popleft()


class Client:
    """A scheduler with so many threads; ``kills`` are the points that end their worker."""

    status = "running"

    def __init__(self, threads: int, kills: tuple[int, ...] = ()) -> None:
        self.threads, self.kills = threads, kills
        self.batches: list[list[int]] = []
        self.sources: list[str] = []
        self.futures: list[Future] = []
        self.asked = 0

    def nthreads(self) -> dict[str, int]:
        self.asked += 1
        return {f"worker {k}": 1 for k in range(self.threads)}

    def submit(self, function: Callable[..., Any], what: Any, *more: Any, key: str) -> Future:
        if function is given:
            self.sources.append(what.name)
            future = Future(key, lambda: what)
        else:
            assert function is work_all
            (batch,) = more
            self.batches.append([point.number for point in batch])
            future = Future(key, lambda: self._worked(what.result(), batch))
        self.futures.append(future)
        return future

    def _worked(self, source: Source, batch: tuple[Point, ...]) -> Any:
        assert all(SOURCES[point.source] is source for point in batch)
        if any(point.number in self.kills for point in batch):
            raise RuntimeError("a worker is gone")
        return work_all(source, batch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Half a second for each point, and nothing else takes time."""
    found = Clock()

    def work(source: Source, point: Point) -> Done:
        found.now += 0.5
        return Done(point.number, ({"of": source.name, "error": None},))

    monkeypatch.setattr(sweep_run, "time", found)
    monkeypatch.setattr(sweep_run, "work", work)
    monkeypatch.setattr("distributed.as_completed", Coming)
    return found


def points(*counts: int) -> tuple[Point, ...]:
    """So many of each source."""
    of = [source for source, count in enumerate(counts) for _ in range(count)]
    return tuple(Point(number, source, PlanRequest()) for number, source in enumerate(of))


def numbers(done: Iterator[tuple[Done, ...]]) -> list[list[int]]:
    return [[one.number for one in batch] for batch in done]


def test_progress_is_reported_every_second(clock: Clock) -> None:
    assert numbers(run_here(SOURCES, points(4, 4))) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert numbers(run_here(SOURCES, ())) == []


def test_batches_hold_points_of_one_source(clock: Clock) -> None:
    client = Client(threads=2)
    sizes = [len(batch) for batch in numbers(run_on(client, SOURCES, points(90, 30)))]
    assert sizes == [15] * 8, "four batches for each worker"
    assert [k for batch in client.batches for k in batch] == list(range(120))
    assert (client.sources, Coming.last.most) == (["a", "b"], 6)
    assert all(future.released for future in client.futures)


def test_point_of_a_failed_worker_is_retried_alone(clock: Clock) -> None:
    client = Client(threads=2, kills=(1, 5))
    done = {one.number: one for batch in run_on(client, SOURCES, points(4, 4)) for one in batch}
    assert sorted(done) == list(range(8))
    assert [number for number, one in done.items() if one.died] == [1, 5]
    (row,) = done[5].rows
    assert row["error"] == {"code_id": DIED, "message": "its worker died each time: RuntimeError."}
    assert client.batches[-2:] == [[1], [5]], "each with nothing beside it, when all others are back"
    assert len([batch for batch in client.batches if 1 in batch]) == 2


def test_lost_scheduler_ends_the_sweep(clock: Clock) -> None:
    client = Client(threads=1, kills=(0,))
    client.status = "closed"
    with pytest.raises(ConnectionError, match="connection to the scheduler was lost"):
        list(run_on(client, SOURCES, points(3)))
    assert [future.released for future in client.futures] == [True, False, True, True]


def test_source_is_released_and_sent_again(clock: Clock) -> None:
    client = Client(threads=1)
    order = [Point(k, source, PlanRequest()) for k, source in enumerate((0, 1, 1, 1, 1, 2, 2, 2, 2, 0))]
    assert [k for batch in numbers(run_on(client, SOURCES, order)) for k in batch] == list(range(10))
    assert client.sources == ["a", "b", "c", "a"]
    keys = [future.key for future in client.futures if future.key.startswith("tmmu-source")]
    assert keys[0] == keys[3] == f"tmmu-source-{SOURCES[0].digest}"


def test_batch_size_is_limited(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_run, "work", lambda source, point: Done(point.number, ()))
    client = Client(threads=1)
    sizes = [len(batch) for batch in numbers(run_on(client, SOURCES, points(20_000)))]
    assert (sum(sizes), max(sizes)) == (20_000, BATCH)
