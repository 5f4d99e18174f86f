"""One fake mode for everything that is traced together: a module's parameters and buffers, and its inputs.

What lies on the ``meta`` device, on an accelerator, or belongs to another fake mode is stood in for by a fake tensor
on the CPU with the same sizes, strides and storage, so that the operators are those that the CPU runs and that tensors
which the model makes for itself lie beside the others. The module has its own tensors back afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map, tree_map_only

_mode: FakeTensorMode | None = None


def shared_mode() -> FakeTensorMode:
    """Return the fake mode of this process, so that tensors of different callers are compatible.

    It is not a subclass: PyTorch's control-flow operators (``cond``, ``scan``) accept only this class.
    """
    global _mode
    if _mode is None:
        _mode = mode = FakeTensorMode(allow_non_fake_inputs=True)
        mode.__deepcopy__ = lambda memo: mode
    return _mode


def mode_of(tensors: Iterable[Any]) -> FakeTensorMode:
    """Return the fake mode of the first fake tensor, else the shared one."""
    return next((each.fake_mode for each in tensors if hasattr(each, "fake_mode")), None) or shared_mode()


@contextlib.contextmanager
def convertible() -> Iterator[None]:
    """Inside, ``module.to(dtype)`` and its kin work on fake parameters: each is replaced, a tied one by one tensor."""
    apply, depth, made = torch.nn.Module._apply, 0, {}

    def replaced(value: Any, fn: Any) -> Any:
        if value is not None and id(value) not in made:
            with torch.no_grad():
                new = fn(value)
            if isinstance(value, torch.nn.Parameter):
                new = torch.nn.Parameter(new, value.requires_grad)
            made[id(value)] = value, new
        return None if value is None else made[id(value)][1]

    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        nonlocal depth
        depth += 1
        for child in self.children() if recurse else ():
            child._apply(fn)
        for held in (self._parameters, self._buffers):
            held.update({name: replaced(value, fn) for name, value in held.items()})
        depth -= 1
        if not depth:
            made.clear()
        return self

    torch.nn.Module._apply = _apply
    try:
        yield
    finally:
        torch.nn.Module._apply = apply


class StandIns:
    """Tensors of one fake mode in place of others, tensor for tensor and storage for storage.

    ``real`` replaces tensors with data on the CPU, too.
    """

    def __init__(self, mode: Any, *, real: bool = False) -> None:
        self.mode, self.real = mode, real
        self.tensors: dict[int, tuple[Any, Any]] = {}
        """id of a tensor → the tensor, kept alive, and its stand-in."""
        self.storages: dict[int, Any] = {}

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """Return the stand-in of ``value``, or itself if it needs none."""
        foreign = isinstance(value, FakeTensor) and value.fake_mode is not self.mode
        is_real = self.real and not isinstance(value, FakeTensor)
        if value.layout is not torch.strided or not (foreign or is_real or value.device.type != "cpu"):
            return value
        if id(value) not in self.tensors:
            self.tensors[id(value)] = value, self._made(value)
        made: torch.Tensor = self.tensors[id(value)][1]
        return made

    def _made(self, value: torch.Tensor) -> torch.Tensor:
        held = value.untyped_storage()
        with self.mode, torch.no_grad():
            if held._cdata not in self.storages:
                bytes_of = torch.empty(int(held.nbytes()), dtype=torch.uint8, device="cpu")
                self.storages[held._cdata] = bytes_of.untyped_storage()
            made = torch.empty(0, dtype=value.dtype, device="cpu")
            made.set_(self.storages[held._cdata], value.storage_offset(), value.shape, value.stride())
            if isinstance(value, torch.nn.Parameter):
                return torch.nn.Parameter(made, value.requires_grad)
        return made.requires_grad_(value.requires_grad and value.is_leaf)

    @contextlib.contextmanager
    def inside(self, module: torch.nn.Module) -> Iterator[None]:
        """Replace the tensors of ``module`` by stand-ins."""
        before = []
        for part in module.modules():
            for held in (part._parameters, part._buffers):
                for name, value in held.items():
                    if value is not None and self.of(value) is not value:
                        before.append((held, name, value))
        for held, name, value in before:
            held[name] = self.of(value)
        try:
            yield
        finally:
            for held, name, value in before:
                held[name] = value

    def among(self, arguments: Any) -> Any:
        """Return the nested ``arguments`` with stand-ins for their tensors."""
        return tree_map_only(torch.Tensor, self.of, arguments)


def opened(output: Any) -> Any:
    """Return a module's output with unknown objects (a key-value cache) replaced by lists of tensors."""
    return tree_map(lambda leaf: leaf if _is_plain(leaf) else _tensors_in(leaf, set()), output)


def _is_plain(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, (torch.Tensor, bool, int, float, complex, str))


def _tensors_in(value: Any, seen: set[int]) -> list[torch.Tensor]:
    """The tensors in an object's fields, however deep, each once, in the order of the fields."""
    if id(value) in seen or isinstance(value, (type, torch.nn.Module)):
        return []
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        inner = list(value)
    elif isinstance(value, dict):
        inner = list(value.values())
    else:
        inner = list(getattr(value, "__dict__", {}).values())
    return [found for each in inner for found in _tensors_in(each, seen)]
