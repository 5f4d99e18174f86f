"""Floating-point operations of operators, from their names and shapes."""

import msgspec
import pytest

from benchmarks.adamw import add_adamw
from tests.support.build import graph, node, tensor
from tests.support.golden import SAMPLES
from tests.support.paths import read_graph_file
from tmmu_core.graph.flops import graph_flops, operations
from tmmu_core.graph.index import index_graph
from tmmu_core.graph.model import Graph, Node, Tensor
from tmmu_core.graph.operators import operator_of

Shape = tuple[int, ...]


def cost(instr: str, inputs: list[Shape], outputs: list[Shape]) -> int | None:
    return operations(instr, tuple(inputs), tuple(outputs))


def contractions(graph: Graph) -> int:
    """Return the operations of the convolutions and products of a graph, without biases."""
    index = index_graph(graph)
    total = 0
    for k, step in enumerate(graph.nodes):
        kind = operator_of(step.instr).cost
        if kind in ("convolution", "conv2d", "depthwise", "dense", "matmul"):
            inputs, outputs = (
                [index.shapes[i] for i in side.tolist()] for side in (index.inputs_of(k), index.outputs_of(k))
            )
            total += cost(step.instr, inputs[:2], outputs) or 0
    return total


@pytest.mark.parametrize(
    ("instr", "inputs", "outputs", "expected"),
    [
        # 2·M·K·N, in every spelling; a bias is one addition for each element.
        ("mm", [(2, 3), (3, 5)], [(2, 5)], 2 * 2 * 3 * 5),
        ("MatMul", [(7, 2, 3), (3, 5)], [(7, 2, 5)], 2 * 7 * 2 * 3 * 5),
        ("MATMUL", [(32, 256), (32, 10)], [(256, 10)], 2 * 256 * 32 * 10),  # transposed, as a native file stores it
        ("MATMUL", [(8, 4), (4, 8)], [(4, 4)], 2 * 4 * 8 * 4),  # both transposed
        ("addmm", [(5,), (2, 3), (3, 5)], [(2, 5)], 2 * 2 * 3 * 5 + 10),
        ("Gemm", [(2, 3), (5, 3), (5,)], [(2, 5)], 2 * 2 * 3 * 5 + 10),
        ("FULLY_CONNECTED", [(2, 3), (5, 3), (5,)], [(2, 5)], 2 * 2 * 3 * 5 + 10),
        ("bmm", [(4, 2, 3), (4, 3, 5)], [(4, 2, 5)], 2 * 4 * 2 * 3 * 5),
        # 2 · (a filter's elements) for each element of the result.
        ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], [(1, 4, 8, 8)], 2 * 27 * 256),
        ("convolution", [(1, 8, 8, 8), (8, 1, 3, 3)], [(1, 8, 8, 8)], 2 * 9 * 512),  # depth-wise: 8 groups
        ("CONV_2D", [(1, 8, 8, 3), (4, 3, 3, 3), (4,)], [(1, 8, 8, 4)], 2 * 27 * 256 + 256),
        ("conv2d", [(1, 3, 8, 8), (4, 3, 3, 3)], [(1, 4, 8, 8)], 2 * 27 * 256),  # PyTorch spells it so, channels first
        ("DEPTHWISE_CONV_2D", [(1, 8, 8, 4), (1, 3, 3, 4), (4,)], [(1, 8, 8, 4)], 2 * 9 * 256 + 256),
        ("DEPTHWISE_CONV", [(1, 4, 8, 8), (4, 1, 3, 3)], [(1, 4, 8, 8)], 2 * 9 * 256),
        # One, a few, or none for each element.
        ("add.Tensor", [(4, 5), (5,)], [(4, 5)], 20),
        ("Sum", [(4,), (4,), (4,)], [(4,)], 8),
        ("sum.dim_IntList", [(4, 5)], [(4, 1)], 20),
        ("_softmax", [(4, 5)], [(4, 5)], 100),
        ("mse_loss_backward", [(), (4, 5), (4, 5)], [(4, 5)], 60),  # the gradient of a mean is a scalar
        # Two batches, 4 heads, 10 queries and keys of 8; the heads are the third axis.
        ("_flash_attention_forward", [(2, 10, 4, 8)] * 3, [(2, 10, 4, 8)], 2 * 4 * 10 * 10 * (2 * 2 * 8 + 6)),
        ("index_add", [(100, 5), (2,), (2, 5)], [(100, 5)], 10),
        ("scatter_add", [(100,), (7,), (7,)], [(100,)], 7),
        ("Transpose", [(4, 5)], [(5, 4)], 0),
        ("view", [(4, 5)], [(20,)], 0),
        ("com.microsoft::Gelu", [(4,)], [(4,)], 32),
        ("LSTM", [(3, 2, 5), (1, 16, 5), (1, 16, 4)], [(3, 1, 2, 4)], 2 * 6 * (80 + 64) + 4 * 6 * 16),
    ],
)
def test_operator_costs_its_formula(instr: str, inputs: list[Shape], outputs: list[Shape], expected: int) -> None:
    assert cost(instr, inputs, outputs) == expected


# Each figure is PyTorch's own (2.13.0, torch.utils.flop_counter): of FlopCounterMode over the forward and backward
# pass of a module, whose contractions are listed as aten runs them, without biases; attention by its sdpa_flop_count
# and sdpa_backward_flop_count, since FlopCounterMode skips the kernel of CPUs. They leave out the softmax.
PYTORCH: dict[str, tuple[list[tuple[str, list[Shape], list[Shape]]], int]] = {
    "Linear(64, 128), GELU, Linear(128, 10) on 32 rows": (
        [
            ("mm", [(32, 64), (64, 128)], [(32, 128)]),
            ("mm", [(32, 128), (128, 10)], [(32, 10)]),
            ("mm", [(32, 10), (10, 128)], [(32, 128)]),
            ("mm", [(10, 32), (32, 128)], [(10, 128)]),
            ("mm", [(32, 128), (128, 64)], [(32, 64)]),
            ("mm", [(128, 32), (32, 64)], [(128, 64)]),
        ],
        1_818_624,
    ),
    "Conv2d(3, 8, 3, stride 2), ConvTranspose2d(8, 4, 3, stride 2) on 2 × 33²": (
        [
            ("convolution", [(2, 3, 33, 33), (8, 3, 3, 3)], [(2, 8, 16, 16)]),
            ("convolution", [(2, 8, 16, 16), (8, 4, 3, 3)], [(2, 4, 33, 33)]),
            ("convolution_backward", [(2, 4, 33, 33), (2, 8, 16, 16), (8, 4, 3, 3)], [(2, 8, 16, 16), (8, 4, 3, 3)]),
            ("convolution_backward", [(2, 8, 16, 16), (2, 3, 33, 33), (8, 3, 3, 3)], [(8, 3, 3, 3)]),
        ],
        1_327_104,
    ),
    "scaled_dot_product_attention, 2 × 4 heads, 32 queries, 48 keys of 16": (
        [("_scaled_dot_product_flash_attention", [(2, 4, 32, 16), (2, 4, 48, 16), (2, 4, 48, 16)], [(2, 4, 32, 16)])],
        786_432 + 6 * 2 * 4 * 32 * 48,
    ),
    "the same, backward": (
        [
            (
                "_scaled_dot_product_flash_attention_backward",
                [(2, 4, 32, 16), (2, 4, 32, 16), (2, 4, 48, 16), (2, 4, 48, 16)],
                [(2, 4, 32, 16), (2, 4, 48, 16), (2, 4, 48, 16)],
            )
        ],
        1_966_080 + 8 * 2 * 4 * 32 * 48,
    ),
}


@pytest.mark.parametrize("module", PYTORCH)
def test_contractions_are_counted_as_pytorch_counts_them(module: str) -> None:
    calls, expected = PYTORCH[module]
    assert sum(cost(*call) or 0 for call in calls) == expected


def test_grouped_convolution_backward_costs_twice_its_forward() -> None:
    # Where FlopCounterMode counts the weights' gradient once for every group.
    forward = operations("convolution", ((2, 8, 16, 16), (16, 2, 3, 3)), ((2, 16, 14, 14),))
    backward = operations(
        "convolution_backward", ((2, 16, 14, 14), (2, 8, 16, 16), (16, 2, 3, 3)), ((2, 8, 16, 16), (16, 2, 3, 3))
    )
    assert forward is not None
    assert backward == 2 * forward


@pytest.mark.parametrize(
    ("instr", "inputs", "outputs"),
    [
        ("FrobnicateV2", [(4,)], [(4,)]),  # no formula
        ("Conv", [(1, 3, 8, 8)], [(1, 4, 8, 8)]),  # no weights
        ("mm", [(2, 3), (4, 5)], [(2, 5)]),  # shapes without a product
        ("add", [(2,)], []),  # nothing is written
        ("LSTM", [(3, 2, 5)], [(3, 1, 2, 4)]),  # one operand of three
        ("aten::lstm", [(5, 32, 3), (1, 32, 8), (1, 32, 8)], [(5, 32, 8)]),  # the states, not the weights
        ("Max", [], [(4,)]),  # nothing is read
    ],
)
def test_operator_without_a_matching_formula_is_unknown(instr: str, inputs: list[Shape], outputs: list[Shape]) -> None:
    assert cost(instr, inputs, outputs) is None


def test_cost_of_an_unknown_operator_is_unknown() -> None:
    graph = Graph(
        tensors=tuple(Tensor(name, (4,)) for name in "xab"),
        nodes=(Node("n", "Relu", ("x",), ("a",)), Node("m", "Frobnicate", ("a",), ("b",))),
        inputs=("x",),
        outputs=("b",),
    )
    assert graph_flops(index_graph(graph)) == [4, None]


def test_sizes_past_64_bits_are_counted_exactly() -> None:
    side = 2**40
    assert cost("mm", [(side, side), (side, side)], [(side, side)]) == 2 * side**3


@pytest.mark.parametrize(
    ("sample", "published"),
    [
        ("resnet50.tmmu.json.gz", 4_089_184_256),  # 4.09 G multiply-adds at 224² (torchvision's page)
        ("vgg19.tmmu.json.gz", 19_632_062_464),  # 19.63 G, likewise
        ("mobilenet_v1.tmmu.json", 568_741_376),  # 569 M (Howard and others 2017, table 4), 1,001 classes
    ],
)
def test_published_network_has_its_published_cost(sample: str, published: int) -> None:
    assert contractions(read_graph_file(SAMPLES / sample)) == 2 * published


def test_llama_training_step_costs_six_operations_per_parameter_and_token_plus_attention() -> None:
    llama = read_graph_file(SAMPLES / "llama3_8b_train_b1_s2048.tmmu.cbor.gz")
    parameters_in_products = 8_030_261_248 - 128_256 * 4096 - 65 * 4096  # the embedding and the norms multiply nothing
    attention = 6 * 2 * 32 * 2048 * 2048 * 4096  # layers, q·kᵀ and its product with v, thrice
    assert contractions(llama) == 6 * parameters_in_products * 2048 + attention
    assert None not in graph_flops(index_graph(llama))


def test_optimizer_is_appended_to_a_given_execution_order() -> None:
    tensors = [tensor("x", role="input"), tensor("w", role="parameter"), tensor("g", role="gradient")]
    step = graph(tensors, [node("b", "x w", "g", phase="backward")], "x", "g")
    for order, after in ((None, None), (("b",), ("b", "adamw:w"))):
        made = add_adamw(msgspec.structs.replace(step, execution_order=order), {"w": "g"})
        assert made.execution_order == after
        assert made.outputs == ()
