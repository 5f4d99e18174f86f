"""``tmmu.plan(module, example_inputs=…)`` and its ``show()``. Needs the extra ``torch``."""

import copy

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch
from torch import nn

import tmmu

pytestmark = pytest.mark.torch
INPUTS = (torch.zeros(2, 8),)
WEIGHTS = 4 * (8 * 16 + 16 + 16 * 4 + 4)
"""Bytes of both linear layers, 32-bit."""


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def weights(plan: tmmu.Plan) -> int:
    return sum(int(size) for size, role in zip(plan.size, plan.roles, strict=True) if role == "parameter")


def test_module_in_eval_mode_is_planned_for_inference() -> None:
    plan = tmmu.plan(two_layers().eval(), INPUTS, planner="auto")
    assert (plan.ir_name, plan.mode, plan.planner) == ("Sequential", "inference", "auto")
    assert weights(plan) == WEIGHTS
    assert plan.verify().ok


def test_module_in_training_mode_is_planned_with_gradients() -> None:
    plan = tmmu.plan(two_layers().train(), example_inputs=INPUTS)
    assert plan.mode == "backward"
    assert weights(plan) == WEIGHTS
    assert sum(int(size) for size, role in zip(plan.size, plan.roles, strict=True) if role == "gradient") >= WEIGHTS
    assert plan.verify().ok


def test_exported_program_is_planned_like_its_module_without_inputs() -> None:
    module = two_layers().eval()
    exported = torch.export.export(copy.deepcopy(module), INPUTS)
    planned, again = tmmu.plan(module, example_inputs=INPUTS), tmmu.plan(exported)
    assert (again.extent_bytes, again.peak_live_bytes) == (planned.extent_bytes, planned.peak_live_bytes)


def test_one_tensor_is_the_only_argument_of_the_module() -> None:
    module = two_layers().eval()
    assert tmmu.plan(module, *INPUTS).layout_hash == tmmu.plan(module, INPUTS).layout_hash
    assert tmmu.fit(module, "1GiB", example_inputs=INPUTS[0]).answer == "fits"


def test_module_without_inputs_is_rejected_with_a_hint() -> None:
    with pytest.raises(tmmu.TmmuError) as caught:
        tmmu.plan(two_layers())
    assert caught.value.hint


def test_tensor_instead_of_a_module_is_rejected() -> None:
    with pytest.raises(tmmu.TmmuError, match="a value of type Tensor is not a PyTorch model"):
        tmmu.plan(*INPUTS)
    with pytest.raises(tmmu.TmmuError, match="a value of type Tensor is not a PyTorch model"):
        tmmu.fit(INPUTS[0], "1GiB", two_layers())
