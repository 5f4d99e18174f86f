"""Background jobs with progress, stop and visitors, and a cache for results that is limited in bytes.

The key of a job contains all its inputs, so equal requests share one job. A job is abandoned, and its process ends,
soon after its last visitor has left. Long jobs run in worker processes. The number of workers is limited per visitor
and per server; further jobs wait for a free worker.
"""

import ctypes
import functools
import gc
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
import streamlit as st

from app.session.work import visitors, workers
from app.session.work.workers import Task, TaskNotFinished
from tmmu_core.base.limits import KEPT_BYTES, SERVER_WORKERS, SESSION_WORKERS, ceiling
from tmmu_core.planners.problem import Progress

T = TypeVar("T")
GRACE_SECONDS = 5.0  # seconds that a job continues without visitors, so that a reloaded tab finds the job
FAIR_SHARE_SECONDS = 60.0  # seconds after which a job is stopped with its best result if another job waits
TAB_TIMEOUT_SECONDS = 60.0  # seconds after which a tab without a connection counts as closed
CHECK_EVERY = 0.5  # maximum seconds between two checks for closed tabs and jobs without visitors
_SAMPLE_SIZE = 64  # number of measured members of a collection; each other member counts as their mean
_MISSING = object()


def weight_of(value: Any, seen: set[int]) -> float:
    """Return the bytes of a value and of all that it references; skip the ids in ``seen``. Collections are sampled."""
    if value is None or isinstance(value, bool | type) or id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, str | bytes | int | float):
        return sys.getsizeof(value)
    if isinstance(value, np.ndarray):
        return sys.getsizeof(value) if value.base is None else value.nbytes  # getsizeof omits the data of a view
    if isinstance(value, pd.DataFrame):
        return float(value.memory_usage(deep=len(value) < 1_000).sum())
    own = float(sys.getsizeof(value, 64))
    if isinstance(value, dict):
        return own + _members_weight(value.keys(), len(value), seen) + _members_weight(value.values(), len(value), seen)
    if isinstance(value, list | tuple | set | frozenset):
        return own + _members_weight(value, len(value), seen)
    attributes = list(getattr(value, "__dict__", {}).values())
    attributes += [getattr(value, name, None) for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    return own + sum(weight_of(attribute, seen) for attribute in attributes)


def _members_weight(members: Iterable[Any], count: int, seen: set[int]) -> float:
    stride = max(1, count // _SAMPLE_SIZE)
    weights = [weight_of(member, seen) for member in islice(members, 0, stride * _SAMPLE_SIZE, stride)]
    return sum(weights) * count / max(1, len(weights))


class MemoryCache:
    """Values by key, up to ``max_bytes``; the least recently used is evicted first."""

    def __init__(self, max_bytes: int) -> None:
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()  # key → (value, bytes)
        self._lock, self._max_bytes = threading.RLock(), max_bytes
        self._locks: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value of a key; ``default`` for an unknown key."""
        with self._lock:
            if key not in self._entries:
                return default
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Hashable, value: Any) -> None:
        """Store a value, and evict the least recently used values while the cache exceeds its limit."""
        # A value counts as at most half of the limit, so that one large value does not evict all others.
        weight = min(int(weight_of(value, set())), self._max_bytes // 2)
        with self._lock:
            self._entries.pop(key, None)
            self._entries[key] = value, weight
            while len(self._entries) > 1 and sum(weight for _, weight in self._entries.values()) > self._max_bytes:
                self._entries.popitem(last=False)

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key. A missing value is computed once, also if several threads request it."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            try:
                if (value := self.get(key, _MISSING)) is _MISSING:
                    value = make()
                    self.put(key, value)
                return value
            finally:
                with self._lock:
                    self._locks.pop(key, None)

    def drop(self, key: Hashable) -> None:
        """Remove a value."""
        with self._lock:
            self._entries.pop(key, None)

    def clear(self) -> None:
        """Remove all values, and return their memory to the operating system."""
        with self._lock:
            self._entries.clear()
        gc.collect()
        with suppress(OSError, AttributeError):  # not every C library has malloc_trim
            ctypes.CDLL(None).malloc_trim(0)


class Abandoned(BaseException):
    """Raised in an abandoned job. It is a ``BaseException``, so that the job's code does not catch it."""


class Job(Generic[T]):
    """The state of a function that runs in a thread of a :class:`JobTable`."""

    def __init__(self, what: str, key: Hashable = None) -> None:
        self.what, self.key = what, key
        self.doing, self.done, self.total = what, 0, 0
        self.began = time.monotonic()
        self.found: list[Any] = []  # intermediate results, the best one last
        self.visitors: dict[str, int] = {}  # visitor → number of the last page run that requested the job
        self.stopped_for: set[str] = set()  # visitors for whom the job was stopped; only they see its result
        self.error: BaseException | None = None
        self.abandoned, self.ended = False, threading.Event()  # abandoned: end without a result, kill the process
        self.value: T | None = None

    def progress(self, doing: str, done: int, of: int) -> bool:
        """Set the progress; return ``False`` if the job was stopped. Raises :class:`Abandoned`."""
        self.doing, self.done, self.total = doing or self.what, done, of
        if self.abandoned:
            raise Abandoned
        return not self.stopped_for

    def stop(self, visitor_ids: Iterable[str] | None = None) -> None:
        """Stop the job for ``visitor_ids`` (default: the current visitor); they see its best result so far."""
        self.stopped_for |= {visitors.visitor()} if visitor_ids is None else set(visitor_ids)

    @property
    def finished(self) -> bool:
        """Whether the job has a result or an error."""
        return self.ended.is_set()

    @property
    def succeeded(self) -> bool:
        """Whether the job has a result."""
        return self.finished and self.error is None

    def wait(self, seconds: float | None = None) -> bool:
        """Wait up to ``seconds`` for the end of the job; return whether the job has ended."""
        return self.ended.wait(seconds)

    def result(self) -> T:
        """Wait for the end of the job and return its result; raises the job's error."""
        self.wait()
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


_job_of_thread: ContextVar[Job[Any] | None] = ContextVar("job", default=None)  # ``None`` in a page


class JobTable:
    """Running jobs by key, and a cache with the finished ones."""

    def __init__(
        self, is_connected: Callable[[str], bool] = visitors.is_connected, grace: float = GRACE_SECONDS
    ) -> None:
        self._jobs: dict[Hashable, Job[Any]] = {}
        self._lock = threading.RLock()
        self._is_connected, self._grace = is_connected, grace
        self._page_runs: dict[str, int] = {}
        self._seen: dict[str, float] = {}  # visitor → time when the visitor was last connected
        self._working: dict[Job[Any], tuple[str, float]] = {}  # job with a worker → (visitor, start), the oldest first
        self.cache = MemoryCache(ceiling(KEPT_BYTES))  # finished jobs, and values derived from their results
        threading.Thread(target=self._watch, name="job table", daemon=True).start()

    def new_page(self) -> None:
        """Count a run of the visitor's page. Jobs that only earlier runs requested are stale and may be abandoned."""
        visitor = visitors.visitor()
        with self._lock:
            self._page_runs[visitor] = self._page_runs.get(visitor, 0) + 1
            self._seen[visitor] = time.monotonic()

    def job(self, key: Hashable, what: str, work: Callable[[Progress], T]) -> Job[T]:
        """Return the job with this key; start ``work`` as a job if there is none."""
        visitor = visitors.visitor()
        with self._lock:
            self._seen[visitor] = time.monotonic()
            known_job = self.known(key)
            job = known_job or Job(what, key)
            if not job.finished:
                requesting = _job_of_thread.get()
                if requesting is None:
                    job.visitors[visitor] = self._page_runs.get(visitor, 0)
                elif known_job is None:
                    job.visitors = requesting.visitors  # one dict for both, so a request for one keeps both
                else:
                    job.visitors |= requesting.visitors
            if known_job is None:
                # The job enters the table after its thread has started, so that no page waits for a job with no thread.
                threading.Thread(target=self._run, args=(job, work), name=f"job: {what}", daemon=True).start()
                self._jobs[key] = job
            return job

    def _run(self, job: Job[T], work: Callable[[Progress], T]) -> None:
        """Run a job in this thread, keep its result or its error, and move it to the cache."""
        _job_of_thread.set(job)
        try:
            job.value = work(job.progress)
        except Abandoned:
            job.error = TaskNotFinished(f"{job.what}: cancelled, because no page waited for it.", "Start it again.")
        except BaseException as error:  # raised when the result is read
            job.error = error
        with self._lock:
            if self._jobs.get(job.key) is job:  # else the job was abandoned
                del self._jobs[job.key]
                if (job.stopped_for and job.error is None) or isinstance(job.error, TaskNotFinished):
                    for visitor in job.stopped_for or job.visitors:  # other visitors get a result of their own
                        self.cache.put(("ended early", visitor, job.key), job)
                else:
                    self.share(job.key, job)
            job.ended.set()

    def known(self, key: Hashable) -> Job[Any] | None:
        """Return the job with this key, preferably one that ended early for this visitor; ``None`` without a job."""
        with self._lock:
            ended_early = self.cache.get(("ended early", visitors.visitor(), key))
            return ended_early or self._jobs.get(key) or self.cache.get(("job", key))

    def share(self, key: Hashable, job: Job[Any]) -> None:
        """Cache a finished job for all visitors."""
        self.cache.put(("job", key), job)

    def forget(self, key: Hashable) -> None:
        """Remove the finished job that :meth:`known` returns, so that the visitor's next request runs it again."""
        with self._lock:
            ended_early = ("ended early", visitors.visitor(), key)
            self.cache.drop(("job", key) if self.cache.get(ended_early) is None else ended_early)

    def leave(self, job: Job[Any]) -> None:
        """Remove this visitor from a job; abandon the job if it has no other visitor."""
        with self._lock:
            job.visitors.pop(visitors.visitor(), None)
            if not job.visitors:
                self._abandon(job)

    def _abandon(self, job: Job[Any]) -> None:
        """Abandon a job, and remove all abandoned jobs, so that the next request starts them again."""
        job.abandoned = True
        self._jobs = {key: other for key, other in self._jobs.items() if not other.abandoned}

    def run_task(self, progress: Progress, task: Task, *arguments: Any) -> Any:
        """Wait for a free worker, and return the result of :func:`.workers.run` for the job of this thread."""
        job = _job_of_thread.get() or Job("task")
        visitor = min([*job.visitors], default=visitors.SERVER)  # of several visitors, always the same
        while not self._reserve_worker(visitor, job):
            if not progress("waiting for a free worker", 0, 0):
                raise TaskNotFinished("the task was stopped before it began.", "Start it again.")
            time.sleep(0.05)
        try:
            return workers.run(task, arguments, progress, job.found.append)
        finally:
            with self._lock:
                del self._working[job]

    def _reserve_worker(self, visitor: str, job: Job[Any]) -> bool:
        """Reserve a worker if one is free, and return whether it was reserved. Else end a job, if any should end.

        If the visitor has as many workers as allowed, a stale job is abandoned: only an earlier run of the visitor's
        page requested it. If the server has no free worker, the oldest job is stopped after `FAIR_SHARE_SECONDS`.
        """
        with self._lock:
            own = [other for other, (owner, _) in self._working.items() if owner == visitor]
            is_visitor_limit = len(own) >= ceiling(SESSION_WORKERS)
            if not is_visitor_limit and len(self._working) < ceiling(SERVER_WORKERS):
                self._working[job] = visitor, time.monotonic()
                return True
            working, page = own if is_visitor_limit else [*self._working], self._page_runs.get(visitor, 0)
            if not working or any(other.stopped_for or other.abandoned for other in working):
                return False  # a job already ends, and then its worker is free
            if is_visitor_limit:
                # The current page run requests its jobs one after the other. Until it requests this job, it may still
                # request the jobs of an earlier run.
                stale = [other for other in own if [*other.visitors] == [visitor] and other.visitors[visitor] < page]
                if stale and job.visitors.get(visitor) == page:
                    self._abandon(stale[0])
            elif time.monotonic() - self._working[working[0]][1] > FAIR_SHARE_SECONDS:
                working[0].stop(working[0].visitors)
            return False

    def _watch(self) -> None:
        """Repeatedly abandon jobs without visitors and remove closed tabs; clear the cache when no tab is left."""
        while True:
            time.sleep(min(CHECK_EVERY, self._grace / 2))
            now = time.monotonic()
            with self._lock:
                self._seen |= {visitor: now for visitor in self._seen if self._is_connected(visitor)}
                for job in list(self._jobs.values()):
                    if now - max((self._seen.get(visitor, 0) for visitor in job.visitors), default=0) > self._grace:
                        self._abandon(job)
                closed_tabs = [visitor for visitor, seen in self._seen.items() if now - seen > TAB_TIMEOUT_SECONDS]
                for tab in closed_tabs:
                    del self._seen[tab]
                    self._page_runs.pop(tab, None)
                is_idle = bool(closed_tabs) and not self._seen.keys() - {visitors.SERVER}
            for tab in closed_tabs:
                visitors.close_session(tab)
            if is_idle:
                self.cache.clear()


@st.cache_resource(show_spinner=False)
def job_table() -> JobTable:
    """Return the job table of this server."""
    return JobTable()


def memoized(function: Callable[..., T]) -> Callable[..., T]:
    """Cache the results of a function by its arguments. An argument with an attribute ``key`` counts as this key."""

    @functools.wraps(function)
    def cached(*arguments: Any) -> T:
        key = (function.__module__, function.__qualname__, *[getattr(value, "key", value) for value in arguments])
        return job_table().cache.get_or_make(key, lambda: function(*arguments))

    return cached
