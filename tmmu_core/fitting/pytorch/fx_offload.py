"""Offloaded tensors: copies in host memory, pinned where the tensor is on a GPU."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _disable_current_modes


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of ``tensor`` in host memory.

    The copy is made outside of dispatch modes: the memory that a step is planned for does not hold it, which on the CPU
    a count of live bytes could not distinguish.
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
