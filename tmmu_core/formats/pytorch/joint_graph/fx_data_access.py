"""Patches for code that reads values of fake tensors, which have none, while a model is built or traced.

Version 5 of ``transformers`` checks whether position ids hold several packed sequences, and whether a padding mask
masks anything; both read values. Its own check for traced tensors does not recognise those of AOTAutograd. The patch
makes it return true: a row is one sequence, and a given mask is used. ``torch.nn.Transformer`` compares a mask with the
causal one; the patch uses the mask unless ``is_causal`` is given.

PyTorch redraws values outside of a truncated normal distribution. A fake model has no values, so the patch skips it.

PyTorch decomposes some operators in Python for tracing: interpolation becomes thirty operators on indices, while eager
mode runs one kernel. While a model is traced, such an operator stays the kernel.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

_WHILE_TRACED: tuple[tuple[str, str, Any], ...] = (
    ("transformers.utils.import_utils", "is_fake_tensor", lambda value: hasattr(value, "untyped_storage")),
    ("transformers.masking_utils", "find_packed_sequence_indices", lambda position_ids: None),
    ("torch.nn.modules.transformer", "_detect_is_causal_mask", lambda mask, is_causal=None, size=None: bool(is_causal)),
)
"""(module, function, replacement while a model is traced)."""
_WHILE_BUILT: tuple[tuple[str, str, Any], ...] = (
    ("torch.nn.init", "_no_grad_trunc_normal_", lambda tensor, *given, **named: tensor),
)
"""The same, while a model of fake tensors is built."""


@contextlib.contextmanager
def while_traced(train: bool = True) -> Iterator[None]:
    """Inside, ``transformers`` reads no values (where it is loaded), and operators are those that eager mode runs."""
    with answering_while_traced(), _kernels(_IN_PYTHON | (_IN_TRAINING if train else frozenset())):
        yield


def answering_while_traced() -> contextlib.AbstractContextManager[None]:
    """Inside, ``transformers`` reads no values."""
    return _answering(_WHILE_TRACED)


def while_built() -> contextlib.AbstractContextManager[None]:
    """Inside, weights that are drawn until they fit are not drawn."""
    return _answering(_WHILE_BUILT)


_IN_PYTHON = frozenset({"cudnn_batch_norm", "native_batch_norm"})
"""Operators that keep their Python decomposition: the schema of batch norm does not declare that it writes the running
mean, so it is traced as the kernel that returns it."""
_IN_TRAINING = frozenset({"dropout"})
"""One kernel with a mask of bytes where training steps are run, three on the CPU; switched off, none at all."""


@contextlib.contextmanager
def _kernels(stay: frozenset[str]) -> Iterator[None]:
    """Inside, no operator of PyTorch's own space comes apart into others before autograd sees it."""
    import torch
    import torch._decomp.decompositions  # what knows them in Python, before it is looked for

    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    taken = []
    for name in sorted(set(torch.ops.aten) - stay):
        packet = getattr(torch.ops.aten, name)
        for operator in (getattr(packet, overload) for overload in packet.overloads()):
            if keys[0] in operator.py_kernels:
                taken += [(operator, key, operator.py_kernels.pop(key)) for key in keys if key in operator.py_kernels]
                operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, key, kernel in taken:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()


@contextlib.contextmanager
def _answering(answers: tuple[tuple[str, str, Any], ...]) -> Iterator[None]:
    before = []
    for name, function, answer in answers:
        module = sys.modules.get(name)
        if module is not None and hasattr(module, function):
            before.append((module, function, getattr(module, function)))
            setattr(module, function, answer)
    try:
        yield
    finally:
        for module, function, was in before:
            setattr(module, function, was)
