import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from app.kit import downloads
from app.session import planning
from app.session.view_state import Choice, from_query, to_query
from app.session.work import jobs, tasks, visitors
from app.session.work.jobs import Job, JobTable, MemoryCache
from app.session.work.workers import TaskNotFinished
from tests.app.session.worker_tasks import count, eat
from tmmu_core.base.errors import InvalidIrShapes
from tmmu_core.base.limits import SERVER_WORKERS, SESSION_WORKERS
from tmmu_core.planners.problem import Progress
from tmmu_core.plans.making.make import PlanningResult, make_plan
from tmmu_core.plans.making.request import PlanRequest

T = TypeVar("T")


def test_stopped_job_keeps_its_result() -> None:
    begun = threading.Event()

    def search(progress: Progress) -> int:
        best = 0
        while progress("searching", best, 0):
            best += 1
            begun.set()
        return best

    job = JobTable().job("search", "search", search)
    assert begun.wait(5)
    job.stop()
    assert job.wait(5)
    assert job.result() >= 1


def test_error_of_a_job_is_raised_to_its_caller() -> None:
    def fail(_: Progress) -> None:
        raise ValueError("no")

    job = JobTable().job("fail", "fail", fail)
    assert job.wait(5)
    with pytest.raises(ValueError, match="no"):
        job.result()


# --- work in processes, and whose it is ----------------------------------------------------------------------------


def searching(table: JobTable) -> Job[PlanningResult]:
    """Return a search that does not end in practice: 10^15 nodes of a hard instance."""
    instance = planning.planning_input(planning.open_source("sample:D"))
    request = PlanRequest(planner="exact", options={"budget": 10**15})
    return table.job("searching", "searching", lambda progress: table.run_task(progress, tasks.plan, instance, request))


def endless(table: JobTable, key: str = "endless") -> Job[int]:
    """Start a job that counts until it is stopped."""
    return table.job(key, "counting", lambda progress: table.run_task(progress, count))


def processes() -> set[int]:
    """Return the live worker processes of this process."""
    return {worker.pid for worker in multiprocessing.active_children() if worker.pid is not None}


def until(fact: Callable[[], bool]) -> bool:
    """Return whether a condition becomes true within a minute."""
    end = time.monotonic() + 60
    while not (true := fact()) and time.monotonic() < end:
        time.sleep(0.02)
    return true


def visiting(monkeypatch: pytest.MonkeyPatch, one: str) -> None:
    monkeypatch.setattr(visitors, "visitor", lambda: one)


@pytest.fixture
def existing() -> set[str]:
    """Return the visitors that are connected."""
    return {"ann", "bob"}


@pytest.mark.slow
def test_heavy_job_runs_in_a_process_that_ends_with_its_visitor(
    monkeypatch: pytest.MonkeyPatch, existing: set[str]
) -> None:
    table, before = JobTable(existing.__contains__, grace=0.1), processes()
    visiting(monkeypatch, "ann")
    job = searching(table)
    assert until(lambda: job.done > 0)
    working = processes() - before
    assert len(working) == 1
    existing.discard("ann")
    assert job.wait(60)
    assert until(lambda: not working & processes())
    with pytest.raises(TaskNotFinished, match="cancelled"):
        job.result()
    assert table.known("searching") is None


def test_job_of_two_visitors_continues_for_the_second(monkeypatch: pytest.MonkeyPatch, existing: set[str]) -> None:
    table = JobTable(existing.__contains__, grace=0.1)
    for one in ("ann", "bob"):
        visiting(monkeypatch, one)
        job = endless(table)
    assert until(lambda: job.done > 0)
    existing.discard("ann")
    time.sleep(0.5)
    assert not job.finished
    existing.discard("bob")
    assert job.wait(60)


def test_abandoned_job_runs_again_for_the_next_visitor(monkeypatch: pytest.MonkeyPatch, existing: set[str]) -> None:
    table = JobTable(existing.__contains__, grace=0.1)
    visiting(monkeypatch, "ann")
    job = table.job("whole", "counting", lambda _: endless(table).result())
    existing.discard("ann")  # the page is reloaded: this visitor does not come back
    assert job.wait(60)
    visiting(monkeypatch, "bob")
    again = endless(table)
    assert not again.abandoned
    assert until(lambda: again.done > 0)
    existing.discard("bob")
    assert again.wait(60)


@pytest.mark.slow
def test_stopped_search_returns_its_best_plan(existing: set[str]) -> None:
    job = searching(JobTable())
    assert until(lambda: job.done > 0)
    job.stop()
    assert job.wait(60)
    assert job.result().plan.arenas[0].extent_bytes > 0


@pytest.mark.slow
def test_unwatched_job_yields_its_place(monkeypatch: pytest.MonkeyPatch, existing: set[str]) -> None:
    monkeypatch.setenv(SESSION_WORKERS.variable, "1")
    table = JobTable(existing.__contains__, grace=0.1)
    visiting(monkeypatch, "ann")
    first = endless(table, "first")
    assert until(lambda: first.done > 0)
    second = endless(table, "second")
    assert until(lambda: second.doing == "waiting for a free worker")
    visiting(monkeypatch, "bob")
    others = endless(table, "bob's")
    assert until(lambda: others.done > 0)
    visiting(monkeypatch, "ann")
    table.new_page()
    time.sleep(0.3)
    assert not first.abandoned  # the new page may still request it
    assert endless(table, "second") is second
    assert first.wait(60)
    assert until(lambda: second.done > 0)
    existing.clear()
    assert all(job.wait(60) for job in (second, others))


def test_search_that_had_its_time_yields_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVER_WORKERS.variable, "1")
    monkeypatch.setattr(jobs, "FAIR_SHARE_SECONDS", 0.2)
    table = JobTable()
    first = endless(table, "first")
    assert until(lambda: first.done > 0)
    second = endless(table, "second")
    assert first.wait(60)
    assert first.result() > 0
    assert until(lambda: second.done > 0)
    second.abandoned = True
    assert second.wait(60)


def test_waiting_job_stops_one_job_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVER_WORKERS.variable, "2")
    monkeypatch.setattr(jobs, "FAIR_SHARE_SECONDS", 0.2)
    table = JobTable()
    first, second = (table.job(key, key, lambda progress: table.run_task(progress, count, 0.5)) for key in "ab")
    assert until(lambda: first.done > 0 and second.done > 0)
    third = endless(table)
    assert until(lambda: first.finished or second.finished)
    assert bool(first.stopped_for) != bool(second.stopped_for)
    for job in (first, second, third):
        table.leave(job)
        assert job.wait(60)


def test_job_that_one_visitor_leaves_continues_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    table = JobTable(lambda _: True)
    for one in ("ann", "bob"):
        visiting(monkeypatch, one)
        job = endless(table)
    table.leave(job)
    assert not job.abandoned
    visiting(monkeypatch, "ann")
    table.leave(job)
    assert endless(table) is not job
    assert job.wait(60)


def test_part_of_a_job_belongs_to_the_visitors_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    table = JobTable()
    visiting(monkeypatch, "ann")
    table.job("whole", "whole", lambda _: table.job("part", "part", lambda _: 1).result()).result()
    assert [*table.known("part").visitors] == ["ann"]  # type: ignore[union-attr]


def test_results_are_evicted_after_the_last_tab_was_closed(monkeypatch: pytest.MonkeyPatch, existing: set[str]) -> None:
    monkeypatch.setattr(jobs, "TAB_TIMEOUT_SECONDS", 0.1)
    table = JobTable(existing.__contains__, grace=0.1)
    for one in ("ann", "bob"):
        visiting(monkeypatch, one)
        table.new_page()
    assert table.job("a", "a", lambda _: "result").result() == "result"
    existing.discard("ann")
    time.sleep(0.5)
    assert table.known("a") is not None
    existing.discard("bob")
    assert until(lambda: table.known("a") is None)


@pytest.mark.slow
def test_workers_end_with_the_server() -> None:
    code = (
        "import sys, time; from tests.app.session.test_jobs import JobTable, endless, until, processes\n"
        "job = endless(JobTable()); assert until(lambda: job.done > 0)\n"
        "print(*processes(), flush=True); time.sleep(600)"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout is not None
    working = [int(word) for word in server.stdout.readline().split()]
    assert len(working) == 1
    server.kill()
    server.wait(60)
    server.stdout.close()
    assert until(lambda: not any(_lives(one) for one in working))


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_error_of_a_worker_is_raised_unchanged() -> None:
    instance, request = (
        planning.planning_input(planning.open_source("sample:A")),
        PlanRequest(options={"order": "no order"}),
    )
    table = JobTable()
    job = table.job("a", "planning", lambda progress: table.run_task(progress, tasks.plan, instance, request))
    assert job.wait(60)
    with pytest.raises(InvalidIrShapes) as raised:
        job.result()
    with pytest.raises(InvalidIrShapes) as here:
        make_plan(instance, request)
    assert raised.value.record() == here.value.record()


def test_worker_over_its_memory_limit_is_reported_until_the_job_is_forgotten() -> None:
    table = JobTable()

    def eating() -> Job[None]:
        return table.job("a", "eating", lambda progress: table.run_task(progress, eat))

    job = eating()
    assert job.wait(60)
    with pytest.raises(TaskNotFinished, match="more memory"):
        job.result()
    assert eating() is job
    table.forget("a")
    assert eating() is not job


def test_stop_without_a_result_lasts_for_the_visitor_who_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SESSION_WORKERS.variable, "0")
    table = JobTable(lambda _: True)
    visiting(monkeypatch, "ann")
    job = endless(table)
    job.stop()
    assert job.wait(60)
    assert endless(table) is job
    visiting(monkeypatch, "bob")
    other = endless(table)
    assert other is not job
    table.leave(other)
    assert other.wait(60)


def test_cache_is_limited_by_bytes() -> None:
    cache = MemoryCache(1000)
    for key in "abc":
        cache.put(key, key.encode() * 400)
    assert [key for key in "abc" if cache.get(key)] == ["b", "c"]


def test_missing_result_is_computed_once() -> None:
    calls: list[int] = []
    cache = MemoryCache(1000)
    for _ in range(2):
        assert cache.get_or_make("none", lambda: calls.append(1)) is None  # type: ignore[func-returns-value]
    assert calls == [1]


def test_derived_values_do_not_evict_a_value_above_the_limit() -> None:
    cache = MemoryCache(1000)
    cache.put("plan", b"x" * 5000)
    cache.put("derived", b"y" * 100)
    assert cache.get("plan") is not None


# --- a stop, or a visitor who leaves, changes nothing for other visitors ---------------------------------------------


def test_stopped_search_has_a_link_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = JobTable(lambda _: True)
    monkeypatch.setattr(planning, "job_table", lambda: table)
    choice = Choice(source="sample:D", planner="exact")
    visiting(monkeypatch, "ann")
    job = planning.plan_job(choice)
    assert until(lambda: job.done > 0)
    job.stop()
    assert job.wait(30)
    limited = planning.repeatable_choice(job, choice)
    assert limited is not None
    visiting(monkeypatch, "bob")
    assert planning.plan_job(limited) is job
    (link,) = [text for name, text in to_query(limited).items() if name == "options"]
    assert f"max_nodes={limited.options['max_nodes']}" in link.replace('"', "").replace(":", "=")
    again = planning.make_plan(from_query(to_query(limited))[0])
    assert again.plan.tmmu_plan_hash == job.result().plan.tmmu_plan_hash
    assert f"--option max_nodes={limited.options['max_nodes']}" in downloads.command(again)
    assert not planning.plan_job(choice).finished
    planning.plan_job(choice).abandoned = True
