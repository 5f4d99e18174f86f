"""The library in several threads, and in processes forked while one of them is at work."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

import tmmu
from tests.support.paths import SAMPLES
from tmmu_core.base import forking
from tmmu_core.base.once import cached_property
from tmmu_core.graph.native import document

CHAIN = SAMPLES / "linear_chain.tmmu.json"
SECONDS = 60


@dataclass(frozen=True)
class Slow:
    """A value whose figure takes until ``gate`` has everybody."""

    gate: threading.Barrier

    @cached_property
    def figure(self) -> object:
        """Another one each time."""
        self.gate.wait(SECONDS)
        return object()


def forked(work: object) -> int:
    """How a process ends that is forked here and does some work; one that waits for ever is ended."""
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        try:
            work()  # type: ignore[operator]
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_figure_of_one_value_does_not_wait_for_that_of_another() -> None:
    gate = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda value: value.figure, (Slow(gate), Slow(gate)))
    assert one is not other


def test_threads_that_ask_one_value_at_once_are_given_one_answer() -> None:
    value = Slow(threading.Barrier(2))
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: value.figure, range(2))
    assert one is other is value.figure
    assert isinstance(Slow.figure, cached_property)


def test_a_process_forked_while_a_thread_works_a_figure_out_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from tmmu_core.library import plan_result

    plans, inside, go = [tmmu.plan(CHAIN) for _ in range(2)], threading.Event(), threading.Event()
    totals, here = plan_result.totals, threading.get_ident()

    def slowly(plan: tmmu.Plan) -> object:
        if threading.get_ident() != here:
            inside.set()
            go.wait(SECONDS)
        return totals(plan)

    monkeypatch.setattr(plan_result, "totals", slowly)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(lambda: plans[0].totals)
        assert inside.wait(SECONDS)
        assert forked(lambda: plans[1].totals) == 0
        go.set()
        assert working.result() == plans[1].totals


def test_who_forks_waits_for_what_another_thread_is_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the new process nobody would ever let go of that module's lock."""
    gate = SimpleNamespace(inside=threading.Event(), go=threading.Event())
    monkeypatch.setitem(sys.modules, "gate_of_the_slow", gate)  # type: ignore[arg-type]
    (tmp_path / "slowly_loaded.py").write_text(
        f"from gate_of_the_slow import inside, go\ninside.set()\ngo.wait({SECONDS})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(forking, "OURS", ("slowly_loaded",))
    load, waited = forking.import_module, []

    def and_it_goes_on(name: str) -> object:
        waited.append(name)
        gate.go.set()
        return load(name)

    monkeypatch.setattr(forking, "import_module", and_it_goes_on)
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, "slowly_loaded")
        assert gate.inside.wait(SECONDS)
        assert forking.being_loaded() == ["slowly_loaded"]
        assert forked(lambda: load("slowly_loaded")) == 0
        gate.go.set()
        loading.result()
    assert waited == ["slowly_loaded"]
    assert forking.being_loaded() == []


def test_a_lock_that_is_held_while_forking_is_nobody_elses_in_the_new_process() -> None:
    heard: list[str] = []
    forking.hold_while_forking(
        SimpleNamespace(acquire=lambda: heard.append("taken"), release=lambda: heard.append("let go of"))
    )

    def hears() -> None:
        assert heard == ["taken", "let go of"]

    assert forked(hears) == 0
    hears()


def test_what_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(forking, "being_loaded", lambda: ["this_very_thread_s"])
    monkeypatch.setattr(forking, "import_module", asked.append)
    forking.wait_for_modules()
    assert len(asked) == forking.PASSES


def test_a_process_forked_while_a_thread_reads_has_its_garbage_collected() -> None:
    inside, go = threading.Event(), threading.Event()

    def read() -> None:
        with document.many_small_values():
            inside.set()
            go.wait(SECONDS)

    def collects() -> None:
        assert gc.isenabled()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert inside.wait(SECONDS)
        assert not gc.isenabled()
        assert forked(collects) == 0
        with document.many_small_values():  # who finds it resting leaves it so
            pass
        assert not gc.isenabled()
        go.set()
        reading.result()
    assert gc.isenabled()
    with document.many_small_values():
        assert forked(lambda: gc.isenabled() and os._exit(2)) == 0, "who forks is still reading"
    assert gc.isenabled()
