"""Random operators that run twice draw the same numbers: their generator's state is saved and restored."""

from __future__ import annotations

from typing import Any

import torch

CPU_STATE_BYTES = 5056
"""Bytes of the state of PyTorch's generator on the CPU (Mersenne Twister)."""
DEVICE_STATE_BYTES = 16
"""Bytes of the state of a Philox generator: a seed and an offset."""


def saved_state(device: str) -> torch.Tensor:
    """Return the generator's state as a tensor that a dispatch mode sees: part of the step's planned memory."""
    state = generator_state(device)
    return state.view(state.shape)


def generator_state(device: str) -> torch.Tensor:
    """Return the state of the default generator of ``device``."""
    where = torch.device(device)
    if where.type == "cpu":
        return torch.get_rng_state()
    state: torch.Tensor = torch.get_device_module(where).get_rng_state(where)
    return state


def set_generator_state(device: str, state: torch.Tensor) -> None:
    """Set the state of the default generator of ``device``."""
    where = torch.device(device)
    if where.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(where).set_rng_state(state, where)


def run_with_state(where: str, state: torch.Tensor, operator: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run ``operator`` with the generator of device ``where`` in ``state``, then restore the generator."""
    now = generator_state(where)
    set_generator_state(where, state)
    try:
        return operator(*args, **kwargs)
    finally:
        set_generator_state(where, now)
