"""Layouts and storages of PyTorch's real kernels, where its fake kernels differ or are missing.

* The gradients of some losses, and results and gradients of normalizations, are contiguous (or channels last), whatever
  the layout of the input. A view that is valid only in the layout of the fake result would fail in the real step.
* On the CPU, the statistics of a normalization have the dtype of its parameters: ``float32`` in autocast.
* The size of the second result of ``ctc_loss`` depends on the target lengths. Fake tensors have no values, so lengths
  in a tensor are replaced by the largest possible length, the width of the padded targets.
* A kernel that resizes its result keeps the larger storage: the scalar of ``mse_loss`` that of all losses before the
  reduction, the image of ``col2im`` (``F.fold``) that of larger columns, the CPU's ``embedding_bag`` one index more.
* If the first argument of ``copy`` or of a scatter operator is a view, the operator copies the whole storage.
* oneDNN's LSTM returns a workspace, which its fake kernel omits.

PyTorch keeps fake kernels in one table, so the kernels in ``_KERNELS`` also apply to other traces in this process.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table, meta_table
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_impls import op_implementations_dict
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_map_only

from tmmu_core.base.errors import UnreadableInput

aten = torch.ops.aten
_RESIZED_LOSSES = tuple(
    op.default for op in (aten.mse_loss, aten.smooth_l1_loss, aten.soft_margin_loss, aten.binary_cross_entropy)
)
_PRODUCTS = tuple(op.default for op in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.convolution))
_COPIES = tuple(op.default for op in (aten.copy, aten.slice_scatter, aten.select_scatter, aten.diagonal_scatter))
_WEIGHT_INDEX = {aten.native_group_norm.default: 1, aten.native_layer_norm.default: 2}
"""Normalization → position of its weight, whose dtype the statistics have."""


def with_real_storage(func: Any, args: Sequence[Any], result: Any) -> Any:
    """Return ``result`` of the fake kernel of ``func``, with the dtypes and storage sizes of the real kernel.

    Raises ``UnreadableInput`` for a product of different dtypes, which the real kernel rejects.
    """
    dtypes = {arg.dtype for arg in args if isinstance(arg, torch.Tensor)} if func in _PRODUCTS else ()
    if len(dtypes) > 1:
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
    if func is aten.uniform.default:
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
