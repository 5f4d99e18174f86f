"""Fake tensors for a trace: stand-ins for other tensors, patches for code that reads values, and kernels.

A fake tensor has sizes, strides and a storage, but no values. A trace has one fake mode. A stand-in is a fake tensor of
this mode, on a device of this machine. It replaces a tensor of another fake mode, on the ``meta`` device, or on an
accelerator that this machine does not have.

Patched code does not read the values of tensors:

* ``transformers`` 5 takes each row as one sequence, whatever its position ids are, and uses every mask.
* ``torch.nn.Transformer`` takes a mask as causal only if ``is_causal`` is set.
* ``torch.distributions``, ``gaussian_nll_loss``, ``istft`` and ``cov`` do not check their arguments.
* ``trunc_normal_`` draws nothing. Unpatched, it redraws the values that are out of range.

PyTorch replaces some operators by Python code for a trace: interpolation becomes thirty operators on indices. Eager
mode runs one kernel, so the trace keeps one operator here (except ``_IN_PYTHON`` and, on request, ``_FUSED``).

A fake kernel computes only sizes and strides. The results below get the layout and the storage of the real kernel:

* The gradients of some losses and normalizations, and results of batch norm, are contiguous (or channels last) for any
  layout of the input. A view that is valid only in the layout of the fake result would fail in the real step.
* On the CPU, the statistics of a normalization have the dtype of its parameters: ``float32`` in autocast.
* The size of a result of ``ctc_loss`` depends on the longest target: if unknown, it is the width of the padded targets.
* A result can be smaller than its storage. ``mse_loss`` of 100 elements returns a scalar in a storage of 100,
  ``col2im`` (``F.fold``) an image in the storage of its columns. ``embedding_bag`` on the CPU keeps one more index.
* ``copy`` and scatter operators copy the whole storage of their first argument, unless it is expanded.
* oneDNN's LSTM returns a workspace, which its fake kernel omits.

PyTorch's tables of fake kernels are global: the kernels in ``_KERNELS`` also apply to other traces in this process.
"""

import contextlib
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from types import FunctionType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._decomp.decompositions  # it registers the decompositions that ``while_traced`` removes
import torch.utils.checkpoint
from torch._decomp import decomposition_table, meta_table
from torch._functorch._aot_autograd import collect_metadata_analysis
from torch._prims_common import suggest_memory_format
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.fake_impls import op_implementations_dict
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import register_dataclass, tree_leaves, tree_map, tree_map_only

from tmmu_core.base.errors import UnreadableInput

aten = torch.ops.aten
_RESIZED_LOSSES = tuple(
    op.default for op in (aten.mse_loss, aten.smooth_l1_loss, aten.soft_margin_loss, aten.binary_cross_entropy)
)
_PRODUCTS = tuple(op.default for op in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.convolution))
_COPIES = tuple(op.default for op in (aten.copy, aten.slice_scatter, aten.select_scatter, aten.diagonal_scatter))
_WEIGHT_INDEX = {aten.native_group_norm.default: 1, aten.native_layer_norm.default: 2}  # position of the weight


class _NoCheckpoint:
    """``CheckpointFunction`` that only calls the function: a reentrant checkpoint cannot be traced."""

    @staticmethod
    def apply(function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        is_learned = any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)
        with torch.set_grad_enabled(is_learned and torch.is_grad_enabled()):
            return function(*args)


class _EqualIsFalse(TorchDispatchMode, contextlib.ContextDecorator):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return False if func is torch.ops.aten.equal.default else func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _replaced(*functions: tuple[str, str, Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, function, replacement in functions:
            if hasattr(sys.modules.get(name), function):  # else the package is not loaded, or lacks it
                stack.enter_context(mock.patch.object(sys.modules[name], function, replacement))
        yield


_tangent_of = collect_metadata_analysis.coerce_tangent_and_suggest_memory_format
_nll, _names = torch.nn.functional.gaussian_nll_loss, vars(torch.nn.functional)
_names_without_any = _names | {
    "torch": SimpleNamespace(**vars(torch) | {"any": lambda value: False}),
    "has_torch_function_variadic": lambda *values: False,
}
value_checks_disabled = partial(
    _replaced,
    ("transformers.utils.import_utils", "is_fake_tensor", lambda value: hasattr(value, "untyped_storage")),
    ("transformers.masking_utils", "find_packed_sequence_indices", lambda position_ids: None),
    ("torch.nn.modules.transformer", "_detect_is_causal_mask", lambda mask, is_causal=None, size=None: bool(is_causal)),
    ("torch", "_is_all_true", lambda value: True),
    ("torch._subclasses.fake_tensor", "log", logging.Logger("errors that are raised again", logging.CRITICAL)),
    # A copy of the function with other globals: a wrapper would keep arguments alive after the function releases them.
    (_nll.__module__, _nll.__name__, FunctionType(_nll.__code__, _names_without_any, argdefs=_nll.__defaults__)),
    *(("torch", name, _EqualIsFalse()(getattr(torch, name))) for name in ("istft", "cov", "corrcoef")),
)
"""Context manager: PyTorch, and ``transformers`` if it is loaded, check no values."""
_joint_graph_patched = partial(
    _replaced,
    ("torch.utils.checkpoint", "CheckpointFunction", _NoCheckpoint),  # no recomputation
    # Backward may run twice, so it cannot reuse the bytes of its inputs.
    ("torch._functorch._aot_autograd.graph_compile", "collect_bw_donated_buffer_idxs", lambda *given: []),
    # A result with gaps has a dense tangent in eager mode. Unpatched, the trace copies it to a tangent with these gaps.
    (collect_metadata_analysis.__name__, _tangent_of.__name__, lambda result: _tangent_of(torch.empty_like(result))),
)
_IN_PYTHON = frozenset({"cudnn_batch_norm", "native_batch_norm"})
"""Operators that keep their Python code: the schema of batch norm does not declare its write to the running mean, but
its Python code returns the new mean as a result."""
_FUSED = frozenset({"dropout"})  # its Python code calls one operator, but eager mode on the CPU calls three


@cache
def shared_mode() -> FakeTensorMode:
    """Return the fake mode of this process, so that tensors of different callers are compatible."""
    # PyTorch's control-flow operators (``cond``, ``scan``) accept no subclass of ``FakeTensorMode``.
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode.__deepcopy__ = lambda memo: mode
    return mode


def mode_of(tensors: Iterable[Any]) -> FakeTensorMode:
    """Return the fake mode of the first fake tensor, else the shared one."""
    return next((each.fake_mode for each in tensors if hasattr(each, "fake_mode")), None) or shared_mode()


class StandIns:
    """Stand-ins of tensors; ``real``: also of real ones. Tensors with one storage get stand-ins with one storage."""

    def __init__(self, mode: Any, *, real: bool = False) -> None:
        self.mode, self.real = mode, real
        self.tensors: dict[int, tuple[Any, torch.Tensor]] = {}  # id of a tensor → (the tensor, its stand-in)
        self.storages: dict[int, Any] = {}

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """Return the stand-in of ``value``, or ``value`` if it needs none."""
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        is_on_accelerator = accelerator is not None and accelerator.type == value.device.type
        device = value.device if is_on_accelerator else torch.device("cpu")
        foreign = isinstance(value, FakeTensor) and value.fake_mode is not self.mode
        is_real = self.real and not isinstance(value, FakeTensor)
        if value.layout is not torch.strided or not (foreign or is_real or device != value.device):
            return value
        if id(value) not in self.tensors:
            storage = value.untyped_storage()
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
    """Return a module's output with a list of tensors for each unknown object (a cache); register dataclasses."""
    while classes := {type(leaf) for leaf in tree_leaves(output) if hasattr(type(leaf), "__dataclass_fields__")}:
        for each in classes:
            register_dataclass(each)
    output = tree_map(lambda leaf: tuple(leaf) if isinstance(leaf, torch.Size) else leaf, output)
    known = torch.Tensor | bool | int | float | complex | str | None
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
def while_traced(*, fused_dropout: bool) -> Iterator[None]:
    """Context manager: read no values, and trace the operators of eager mode; ``fused_dropout``: one for dropout."""
    kept = _IN_PYTHON | _FUSED if fused_dropout else _IN_PYTHON
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    removed = []  # Python code that replaces an operator before autograd
    for name in sorted(set(torch.ops.aten) - kept):
        packet = getattr(torch.ops.aten, name)
        for operator in (getattr(packet, overload) for overload in packet.overloads()):
            if keys[0] in operator.py_kernels:
                removed += [(operator, key, operator.py_kernels.pop(key)) for key in keys if key in operator.py_kernels]
                operator._dispatch_cache.clear()
    try:
        with value_checks_disabled(), _joint_graph_patched():
            yield
    finally:
        for operator, key, kernel in removed:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()


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
    """Context manager to build a model of fake tensors and convert it (``module.to``). Tied parameters stay tied."""
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


def with_real_storage(func: Any, args: Sequence[Any], result: Any) -> Any:
    """Return ``result`` of a fake kernel with the dtypes and storages of the real one. Raises ``UnreadableInput``."""
    dtypes = {arg.dtype for arg in args if isinstance(arg, torch.Tensor)} if func in _PRODUCTS else ()
    if len(dtypes) > 1:  # the real kernel of a product rejects them
        what = f"{func} has operands of different dtypes: {', '.join(sorted(map(str, dtypes)))}."
        raise UnreadableInput(what, hint="Give inputs of the dtype of the parameters, such as x.float().")
    weight = args[_WEIGHT_INDEX[func]] if func in _WEIGHT_INDEX else None
    if weight is not None and args[0].device.type == "cpu":
        return result[0], *(statistic.to(weight.dtype) for statistic in result[1:])
    if func in _RESIZED_LOSSES and not result.dim() and args[0].dim():
        return (args[0] - args[1]).as_strided((), ())  # a scalar in the storage of all losses
    if func is aten.col2im.default and args[0].numel() > result.numel():
        return args[0].new_empty(args[0].numel()).narrow(0, 0, result.numel()).view(result.shape)
    if func is aten._embedding_bag.default and args[0].device.type == "cpu":
        bags = result[1].new_empty(len(result[1]) + 1)[:-1] if len(result[1]) else result[1]
        return result[0], bags, args[2].new_empty(len(args[2]))[: len(result[2])], result[3]
    if func in _COPIES and all(stride or dim == 1 for stride, dim in zip(args[0].stride(), args[0].shape, strict=True)):
        whole = args[0].new_empty(args[0].untyped_storage().nbytes() // args[0].element_size())
        return whole.as_strided(result.shape, result.stride(), result.storage_offset())
    if func is aten.uniform.default:  # the fake kernel keeps the gaps of its argument
        return torch.empty_like(args[0])
    if func is aten.mkldnn_rnn_layer.default:  # the kernel runs once on zeros, to get the size of its workspace
        with unset_fake_temporarily(), torch.enable_grad():
            zeros = tree_map_only(torch.Tensor, lambda fake: torch.zeros(fake.shape, dtype=fake.dtype), args)
            workspace_bytes = func(*zeros)[3].nbytes
        return *result[:3], torch.empty(workspace_bytes, dtype=torch.uint8)
    return result


def _gradient_of_loss(mode: Any, func: Any, gradient: Any, value: torch.Tensor, *rest: Any, **kwargs: Any) -> Any:
    return value.new_empty(value.shape)


def _batch_norm(mode: Any, func: Any, value: torch.Tensor, *rest: Any, **kwargs: Any) -> Any:
    with mode:
        _, *statistics = decomposition_table[func](value, *rest, **kwargs)
        parameter = next((arg for arg in rest if isinstance(arg, torch.Tensor)), value)
        if value.device.type == "cpu":
            statistics[:2] = [statistic.to(parameter.dtype) for statistic in statistics[:2]]
    return torch.empty_like(value, memory_format=suggest_memory_format(value)), *statistics


def _gradient_of_norm(mode: Any, func: Any, gradient: Any, value: torch.Tensor, *rest: Any, **kwargs: Any) -> Any:
    with mode:
        first, *others = decomposition_table[func](gradient, value, *rest, **kwargs)
    layout = suggest_memory_format(value) if value.dim() > 3 else torch.contiguous_format
    is_computed = [*rest, *kwargs.values()][-1][0]  # ``output_mask``, which the batch norm's decomposition ignores
    return torch.empty_like(first, memory_format=layout) if is_computed else None, *others


def _ctc_loss(mode: Any, func: Any, scores: torch.Tensor, targets: Any, _: Any, lengths: Any, *rest: Any) -> Any:
    if not isinstance(lengths, torch.Tensor):
        longest = max(lengths, default=0)
    elif targets.dim() == 2:
        longest = targets.shape[1]
    else:
        return NotImplemented
    steps, batch = scores.shape[:2]
    return scores.new_empty(batch), scores.new_empty(batch, steps, 2 * longest + 1)


_KERNELS = {  # fake kernel → the operators that use it
    _gradient_of_loss: (aten.mse_loss_backward, aten.smooth_l1_loss_backward, aten.huber_loss_backward),
    _batch_norm: (aten.native_batch_norm, aten._native_batch_norm_legit, aten._native_batch_norm_legit_functional),
    _gradient_of_norm: (aten.native_layer_norm_backward, aten.native_batch_norm_backward),
    _ctc_loss: (aten._ctc_loss,),
}
for _kernel, _packets in _KERNELS.items():
    for _packet in _packets:
        for _name in {"default", "Tensor", "no_stats"} & set(_packet.overloads()):
            meta_table[getattr(_packet, _name)] = op_implementations_dict[getattr(_packet, _name)] = _kernel
