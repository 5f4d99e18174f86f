"""Plans in Python show the sizes that a reader assumed, and its remarks on snapshots and exported programs."""

import pickle
from pathlib import Path
from typing import Any

import pytest

import tmmu_core as tmmu
from tests.support.paths import DATA
from tmmu_core.formats.pytorch import torch_module

DATA = DATA / "torch"
ASSUMED = "assumed sizes of dynamic dimensions: x.0 = 4; for other sizes: --dims x.0=4"
AS_SAVED = "PyTorch is not installed: its forward pass is planned as saved."


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "installed", lambda _: False)


def snapshot() -> bytes:
    """Return the memory history of one block that is allocated and freed."""
    events = [
        {"action": action, "addr": 4096, "size": 512, "stream": 0, "time_us": k, "frames": []}
        for k, action in enumerate(("segment_alloc", "alloc", "free_requested", "free_completed"))
    ]
    return pickle.dumps({"segments": [], "device_traces": [events]})


def shown(plan: Any) -> tuple[str, str]:
    return repr(plan), plan._repr_html_()


def test_assumed_sizes_of_an_exported_program_are_shown(no_torch: None) -> None:
    plan = tmmu.plan(str(DATA / "formulas.pt2"))
    assert plan.notes["assumed"] == ASSUMED
    assert all("x.0 = 4" in text for text in shown(plan))


def test_sizes_that_are_given_are_not_shown_as_assumed(no_torch: None) -> None:
    plan = tmmu.plan(str(DATA / "formulas.pt2"), dims={"x.0": 8})
    assert "assumed" not in plan.notes
    assert all("x.0" not in text for text in shown(plan))


def test_size_that_depends_on_data_is_shown(no_torch: None) -> None:
    plan = tmmu.plan(str(DATA / "by_data.pt2"))
    assert "u0 = 16" in plan.notes["assumed"]
    assert all("u0 = 16" in text for text in shown(plan))


def test_program_that_is_read_as_saved_is_shown(no_torch: None) -> None:
    plan = tmmu.plan(str(DATA / "two_layers.pt2"))
    assert plan.notes == {"read": AS_SAVED}
    assert all(AS_SAVED in text for text in shown(plan))


def test_remarks_on_a_snapshot_are_shown() -> None:
    plan = tmmu.plan(snapshot())
    assert plan.notes["read"]
    assert all(plan.notes["read"][:40] in text for text in shown(plan))


def test_remarks_stay_in_a_saved_plan(no_torch: None, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    tmmu.plan(str(DATA / "formulas.pt2")).save(path)
    assert tmmu.read(str(path)).notes == {"assumed": ASSUMED, "read": AS_SAVED}
