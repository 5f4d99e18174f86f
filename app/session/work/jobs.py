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
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import streamlit as st

from app.session.work import visitors, workers
from app.session.work.memory_cache import MemoryCache
from app.session.work.workers import TaskCall, TaskNotFinished
from tmmu_core.base.limits import KEPT_BYTES, SERVER_WORKERS, SESSION_WORKERS, ceiling
from tmmu_core.planners.problem import Progress

T = TypeVar("T")
GRACE = 5.0
"""Seconds that a job continues after its last visitor left, so that a reloaded tab finds it."""
FAIR_SHARE = 60.0
"""Seconds after which a search ends with its best so far if others wait for its worker."""
FORGOTTEN = 60.0
"""Seconds after which a closed tab is forgotten; a tab with a broken connection is back by then."""
CHECK_EVERY = 0.5
"""Seconds between two checks for closed tabs."""


class Abandoned(BaseException):
    """Raised in a job without visitors. A ``BaseException``, so that the job does not catch it."""


_thread = threading.local()


class Job(Generic[T]):
    """A job. ``work`` receives a progress callback that returns ``False`` when it should stop."""

    def __init__(self, what: str, work: Callable[[Progress], T]) -> None:
        self.what = what
        self.doing, self.done, self.of = what, 0, 0
        self.began = time.monotonic()
        self.found: list[Any] = []
        """Intermediate results, each better than those before it."""
        self.waiters: dict[str | Job[Any], int] = {}
        """Requester (a visitor, or a job that needs this one) → the latest page of the visitor that requested it."""
        self.left_at: float | None = None
        """Time at which the last visitor left; ``None`` while a visitor is connected."""
        self.stopped_for: set[str] = set()
        """Visitors who stopped the job; only they see the result of a stopped job."""
        self.error: BaseException | None = None
        self._abandoned, self._finished = False, threading.Event()
        self._result: T | None = None
        self._work: Callable[[Progress], T] | None = work
        self._thread = threading.Thread(target=self._run, name=f"job: {what}", daemon=True)

    def start(self) -> None:
        """Start the job's thread."""
        self._thread.start()

    def _run(self) -> None:
        _thread.job = self
        try:
            assert self._work is not None
            self._result = self._work(self._progress)
        except Abandoned:
            self.error = TaskNotFinished(f"{self.what}: cancelled, because its page was closed.", "Start it again.")
        except BaseException as error:  # raised when the result is read
            self.error = error
        finally:
            self._work = None  # its inputs are not kept with its result
            self._finished.set()

    def _progress(self, doing: str, done: int, of: int) -> bool:
        self.doing, self.done, self.of = doing or self.what, done, of
        if self._abandoned:
            raise Abandoned
        return not self.stopped_for

    def stop(self, visitors_: Iterable[str] | None = None) -> None:
        """Stop the job. Its best result is shown to ``visitors_`` (default: the visitor of the running callback)."""
        self.stopped_for |= {visitors.visitor()} if visitors_ is None else set(visitors_)

    def abandon(self) -> None:
        """End the job without a result; kill its process."""
        self._abandoned = True

    @property
    def stopping(self) -> bool:
        """Whether a visitor stopped the job."""
        return bool(self.stopped_for)

    @property
    def finished(self) -> bool:
        """Whether the job has a result or an error."""
        return self._finished.is_set()

    @property
    def worked(self) -> bool:
        """Whether the job has a result."""
        return self.finished and self.error is None

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end; return whether it has ended."""
        return self._finished.wait(seconds)

    def result(self) -> T:
        """Return the result of a finished job; raises the job's error."""
        assert self.finished, f"{self.what!r} has not ended"
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]

    def visitors(self) -> dict[str, int]:
        """Return the visitors who wait for the job, also through another job → the latest page that requested it."""
        found: dict[str, int] = {}
        for waiter, page in list(self.waiters.items()):
            if not isinstance(waiter, Job):
                found[waiter] = page
            elif not waiter.finished:
                found |= waiter.visitors()
        return found


def running_job() -> Job[Any] | None:
    """Return the job whose work runs in this thread; ``None`` in a page."""
    return getattr(_thread, "job", None)


@dataclass(frozen=True, eq=False)
class _Place:
    """A worker in use."""

    visitor: str
    job: Job[Any] | None
    since: float


class JobTable:
    """Running jobs and cached results by key."""

    def __init__(self, is_connected: Callable[[str], bool] = visitors.is_connected, grace: float = GRACE) -> None:
        self._jobs: dict[Hashable, Job[Any]] = {}
        self._lock = threading.RLock()
        self._is_connected, self._grace = is_connected, grace
        self._pages: dict[str, int] = {}
        self._left: dict[str, float] = {}
        self._watching: threading.Thread | None = None
        self._places: list[_Place] = []
        self.kept = MemoryCache(ceiling(KEPT_BYTES), is_connected)
        """Cached results, and values that pages derive from them."""

    def new_page(self) -> None:
        """Record that the visitor's page runs again: jobs that it does not request again are not visible."""
        visitor = visitors.visitor()
        with self._lock:
            self._pages[visitor] = self._pages.get(visitor, 0) + 1

    def job(self, key: Hashable, what: str, work: Callable[[Progress], T]) -> Job[T]:
        """Return the job of this key; an unknown one is started."""
        visitor = visitors.visitor()
        with self._lock:
            known = self.known(key)
            job = known or Job(what, work)
            job.waiters[running_job() or visitor] = self._pages.get(visitor, 0)
            job.left_at = None
            self.kept.owned(("job", key), job.visitors())
            if known is None:
                job.start()  # registered only when it runs: if no thread can start, no one waits for it
                self._jobs[key] = job
                if self._watching is None or not self._watching.is_alive():
                    self._watching = threading.Thread(target=self._watch, name="job table", daemon=True)
                    self._watching.start()
            return job

    def known(self, key: Hashable) -> Job[Any] | None:
        """Return the job of this key that runs or has a result; first the one that this visitor stopped."""
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
            for visitor in job.stopped_for:
                self.kept.put(("stopped", visitor, key), job, owners={visitor})
        elif not isinstance(job.error, TaskNotFinished):
            self.share(key, job)

    def share(self, key: Hashable, job: Job[Any]) -> None:
        """Cache the result of a job for all visitors."""
        self.kept.put(("job", key), job, owners=set(job.visitors()))

    def forget(self, key: Hashable) -> None:
        """Remove a finished job, so that the next request runs it again."""
        with self._lock:
            if (job := self._jobs.get(key)) is not None and job.finished:
                del self._jobs[key]
            self.kept.drop(("job", key))
            self.kept.drop(("stopped", visitors.visitor(), key))

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a value that pages derive from results, cached while its visitors are connected and space allows."""
        job = running_job()
        return self.kept.made(key, make, {visitors.visitor()} if job is None else set(job.visitors()))

    # --- workers ---------------------------------------------------------------------------------------------------

    def run_task(self, call: TaskCall, progress: Progress | None = None) -> Any:
        """Run a task in a worker and return its result; wait for a free worker.

        Without ``progress``, the page waits; :class:`TaskNotFinished` is raised if its visitor leaves.
        """
        job, visitor = running_job(), visitors.visitor()

        def while_connected(*_: Any) -> bool:
            if not self._is_connected(visitor):
                raise TaskNotFinished("cancelled, because its page was closed.", "Start it again.")
            return True

        with self._place(progress or while_connected, job):
            return workers.run(call, progress or while_connected, job.found.append if job else lambda _: None)

    @contextmanager
    def _place(self, progress: Progress, job: Job[Any] | None) -> Iterator[None]:
        """Wait for a free worker and reserve it."""
        visitor = visitors.visitor() if job is None else min(job.visitors(), default=visitors.SERVER)
        place: _Place | None = None
        while place is None:
            with self._lock:
                mine = sum(used.visitor == visitor for used in self._places)
                if mine < ceiling(SESSION_WORKERS) and len(self._places) < ceiling(SERVER_WORKERS):
                    place = _Place(visitor, job, time.monotonic())
                    self._places.append(place)
                elif mine >= ceiling(SESSION_WORKERS):
                    self._end_hidden(visitor)
                else:
                    self._stop_longest()
            if place is None:
                if not progress("waiting for a free worker", 0, 0):
                    raise TaskNotFinished("the task was stopped before it began.", "Start it again.")
                time.sleep(0.05)
        try:
            yield
        finally:
            with self._lock:
                self._places.remove(place)

    def _end_hidden(self, visitor: str) -> None:
        """End the oldest running job of a visitor that no page of theirs shows."""
        running = {id(place.job) for place in self._places}
        for key, job in list(self._jobs.items()):
            pages = job.visitors()
            if id(job) in running and set(pages) == {visitor} and pages[visitor] < self._pages.get(visitor, 0):
                job.abandon()
                del self._jobs[key]
                return

    def _stop_longest(self) -> None:
        """Stop the oldest search that had its share of time; it keeps its best result."""
        for place in self._places:
            if place.job is not None and not place.job.stopping and time.monotonic() - place.since > FAIR_SHARE:
                place.job.stop(place.job.visitors())
                return

    # --- visitors --------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Abandon jobs without visitors, cache finished results, and evict what exceeds the limit."""
        while True:
            time.sleep(min(CHECK_EVERY, self._grace / 2))
            now = time.monotonic()
            with self._lock:
                for key, job in list(self._jobs.items()):
                    if job.finished:
                        self._settle(key, job)
                    elif any(map(self._is_connected, job.visitors())):
                        job.left_at = None
                    elif job.left_at is None:
                        job.left_at = now
                    elif now - job.left_at > self._grace:
                        job.abandon()
                        del self._jobs[key]
                self._left = {one: self._left.get(one, now) for one in self._pages if not self._is_connected(one)}
                gone = [one for one, since in self._left.items() if now - since > FORGOTTEN]
                for one in gone:
                    del self._pages[one], self._left[one]
            for one in gone:
                visitors.close_session(one)
            self.kept.evict_left()


@st.cache_resource(show_spinner=False)
def job_table() -> JobTable:
    """Return the job table of this server."""
    return JobTable()


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """Cache the results of a function by its arguments.

    An argument with a ``key`` (a shown plan) counts by its key; arguments that begin with ``_`` do not count.
    """
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def cached(*arguments: Any) -> T:
        named = zip(names, arguments, strict=True)
        key = [getattr(value, "key", value) for name, value in named if not name.startswith("_")]
        return job_table().remembered((function.__module__, function.__qualname__, *key), lambda: function(*arguments))

    return cached
