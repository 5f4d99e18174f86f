"""Measure memory while operators run: the live bytes of all storages, and the scratch memory of kernels on a GPU.

Scratch memory is memory that an operator allocates besides its results, and frees when it returns. A trace with fake
tensors does not show these bytes. They can exceed the result, as in a cuDNN convolution. So each operator runs on the
GPU, with tensors of the shapes and strides of the step, and PyTorch's allocator counts the bytes. Memory that a library
keeps after its first call, such as the workspace of cuBLAS, is not counted.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from tmmu_core.graph.model import Graph, Tensor


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
        """``held_bytes``: bytes in ``live``, also freed ones. ``peak_bytes``: maximum of the live bytes so far."""
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


_ROWS_ARGUMENT = {torch.ops.aten.embedding_dense_backward.default: 2}
"""Operator whose scratch memory depends on the values of its indices → position of the argument with the row count."""
_measured: dict[str, int] = {}  # operator, layouts of its arguments and settings of PyTorch, as text → scratch bytes


@dataclass(frozen=True)
class _Layout:
    """A tensor without its values."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, value: torch.Tensor) -> "_Layout":
        return cls(tuple(map(int, value.shape)), tuple(map(int, value.stride())), value.dtype, value.device)

    def tensor(self, rows: int) -> torch.Tensor:
        """Return a tensor that kernels accept: probabilities of 0.5, ``True``, or indices below ``rows``."""
        last_index = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        count = 0 if 0 in self.shape else last_index + 1
        if self.dtype.is_floating_point or self.dtype.is_complex or self.dtype == torch.bool:
            flat = torch.full((count,), 0.5, device=self.device).to(self.dtype)
        else:
            flat = torch.arange(count, dtype=self.dtype, device=self.device) % rows
        return flat.as_strided(self.shape, self.strides)


def scratch_bytes(operator: Any, args: Any, kwargs: Any) -> int:
    """Return the bytes of scratch memory of an operator of PyTorch for these (fake) arguments.

    Measure the operator on the GPU once for each combination of arguments in a process; this resets the allocator's
    peak statistics. Return 0 without a GPU, for views, if the operator raises an error, and for custom operators, which
    could have side effects. Warn and return 0 if the GPU has too little memory for the operator.
    """
    is_known = isinstance(operator, torch._ops.OpOverload) and operator.namespace in ("aten", "prims")
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    device = next((leaf.device for leaf in leaves if leaf.is_cuda), None)
    is_measurable = is_known and not operator.is_view and operator._schema.returns
    if device is None or not is_measurable or not torch.cuda.is_available():
        return 0
    layouts = tree_map_only(torch.Tensor, _Layout.of, (tuple(args), dict(kwargs)))
    layouts = tree_map_only(torch.Generator, lambda _: None, layouts)
    settings = (
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        *(getattr(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")),
    )
    key = repr((operator, layouts, settings))
    if key not in _measured:
        rows = args[_ROWS_ARGUMENT[operator]] if operator in _ROWS_ARGUMENT else 1
        with (
            _disable_current_modes(),
            torch.no_grad(),
            torch.autocast("cuda", enabled=False),
            torch.random.fork_rng([device]),
        ):
            _measured[key] = _measure(operator, layouts, rows, device)
    return _measured[key]


def _measure(operator: Any, layouts: Any, rows: int, device: torch.device) -> int:
    try:
        args, kwargs = tree_map_only(_Layout, lambda layout: layout.tensor(rows), layouts)
        operator(*args, **kwargs)  # a first call also loads kernels and creates handles of libraries
        torch.cuda.reset_peak_memory_stats(device)
        result = operator(*args, **kwargs)
        bytes_after = gpu_bytes(device, "current")
        del result
        return gpu_bytes(device, "peak") - bytes_after
    except torch.OutOfMemoryError:
        warnings.warn(
            f"The plan does not contain the scratch memory of {operator}, because the GPU has too little free memory "
            "to run this operator alone.",
            stacklevel=2,
        )
    except Exception:  # kernels raise many errors for values that they do not accept
        pass
    return 0


def with_scratch(graph: Graph, scratch: Mapping[str, int]) -> Graph:
    """Return ``graph`` with an output for the scratch memory of each node; ``scratch``: id of a node → bytes."""
    added = {name: (f"{name}.scratch",) for name, size in scratch.items() if size}
    tensors = [Tensor(*outputs, (scratch[name],), "uint8", "workspace") for name, outputs in added.items()]
    nodes = [msgspec.structs.replace(node, outputs=node.outputs + added.get(node.node_id, ())) for node in graph.nodes]
    return msgspec.structs.replace(graph, tensors=(*graph.tensors, *tensors), nodes=tuple(nodes))
