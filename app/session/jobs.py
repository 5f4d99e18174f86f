"""Long work off the page: runs in a thread, tells how far it is, can be stopped, and keeps what it found.

A job is known by a key that holds everything its answer depends on, so two pages (or two people) that ask for the same
thing share one job. The desk keeps the last answers and drops the oldest finished ones.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from tmmu_core.planners.problem import Progress

T = TypeVar("T")


class Job(Generic[T]):
    """One piece of work. ``work`` is handed a progress callback that answers ``False`` once it should stop."""

    def __init__(self, what: str, work: Callable[[Progress], T]) -> None:
        self.what = what
        self.doing, self.done, self.of = what, 0, 0
        self._stop, self._finished = threading.Event(), threading.Event()
        self._answer: T | None = None
        self._error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"job: {what}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._work(self._progress)
        except BaseException as error:  # told to whoever asks for the answer
            self._error = error
        finally:
            self._finished.set()

    def _progress(self, doing: str, done: int, of: int) -> bool:
        self.doing, self.done, self.of = doing, done, of
        return not self._stop.is_set()

    def stop(self) -> None:
        """Ask the work to end with the best it has. Work that never looks up is not ended."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    @property
    def finished(self) -> bool:
        """Whether there is an answer, or an error."""
        return self._finished.is_set()

    @property
    def worked(self) -> bool:
        """Whether it is finished and there is an answer."""
        return self.finished and self._error is None

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end; whether it came."""
        return self._finished.wait(seconds)

    def answer(self) -> T:
        """The answer of a finished job; raises what the work raised."""
        assert self.finished, f"asked for the answer of {self.what!r} before its end"
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]


class Desk:
    """Jobs by key, the most recently asked for last."""

    def __init__(self, keep: int = 48) -> None:
        self._jobs: OrderedDict[Hashable, Job[Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._keep = keep
        self._beside: dict[Hashable, Any] = {}

    def job(self, key: Hashable, what: str, work: Callable[[Progress], T]) -> Job[T]:
        """The job of this key, started now if it is not known."""
        with self._lock:
            if key not in self._jobs:
                self._jobs[key] = Job(what, work)
            self._jobs.move_to_end(key)
            for old in [k for k, job in self._jobs.items() if job.finished][: max(0, len(self._jobs) - self._keep)]:
                if old != key:
                    del self._jobs[old]
            found: Job[T] = self._jobs[key]
            return found

    def beside(self, key: Hashable, make: Callable[[], T]) -> T:
        """What the job of this key shows while it runs: made anew for a job that is not known."""
        with self._lock:
            if key not in self._jobs or key not in self._beside:
                self._beside[key] = make()
            for gone in [k for k in self._beside if k != key and k not in self._jobs]:
                del self._beside[gone]
            found: T = self._beside[key]
            return found

    def known(self, key: Hashable) -> Job[Any] | None:
        """The job of this key, if there is one."""
        return self._jobs.get(key)

    def forget(self, key: Hashable) -> None:
        """Drop a job, so that asking again runs it anew."""
        with self._lock:
            self._jobs.pop(key, None)
