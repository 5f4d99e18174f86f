"""Background jobs with progress, stop, owners and cached results.

The key of a job holds everything that its result depends on, so equal requests share one job. When the last visitor
who requested it has left, an unfinished job is abandoned and its process ends. Long jobs run in worker processes, whose
number is limited per visitor and per server; others wait. Results are cached up to a number of bytes.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import streamlit as st

from app.session.work import visitors
from app.session.work.memory_cache import MemoryCache
from app.session.work.task_messages import TaskCall, TaskNotFinished
from app.session.work.workers import Workers
from tmmu_core.base.limits import KEPT_BYTES, SERVER_WORKERS, SESSION_WORKERS, ceiling
from tmmu_core.planners.problem import Progress

T = TypeVar("T")
GRACE = 5.0
"""Seconds that a job continues after its last visitor left, so that a reloaded tab finds it."""
FAIR = 60.0
"""Seconds after which a search ends with its best so far where others wait for its place."""
FORGOTTEN = 60.0
"""Seconds after which a closed tab is forgotten; a tab with a broken connection is back by then."""
LOOK = 0.5
"""Seconds between two checks for closed tabs."""


class Abandoned(BaseException):
    """Raised in a job without visitors. A ``BaseException``, so that the job does not catch it."""


_here = threading.local()
WORKERS = Workers()
"""This process's."""


class Job(Generic[T]):
    """A job. ``work`` receives a progress callback that returns ``False`` when it should stop."""

    def __init__(self, what: str, work: Callable[[Progress], T]) -> None:
        self.what = what
        self.doing, self.done, self.of = what, 0, 0
        self.waiters: dict[str | Job[Any], int] = {}
        """Who requested it (a visitor, or a job that needs it) → the visitor's latest page that did."""
        self.left_at: float | None = None
        """Time at which the last of them left; ``None`` while one is connected."""
        self.holds_place = False
        self.began = time.monotonic()
        self.found: list[Any] = []
        """Intermediate results, each better than those before it."""
        self.stopped_for: set[str] = set()
        """Visitors who stopped it; only they see the result of that time."""
        self._abandoned, self._finished = threading.Event(), threading.Event()
        self._answer: T | None = None
        self._error: BaseException | None = None
        self._work: Callable[[Progress], T] | None = work
        self._thread = threading.Thread(target=self._run, name=f"job: {what}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _run(self) -> None:
        _here.job = self
        try:
            assert self._work is not None
            self._answer = self._work(self._progress)
        except Abandoned:
            self._error = TaskNotFinished(f"{self.what}: nobody waited for it any more.", "Ask for it again.")
        except BaseException as error:  # raised when the result is read
            self._error = error
        finally:
            self._work = None  # its inputs are not kept with its result
            self._finished.set()

    def _progress(self, doing: str, done: int, of: int) -> bool:
        self.doing, self.done, self.of = doing or self.what, done, of
        if self._abandoned.is_set():
            raise Abandoned
        return not self.stopped_for

    def stop(self, visitors_: Iterable[str] | None = None) -> None:
        """Stop the job with its best result for these visitors (default: the visitor of the running callback)."""
        self.stopped_for |= {visitors.visitor()} if visitors_ is None else set(visitors_)

    def abandon(self) -> None:
        """End the job without a result; kill its process."""
        self._abandoned.set()

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return bool(self.stopped_for)

    @property
    def stopped_for_another(self) -> bool:
        """Whether other visitors stopped it, and not the one whose page runs."""
        return self.stopping and visitors.visitor() not in self.stopped_for

    @property
    def finished(self) -> bool:
        """Whether there is an answer, or an error."""
        return self._finished.is_set()

    @property
    def worked(self) -> bool:
        """Whether it is finished and there is an answer."""
        return self.finished and self._error is None

    @property
    def unanswered(self) -> bool:
        """Whether it ended without an answer through nobody's fault: asked again, it runs again."""
        return self.finished and isinstance(self._error, TaskNotFinished)

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end; whether it came."""
        return self._finished.wait(seconds)

    def answer(self) -> T:
        """Return the result of a finished job; raises the job's error."""
        assert self.finished, f"asked for the answer of {self.what!r} before its end"
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]

    def visitors(self) -> dict[str, int]:
        """Visitors who wait for it, directly or through a job that needs it → the latest page that requested it."""
        found: dict[str, int] = {}
        for waiter, page in list(self.waiters.items()):
            if isinstance(waiter, Job):
                found |= waiter.visitors() if not waiter.finished else {}
            else:
                found[waiter] = page
        return found


def running_job() -> Job[Any]:
    """Return the job whose work runs in this thread."""
    job: Job[Any] = _here.job
    return job


class JobTable:
    """Running jobs and cached results by key."""

    def __init__(self, there: Callable[[str], bool] = visitors.there, grace: float = GRACE) -> None:
        self._jobs: dict[Hashable, Job[Any]] = {}
        self._lock = threading.RLock()
        self._there, self._grace = there, grace
        self._pages: dict[str, int] = {}
        self._left: dict[str, float] = {}
        self._watching: threading.Thread | None = None
        self.kept = MemoryCache(ceiling(KEPT_BYTES), there)
        """Cached results, and values that pages derive from them."""
        self._places = _Places()

    def new_page(self) -> None:
        """Record that the visitor's page runs again: jobs that it does not request again are not visible."""
        one = visitors.visitor()
        with self._lock:
            self._pages[one] = self._pages.get(one, 0) + 1

    def job(self, key: Hashable, what: str, work: Callable[[Progress], T]) -> Job[T]:
        """The job of this key, started now if it is not known."""
        parent: Job[Any] | None = getattr(_here, "job", None)
        one = visitors.visitor()
        with self._lock:
            job = self.known(key)
            fresh = job is None
            if job is None:
                job = Job(what, work)
            job.waiters[parent if parent is not None else one] = self._pages.get(one, 0)
            job.left_at = None
            self.kept.owned(("job", key), job.visitors())
            if fresh:
                job.start()  # registered only when it runs: if no thread can start, no one waits for it
                self._jobs[key] = job
                if self._watching is None or not self._watching.is_alive():
                    self._watching = threading.Thread(target=self._watch, name="the desk's watch", daemon=True)
                    self._watching.start()
            return job

    def apart(self, question: TaskCall, progress: Progress) -> Any:
        """Run a task in a worker and return its result; waits for a free worker. Its finds are those of the job."""
        job: Job[Any] | None = getattr(_here, "job", None)
        with self._places.one(job, progress, self._crowding):
            return WORKERS.run(question, progress, (lambda _: None) if job is None else job.found.append)

    def apart_now(self, question: TaskCall) -> Any:
        """Run a task that the page waits for. Raises :class:`TaskNotFinished` if its visitor leaves."""
        one = visitors.visitor()

        def still(*_: Any) -> bool:
            if not self._there(one):
                raise TaskNotFinished("nobody waited for it any more.", "Ask for it again.")
            return True

        return self.apart(question, still)

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a value that pages derive from results, cached while its visitors are connected and space allows."""
        parent: Job[Any] | None = getattr(_here, "job", None)
        owners = {visitors.visitor()} if parent is None else set(parent.visitors())
        return self.kept.made(key, make, owners)

    def known(self, key: Hashable) -> Job[Any] | None:
        """Return the job of this key that runs or has an answer; first the one that was stopped for this visitor."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and job.finished:
                self._settle(key, job)
            stopped = self.kept.get(("stopped", visitors.visitor(), key))
            return stopped or self._jobs.get(key) or self.kept.get(("job", key))

    def _settle(self, key: Hashable, job: Job[Any]) -> None:
        """Cache the result of a finished job for all, or of a stopped job for those who stopped it."""
        del self._jobs[key]
        if job.stopping and job.worked:
            for one in job.stopped_for:
                self.kept.put(("stopped", one, key), job, owners={one})
        elif not job.unanswered:
            self.kept.put(("job", key), job, owners=set(job.visitors()))

    def share(self, key: Hashable, job: Job[Any]) -> None:
        """Cache the result of a stopped job for all under a key that includes its node limit."""
        with self._lock:
            self.kept.put(("job", key), job, owners=set(job.visitors()))

    def forget(self, key: Hashable) -> None:
        """Drop a finished job, so that the next request runs it again."""
        with self._lock:
            if (job := self._jobs.get(key)) is not None and job.finished:
                del self._jobs[key]
            self.kept.drop(("job", key))
            self.kept.drop(("stopped", visitors.visitor(), key))

    # --- visitors --------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            time.sleep(min(LOOK, self._grace / 2))
            self.look()

    def look(self) -> None:
        """Abandon jobs without visitors, cache finished results, and evict what exceeds the limit."""
        with self._lock:
            for key, job in list(self._jobs.items()):
                if job.finished:
                    self._settle(key, job)
                elif any(map(self._there, job.visitors())):
                    job.left_at = None
                elif job.left_at is None:
                    job.left_at = time.monotonic()
                elif time.monotonic() - job.left_at > self._grace:
                    job.abandon()
                    del self._jobs[key]
            left = [one for one in self._pages if not self._there(one)]
            now = time.monotonic()
            self._left = {one: self._left.get(one, now) for one in left}
            gone = [one for one, since in self._left.items() if now - since > FORGOTTEN]
            for one in gone:
                del self._pages[one], self._left[one]
        for one in gone:
            visitors.forget(one)
        self.kept.look()

    def _crowding(self, one: str) -> None:
        """End the oldest running job of visitor ``one`` that no page of theirs shows."""
        with self._lock:
            for key, job in list(self._jobs.items()):
                asked = job.visitors()
                if job.holds_place and set(asked) == {one} and asked[one] < self._pages.get(one, 0):
                    job.abandon()
                    del self._jobs[key]
                    return


@st.cache_resource(show_spinner=False)
def desk() -> JobTable:
    """This server's desk."""
    return JobTable()


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """Cache the results of a function by its arguments; arguments that begin with ``_`` are not part of the key."""
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def found(*arguments: Any) -> T:
        named = tuple(value for name, value in zip(names, arguments, strict=True) if not name.startswith("_"))
        return desk().remembered((function.__module__, function.__qualname__, *named), lambda: function(*arguments))

    return found


class _Places:
    """Limits the number of workers per visitor and in total."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._taken: dict[int, tuple[str, float, Job[Any] | None]] = {}
        self._next = 0

    @contextmanager
    def one(self, job: Job[Any] | None, progress: Progress, crowding: Callable[[str], None]) -> Iterator[None]:
        """Wait for a free worker and reserve it. ``crowding(visitor)`` may end one of the visitor's own jobs."""
        one = visitors.visitor() if job is None else min(job.visitors(), default=visitors.NOBODY)
        number = None
        while number is None:
            with self._lock:
                number = self._take(one, job)
                if number is None:
                    self._lock.wait(0.2)
            if number is None:
                if not progress("waiting for a place", 0, 0):
                    raise TaskNotFinished("the work was stopped before it began.", "Start it again.")
                with self._lock:
                    crowded = self._of(one) >= ceiling(SESSION_WORKERS)
                if crowded:
                    crowding(one)
                else:
                    self._share()
        if job is not None:
            job.holds_place = True
        try:
            yield
        finally:
            if job is not None:
                job.holds_place = False
            with self._lock:
                del self._taken[number]
                self._lock.notify_all()

    def _take(self, one: str, job: Job[Any] | None) -> int | None:
        if self._of(one) >= ceiling(SESSION_WORKERS) or len(self._taken) >= ceiling(SERVER_WORKERS):
            return None
        self._next += 1
        self._taken[self._next] = (one, time.monotonic(), job)
        return self._next

    def _of(self, one: str) -> int:
        return sum(taken[0] == one for taken in self._taken.values())

    def _share(self) -> None:
        """If all workers are busy, stop the oldest search that had its share of time; it keeps its best result."""
        with self._lock:
            held = [job for _, began, job in self._taken.values() if time.monotonic() - began > FAIR]
        for job in held:
            if job is not None and not job.stopping:
                job.stop(job.visitors())
                return
