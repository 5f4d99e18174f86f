from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import pytest

from app.session import jobs, opening, planning, tasks, visitors, workers
from app.session.jobs import WORKERS, Desk, Job
from app.session.kept import Kept, weight_of
from app.session.question import NotDone, Question
from tests.app.endless import count, eat
from tmmu_core.errors import InvalidIrShapes
from tmmu_core.limits import SERVER_WORKERS, SESSION_WORKERS
from tmmu_core.plan.formats.reading import read_any
from tmmu_core.plan.making.make import Made, make_plan
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.planners.problem import Progress

T = TypeVar("T")


def started(what: str, work: Callable[[Progress], T]) -> Job[T]:
    job = Job(what, work)
    job.start()
    return job


def test_one_key_is_one_job() -> None:
    desk, runs = Desk(), []
    first = desk.job("a", "work", lambda _: runs.append(1))
    assert desk.job("a", "work", lambda _: runs.append(2)) is first
    assert first.wait(5)
    assert runs == [1]


def test_a_stopped_job_keeps_what_it_found() -> None:
    begun = threading.Event()

    def search(progress: Progress) -> int:
        best = 0
        while progress("searching", best, 0):
            best += 1
            begun.set()
        return best

    job = started("search", search)
    assert begun.wait(5)
    job.stop()
    assert job.wait(5)
    assert job.answer() >= 1


def test_an_error_comes_back_to_whoever_asks() -> None:
    def fail(_: Progress) -> None:
        raise ValueError("no")

    job = started("fail", fail)
    assert job.wait(5)
    with pytest.raises(ValueError, match="no"):
        job.answer()


# --- work in processes, and whose it is ----------------------------------------------------------------------------


def searching(desk: Desk) -> Job[Made]:
    """A search that does not end in anybody's time: 10^15 nodes of a hard instance."""
    instance = planning.asked_of(planning.open_source("sample:D"))
    question = Question(tasks.plan, (instance, PlanRequest(planner="exact", options={"budget": 10**15})))
    return desk.job("searching", "searching", lambda progress: desk.apart(question, progress))


def endless(desk: Desk, key: str = "endless") -> Job[int]:
    """Work that goes on until it is asked to stop."""
    return desk.job(key, "counting", lambda progress: desk.apart(Question(count, ()), progress))


def processes() -> set[int]:
    """The workers of this process that live."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == WORKERS.starter and state != "Z":
                found.add(int(stat.parent.name))
    return found


def until(fact: Callable[[], bool]) -> bool:
    """Whether something comes true within a minute."""
    end = time.monotonic() + 60
    while not (true := fact()) and time.monotonic() < end:
        time.sleep(0.02)
    return true


def visiting(monkeypatch: pytest.MonkeyPatch, one: str) -> None:
    monkeypatch.setattr(visitors, "visitor", lambda: one)


@pytest.fixture
def there() -> set[str]:
    """Who is there."""
    return {"ann", "bob"}


def test_heavy_work_is_in_a_process_that_ends_with_its_visitor(
    monkeypatch: pytest.MonkeyPatch, there: set[str]
) -> None:
    desk, before = Desk(there.__contains__, grace=0.1), processes()
    visiting(monkeypatch, "ann")
    job = searching(desk)
    assert until(lambda: job.done > 0)
    working = processes() - before
    assert len(working) == 1
    there.discard("ann")
    assert job.wait(60)
    assert until(lambda: not working & processes())
    with pytest.raises(NotDone, match="nobody waited"):
        job.answer()
    assert desk.known("searching") is None


def test_work_that_two_wait_for_goes_on_for_the_second(monkeypatch: pytest.MonkeyPatch, there: set[str]) -> None:
    desk = Desk(there.__contains__, grace=0.1)
    for one in ("ann", "bob"):
        visiting(monkeypatch, one)
        job = endless(desk)
    assert until(lambda: job.done > 0)
    there.discard("ann")
    time.sleep(0.5)
    assert not job.finished
    there.discard("bob")
    assert job.wait(60)


def test_a_search_in_a_process_stops_with_its_best(there: set[str]) -> None:
    job = searching(Desk())
    assert until(lambda: job.done > 0)
    job.stop()
    assert job.wait(60)
    assert job.answer().plan.arenas[0].extent_bytes > 0


def test_a_visitor_has_so_many_places_and_work_that_no_page_looks_at_makes_room(
    monkeypatch: pytest.MonkeyPatch, there: set[str]
) -> None:
    monkeypatch.setenv(SESSION_WORKERS.variable, "1")
    desk = Desk(there.__contains__, grace=0.1)
    visiting(monkeypatch, "ann")
    first = endless(desk, "first")
    assert until(lambda: first.done > 0)
    second = endless(desk, "second")
    assert until(lambda: second.doing == "waiting for a place")
    visiting(monkeypatch, "bob")
    others = endless(desk, "bob's")
    assert until(lambda: others.done > 0)
    visiting(monkeypatch, "ann")
    desk.new_page()
    assert endless(desk, "second") is second
    assert first.wait(60)
    assert until(lambda: second.done > 0)
    there.clear()
    assert all(job.wait(60) for job in (second, others))


def test_a_search_that_had_its_time_makes_room_where_all_places_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVER_WORKERS.variable, "1")
    monkeypatch.setattr(jobs, "FAIR", 0.2)
    desk = Desk()
    first = endless(desk, "first")
    assert until(lambda: first.done > 0)
    second = endless(desk, "second")
    assert first.wait(60)
    assert first.answer() > 0
    assert until(lambda: second.done > 0)
    second.abandon()
    assert second.wait(60)


def test_workers_end_with_the_server_however_that_ends() -> None:
    code = (
        "import sys, time; from tests.app.test_jobs import Desk, WORKERS, endless, until, processes\n"
        "job = endless(Desk()); assert until(lambda: job.done > 0)\n"
        "print(WORKERS.starter, *processes(), flush=True); time.sleep(600)"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout is not None
    working = [int(word) for word in server.stdout.readline().split()]
    assert len(working) == 2
    server.kill()
    server.wait(60)
    server.stdout.close()
    assert until(lambda: not any(_lives(one) for one in working))


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def standing_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers as they are where nothing is set: those of all other tests do not stand back."""
    WORKERS.end()
    monkeypatch.delenv("TMMU_STAND_BACK", raising=False)
    yield
    WORKERS.end()


def test_work_does_not_stand_back_where_it_is_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    WORKERS.end()
    monkeypatch.setenv("TMMU_STAND_BACK", "0")
    before = processes()
    job = endless(Desk())
    assert until(lambda: job.done > 0)
    (worker,) = processes() - before
    time.sleep(2)  # after one second it would stand back further
    own, group = os.getpriority(os.PRIO_PROCESS, 0), Path("/proc/self/autogroup")
    assert nicest(worker) == nicest(worker, most=False) == own
    if group.exists():
        assert Path(f"/proc/{worker}/autogroup").read_text().endswith(" nice 0\n")
    job.abandon()
    assert job.wait(60)


@pytest.mark.usefixtures("standing_back")
def test_work_stands_back_behind_the_server_and_soon_behind_what_begins_later() -> None:
    before = processes()
    first = searching(Desk())
    assert until(lambda: first.done > 0)
    (old,) = processes() - before
    assert until(lambda: nicest(old) == nicest(old, most=False) == 19)
    second = endless(Desk())
    assert until(lambda: second.done > 0)
    (young,) = processes() - before - {old}
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert nicest(young) in (min(own + 10, 19), 19)
    group = Path(f"/proc/{young}/autogroup")
    if group.exists():
        assert group.read_text().endswith(" nice 10\n")
    for job in (first, second):
        job.abandon()
        assert job.wait(60)


def nicest(process: int, most: bool = True) -> int:
    """The niceness of the thread that has most of it, or least."""
    threads = [int(task.name) for task in Path(f"/proc/{process}/task").iterdir()]
    return (max if most else min)(os.getpriority(os.PRIO_PROCESS, thread) for thread in threads)


def test_an_error_of_the_work_comes_back_as_it_was_raised() -> None:
    instance, request = planning.asked_of(planning.open_source("sample:A")), PlanRequest(options={"order": "nobody's"})
    desk = Desk()
    job = desk.job("a", "planning", lambda progress: desk.apart(Question(tasks.plan, (instance, request)), progress))
    assert job.wait(60)
    with pytest.raises(InvalidIrShapes) as raised:
        job.answer()
    with pytest.raises(InvalidIrShapes) as here:
        make_plan(instance, request)
    assert raised.value.record() == here.value.record()


def test_work_that_takes_more_memory_than_it_may_is_told() -> None:
    desk = Desk()
    job = desk.job("a", "eating", lambda progress: desk.apart(Question(eat, ()), progress))
    assert job.wait(60)
    with pytest.raises(NotDone, match="more memory"):
        job.answer()


def test_what_is_kept_goes_by_bytes_and_with_its_visitors(there: set[str]) -> None:
    kept = Kept(1000, there.__contains__, after=0)
    for key in "abc":
        kept.put(key, b"x" * 400, owners={"ann"})
    assert [key for key in "abc" if kept.get(key)] == ["b", "c"]
    kept.owned("b", {"bob"})
    there.discard("ann")
    for _ in range(2):
        kept.look()
        time.sleep(0.01)
    assert [key for key in "abc" if kept.get(key)] == ["b"]


def test_a_graph_weighs_about_what_it_takes() -> None:
    data = (opening.SAMPLES / "llama3_8b_train_b1_s2048.tmmu.cbor.gz").read_bytes()
    tracemalloc.start()
    try:
        graph = read_any(data, "llama.tmmu.cbor.gz")
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken / 3 < weight_of(graph) < taken * 3


def test_a_server_that_goes_between_two_looks_takes_nobody_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked whether it is there it says yes, and is gone when it is asked for its tabs."""

    class Leaving:
        @staticmethod
        def exists() -> bool:
            return True

        @staticmethod
        def instance() -> None:
            raise RuntimeError("Runtime hasn't been created!")

    monkeypatch.setattr(visitors, "Runtime", Leaving)
    assert visitors.there("a tab")


# --- between two moments -------------------------------------------------------------------------------------------


def test_a_tab_that_came_back_before_it_is_let_go_of_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for anew where tabs come and go: what the watch saw may be over."""
    there, closed, waiting = {"bob"}, [], []

    class Server:
        @staticmethod
        def exists() -> bool:
            return True

        @classmethod
        def instance(cls) -> type[Server]:
            return cls

        is_active_session = there.__contains__
        close_session = closed.append

    monkeypatch.setattr(visitors, "Runtime", Server)
    monkeypatch.setattr(
        visitors, "loop", SimpleNamespace(call_soon_threadsafe=lambda what, *of: waiting.append((what, of)))
    )
    for one in ("ann", "carl"):
        visitors.forget(one)
    there.add("ann")
    for what, of in waiting:
        what(*of)
    assert closed == ["carl"]


def test_work_for_which_there_is_no_thread_is_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, start = Desk(), threading.Thread.start

    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    with pytest.raises(RuntimeError, match="new thread"):
        desk.job("a", "work", lambda _: 1)
    monkeypatch.setattr(threading.Thread, "start", start)
    job = desk.job("a", "work", lambda _: 2)
    assert job.wait(5)
    assert job.answer() == 2


def test_who_has_a_place_is_counted_while_nobody_comes_or_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    places, alone = jobs._Places(), []

    class Watched(dict[int, tuple[str, float, None]]):
        def values(self):  # type: ignore[no-untyped-def]
            alone.append(pool.submit(places._lock.acquire, False).result())
            if alone[-1]:
                pool.submit(places._lock.release).result()
            return super().values()

    places._taken = Watched({1: ("", 0.0, None)})
    looks = iter([True, True, False])
    monkeypatch.setenv(SESSION_WORKERS.variable, "1")
    with ThreadPoolExecutor(1) as pool, pytest.raises(NotDone):
        places.one(None, lambda *_: next(looks), lambda _: None).__enter__()
    assert alone
    assert not any(alone)


def test_an_answer_given_in_the_moment_of_the_stop_is_heard() -> None:
    """The worker has answered and ended; who asks it to stop finds the line closed, and the answer on it."""
    ours, theirs = socket.socketpair()
    line = workers._Line(theirs)

    def answers(*_: object) -> bool:
        if theirs.fileno() >= 0:
            line.listen()
            line.say(b"A" + workers.dumped(42, {}))
            theirs.close()
        return False

    with ours:
        kind, sent = workers._conversation(workers._Line(ours), Question(count, ()), answers, lambda _: None)
    assert (kind, workers.loaded(sent, {})) == ("answer", 42)


def test_where_no_process_can_be_begun_the_work_can_be_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", none_left)
    with pytest.raises(NotDone, match="no process can be begun"):
        workers.Workers().run(Question(count, ()), lambda *_: True)


def test_a_starter_that_cannot_fork_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    server, starter = socket.socketpair()
    ours, theirs = socket.socketpair()

    def none_left() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", none_left)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    with server, starter, ours:
        with theirs:
            socket.send_fds(server, [workers._order(workers._START, 0)], [theirs.fileno()])
        server.shutdown(socket.SHUT_WR)
        workers.start(starter)
        assert ours.recv(1) == b"", "who asked hears the line end"


def test_a_starter_that_does_not_listen_yet_does_not_keep_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LAST_WORDS", 0.01)
    own = workers.Workers()
    own._starter = starter = subprocess.Popen(["sleep", "600"], start_new_session=True)
    own.end()
    assert starter.returncode == -signal.SIGKILL
    assert own.starter is None
