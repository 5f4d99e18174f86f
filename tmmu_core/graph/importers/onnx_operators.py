"""What the ONNX importer knows of operators. Names are those of the default operator set."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

ELEMENTWISE: frozenset[str] = frozenset(
    (
        *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd"),
        *("BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div"),
        *("Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish"),
        *("IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul"),
        *("Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign"),
        *("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu"),
        *("Where", "Xor"),
    )
)
"""Element i of the output depends on element i of each input alone, so any input of the output's size may give way."""

ELEMENTWISE_IN_FIRST: frozenset[str] = frozenset({"BatchNormalization"})
"""Element-wise in the first input; the others hold a value per channel. Inference only."""

VIEWS: frozenset[str] = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})
"""The output is the bytes of the first input. ``Dropout`` outside training."""

SUBGRAPHS: frozenset[str] = frozenset({"If", "Loop", "Scan", "SequenceMap"})

RANDOM: frozenset[str] = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Never folded: another value at every run."""

MEASURES: frozenset[str] = frozenset({"Shape", "Size"})
"""Constant as soon as the input's shape is, whatever the input holds."""


def say_defaults(model: onnx.ModelProto) -> None:
    """Write down, in ``model``, a default that the onnx package's inference takes for another one.

    A ``STFT`` that does not say ``onesided`` is (the operator's text says 1, and onnxruntime runs it so); inference
    gives it all the bins, twice the bytes.
    """
    from onnx import helper  # the names above are asked for where no model is, and the package loads slowly

    for node in model.graph.node:
        if node.op_type == "STFT" and not any(attribute.name == "onesided" for attribute in node.attribute):
            node.attribute.append(helper.make_attribute("onesided", 1))
