"""How batches go out and come back, on a cluster whose clock and workers do as they are told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.sweep import sweep_run
from tmmu_core.sweep.sweep_points import Done, Point, Source
from tmmu_core.sweep.sweep_run import DIED, MOST, given, run_here, run_on, work_all

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


def test_here_points_are_told_when_more_than_a_second_has_passed(clock: Clock) -> None:
    """At 1.5 s, for 1.0 s is no more than a second; then a second from there."""
    assert numbers(run_here(SOURCES, points(4, 4))) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert numbers(run_here(SOURCES, ())) == []


def test_a_batch_is_what_a_second_takes_of_one_source_and_small_towards_the_end(clock: Clock) -> None:
    """Half a second each is two a batch: from a size of one, half of the way, 1.5, then 1.75: one at a time.

    Quicker, 0.05 s each, a batch of one asks for 20, and for no more than four times one: (1 + 4) / 2 is 2.
    """
    client = Client(threads=1)
    assert numbers(run_on(client, SOURCES, points(3, 4))) == [[k] for k in range(7)]
    assert (client.sources, Coming.last.most) == (["a", "b"], 3)
    assert all(future.released for future in client.futures)


def test_batches_grow_with_what_they_take_and_are_never_of_two_sources(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_run, "work", lambda source, point: Done(point.number, ()))
    client = Client(threads=1)
    sizes = [len(batch) for batch in numbers(run_on(client, SOURCES, points(90, 30)))]
    # Three of one go out, and each that is back makes it 2.5 times as many: 2.5, 6.25, 15.6, 39. Of the first source 25
    # are left then; of the 30 of the second half of what waits, and half again.
    assert sizes == [1, 1, 1, 2, 6, 15, 39, 25, 15, 7, 4, 2, 1, 1]
    assert [k for batch in client.batches for k in batch] == list(range(120))


def test_what_fell_with_its_worker_is_tried_alone_in_the_end_and_told_if_it_falls_again(clock: Clock) -> None:
    client = Client(threads=2, kills=(1, 5))
    done = {one.number: one for batch in run_on(client, SOURCES, points(4, 4)) for one in batch}
    assert sorted(done) == list(range(8))
    assert [number for number, one in done.items() if one.died] == [1, 5]
    (row,) = done[5].rows
    assert row["error"] == {"code_id": DIED, "message": "its worker died each time: RuntimeError."}
    assert client.batches[-2:] == [[1], [5]], "each with nothing beside it, when all others are back"
    assert len([batch for batch in client.batches if 1 in batch]) == 2


def test_a_scheduler_that_is_gone_ends_the_sweep(clock: Clock) -> None:
    client = Client(threads=1, kills=(0,))
    client.status = "closed"
    with pytest.raises(ConnectionError, match="connection to the scheduler was lost"):
        list(run_on(client, SOURCES, points(3)))
    assert [future.released for future in client.futures] == [True, False, True, True], "but the one that told it"


def test_a_source_is_let_go_when_nothing_of_it_is_out_and_handed_out_again_when_asked_for(clock: Clock) -> None:
    client = Client(threads=1)
    order = [Point(k, source, PlanRequest()) for k, source in enumerate((0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0))]
    assert numbers(run_on(client, SOURCES, order)) == [[k] for k in range(13)]
    assert client.sources == ["a", "b", "c", "a"]
    keys = [future.key for future in client.futures if future.key.startswith("tmmu-source")]
    assert keys[0] == keys[3] == f"tmmu-source-{SOURCES[0].digest}"


def test_how_many_work_is_asked_again_after_two_seconds_and_no_sooner(clock: Clock) -> None:
    """Nineteen points of half a second: asked at 2.5, 5.0 and 7.5 s, and not at 2.0 s, which is no more than two."""
    client = Client(threads=3)
    assert len(numbers(run_on(client, SOURCES, points(19)))) == len(client.batches)
    assert (client.asked, Coming.last.most) == (3, 9)


def test_no_batch_is_larger_than_the_most(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_run, "work", lambda source, point: Done(point.number, ()))
    client = Client(threads=1)
    sizes = [len(batch) for batch in numbers(run_on(client, SOURCES, points(20_000)))]
    assert (sum(sizes), max(sizes)) == (20_000, MOST)
