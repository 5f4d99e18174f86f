"""MobileNet v1 and v2 from their published layer tables, batch 1, 224×224, float32.

Sources: Howard et al. 2017 (arXiv:1704.04861, table 1), Sandler et al. 2018 (arXiv:1801.04381, table 2). Batch
normalisation and activation are part of their convolution, as in inference runtimes, so each layer is one step; 1,001
classes, as in the published checkpoints. Intermediate tensors (without image and probabilities): v1 19.248 MiB in sum
and 4.594 MiB at the peak, v2 26.313 MiB and 5.742 MiB.
"""

from __future__ import annotations

from tmmu_core.graph.model import GRAPH_SCHEMA, Graph, Node, Role, Tensor

CLASSES = 1001

V1_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1)),
)
"""(output channels, stride) of each depthwise-separable block."""

V2_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(expansion, output channels, repeats, stride of the first) of each run of inverted residuals."""


class _Network:
    """Builder of a graph; ``at``: tensor that the next layer reads, with ``channels`` × ``side`` × ``side`` values."""

    def __init__(self, name: str) -> None:
        self.name, self.at, self.channels, self.side = name, "image", 3, 224
        self.tensors = [Tensor(id="image", shape=(1, 3, 224, 224), role="input")]
        self.nodes: list[Node] = []

    def layer(
        self, name: str, instr: str, reads: tuple[str, ...], shape: tuple[int, ...], role: Role = "activation"
    ) -> None:
        self.tensors.append(Tensor(id=name, shape=shape, role=role))
        pairs = ((0, 0), (1, 0)) if instr == "ADD" else "none"
        self.nodes.append(Node(node_id=f"{name}/op", instr=instr, inputs=reads, outputs=(name,), inplace=pairs))
        self.at = name

    def weight(self, name: str, *shape: int) -> str:
        self.tensors.append(Tensor(id=name, shape=shape, role="parameter"))
        return name

    def conv(self, name: str, channels: int, kernel: int, stride: int = 1) -> None:
        weights = (
            self.weight(f"{name}/weight", channels, self.channels, kernel, kernel),
            self.weight(f"{name}/bias", channels),
        )
        self.channels, self.side = channels, self.side // stride
        self.layer(name, "CONV", (self.at, *weights), (1, channels, self.side, self.side))

    def depthwise(self, name: str, stride: int) -> None:
        weights = self.weight(f"{name}/weight", self.channels, 1, 3, 3), self.weight(f"{name}/bias", self.channels)
        self.side //= stride
        self.layer(name, "DEPTHWISE_CONV", (self.at, *weights), (1, self.channels, self.side, self.side))

    def classifier(self) -> Graph:
        self.layer("pool", "GLOBALAVERAGEPOOL", (self.at,), (1, self.channels, 1, 1))
        self.side = 1
        self.conv("logits", CLASSES, 1)
        self.layer("squeezed", "SQUEEZE", ("logits",), (1, CLASSES))  # the published figures count it as a copy
        self.layer("probabilities", "SOFTMAX", ("squeezed",), (1, CLASSES), "output")
        return Graph(
            ir_schema=GRAPH_SCHEMA,
            name=self.name,
            tensors=tuple(self.tensors),
            nodes=tuple(self.nodes),
            inputs=("image",),
            outputs=("probabilities",),
            execution_order=tuple(node.node_id for node in self.nodes),
        )


def mobilenet_v1() -> Graph:
    """Return the 28 layers of v1: a convolution, 13 depthwise-separable blocks, a classifier."""
    net = _Network("mobilenet_v1")
    net.conv("conv0", 32, 3, stride=2)
    for i, (channels, stride) in enumerate(V1_BLOCKS, 1):
        net.depthwise(f"block{i}/depthwise", stride)
        net.conv(f"block{i}/pointwise", channels, 1)
    return net.classifier()


def mobilenet_v2() -> Graph:
    """Return the layers of v2: 17 inverted residuals between two convolutions, and a classifier."""
    net = _Network("mobilenet_v2")
    net.conv("conv0", 32, 3, stride=2)
    i = 0
    for expansion, channels, repeats, first_stride in V2_BLOCKS:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            block_input, in_channels = net.at, net.channels
            if expansion > 1:
                net.conv(f"block{i}/expand", expansion * in_channels, 1)
            net.depthwise(f"block{i}/depthwise", stride)
            net.conv(f"block{i}/project", channels, 1)
            if stride == 1 and in_channels == channels:
                net.layer(f"block{i}/add", "ADD", (net.at, block_input), (1, channels, net.side, net.side))
            i += 1
    net.conv("conv_last", 1280, 1)
    return net.classifier()
