"""Measure the live bytes of all storages while operators run."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the storages of ``held`` and every storage that an operator returns, until the storage is freed.

    Scratch memory inside of a kernel is not a storage of any tensor and is not counted.
    """

    supports_higher_order_operators = True

    def __init__(self, held: Iterable[Any] = ()) -> None:
        super().__init__()
        self.live: dict[int, tuple[Any, int]] = {}
        self.held_bytes = self.peak_bytes = 0
        for tensor in held:
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
        """Update the peak; freed storages are removed only if the bytes could exceed the peak."""
        if self.held_bytes > self.peak_bytes:
            self._remove_freed()
            self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def _remove_freed(self) -> None:
        for key, (storage, size) in list(self.live.items()):
            if storage.expired():
                del self.live[key]
                self.held_bytes -= size
