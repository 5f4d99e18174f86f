"""TensorFlow Lite models of known architectures with random weights, for runtimes that need a file."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.formats.edge.test_tflite_features import Op, T, model

SCALE = 0.05
"""Quantization of all 8-bit activations."""


class Net:
    """Builder of a model with one subgraph; images have the shape (1, height, width, channels)."""

    def __init__(self, *shape: int, int8: bool = False) -> None:
        self.int8 = int8
        self.tensors: list[T] = []
        self.ops: list[Op] = []
        self.generator = np.random.default_rng(0)
        self.x = self.tensor((1, *shape))

    def tensor(self, shape: tuple[int, ...]) -> int:
        """Add an activation."""
        self.tensors.append(
            T(f"t{len(self.tensors)}", shape, "INT8" if self.int8 else "FLOAT32", scale=SCALE * self.int8)
        )
        return len(self.tensors) - 1

    def constant(self, values: Any, scale: float = 0.0) -> int:
        """Add a constant with the type of its values."""
        data = np.asarray(values)
        dtype = {"f": "FLOAT32", "i": f"INT{8 * data.itemsize}"}[data.dtype.kind]
        self.tensors.append(T(f"c{len(self.tensors)}", data.shape, dtype, data.tobytes(), scale=scale))
        return len(self.tensors) - 1

    def shape(self, x: int) -> tuple[int, ...]:
        """Return the shape of an activation."""
        return self.tensors[x].shape

    def op(self, code: str, inputs: tuple[int, ...], shape: tuple[int, ...], table: str = "", **options: Any) -> int:
        """Add an operator with one result."""
        result = self.tensor(shape)
        self.ops.append(Op(code, inputs, (result,), (table or f"{code.title().replace('_', '')}Options", options)))
        return result

    def weights(self, shape: tuple[int, ...], outputs: int) -> tuple[int, int]:
        """Add weights and a bias that keep the scale of the values."""
        fan = int(np.prod(shape)) // outputs
        if not self.int8:
            values = self.generator.standard_normal(shape) * np.sqrt(2 / fan)
            return self.constant(values.astype(np.float32)), self.constant(np.zeros(outputs, np.float32))
        scale = float(np.sqrt(2 / fan)) / 40
        values = np.clip(self.generator.standard_normal(shape) * 40, -127, 127).astype(np.int8)
        return self.constant(values, scale), self.constant(np.zeros(outputs, np.int32), scale * SCALE)

    def conv(self, x: int, filters: int, kernel: int = 1, stride: int = 1, *, relu: bool = True) -> int:
        """Add a convolution; with ``filters`` 0, a depthwise convolution."""
        _, height, width, channels = self.shape(x)
        shape = (filters, kernel, kernel, channels) if filters else (1, kernel, kernel, channels)
        pair = self.weights(shape, filters or channels)
        size = (1, -(-height // stride), -(-width // stride), filters or channels)
        options = {"StrideW": stride, "StrideH": stride, "DilationWFactor": 1, "DilationHFactor": 1}
        options["FusedActivationFunction"] = int(relu)
        if filters:
            return self.op("CONV_2D", (x, *pair), size, "Conv2DOptions", **options)
        return self.op("DEPTHWISE_CONV_2D", (x, *pair), size, "DepthwiseConv2DOptions", DepthMultiplier=1, **options)

    def dense(self, x: int, units: int, *, relu: bool = False) -> int:
        """Add a fully connected layer on the last axis."""
        pair = self.weights((units, self.shape(x)[-1]), units)
        rows = int(np.prod(self.shape(x)[:-1]))
        return self.op("FULLY_CONNECTED", (x, *pair), (rows, units), FusedActivationFunction=int(relu))

    def binary(self, code: str, a: int, b: int) -> int:
        """Add ``ADD`` or ``MUL``; the second operand may have one row."""
        return self.op(code, (a, b), self.shape(a))

    def concat(self, *parts: int) -> int:
        """Add a concatenation of channels."""
        shape = (*self.shape(parts[0])[:-1], sum(self.shape(part)[-1] for part in parts))
        return self.op("CONCATENATION", parts, shape, Axis=len(shape) - 1)

    def mean(self, x: int) -> int:
        """Add the mean of an image over its pixels, with its axes kept."""
        axes = self.constant(np.array([1, 2], np.int32))
        return self.op("MEAN", (x, axes), (1, 1, 1, self.shape(x)[-1]), "ReducerOptions", KeepDims=True)

    def reshape(self, x: int, *shape: int) -> int:
        """Add a reshape."""
        return self.op("RESHAPE", (x, self.constant(np.array(shape, np.int32))), shape)

    def head(self, x: int, classes: int) -> bytes:
        """Add a classifier and return the model."""
        pooled = self.mean(x)
        return self.done(self.dense(self.reshape(pooled, 1, self.shape(x)[-1]), classes))

    def done(self, *outputs: int) -> bytes:
        """Return the model."""
        return model(self.tensors, self.ops, ends=((self.x,), outputs))


def mobilenet_v1(*, int8: bool) -> bytes:
    """MLPerf Tiny's visual wake words: depthwise separable convolutions, width 0.25, on 96 × 96 pixels."""
    net = Net(96, 96, 3, int8=int8)
    x = net.conv(net.x, 8, 3, 2)
    for filters, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (128, 1), (256, 2)):
        x = net.conv(net.conv(x, 0, 3, stride), filters)
    return net.head(x, 2)


def random_wired(*, int8: bool) -> bytes:
    """Three stages of twelve separable convolutions with random edges."""
    net = Net(32, 32, 3, int8=int8)
    choose = np.random.default_rng(1)
    x = net.conv(net.x, 8, 3)
    for _ in range(3):
        nodes = [x]
        for _ in range(12):
            a, b = (nodes[k] for k in choose.integers(max(0, len(nodes) - 6), len(nodes), 2))
            y = net.binary("ADD", a, b) if a != b else a
            nodes.append(net.conv(net.conv(y, 0, 3), net.shape(y)[-1]))
        x = net.conv(net.concat(*nodes[-4:]), 2 * net.shape(x)[-1], 1, 2)
    return net.head(x, 10)


def mobilenet_v2(*, int8: bool) -> bytes:
    """Inverted residual blocks, width 0.35, on 96 × 96 pixels."""
    net = Net(96, 96, 3, int8=int8)
    x = net.conv(net.x, 16, 3, 2)
    for expand, filters, repeats, first in ((1, 8, 1, 1), (6, 8, 2, 2), (6, 16, 3, 2), (6, 24, 4, 2), (6, 32, 3, 1)):
        for k in range(repeats):
            stride = first if k == 0 else 1
            inner = net.conv(x, net.shape(x)[-1] * expand) if expand > 1 else x
            y = net.conv(net.conv(inner, 0, 3, stride), filters, relu=False)
            x = net.binary("ADD", x, y) if net.shape(x) == net.shape(y) else y
    return net.head(net.conv(x, 128), 2)


def resnet8(*, int8: bool) -> bytes:
    """MLPerf Tiny's image classification: three residual stacks on 32 × 32 pixels."""
    net = Net(32, 32, 3, int8=int8)
    x = net.conv(net.x, 16, 3)
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        y = net.conv(net.conv(x, filters, 3, stride), filters, 3, relu=False)
        x = net.binary("ADD", x if stride == 1 else net.conv(x, filters, 1, stride, relu=False), y)
    return net.head(x, 10)


def unet(*, int8: bool) -> bytes:
    """Three levels with skip connections."""
    net = Net(64, 64, 1, int8=int8)
    skips, x = [], net.x
    for filters in (8, 16, 32):
        x = net.conv(net.conv(x, filters, 3), filters, 3)
        skips.append(x)
        x = net.conv(x, filters, 3, 2)
    x = net.conv(x, 64, 3)
    for skip in reversed(skips):
        _, height, width, filters = net.shape(skip)
        size = net.constant(np.array([height, width], np.int32))
        up = net.op("RESIZE_NEAREST_NEIGHBOR", (x, size), (1, height, width, net.shape(x)[-1]))
        x = net.conv(net.concat(up, skip), filters, 3)
    return net.done(net.conv(x, 2, relu=False))


def squeezenet(*, int8: bool) -> bytes:
    """Fire modules: two parallel convolutions, concatenated."""
    net = Net(64, 64, 3, int8=int8)
    x = net.conv(net.x, 32, 3, 2)
    for squeeze, expand, stride in ((8, 32, 1), (8, 32, 2), (16, 64, 1), (16, 64, 2), (32, 96, 1)):
        x = net.conv(x, squeeze, 1, stride)
        x = net.concat(net.conv(x, expand), net.conv(x, expand, 3))
    return net.head(x, 10)


def densenet(*, int8: bool) -> bytes:
    """Two dense blocks, in which every layer reads all before it."""
    net = Net(32, 32, 3, int8=int8)
    x = net.conv(net.x, 16, 3)
    for _ in range(2):
        for _ in range(4):
            x = net.concat(x, net.conv(net.conv(x, 32), 12, 3))
        x = net.conv(x, net.shape(x)[-1] // 2, 1, 2)
    return net.head(x, 10)


def squeeze_excite(*, int8: bool) -> bytes:
    """Residual blocks whose channels are weighted by a small network, as in MobileNetV3."""
    net = Net(48, 48, 3, int8=int8)
    x = net.conv(net.x, 16, 3, 2)
    for filters, stride in ((16, 1), (24, 2), (24, 1), (40, 2), (40, 1)):
        inner = net.conv(net.conv(x, 4 * net.shape(x)[-1]), 0, 3, stride)
        gate = net.conv(net.conv(net.mean(inner), 8), net.shape(inner)[-1], relu=False)
        y = net.conv(net.binary("MUL", inner, gate), filters, relu=False)
        x = net.binary("ADD", x, y) if net.shape(x) == net.shape(y) else y
    return net.head(x, 10)


def attention(*, int8: bool) -> bytes:
    """Two transformer layers of 32 positions with one head of 64 values."""
    net = Net(32, 64, int8=int8)
    x = net.reshape(net.x, 32, 64)
    for _ in range(2):
        q, k, v = (net.reshape(net.dense(x, 64), 1, 32, 64) for _ in range(3))
        scores = net.op("BATCH_MATMUL", (q, k), (1, 32, 32), "BatchMatMulOptions", AdjY=True)
        weights = net.op("SOFTMAX", (scores,), (1, 32, 32), Beta=0.125)
        mixed = net.op("BATCH_MATMUL", (weights, v), (1, 32, 64), "BatchMatMulOptions")
        x = net.binary("ADD", x, net.dense(net.reshape(mixed, 32, 64), 64))
        x = net.binary("ADD", x, net.dense(net.dense(x, 256, relu=True), 64))
    return net.done(net.dense(x, 8))


def autoencoder(*, int8: bool) -> bytes:
    """MLPerf Tiny's anomaly detection: dense layers through a narrow one."""
    net = Net(640, int8=int8)
    x = net.x
    for units in (128, 128, 128, 8, 128, 128, 128, 640):
        x = net.dense(x, units, relu=units < 640)
    return net.done(x)


INT8 = (mobilenet_v2, resnet8, unet, squeezenet, densenet, squeeze_excite, autoencoder, random_wired)
FLOAT = (mobilenet_v1, squeeze_excite, attention, random_wired)
NETS: dict[str, Callable[[], bytes]] = {
    **{f"{net.__name__}_int8": partial(net, int8=True) for net in INT8},
    **{f"{net.__name__}_float": partial(net, int8=False) for net in FLOAT},
}
