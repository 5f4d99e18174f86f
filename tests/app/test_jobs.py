from __future__ import annotations

import threading

import pytest

from app.session.jobs import Desk, Job
from tmmu_core.planners.problem import Progress


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

    job = Job("search", search)
    assert begun.wait(5)
    job.stop()
    assert job.wait(5)
    assert job.answer() >= 1


def test_an_error_comes_back_to_whoever_asks() -> None:
    def fail(_: Progress) -> None:
        raise ValueError("no")

    job = Job("fail", fail)
    assert job.wait(5)
    with pytest.raises(ValueError, match="no"):
        job.answer()


def test_the_desk_drops_the_oldest_finished_jobs() -> None:
    desk = Desk(keep=2)
    for key in "abc":
        assert desk.job(key, key, lambda _: None).wait(5)
    desk.job("d", "d", lambda _: None).wait(5)
    assert desk.known("a") is None
    assert desk.known("d") is not None
