"""Fake tensors, which have no values: one mode for all tensors of a trace, and patches for code that reads values.

Tensors on the ``meta`` device, on an accelerator that this machine does not have, or of another fake mode are replaced
by fake tensors with the same sizes and strides, on a device of this machine, and restored after the trace.

Patches skip reads of values. Version 5 of ``transformers`` reads position ids and padding masks: with the patch, a row
is one sequence, and a mask is used. ``torch.nn.Transformer`` compares a mask with the causal one: with the patch, only
``is_causal`` decides. ``torch.distributions``, ``gaussian_nll_loss``, ``istft`` and ``cov`` check values. PyTorch
redraws values outside of a truncated normal distribution: the patch draws nothing.

PyTorch decomposes some operators in Python for tracing: interpolation becomes thirty operators on indices, while eager
mode runs one kernel. While a model is traced, such an operator stays one kernel.
"""

import contextlib
import logging
import sys
import weakref
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Any
from unittest import mock

import torch
import torch._decomp.decompositions  # it registers the decompositions that ``_without_decompositions`` removes
import torch.utils.checkpoint
from torch._functorch._aot_autograd import collect_metadata_analysis
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import register_dataclass, tree_flatten, tree_leaves, tree_map

from tmmu_core.formats.pytorch.joint_graph import fx_kernels as fx_kernels  # it registers fake kernels


class _NoCheckpoint:
    """``CheckpointFunction`` that only calls the function: a reentrant checkpoint cannot be traced."""

    @staticmethod
    def apply(function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        is_learned = any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)
        with torch.set_grad_enabled(is_learned and torch.is_grad_enabled()):
            return function(*args)


class _EqualIsFalse(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return False if func is torch.ops.aten.equal.default else func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _replaced(*functions: tuple[str, str, Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, function, replacement in functions:
            if hasattr(sys.modules.get(name), function):  # some versions of a package do not have the function
                stack.enter_context(mock.patch.object(sys.modules[name], function, replacement))
        yield


def _run_in(context: Any, function: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return run


_tangent_of = collect_metadata_analysis.coerce_tangent_and_suggest_memory_format
_any_is_false = partial(_replaced, ("torch", "any", lambda value: False))
value_checks_disabled = partial(
    _replaced,
    ("transformers.utils.import_utils", "is_fake_tensor", lambda value: hasattr(value, "untyped_storage")),
    ("transformers.masking_utils", "find_packed_sequence_indices", lambda position_ids: None),
    ("torch.nn.modules.transformer", "_detect_is_causal_mask", lambda mask, is_causal=None, size=None: bool(is_causal)),
    ("torch", "_is_all_true", lambda value: True),
    ("torch._subclasses.fake_tensor", "log", logging.Logger("errors that are raised again", logging.CRITICAL)),
    ("torch.nn.functional", "gaussian_nll_loss", _run_in(_any_is_false, torch.nn.functional.gaussian_nll_loss)),
    *(("torch", name, _run_in(_EqualIsFalse, getattr(torch, name))) for name in ("istft", "cov", "corrcoef")),
)
"""Context manager: PyTorch, and ``transformers`` if it is loaded, check no values."""
_joint_graph_patched = partial(
    _replaced,
    ("torch.utils.checkpoint", "CheckpointFunction", _NoCheckpoint),  # no recomputation
    # Backward may run twice, so it cannot reuse the bytes of its inputs.
    ("torch._functorch._aot_autograd.graph_compile", "collect_bw_donated_buffer_idxs", lambda *given: []),
    # Eager mode makes dense tangents. For a result with gaps, AOTAutograd expects the gaps and copies a dense gradient.
    (collect_metadata_analysis.__name__, _tangent_of.__name__, lambda result: _tangent_of(torch.empty_like(result))),
)
_IN_PYTHON = frozenset({"cudnn_batch_norm", "native_batch_norm"})
"""Operators that keep their Python decomposition. The schema of batch norm does not declare the write to the running
mean; its decomposition returns the new mean as a result."""
_IN_TRAINING = frozenset({"dropout"})
"""Operators that keep their decomposition in training. It makes dropout one kernel; eager CPU mode runs three."""
_OF_EVERY_MODULE = {*torch.nn.Module().__dict__, "_compiled_call_impl"}  # attributes of ``nn.Module``
_PLAIN = (bool, int, float, complex, str, type(None))


@cache
def shared_mode() -> FakeTensorMode:
    """Return the fake mode of this process, so that tensors of different callers are compatible.

    PyTorch's control-flow operators (``cond``, ``scan``) accept no subclass of ``FakeTensorMode``.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode.__deepcopy__ = lambda memo: mode
    return mode


def mode_of(tensors: Iterable[Any]) -> FakeTensorMode:
    """Return the fake mode of the first fake tensor, else the shared one."""
    return next((each.fake_mode for each in tensors if hasattr(each, "fake_mode")), None) or shared_mode()


def _usable(device: torch.device) -> torch.device:
    """Return ``device`` if it is an accelerator of this machine, else the CPU."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return device if accelerator is not None and accelerator.type == device.type else torch.device("cpu")


class StandIns:
    """Replaces tensors by fake tensors; with ``real``, also tensors with data. Shared storages stay shared."""

    def __init__(self, mode: Any, *, real: bool = False) -> None:
        self.mode, self.real = mode, real
        self.tensors: dict[int, tuple[Any, torch.Tensor]] = {}  # id of a tensor → (the tensor, its stand-in)
        self.storages: dict[int, Any] = {}

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """Return the stand-in of ``value``, or ``value`` if it needs none."""
        foreign = isinstance(value, FakeTensor) and value.fake_mode is not self.mode
        is_real = self.real and not isinstance(value, FakeTensor)
        if value.layout is not torch.strided or not (foreign or is_real or _usable(value.device) != value.device):
            return value
        if id(value) not in self.tensors:
            storage, device = value.untyped_storage(), _usable(value.device)
            with self.mode, torch.no_grad():
                if storage._cdata not in self.storages:
                    whole = torch.empty(int(storage.nbytes()), dtype=torch.uint8, device=device)
                    self.storages[storage._cdata] = whole.untyped_storage()
                fake = torch.empty(0, dtype=value.dtype, device=device)
                fake.set_(self.storages[storage._cdata], value.storage_offset(), value.shape, value.stride())
                if isinstance(value, torch.nn.Parameter):
                    fake = torch.nn.Parameter(fake, value.requires_grad)
                else:
                    fake.requires_grad_(value.requires_grad and value.is_leaf)
            self.tensors[id(value)] = value, fake
        return self.tensors[id(value)][1]

    @contextlib.contextmanager
    def in_module(self, module: torch.nn.Module) -> Iterator[None]:
        """Replace the tensors of ``module`` by stand-ins."""
        with contextlib.ExitStack() as stack:
            for part in module.modules():
                for by_name in (part._parameters, part._buffers):
                    replaced = {name: self.of(value) for name, value in by_name.items() if value is not None}
                    stack.enter_context(mock.patch.dict(by_name, replaced))
            yield


def objects_as_containers(output: Any) -> Any:
    """Return a module's output with unknown objects (a key-value cache) replaced by lists of their tensors.

    Dataclasses in the output are registered as containers of PyTorch.
    """
    while classes := {type(leaf) for leaf in tree_leaves(output) if hasattr(type(leaf), "__dataclass_fields__")}:
        for each in classes:
            register_dataclass(each)
    known = (torch.Tensor, *_PLAIN)
    output = tree_map(lambda leaf: tuple(leaf) if isinstance(leaf, torch.Size) else leaf, output)
    return tree_map(lambda leaf: leaf if isinstance(leaf, known) else tensors_in(leaf, set()), output)


def tensors_in(value: Any, seen: set[int]) -> list[torch.Tensor]:
    """Return the tensors in an object's fields, nested ones included, each once, in the order of the fields."""
    if id(value) in seen or isinstance(value, (type, torch.nn.Module)):
        return []
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return [value]
    fields = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    inner = list(value) if isinstance(value, (list, tuple)) else list(fields.values())
    return [found for each in inner for found in tensors_in(each, seen)]


@contextlib.contextmanager
def state_restored(module: torch.nn.Module) -> Iterator[dict[str, tuple[Any, Any]]]:
    """Context manager: on exit, the module and its parts have the attributes that they had on entry.

    Lists and dicts in attributes get their items back. The yielded dict is filled on exit: path of a changed plain
    attribute → (value on entry, value on exit); ``None`` for an attribute that did not exist.
    """
    before = [
        (path, part, _attributes(part), [(d, dict(d)) for d in (part._parameters, part._buffers, part._modules)])
        for path, part in module.named_modules()
    ]
    changed: dict[str, tuple[Any, Any]] = {}
    try:
        yield changed
    finally:
        for path, part, attributes, registered in before:
            for by_name, values in registered:
                by_name.clear()
                by_name.update(values)
            now = _attributes(part)
            for name in {**attributes, **now}:
                old, new = attributes.get(name, (None, None)), now.get(name, (None, None))
                if _is_same(old[1], new[1]) and (name in attributes) == (name in now):
                    continue
                changed[f"{path}.{name}".removeprefix(".")] = old[1], new[1]
                part.__dict__[name] = _restored(*old)
                if name not in attributes:
                    del part.__dict__[name]


@contextlib.contextmanager
def state_set(module: torch.nn.Module, changed: dict[str, tuple[Any, Any]]) -> Iterator[None]:
    """Context manager: set each attribute to the second value of its pair in ``changed``; restore on exit."""
    with state_restored(module):
        for path, (_, new) in changed.items():
            parent, _, name = path.rpartition(".")
            module.get_submodule(parent).__dict__[name] = tree_map(lambda leaf: leaf, new)
        yield


@contextlib.contextmanager
def attributes_read(module: torch.nn.Module) -> Iterator[dict[str, set[str]]]:
    """Context manager: yield path of a part → names of its plain attributes (numbers, texts) that are read."""
    paths = {id(part): path for path, part in module.named_modules()}
    read: dict[str, set[str]] = {}

    def getattribute(self: torch.nn.Module, name: str) -> Any:
        value = object.__getattribute__(self, name)
        is_own = name in object.__getattribute__(self, "__dict__") and name not in _OF_EVERY_MODULE
        if is_own and type(value) in _PLAIN and id(self) in paths:
            read.setdefault(paths[id(self)], set()).add(name)
        return value

    with mock.patch.object(torch.nn.Module, "__getattribute__", getattribute):
        yield read


def has_tensors(value: Any) -> bool:
    """Return whether an attribute contains tensors or weak references (``nn.GRU`` has them to its weights)."""
    return any(isinstance(leaf, (torch.Tensor, weakref.ref)) for leaf in tree_leaves(value))


def _attributes(part: torch.nn.Module) -> dict[str, tuple[Any, Any]]:
    """Return name → (value, copy of its lists and dicts) of the attributes that ``nn.Module`` does not define."""
    own = {name: value for name, value in part.__dict__.items() if name not in _OF_EVERY_MODULE}
    return {name: (value, tree_map(lambda leaf: leaf, value)) for name, value in own.items()}


def _is_same(old: Any, new: Any) -> bool:
    """Return whether two values have the same structure, and identical leaves or equal numbers or texts."""
    (leaves, kind), (others, other_kind) = tree_flatten(old), tree_flatten(new)
    return kind == other_kind and all(
        one is other or (type(one) is type(other) and isinstance(one, (int, float, str)) and one == other)
        for one, other in zip(leaves, others, strict=True)
    )


def _restored(value: Any, items: Any) -> Any:
    """Put ``items`` back into the list or dict ``value`` and return it; return ``items`` for another value."""
    if isinstance(value, list):
        value[:] = items
    elif isinstance(value, dict) and items is not value:  # no copy is made of a dict of the user's own class
        value.clear()
        value.update(items)
    else:
        return items
    return value


class DataIsCopied(TorchFunctionMode):
    """In this mode ``tensor.data = value`` writes to the tensor, because functional tensors ignore the assignment."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == torch.Tensor.data.__set__ and args[0].shape == args[1].shape:
            return args[0].data.copy_(args[1])
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def uncompiled(module: torch.nn.Module) -> Iterator[None]:
    """Context manager: the parts of the module that ``torch.compile`` compiled run without compilation."""
    with contextlib.ExitStack() as stack:
        for part in module.modules():
            changed: dict[str, Any] = {"_compiled_call_impl": None} if part._compiled_call_impl else {}
            if "_orig_mod" in part._modules:
                changed["forward"] = part._modules["_orig_mod"].__call__
            if changed:
                stack.enter_context(mock.patch.dict(part.__dict__, changed))
        yield


@contextlib.contextmanager
def while_traced(train: bool = True) -> Iterator[None]:
    """Context manager: skip reads of values, and trace the operators of eager mode (``train``: one for dropout)."""
    decomposed = _IN_PYTHON | _IN_TRAINING if train else _IN_PYTHON
    with value_checks_disabled(), _joint_graph_patched(), _without_decompositions(decomposed):
        yield


@contextlib.contextmanager
def cudnn_disabled(module: torch.nn.Module) -> Iterator[None]:
    """Context manager: trace recurrent layers as PyTorch's own kernels, because cuDNN reads the weights' addresses."""
    enabled = torch._C._get_cudnn_enabled()
    torch._C._set_cudnn_enabled(enabled and not any(isinstance(part, torch.nn.RNNBase) for part in module.modules()))
    try:
        yield
    finally:
        torch._C._set_cudnn_enabled(enabled)


@contextlib.contextmanager
def while_built() -> Iterator[None]:
    """Context manager: a model of fake tensors can be built.

    Weights of a truncated normal distribution are not drawn. ``module.to(dtype)`` and similar methods work on
    fake parameters: each parameter is replaced by a new one; tied parameters stay tied.
    """
    conversions: dict[tuple[int, int], tuple[Any, ...]] = {}  # ids of function and tensor → both, and the result

    def converted(fn: Any, value: Any) -> Any:
        if (id(fn), id(value)) not in conversions:
            with torch.no_grad():
                new = fn(value)
            if isinstance(value, torch.nn.Parameter):
                new = torch.nn.Parameter(new, value.requires_grad)
            conversions[id(fn), id(value)] = fn, value, new
        return conversions[id(fn), id(value)][2]

    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        for child in self.children() if recurse else ():
            child._apply(fn)
        for tensors in (self._parameters, self._buffers):
            tensors.update({name: converted(fn, value) for name, value in tensors.items() if value is not None})
        return self

    initialised = mock.patch.object(torch.nn.init, "_no_grad_trunc_normal_", lambda tensor, *given, **named: tensor)
    with initialised, mock.patch.object(torch.nn.Module, "_apply", _apply):
        yield


@contextlib.contextmanager
def _without_decompositions(kept: frozenset[str]) -> Iterator[None]:
    """Context manager: remove the decompositions before autograd, except those of the operators in ``kept``."""
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    removed = []
    for name in sorted(set(torch.ops.aten) - kept):
        packet = getattr(torch.ops.aten, name)
        for operator in (getattr(packet, overload) for overload in packet.overloads()):
            if keys[0] in operator.py_kernels:
                removed += [(operator, key, operator.py_kernels.pop(key)) for key in keys if key in operator.py_kernels]
                operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, key, kernel in removed:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()
