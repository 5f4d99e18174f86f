"""Measure the live bytes of all storages while operators run, and the bytes of PyTorch's allocator on a GPU."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def gpu_bytes(device: Any, which: str) -> int:
    """Return the bytes requested from PyTorch's allocator on a GPU: ``"current"``, or ``"peak"`` since its reset."""
    return int(torch.cuda.memory_stats(device).get(f"requested_bytes.all.{which}", 0))


class LiveBytes(TorchDispatchMode):
    """Mode that counts the storages of ``tensors`` and every storage that an operator returns, until it is freed.

    Scratch memory inside a kernel is not counted, because it is not the storage of a tensor.
    """

    supports_higher_order_operators = True

    def __init__(self, tensors: Iterable[Any] = ()) -> None:
        super().__init__()
        self.live: dict[int, tuple[Any, int]] = {}  # address of a storage → weak reference to it, and its bytes
        self.held_bytes = self.peak_bytes = 0
        """``held_bytes``: bytes of ``live``, even of freed ones. ``peak_bytes``: maximum of the live bytes so far."""
        for tensor in tensors:
            self._add(tensor)
        self._measure()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._add(leaf)
        self._measure()
        return result

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        known = self.live.get(storage._cdata)
        if known is not None and not known[0].expired():
            return
        if known is not None:
            self.held_bytes -= known[1]
        size = storage.nbytes()
        self.live[storage._cdata] = StorageWeakRef(storage), size
        self.held_bytes += size

    def _measure(self) -> None:
        """Update the peak. Freed storages, which are slow to find, are removed only if the peak could rise."""
        if self.held_bytes > self.peak_bytes:
            self.remove_freed()
            self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def remove_freed(self) -> None:
        """Remove the freed storages from ``live`` and ``held_bytes``."""
        for address, (storage, size) in list(self.live.items()):
            if storage.expired():
                del self.live[address]
                self.held_bytes -= size
