"""Sweeps give the same rows in one process, on a cluster and after a failure."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.app.cli.conftest import tmmu  # noqa: F401 - the fixture
from tests.support.paths import ROOT, SAMPLES
from tmmu_core.base import limits
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.store import stored_sweeps
from tmmu_core.store.store import Store
from tmmu_core.sweep import sweep_run
from tmmu_core.sweep.sweep_run import (
    Axes,
    Point,
    PointResult,
    Source,
    cluster,
    name_of_sweep,
    points_of,
    run_here,
    run_on,
    run_point,
)

CHAIN, BLOCK = (str(SAMPLES / f"{name}.tmmu.json") for name in ("linear_chain", "residual_block"))
SECONDS = 120


def sources(*names: str) -> list[Source]:
    return [Source(name, Path(name).read_bytes()) for name in names]


def product(alignments: int, given: Sequence[Source]) -> tuple[Point, ...]:
    """Return points of slots and naive at the alignments 1, 2, 4, … and at 48 bytes, which is invalid."""
    axes = Axes(alignments=(*(2**k for k in range(alignments)), 48))
    return points_of(PlanRequest(), axes, [(None,)] * len(given), [source.name for source in given])


def rows(done: Iterator[tuple[PointResult, ...]]) -> list[list[dict[str, Any]]]:
    """Return the rows by point, without measured times."""
    found = {one.number: [_untimed(row) for row in one.rows] for batch in done for one in batch}
    assert sorted(found) == list(range(len(found)))
    return [found[number] for number in sorted(found)]


def _untimed(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "allocation_time_ns"}


# --- points ------------------------------------------------------------------------------------------------------


def test_name_of_a_sweep_depends_on_sources_and_points() -> None:
    one, two = sources(CHAIN), sources(BLOCK)
    points = product(3, one)
    assert name_of_sweep(one, points) == name_of_sweep(one, points)
    other = [name_of_sweep(two, points), name_of_sweep(one, points[:-1])]
    changed = [replace(points[0], request=points[0].request.but(seed=1)), *points[1:]]
    assert name_of_sweep(one, points) not in [*other, name_of_sweep(one, changed)]


def test_failed_point_is_a_row() -> None:
    (chain,) = sources(CHAIN)
    nothing = Source("notes.txt", b"no graph at all")
    point = Point(0, 0, PlanRequest(planner="slots", alignment=48))
    assert run_point(chain, point).rows[0]["error"]["code_id"] == "ALIGNMENT_VIOLATION"
    assert run_point(nothing, point).rows[0]["error"]["code_id"] == "UNREADABLE_INPUT"
    # An order of numbers, which no reader accepts, represents an internal error.
    broken = Point(0, 0, PlanRequest(planner="slots", order=(1, 2)))  # type: ignore[arg-type]
    assert run_point(chain, broken).rows[0]["error"]["code_id"] in ("INTERNAL", "INVALID_IR_SHAPES")


# --- on a cluster ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with cluster(workers=2) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("limits_", [{}, {limits.VALUES.name: 1}])
def test_cluster_of_two_processes_gives_the_same_rows(client: Any, limits_: dict[str, int]) -> None:
    given = sources(CHAIN, BLOCK)
    points = product(12, given)
    with limits.overridden(limits_):
        assert rows(run_on(client, given, points)) == rows(run_here(given, points))


@pytest.mark.slow
def test_killed_worker_loses_nothing(client: Any) -> None:
    given = sources(CHAIN, BLOCK)
    points = tuple(
        replace(point, number=k) for k, point in enumerate([p for _ in range(8) for p in product(12, given)])
    )
    expected = rows(run_here(given, points[:52]))
    coming = run_on(client, given, points)
    first = next(coming)
    process = next(iter(client.run(os.getpid).values()))
    os.kill(process, signal.SIGKILL)
    found = rows(iter([first, *coming]))
    assert len(found) == len(points)
    assert all(found[k] == expected[k % 52] for k in range(len(found)))
    assert process not in client.run(os.getpid).values()


class Killer:
    """A value that ends the worker process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _end, ()


def _end() -> Killer:
    if multiprocessing.parent_process() is not None:
        os._exit(9)
    return Killer()


@pytest.mark.slow
def test_point_that_kills_its_workers_is_a_row(client: Any) -> None:
    given = sources(CHAIN)
    points = list(product(1, given))
    points[3] = replace(points[3], head={**points[3].head, "kills": Killer()})
    done = {one.number: one for batch in run_on(client, given, points) for one in batch}
    codes = [(done[k].rows[0].get("error") or {}).get("code_id") for k in range(len(points))]
    assert [k for k, code in enumerate(codes) if code == "WORKER_DIED"] == [3]


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a scheduler with one worker; both are processes of their own."""
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    with (tmp_path / "log").open("wb") as log:
        how: dict[str, Any] = {"cwd": ROOT, "stdout": log, "stderr": log, "start_new_session": True}
        processes = [subprocess.Popen([*dask, "--no-dashboard"], **how)]
        try:
            address = ""
            until = time.monotonic() + SECONDS
            while not address:
                assert time.monotonic() < until, (tmp_path / "log").read_text()
                found = re.search(r"Scheduler at:\s+(tcp://\S+)", (tmp_path / "log").read_text())
                address = found[1] if found else ""
                time.sleep(0.1)
            worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--nthreads", "1"]
            processes.append(subprocess.Popen([*worker, "--no-dashboard"], **how))
            yield address
        finally:
            for process in reversed(processes):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(SECONDS)


@pytest.mark.slow
def test_external_scheduler_is_used(tmmu: Any, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    command = ("sweep", CHAIN, BLOCK, "--alignments", "48,64", "--json")
    here, existing = (json.loads(tmmu(*command, *how)[1]) for how in ((), ("--scheduler", scheduler)))
    assert [*map(_untimed, existing["rows"])] == [*map(_untimed, here["rows"])]
    monkeypatch.setattr(sweep_run, "IMPORT_CHECK", "import there_is_no_such_module")
    code, _, err = tmmu(*command, "--scheduler", scheduler)
    assert (code, "not installed on it: No module named" in err) == (2, True)


def test_failed_local_cluster_suggests_one_process(tmmu: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("distributed.LocalCluster", Mock(side_effect=OSError("no free port")))
    code, _, err = tmmu("sweep", CHAIN, "--workers", "2")
    assert (code, "no free port. Use --workers 0." in " ".join(err.split())) == (2, True)


# --- in a store --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_sweep_resumes_from_the_store(tmmu: Any, tmp_path: Path) -> None:  # noqa: F811
    url = f"sqlite:///{tmp_path / 'store.db'}"
    command = ["sweep", CHAIN, BLOCK, "--planners", "slots,naive,greedy,ffd"]
    command += ["--alignments", ",".join(str(2**k) for k in range(26)), "--workers", "0", "--store", url]
    process = subprocess.Popen([sys.executable, "-m", "app.cli.main", *command], cwd=ROOT, stdout=subprocess.DEVNULL)
    until = time.monotonic() + SECONDS
    while not (tmp_path / "store.db").exists() or not _kept(url):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.kill()
    process.wait()
    kept = _kept(url)
    code, out, err = tmmu(*command, "--json")
    found = json.loads(out)
    assert (code, len(found["rows"])) == (0, 2 * 4 * 26)
    assert f"{kept:,} already stored" in err
    (listed,) = stored_sweeps.sweeps(Store.at(url))
    assert (listed.name, listed.points, listed.done, listed.failed) == (found["sweep"], 208, 208, 0)
    different = {(row["model"], row["planner"], row["alignment"]) for row in found["rows"]}
    assert len(different) == len(found["rows"])


def test_failed_point_runs_again(tmmu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    spec = tmp_path / "spec.json"
    spec.write_text('{"mesh": {"tp": 4}, "contracts": {"activations": {"axis": 1, "mesh": "tp"}}}')
    store = f"sqlite:///{tmp_path / 's.db'}"
    command = ("sweep", BLOCK, "--shards", str(spec), "--planners", "slots", "--store", store)
    monkeypatch.setenv("TMMU_MAX_RANKS", "2")
    code, out, _ = tmmu(*command)
    assert (code, "set a limit above 2: --max-ranks N" in out) == (2, True)
    monkeypatch.delenv("TMMU_MAX_RANKS")
    assert tmmu(*command)[0] == 0


def _kept(url: str) -> int:
    try:
        store = Store.at(url)
    except Exception:  # the store is being created
        return 0
    found = sum(sweep.done for sweep in stored_sweeps.sweeps(store))
    store.close()
    return found
