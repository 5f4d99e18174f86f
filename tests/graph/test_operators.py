"""Operator names: every spelling of an operator has the same properties."""

import pytest

from tmmu_core.graph.flops import operations
from tmmu_core.graph.operators import operator_of

SPELLINGS = {
    "MUL": (
        "mul Mul MUL mul_ mul.Tensor mul_.Tensor multiply Multiply aten::mul aten::mul.Tensor aten.mul.Tensor "
        "aten.mul_.Scalar aten.mul.default torch.mul torch.ops.aten.mul torch.ops.aten.mul.Tensor prims.mul "
        "ai.onnx::Mul onnx.Mul onnx::Mul stablehlo.multiply mhlo.multiply STABLEHLO_MULTIPLY TFL.MUL tfl.mul tf.Mul "
        "aten_mul_Tensor executorch.exir.dialects.edge._ops.aten.mul.Tensor "
        "torch.aten.mul.Tensor operator.mul jnp.multiply torch.Tensor.mul torch._C._VariableFunctions.mul"
    ),
    "RELU": (
        "relu Relu relu_ aten::relu aten.relu.default torch.relu torch.ops.aten.relu.default torch.nn.functional.relu "
        "torch.nn.modules.activation.ReLU ai.onnx::Relu TFL.RELU tf.nn.relu aten_relu_default"
    ),
    "ADD": "Add add.Tensor aten::add.Tensor aten.add_.Tensor torch.ops.aten.add ai.onnx::Add stablehlo.add TFL.ADD",
    "SIGMOID": "Sigmoid aten.sigmoid.default stablehlo.logistic TFL.LOGISTIC",
    "EXP": "Exp aten::exp stablehlo.exponential STABLEHLO_EXPONENTIAL TFL.STABLEHLO_EXPONENTIAL ai.onnx::Exp",
    "DROPOUT": "Dropout ai.onnx::Dropout dropout aten::dropout aten.dropout.default torch.nn.functional.dropout",
    "NATIVE_DROPOUT": "native_dropout aten::native_dropout aten.native_dropout.default torch.ops.aten.native_dropout",
    "RANDN": "randn aten.randn.default aten::randn torch.randn torch.ops.aten.randn.generator",
    "BERNOULLI": "Bernoulli bernoulli_ aten.bernoulli_.float aten::bernoulli.p ai.onnx::Bernoulli",
    "RANDOM_NORMAL": "RandomNormal ai.onnx::RandomNormal tf.random_normal",
    "aten.lstm": "torch.nn.LSTM torch.nn.modules.rnn.LSTM",
    "torch.nn.Conv2d": "torch.nn.modules.conv.Conv2d",
    "torch.nn.MultiheadAttention": "torch.nn.modules.activation.MultiheadAttention",
    "RNG_BIT_GENERATOR": "rng-bit-generator stablehlo.rng_bit_generator STABLEHLO_RNG_BIT_GENERATOR",
    "ALL_REDUCE": (
        "AllReduce all-reduce all_reduce com.microsoft::AllReduce stablehlo.all_reduce c10d::allreduce_ "
        "_c10d_functional.all_reduce.default c10d_functional::all_reduce torch.ops._c10d_functional.all_reduce "
        "torch.distributed.all_reduce ncclAllReduce nccl.AllReduce all-reduce-start"
    ),
    "REDUCE_SCATTER": "ReduceScatter reduce-scatter _c10d_functional.reduce_scatter_tensor mhlo.reduce_scatter",
    "SEND": "send Send stablehlo.send ncclSend c10d.send",
    "DENSIFY": "TFL.DENSIFY tfl.densify",
    "PRINT": "Print print tf.Print",
}


def properties(instr: str) -> tuple[object, ...]:
    """Return every property of an operator, and its cost on 4 × 4 elements."""
    operator, shape = operator_of(instr), (4, 4)
    return (
        operator.is_unknown,
        operator.gradient_needs,
        operator.is_elementwise,
        operator.is_random,
        operator.keeps_position,
        operator.can_recompute,
        operations(instr, (shape, shape), (shape, shape)),
    )


@pytest.mark.parametrize(
    ("name", "spelling"), [(name, each) for name, all_ in SPELLINGS.items() for each in all_.split()]
)
def test_every_spelling_of_an_operator_has_the_same_properties(name: str, spelling: str) -> None:
    assert properties(spelling) == properties(name)
    assert not operator_of(spelling).is_unknown


@pytest.mark.parametrize(
    ("instr", "gradient", "elementwise", "random", "keeps_position", "repeats"),
    [
        ("MUL", "inputs", True, False, False, True),
        ("RELU", "outputs", True, False, False, True),
        ("ADD", "nothing", True, False, False, True),
        ("DROPOUT", "mask", False, True, True, True),
        ("aten._scaled_dot_product_flash_attention_for_cpu", "inputs", False, False, False, True),
        ("ALL_REDUCE", "nothing", False, False, True, False),
        ("PRINT", "inputs", False, False, True, False),
        ("c10d.gather", "nothing", False, False, True, False),
        ("aten.gather.default", "inputs", False, False, False, True),
        ("stablehlo.broadcast", "nothing", False, False, False, True),
        ("acme::Mul", "inputs", False, False, True, False),
        ("acme.dropout", "inputs", False, False, True, False),
        ("<class 'acme.Dropout'>", "inputs", False, False, True, False),
        ("<class 'torch.nn.modules.activation.ReLU'>", "outputs", True, False, False, True),
        ("<built-in method matmul of type object at 0x7f00>", "inputs", False, False, False, True),
        ("<function boolean_dispatch.<locals>.fn at 0x7f00>", "inputs", False, False, True, False),
        ("Frobnicate", "inputs", False, False, True, False),
        ("RELU_GRAD", "outputs", False, False, False, True),
        ("DROPOUT_GRAD", "mask", False, False, False, True),
        ("ALL_REDUCE_GRAD", "nothing", False, False, True, False),
    ],
)
def test_properties_of_an_operator(
    instr: str, gradient: str, elementwise: bool, random: bool, keeps_position: bool, repeats: bool
) -> None:
    assert properties(instr)[1:6] == (gradient, elementwise, random, keeps_position, repeats)


@pytest.mark.parametrize("name", ["Mul::", "acme::", "aten::"])
def test_name_without_a_base_is_an_unknown_operator(name: str) -> None:
    assert operator_of(name).is_unknown
    assert operator_of(name).keeps_position
