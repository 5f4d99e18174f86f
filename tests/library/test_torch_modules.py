# what needs PyTorch is imported behind the question whether it is there
"""``tmmu.plan(module, example_inputs=…)`` and its ``show()``. Needs the extra ``torch``."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch
from torch import nn

import tmmu_core as tmmu

pytestmark = pytest.mark.torch
INPUTS = (torch.zeros(2, 8),)
WEIGHTS = 4 * (8 * 16 + 16 + 16 * 4 + 4)
"""Bytes of both linear layers, 32-bit."""


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def weights(plan: tmmu.Plan) -> int:
    return sum(int(size) for size, role in zip(plan.size, plan.roles, strict=True) if role == "parameter")


def test_a_module_is_planned_as_it_runs() -> None:
    plan = tmmu.plan(two_layers().eval(), example_inputs=INPUTS, planner="auto")
    assert (plan.ir_name, plan.mode, plan.planner) == ("Sequential", "inference", "auto")
    assert weights(plan) == WEIGHTS
    assert plan.verify().ok


def test_a_module_that_trains_is_planned_with_its_gradients() -> None:
    plan = tmmu.plan(two_layers().train(), example_inputs=INPUTS)
    assert plan.mode == "backward"
    assert weights(plan) == WEIGHTS
    assert sum(int(size) for size, role in zip(plan.size, plan.roles, strict=True) if role == "gradient") >= WEIGHTS
    assert plan.verify().ok


def test_an_exported_program_brings_its_inputs_and_is_planned_like_its_module() -> None:
    module = two_layers().eval()
    exported = torch.export.export(copy.deepcopy(module), INPUTS)
    planned, again = tmmu.plan(module, example_inputs=INPUTS), tmmu.plan(exported)
    assert (again.extent_bytes, again.peak_live_bytes) == (planned.extent_bytes, planned.peak_live_bytes)


def test_a_module_without_inputs_is_refused_with_a_way_out() -> None:
    with pytest.raises(tmmu.TmmuError) as caught:
        tmmu.plan(two_layers())
    assert caught.value.hint


def test_show_opens_the_explorer_on_the_plan_of_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[list[str]] = []
    monkeypatch.setattr("tmmu_core.library.planned.require", lambda package, what: None)
    monkeypatch.setattr("tmmu_core.library.planned.subprocess.Popen", opened.append)
    plan = tmmu.plan(two_layers().eval(), example_inputs=INPUTS)
    plan.show()
    ((*_, command, file),) = opened
    assert command == "explore"
    assert tmmu.read(file).tmmu_plan_hash == plan.tmmu_plan_hash
