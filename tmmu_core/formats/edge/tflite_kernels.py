"""The kernels of TensorFlow Lite that may write over an operand."""

from __future__ import annotations

from collections.abc import Sequence

from tmmu_core.graph import dtypes
from tmmu_core.graph.model import Inplace, Tensor


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNARY = _words(
    "ABS CEIL COS ELU EXP FLOOR GELU HARD_SWISH LEAKY_RELU LOG LOGICAL_NOT LOGISTIC NEG RELU RELU6 RELU_0_TO_1 "
    "RELU_N1_TO_1 ROUND RSQRT SIGN SIN SOFTMAX SQRT SQUARE TANH ZEROS_LIKE"
)
"""Kernels that read an element of operand 0, or a row of it, before they write it."""
BINARY = _words(
    "ADD ATAN2 BITWISE_XOR DIV FLOOR_DIV FLOOR_MOD LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM MUL POW RIGHT_SHIFT "
    "SQUARED_DIFFERENCE SUB"
)
"""Kernels that do so with operands 0 and 1."""
MOVES = _words("BITCAST EXPAND_DIMS RESHAPE SQUEEZE")
"""Kernels whose result holds the bytes of operand 0 unchanged."""


def permission(tensors: Sequence[Tensor], instr: str, reads: list[int], writes: list[int]) -> Inplace:
    """The operands, by position, that an operator may write over: those as large as its only result."""
    if len(writes) != 1:
        return "none"
    operands = 2 if instr in BINARY else int(instr in UNARY or instr in MOVES)
    size = nbytes(tensors[writes[0]])
    pairs = tuple((i, 0) for i, read in enumerate(reads[:operands]) if nbytes(tensors[read]) == size)
    return pairs or "none"


def nbytes(tensor: Tensor) -> int:
    """The bytes of a tensor with a fixed shape."""
    return dtypes.tensor_bytes(tuple(int(dim) for dim in tensor.shape), tensor.dtype)
