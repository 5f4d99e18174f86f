"""Background jobs with progress, stop, owners and cached results.

The key of a job contains all its inputs, so equal requests share one job. A job is abandoned, and its process ends,
soon after its last visitor has left. Long jobs run in worker processes. The number of workers is limited per visitor
and per server; further jobs wait for a free worker. The cache of results is limited in bytes.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import streamlit as st

from app.session.work import visitors, workers
from app.session.work.memory_cache import MemoryCache
from app.session.work.workers import TaskCall, TaskNotFinished
from tmmu_core.base.limits import KEPT_BYTES, SERVER_WORKERS, SESSION_WORKERS, ceiling
from tmmu_core.planners.problem import Progress

T = TypeVar("T")
GRACE = 5.0  # seconds that a job continues without visitors, so that a reloaded tab finds the job
FAIR_SHARE = 60.0  # seconds after which a job is stopped with its best result if another job waits
FORGOTTEN = 60.0  # seconds after which a tab without a connection counts as closed
CHECK_EVERY = 0.5  # seconds between two checks for closed tabs


class Abandoned(BaseException):
    """Raised in a job without visitors. It is a ``BaseException``, so that the job's code does not catch it."""


_thread = threading.local()


class Job(Generic[T]):
    """A function that runs in a thread. Its progress callback returns ``False`` when it should stop."""

    def __init__(self, what: str, work: Callable[[Progress], T], key: Hashable = None) -> None:
        self.what, self.key = what, key
        self.doing, self.done, self.of = what, 0, 0
        self.began = time.monotonic()
        self.found: list[Any] = []  # intermediate results, the best one last
        self.waiters: dict[str | Job[Any], int] = {}  # visitor → number of its page; requesting job → 0
        self.left_at: float | None = None  # time when no visitor was connected; ``None`` while one is
        self.stopped_for: set[str] = set()  # visitors who stopped the job; only they see its result
        self.error: BaseException | None = None
        self.abandoned, self._finished = False, threading.Event()
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
            self.error = TaskNotFinished(f"{self.what}: cancelled, because no page waited for it.", "Start it again.")
        except BaseException as error:  # raised when the result is read
            self.error = error
        finally:
            self._work = None  # free the inputs of the job
            self._finished.set()

    def _progress(self, doing: str, done: int, of: int) -> bool:
        self.doing, self.done, self.of = doing or self.what, done, of
        if self.abandoned:
            raise Abandoned
        return not self.stopped_for

    def stop(self, visitors_: Iterable[str] | None = None) -> None:
        """Stop the job. ``visitors_`` (default: the visitor of the running callback) see its best result so far."""
        self.stopped_for |= {visitors.visitor()} if visitors_ is None else set(visitors_)

    def abandon(self) -> None:
        """End the job, and the jobs that requested it, without a result; kill their processes."""
        self.abandoned = True
        for waiter in list(self.waiters):
            if isinstance(waiter, Job):
                waiter.abandon()

    @property
    def stopping(self) -> bool:
        """Whether the job was stopped."""
        return bool(self.stopped_for)

    @property
    def finished(self) -> bool:
        """Whether the job has a result or an error."""
        return self._finished.is_set()

    @property
    def succeeded(self) -> bool:
        """Whether the job has a result."""
        return self.finished and self.error is None

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end of the job; return whether the job has ended."""
        return self._finished.wait(seconds)

    def result(self) -> T:
        """Return the result of a finished job; raises the job's error."""
        assert self.finished, f"{self.what!r} has not ended"
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]

    def visitors(self) -> dict[str, int]:
        """Return visitor → number of the page that last requested the job, directly or through another job."""
        pages: dict[str, int] = {}
        for waiter, page in list(self.waiters.items()):
            if not isinstance(waiter, Job):
                pages[waiter] = max(page, pages.get(waiter, 0))
            elif not waiter.abandoned:
                pages |= {visitor: max(n, pages.get(visitor, 0)) for visitor, n in waiter.visitors().items()}
        return pages


def running_job() -> Job[Any] | None:
    """Return the job whose work runs in this thread; ``None`` in a page."""
    return getattr(_thread, "job", None)


class JobTable:
    """Running jobs and cached results by key."""

    def __init__(self, is_connected: Callable[[str], bool] = visitors.is_connected, grace: float = GRACE) -> None:
        self._jobs: dict[Hashable, Job[Any]] = {}
        self._lock = threading.RLock()
        self._is_connected, self._grace = is_connected, grace
        self._pages: dict[str, int] = {}
        self._left: dict[str, float] = {}
        self._watching: threading.Thread | None = None
        self._used_workers: list[tuple[str, Job[Any] | None, float]] = []  # (visitor, job, start), the oldest first
        self.cache = MemoryCache(ceiling(KEPT_BYTES), is_connected)  # results, and values derived from them

    def new_page(self) -> None:
        """Count a new run of the visitor's page. A job that the new run does not request is not on the page."""
        visitor = visitors.visitor()
        with self._lock:
            self._pages[visitor] = self._pages.get(visitor, 0) + 1

    def job(self, key: Hashable, what: str, work: Callable[[Progress], T]) -> Job[T]:
        """Return the job with this key; start ``work`` as a job if there is none."""
        visitor = visitors.visitor()
        with self._lock:
            known_job = self.known(key)
            job = known_job or Job(what, work, key)
            job.waiters[running_job() or visitor] = self._pages.get(visitor, 0)
            job.left_at = None
            self.cache.add_owners(("job", key), job.visitors())
            if known_job is None:
                job.start()  # before the job is registered: if no thread can start, no page waits for the job
                self._jobs[key] = job
                if self._watching is None or not self._watching.is_alive():
                    self._watching = threading.Thread(target=self._watch, name="job table", daemon=True)
                    self._watching.start()
            return job

    def known(self, key: Hashable) -> Job[Any] | None:
        """Return the job with this key, or ``None``. A job that ended early for this visitor comes first."""
        with self._lock:
            self._settle(key)
            ended_early = self.cache.get(("ended early", visitors.visitor(), key))
            return ended_early or self._jobs.get(key) or self.cache.get(("job", key))

    def _settle(self, key: Hashable) -> None:
        """Move a finished job to the cache.

        A stopped job is cached only for the visitors who stopped it. A job without a result is cached only for its
        visitors. Neither is started again for them until they call :meth:`forget`.
        """
        job = self._jobs.get(key)
        if job is None or not job.finished:
            return
        del self._jobs[key]
        if (job.stopping and job.succeeded) or isinstance(job.error, TaskNotFinished):
            for visitor in job.stopped_for or job.visitors():
                self.cache.put(("ended early", visitor, key), job, owners={visitor})
        else:
            self.share(key, job)

    def share(self, key: Hashable, job: Job[Any]) -> None:
        """Cache a finished job for all visitors."""
        self.cache.put(("job", key), job, owners=set(job.visitors()))

    def forget(self, key: Hashable) -> None:
        """Remove the finished job that :meth:`known` returns, so that the visitor's next request runs it again."""
        with self._lock:
            self._settle(key)
            ended_early = ("ended early", visitors.visitor(), key)
            self.cache.drop(("job", key) if self.cache.get(ended_early) is None else ended_early)

    def leave(self, job: Job[Any]) -> None:
        """Remove this visitor from a job; abandon the job if it has no other visitor."""
        with self._lock:
            job.waiters.pop(visitors.visitor(), None)
            if not job.visitors():
                self._abandon(job)

    def _abandon(self, job: Job[Any]) -> None:
        """Abandon a job and remove the abandoned jobs, so that the next request starts them again."""
        job.abandon()
        self._jobs = {key: other for key, other in self._jobs.items() if not other.abandoned}

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return ``make()``, computed once and cached while its visitors are connected and the cache has space."""
        job = running_job()
        return self.cache.get_or_make(key, make, lambda: {visitors.visitor()} if job is None else job.visitors())

    # --- workers ---------------------------------------------------------------------------------------------------

    def run_task(self, call: TaskCall, progress: Progress | None = None) -> Any:
        """Wait for a free worker, run a task in it, and return its result; by default, until the tab closes."""
        job, visitor = running_job(), visitors.visitor()

        def while_connected(*_: Any) -> bool:
            if not self._is_connected(visitor):
                raise TaskNotFinished("cancelled, because no page waited for it.", "Start it again.")
            return True

        with self._reserved_worker(progress or while_connected, job):
            return workers.run(call, progress or while_connected, job.found.append if job else lambda _: None)

    @contextmanager
    def _reserved_worker(self, progress: Progress, job: Job[Any] | None) -> Iterator[None]:
        visitor = visitors.visitor() if job is None else min(job.visitors(), default=visitors.SERVER)
        while not self._has_free_worker(visitor, job):
            if not progress("waiting for a free worker", 0, 0):
                raise TaskNotFinished("the task was stopped before it began.", "Start it again.")
            time.sleep(0.05)
        try:
            yield
        finally:
            with self._lock:
                self._used_workers.remove(next(used for used in self._used_workers if used[:2] == (visitor, job)))

    def _has_free_worker(self, visitor: str, job: Job[Any] | None) -> bool:
        """Reserve a free worker. Without one, end a job to free its worker, unless another job is ending."""
        with self._lock:
            of_visitor = [used for used in self._used_workers if used[0] == visitor]
            is_own_limit = len(of_visitor) >= ceiling(SESSION_WORKERS)
            if not is_own_limit and len(self._used_workers) < ceiling(SERVER_WORKERS):
                self._used_workers.append((visitor, job, time.monotonic()))
                return True
            used_workers = of_visitor if is_own_limit else self._used_workers
            jobs = [(other, since) for _, other, since in used_workers if other is not None]
            if any(other.stopping or other.abandoned for other, _ in jobs):
                return False
            page = self._pages.get(visitor, 0)
            if not is_own_limit:
                for other, since in jobs[:1]:
                    if time.monotonic() - since > FAIR_SHARE:
                        other.stop(other.visitors())
            # Before a new run of the page requests this job, it may still request the running ones.
            elif job is None or job.visitors().get(visitor) == page:
                hidden = (other for other, _ in jobs if [*other.visitors()] == [visitor])
                if (oldest := next((other for other in hidden if other.visitors()[visitor] < page), None)) is not None:
                    self._abandon(oldest)
            return False

    # --- visitors --------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Repeatedly abandon jobs without visitors, cache finished jobs, and evict values of closed tabs."""
        while True:
            time.sleep(min(CHECK_EVERY, self._grace / 2))
            now = time.monotonic()
            with self._lock:
                for key, job in list(self._jobs.items()):
                    if job.finished:
                        self._settle(key)
                    elif any(map(self._is_connected, job.visitors())):
                        job.left_at = None
                    elif job.left_at is None:
                        job.left_at = now
                    elif now - job.left_at > self._grace:
                        self._abandon(job)
                self._left = {tab: self._left.get(tab, now) for tab in self._pages if not self._is_connected(tab)}
                closed = [tab for tab, since in self._left.items() if now - since > FORGOTTEN]
                for tab in closed:
                    del self._pages[tab], self._left[tab]
            for tab in closed:
                visitors.close_session(tab)
            self.cache.evict_left()


@st.cache_resource(show_spinner=False)
def job_table() -> JobTable:
    """Return the job table of this server."""
    return JobTable()


def remembered(function: Callable[..., T]) -> Callable[..., T]:
    """Cache the results of a function by its arguments; one with an attribute ``key`` (a shown plan) by its key."""

    @functools.wraps(function)
    def cached(*arguments: Any) -> T:
        key = [getattr(value, "key", value) for value in arguments]
        return job_table().remembered((function.__module__, function.__qualname__, *key), lambda: function(*arguments))

    return cached
