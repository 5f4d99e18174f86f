"""Models of ``transformers`` look at values where they build their masks. While one is traced, they do not.

Version 5 asks of position numbers whether a row holds several sequences packed into one, and of a padding mask whether
it masks anything; both read a number out of a tensor, which has none while it is fake. The library has a question of
its own, "is this tensor traced?", which does not know the tensors that AOTAutograd traces with. Here it is answered:
yes. A row is one sequence, and a mask that is given is used.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

_ANSWERS: tuple[tuple[str, str, Any], ...] = (
    ("transformers.utils.import_utils", "is_fake_tensor", lambda value: hasattr(value, "untyped_storage")),
    ("transformers.masking_utils", "find_packed_sequence_indices", lambda position_ids: None),
)
"""(module, function, what it is while a model is traced)."""


@contextlib.contextmanager
def unlooked_at() -> Iterator[None]:
    """Inside, ``transformers`` reads no values. Nothing happens where it is not loaded, or is another version."""
    before = []
    for name, function, answer in _ANSWERS:
        module = sys.modules.get(name)
        if module is not None and hasattr(module, function):
            before.append((module, function, getattr(module, function)))
            setattr(module, function, answer)
    try:
        yield
    finally:
        for module, function, was in before:
            setattr(module, function, was)
