"""ONNX models with branches, whose memory depends on the order. Images have 32 channels and 64 × 64 pixels."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, SIDE = 32, 64


class Net:
    """Builder of a model."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.generator = np.random.default_rng(0)

    def op(self, code: str, *inputs: str, **attributes: object) -> str:
        """Add a node and return its result."""
        name = f"{code}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(code, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x: str, inputs: int, outputs: int, kernel: int = 1) -> str:
        """Add a convolution that keeps the size of the image."""
        weight = f"w_{len(self.weights)}"
        values = self.generator.standard_normal((outputs, inputs, kernel, kernel)) * (inputs * kernel**2) ** -0.5
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), weight))
        return self.op("Conv", x, weight, pads=[kernel // 2] * 4)

    def model(self, output: str) -> bytes:
        """Return the model."""
        shape = [1, CHANNELS, SIDE, SIDE]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", output)]
        graph = helper.make_graph(self.nodes, "net", ends[:1], ends[1:], self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return bytes(onnx.shape_inference.infer_shapes(made).SerializeToString())


def branches() -> bytes:
    """Return a model of eight branches that widen and narrow, listed layer by layer: all wide tensors are live."""
    net = Net()
    wide = [net.conv("x", CHANNELS, 4 * CHANNELS) for _ in range(8)]
    wide = [net.op("Relu", each) for each in wide]
    narrow = [net.conv(each, 4 * CHANNELS, CHANNELS) for each in wide]
    return net.model(net.op("Relu", net.op("Sum", *narrow)))


def experts() -> bytes:
    """Return two layers of a mixture of six experts, each weighted by a gate."""
    net, x = Net(), "x"
    for _ in range(2):
        gates = [net.op("Sigmoid", net.conv(x, CHANNELS, CHANNELS)) for _ in range(6)]
        inner = [net.op("Relu", net.conv(x, CHANNELS, 3 * CHANNELS)) for _ in range(6)]
        outer = [net.conv(each, 3 * CHANNELS, CHANNELS) for each in inner]
        mixed = [net.op("Mul", gate, each) for gate, each in zip(gates, outer, strict=True)]
        x = net.op("Add", x, net.op("Sum", *mixed))
    return net.model(net.op("Relu", x))


def random_wired() -> bytes:
    """Return forty convolutions with random edges; every unread result is added to the output."""
    net, choose = Net(), np.random.default_rng(3)
    made = ["x"]
    for _ in range(40):
        a, b = (made[k] for k in choose.integers(max(0, len(made) - 12), len(made), 2))
        made.append(net.conv(net.op("Add", a, b), CHANNELS, CHANNELS, 3))
    read = {name for node in net.nodes for name in node.input}
    return net.model(net.op("Sum", *[name for name in made if name not in read]))


NETS = {"branches": branches, "experts": experts, "random_wired": random_wired}
