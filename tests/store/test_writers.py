"""Concurrent writers lose nothing, though one of them is killed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.store.writers import PROCESSES
from tests.support.paths import ROOT
from tmmu_core.store.open_store import PLANS
from tmmu_core.store.store import Store

RUNS = 16


@pytest.mark.slow
def test_killed_writer_loses_no_run_of_the_others(url: str, tmp_path: Path) -> None:
    writers = [sys.executable, "-m", "tests.store.writers", url, str(tmp_path), str(RUNS)]
    done = subprocess.run(writers, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.stdout.split() == [str(-signal.SIGKILL), *["0"] * (PROCESSES - 1)], done.stderr
    taken = {line for me in range(PROCESSES) for line in (tmp_path / f"acks.{me}").read_text().split()}
    store = Store.at(url)
    existing = {run.commit for run in store.runs("net")}
    assert taken <= existing
    assert {f"w{me}n{k:03}" for me in range(1, PROCESSES) for k in range(RUNS)} <= existing
    assert len(existing) - len(taken) <= 1  # killed after the commit and before its output
    with store.engine.connect() as connection:
        plans = connection.execute(select(func.count()).select_from(PLANS)).scalar_one()
    assert plans == 1 + PROCESSES
    for run in store.runs("net"):
        store.document(run.content)
    store.close()
