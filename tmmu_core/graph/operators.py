"""What is known of operators by name: data that the synthesised backward and its referee both read.

Names are upper-cased before they are looked up, so that ``Relu``, ``RELU`` and ``relu`` are one operator.
"""

from __future__ import annotations

INPUTS: frozenset[str] = frozenset({"inputs"})
OUTPUTS: frozenset[str] = frozenset({"outputs"})
NOTHING: frozenset[str] = frozenset()

GRADIENT_NEEDS: dict[str, frozenset[str]] = {
    # Linear in their inputs, or mere rearrangements: the incoming gradient is enough.
    **dict.fromkeys(
        (
            *("ADD", "SUB", "SUM", "NEG", "IDENTITY", "CAST", "DROPOUT"),
            *("RESHAPE", "FLATTEN", "SQUEEZE", "UNSQUEEZE", "TRANSPOSE", "CONCAT", "SPLIT", "SLICE", "PAD", "EXPAND"),
            *("AVERAGEPOOL", "GLOBALAVERAGEPOOL", "REDUCEMEAN", "REDUCESUM", "RESIZE", "UPSAMPLE"),
        ),
        NOTHING,
    ),
    # The derivative is a function of the result.
    **dict.fromkeys(("RELU", "SIGMOID", "TANH", "EXP", "SQRT", "SOFTMAX", "LOGSOFTMAX", "RECIPROCAL"), OUTPUTS),
    # The derivative needs where the result came from as well.
    **dict.fromkeys(("MAXPOOL", "GLOBALMAXPOOL", "REDUCEMAX", "REDUCEMIN", "MAX", "MIN"), INPUTS | OUTPUTS),
}
"""Operator → which of its operands its gradient reads; one that is not listed needs its inputs (contract §2)."""


def gradient_needs(instr: str) -> frozenset[str]:
    """A subset of ``{"inputs", "outputs"}`` for the operator named ``instr``."""
    return GRADIENT_NEEDS.get(instr.upper(), INPUTS)
