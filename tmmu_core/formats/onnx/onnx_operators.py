"""Operators that the ONNX reader treats specially. Names are those of the default operator set."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

ELEMENTWISE_IN_FIRST: frozenset[str] = frozenset({"BatchNormalization"})
"""Element-wise in the first input; the others hold a value per channel. Inference only."""

VIEWS: frozenset[str] = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout"})
"""The output has the bytes of the first input (``Dropout``: outside of training)."""

SUBGRAPHS: frozenset[str] = frozenset({"If", "Loop", "Scan", "SequenceMap"})

MEASURES: frozenset[str] = frozenset({"Shape", "Size"})
"""Constant as soon as the shape of the input is."""


def write_defaults(model: onnx.ModelProto) -> None:
    """Write default attributes into ``model`` where inference assumes another value than the specification.

    A ``STFT`` without ``onesided`` is one-sided (specification and onnxruntime); inference returns all bins, twice the
    bytes.
    """
    from onnx import helper  # slow to import

    for node in model.graph.node:
        if node.op_type == "STFT" and not any(attribute.name == "onesided" for attribute in node.attribute):
            node.attribute.append(helper.make_attribute("onesided", 1))
