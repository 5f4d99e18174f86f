"""Code that looks at values which fake tensors have not: while a model is built or traced, it does not.

Version 5 of ``transformers`` asks of position numbers whether a row holds several sequences packed into one, and of a
padding mask whether it masks anything; both read a number out of a tensor, which has none while it is fake. The library
has a question of its own, "is this tensor traced?", which does not know the tensors that AOTAutograd traces with. Here
it is answered: yes. A row is one sequence, and a mask that is given is used.

PyTorch itself, where it fills a weight from a truncated normal distribution, draws again what fell outside; nobody
asks for the weights of a fake model, so they stay as they are.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

_WHILE_TRACED: tuple[tuple[str, str, Any], ...] = (
    ("transformers.utils.import_utils", "is_fake_tensor", lambda value: hasattr(value, "untyped_storage")),
    ("transformers.masking_utils", "find_packed_sequence_indices", lambda position_ids: None),
)
"""(module, function, what it is while a model is traced)."""
_WHILE_BUILT: tuple[tuple[str, str, Any], ...] = (
    ("torch.nn.init", "_no_grad_trunc_normal_", lambda tensor, *given, **named: tensor),
)
"""The same, while a model of fake tensors is built."""


def while_traced() -> contextlib.AbstractContextManager[None]:
    """Inside, ``transformers`` reads no values. Nothing happens where it is not loaded, or is another version."""
    return _answering(_WHILE_TRACED)


def while_built() -> contextlib.AbstractContextManager[None]:
    """Inside, weights that are drawn until they fit are not drawn."""
    return _answering(_WHILE_BUILT)


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
