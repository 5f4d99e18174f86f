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


DRAWS_RANDOM_NUMBERS: frozenset[str] = frozenset(
    (
        # ONNX and TensorFlow Lite
        *("RANDOMNORMAL", "RANDOMNORMALLIKE", "RANDOMUNIFORM", "RANDOMUNIFORMLIKE", "MULTINOMIAL", "BERNOULLI"),
        *("DROPOUT", "RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"),
        # PyTorch, without the overload
        *("RAND", "RAND_LIKE", "RANDINT", "RANDINT_LIKE", "RANDN", "RANDN_LIKE", "RANDPERM", "NORMAL", "NORMAL_"),
        *("NATIVE_DROPOUT", "ALPHA_DROPOUT", "FEATURE_DROPOUT", "FEATURE_ALPHA_DROPOUT", "BERNOULLI_", "UNIFORM"),
        *("UNIFORM_", "RANDOM", "RANDOM_", "EXPONENTIAL", "EXPONENTIAL_", "GEOMETRIC", "CAUCHY", "LOG_NORMAL"),
        *("POISSON", "BINOMIAL", "RRELU_WITH_NOISE", "PHILOX_RAND", "_FUSED_DROPOUT", "_STANDARD_GAMMA"),
        *("_SCALED_DOT_PRODUCT_FLASH_ATTENTION", "_SCALED_DOT_PRODUCT_EFFICIENT_ATTENTION"),
        *("_SCALED_DOT_PRODUCT_CUDNN_ATTENTION", "_SCALED_DOT_PRODUCT_FUSED_ATTENTION_OVERRIDEABLE"),
        # XLA
        *("RNG", "RNG-BIT-GENERATOR", "RNG-GET-AND-UPDATE-STATE"),
    )
)
"""Operators that take numbers from a generator, or may: run again they give others, and in another order too."""

SPEAKS_TO_OTHERS: frozenset[str] = frozenset(
    (
        *("ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "BROADCAST", "SEND", "RECV", "BARRIER"),
        *("ALL_GATHER_INTO_TENSOR", "REDUCE_SCATTER_TENSOR", "ALL_TO_ALL_SINGLE", "WAIT_TENSOR"),
        *("ALL-REDUCE", "ALL-GATHER", "REDUCE-SCATTER", "ALL-TO-ALL", "COLLECTIVE-PERMUTE", "SEND-DONE"),
        *("RECV-DONE", "INFEED", "OUTFEED", "PRINT", "ASSERT", "_ASSERT_ASYNC", "_ASSERT_SCALAR"),
    )
)
"""Operators that are met by other ranks, or seen from outside: all must come to them in one order."""


def bare_name(instr: str) -> str:
    """An operator's name without namespace and overload, upper-cased: ``aten.rand.default`` is ``RAND``."""
    parts = [part for part in instr.replace("::", ".").upper().split(".") if part]
    if len(parts) > 1 and parts[0] in ("ATEN", "PRIMS", "_C10D_FUNCTIONAL", "C10D_FUNCTIONAL", "RNGPRIMS"):
        parts = parts[1:]
    return parts[0] if parts else ""


def is_random(instr: str) -> bool:
    """Whether another run of the operator may give another result."""
    return bare_name(instr) in DRAWS_RANDOM_NUMBERS


def keeps_its_turn(instr: str) -> bool:
    """Whether the operator's place among others of its kind is part of what it computes."""
    return is_random(instr) or bare_name(instr) in SPEAKS_TO_OTHERS


def gradient_needs(instr: str) -> frozenset[str]:
    """A subset of ``{"inputs", "outputs"}`` for the operator named ``instr``."""
    return GRADIENT_NEEDS.get(instr.upper(), INPUTS)
