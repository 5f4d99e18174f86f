"""Operators that a fit adds to a step: copies to host memory and back, and recomputation of random operators.

A recomputed random operator runs with the saved state of its generator, so it draws the same numbers.
"""

from typing import Any, TypeAlias

import torch
from torch.utils._python_dispatch import _disable_current_modes

Generator: TypeAlias = torch.Generator | str  # a generator, or a device whose default generator is meant


def state_bytes(device: str) -> int:
    """Return the bytes of a generator's state: Mersenne Twister on the CPU, else Philox (a seed and an offset)."""
    return 5056 if device == "cpu" else 16


def saved_state(generator: Generator) -> torch.Tensor:
    """Return a copy of the generator's state."""
    state = generator_of(generator).get_state()
    return state.view(state.shape)  # dispatch modes count the bytes of this view, as the plan does


def generator_of(generator: Generator) -> torch.Generator:
    """Return ``generator``, or the default generator of the device that it names."""
    if isinstance(generator, torch.Generator):
        return generator
    device = torch.device(generator)
    if device.type == "cpu":
        return torch.default_generator
    return torch.get_device_module(device).default_generators[device.index]


def run_with_state(generator: Generator, state: torch.Tensor, operator: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run ``operator`` with ``generator`` in ``state``, then restore the generator, and return the result."""
    generator = generator_of(generator)
    state_before = generator.get_state()
    generator.set_state(state)
    try:
        return operator(*args, **kwargs)
    finally:
        generator.set_state(state_before)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of ``tensor`` in host memory.

    The copy is hidden from dispatch modes, because it is not in the planned memory. On the CPU, a mode that counts live
    bytes could not distinguish the two memories.
    """
    pinned = tensor.device.type == "cuda"
    with _disable_current_modes():
        host = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, pin_memory=pinned)
        host.copy_(tensor, non_blocking=pinned)
    return host


def from_host(host: torch.Tensor, device: str) -> torch.Tensor:
    """Return a copy of ``host`` on ``device``."""
    tensor = torch.empty_strided(host.size(), host.stride(), dtype=host.dtype, device=device)
    return tensor.copy_(host, non_blocking=tensor.device.type == "cuda")
