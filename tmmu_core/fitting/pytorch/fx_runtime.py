"""Operators of a fitted graph: saved and restored states of random generators, and copies to host memory and back.

Random operators that run twice draw the same numbers.
"""

from typing import Any, TypeAlias

import torch
from torch.utils._python_dispatch import _disable_current_modes

CPU_STATE_BYTES = 5056
"""Bytes of the state of PyTorch's generator on the CPU (Mersenne Twister)."""
DEVICE_STATE_BYTES = 16
"""Bytes of the state of a Philox generator: a seed and an offset."""


Generator: TypeAlias = torch.Generator | str
"""A generator, or a device, which means its default generator."""


def saved_state(generator: Generator) -> torch.Tensor:
    """Return the generator's state as a tensor that dispatch modes record, as part of the step's planned memory."""
    state = generator_state(generator)
    return state.view(state.shape)


def generator_state(generator: Generator) -> torch.Tensor:
    """Return the state of a generator."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    where = torch.device(generator)
    if where.type == "cpu":
        return torch.get_rng_state()
    state: torch.Tensor = torch.get_device_module(where).get_rng_state(where)
    return state


def set_generator_state(generator: Generator, state: torch.Tensor) -> None:
    """Set the state of a generator."""
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
        return
    where = torch.device(generator)
    if where.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(where).set_rng_state(state, where)


def run_with_state(where: Generator, state: torch.Tensor, operator: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run ``operator`` with the generator ``where`` in ``state``, then restore the generator."""
    now = generator_state(where)
    set_generator_state(where, state)
    try:
        return operator(*args, **kwargs)
    finally:
        set_generator_state(where, now)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of ``tensor`` in host memory.

    The copy is made outside of dispatch modes, because it is not in the planned memory. On the CPU, a count of live
    bytes could not distinguish the two memories.
    """
    pinned = tensor.device.type == "cuda"
    with _disable_current_modes():
        host = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, pin_memory=pinned)
        host.copy_(tensor, non_blocking=pinned)
    return host


def from_host(host: torch.Tensor, device: str) -> torch.Tensor:
    """Return a copy of ``host`` on ``device``."""
    made = torch.empty_strided(host.size(), host.stride(), dtype=host.dtype, device=device)
    made.copy_(host, non_blocking=made.device.type == "cuda")
    return made
