"""Declared shapes are compared with inferred ones; the result is that of onnxruntime."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.formats.onnx.test_onnx import model, op, read, value

ort = pytest.importorskip("onnxruntime")


def shapes(proto: onnx.ModelProto) -> dict[str, tuple[int | str, ...]]:
    return {tensor.id: tensor.shape for tensor in read(proto).tensors}


def stale(inputs: list[int | str], declared: list[int], gives: list[int | str]) -> onnx.ModelProto:
    """Two steps over ``x``, of which the file declares the shape of the first and of the result."""
    nodes = [op("Relu", "x", "a"), op("MatMul", "a w", "b"), op("Relu", "b", "y")]
    proto = model(nodes, [value("x", inputs)], [value("y", gives)], {"w": np.ones((3, 5), np.float32)})
    proto.graph.value_info.append(value("a", declared))
    return proto


@pytest.mark.parametrize("declared", [[1, 3], [3], [1, 1, 3], [8, 3]])
def test_batch_changed_at_the_inputs_only_is_used(declared: list[int]) -> None:
    """``value_info`` and the outputs still say the old one; onnxruntime goes by what is computed."""
    proto = stale([8, 3], declared, [1, 5])
    onnx.checker.check_model(proto)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.ones((8, 3), np.float32)})[0].shape == (8, 5)
    assert shapes(proto) == {"x": (8, 3), "w": (3, 5), "a": (8, 3), "b": (8, 5), "y": (8, 5)}


def test_open_size_of_the_inputs_stays_open() -> None:
    found = shapes(stale(["N", 3], [1, 3], [1, 5]))
    assert (found["a"], found["b"], found["y"]) == (("N", 3), ("N", 5), ("N", 5))


def pooled(operator: str, size: int, opset: int, **shown_text: object) -> onnx.ModelProto:
    """A pool over so much of one axis, and a step after it; nothing is declared of either."""
    nodes = [op(operator, "x", "a", ceil_mode=1, **shown_text), op("Relu", "a", "y")]
    rankless = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    return model(nodes, [value("x", [1, 2, size])], [rankless], opset=opset)


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("opset", [19, 22])
def test_pool_that_rounds_up_omits_a_window_of_padding_only(operator: str, opset: int) -> None:
    """As onnxruntime does, over every small pool."""
    wrong = []
    for size, kernel, step, before, after in product((4, 5, 7), (2, 3), (1, 2, 3), (0, 1), (0, 1)):
        shown_text = {"kernel_shape": [kernel], "strides": [step], "pads": [before, after]}
        proto = pooled(operator, size, opset, **shown_text)
        session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        (result,) = session.run(None, {"x": np.ones((1, 2, size), np.float32)})
        if shapes(proto)["y"] != result.shape:
            wrong.append((size, shown_text, shapes(proto)["y"], result.shape))
    assert wrong == []


def test_pool_after_a_pool_has_the_right_shape() -> None:
    shown_text = {"kernel_shape": [2], "strides": [2], "pads": [1, 1], "ceil_mode": 1}
    nodes = [
        op("MaxPool", "x", "a", **shown_text),
        op("MaxPool", "a", "b", **shown_text),
        op("MaxPool", "b", "y", **shown_text),
    ]
    proto = model(nodes, [value("x", [1, 2, 9])], [helper.make_tensor_value_info("y", 1, None)], opset=12)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.ones((1, 2, 9), np.float32)})
    assert shapes(proto)["y"] == result.shape


def test_open_size_beside_a_pool_stays_open() -> None:
    """The name that the file gives it, too: it is told at the sizes that the inputs may have."""
    shown_text = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 1, 0, 1], "ceil_mode": 1}
    nodes = [op("MaxPool", "x", "a", **shown_text), op("Relu", "a", "y")]
    found = shapes(model(nodes, [value("x", [1, 2, "H", 5])], [value("y", [1, 2, "half", 3])], opset=12))
    assert (found["x"], found["y"]) == ((1, 2, "H", 5), (1, 2, 256, 3))
