"""Cost of operators: floating-point operations, computed from an operator and the shapes of its operands.

:mod:`.operators` names the formula of each operator; ``FORMULAS`` maps these names to functions.

In a contraction (matrix product, convolution, attention), each multiplication and each addition counts as one
operation. In other operators, each arithmetic operation, comparison or elementary function (``exp``, ``tanh`` …) on an
element counts as one; moving bytes (views, copies, gathers, casts) counts as 0. The cost of an operator without
formula, or with shapes that do not match its formula, is unknown, not 0. All figures are integers of any size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isqrt, prod

from tmmu_core.graph.index import GraphIndex
from tmmu_core.graph.operators import operator_of

Shape = tuple[int, ...]
Formula = Callable[["Call"], int | None]  # ``None``, ``IndexError`` or ``ValueError``: the cost is unknown


@dataclass(frozen=True)
class Call:
    """The shapes that a node reads and writes."""

    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]

    @property
    def output_elements(self) -> int:
        """Number of elements of the first output."""
        return prod(self.outputs[0])

    @property
    def input_elements(self) -> int:
        """Number of elements of the first input."""
        return prod(self.inputs[0])

    def weighted(self, weights: int, elements: int) -> int:
        """Return 2 · weights · elements, plus 1 for each element of the output if there is a third input (the bias)."""
        return 2 * weights * elements + (self.output_elements if len(self.inputs) > 2 else 0)


def operations(instr: str, inputs: tuple[Shape, ...], outputs: tuple[Shape, ...]) -> int | None:
    """Return the operations of ``instr`` on operands of these shapes; ``None`` if unknown."""
    formula = FORMULAS.get(operator_of(instr).cost)
    try:
        return None if formula is None else formula(Call(inputs, outputs))
    except (IndexError, ValueError):
        return None


def graph_flops(index: GraphIndex) -> list[int | None]:
    """Return the operations of each node, ``None`` where unknown. A loop's body counts once."""
    found = []
    for k, node in enumerate(index.graph.nodes):
        sides = (index.inputs_of(k), index.outputs_of(k))
        reads, writes = (tuple([index.shapes[i] for i in numbers.tolist()]) for numbers in sides)
        found.append(operations(node.instr, reads, writes))
    return found


def total_flops(index: GraphIndex) -> int:
    """Return the operations of one run of all nodes with a known cost."""
    return sum(filter(None, graph_flops(index)))


def _fold(call: Call) -> int:
    """``Sum``, ``Max`` …: several inputs are combined element by element, or one input is reduced along axes."""
    if call.output_elements < max(map(prod, call.inputs)):
        return call.input_elements
    return max(1, len(call.inputs) - 1) * call.output_elements


def _matmul(call: Call, left: int = 0, added: int = 0) -> int | None:
    """[…, M, K] · […, K, N]: 2·K + ``added`` per element of the output. ``left``: position of the first operand."""
    a, b = call.inputs[left], call.inputs[left + 1]
    depth = a[-1] if a[-1] == b[max(0, len(b) - 2)] else 0  # an operand with one axis is a vector
    if len(a) == len(b) == 2 and call.output_elements:
        # The file may have an operand's shape before it is transposed, so K comes from sizes: M·K · K·N / (M·N) = K².
        depth = isqrt(prod(a) * prod(b) // call.output_elements)
        depth = depth if depth**2 * call.output_elements == prod(a) * prod(b) and depth in a and depth in b else 0
    return (2 * depth + added) * call.output_elements if depth or not call.output_elements else None


def _dense(call: Call) -> int | None:
    """Gemm, linear, fully connected, [M, K] · [K, N] or transposed: 2·K per element of the output, and the bias."""
    weights = call.inputs[1]
    if not call.output_elements or not weights:
        return None if call.output_elements else 0
    columns = call.outputs[0][-1]
    depth, rest = divmod(prod(weights), columns)
    fits = not rest and call.input_elements * columns == call.output_elements * depth
    return call.weighted(depth, call.output_elements) if fits else None


def _convolution(call: Call) -> int | None:
    """Weights [O, I/groups, k…] or [O, k…, I]: 2 · numel(weights) / O for each element of the output, plus the bias.

    A transposed convolution has weights [I, O/groups, k…] and costs 2 · numel(weights) / I per element of the input.
    It is recognised by shapes: x has I channels, and the output has other channels or is larger on all spatial axes.
    """
    x, w, y = call.inputs[0], call.inputs[1], call.outputs[0]
    if len(w) < 3 or len(x) != len(w) or len(y) != len(w):
        return None
    is_larger = all(after > before for after, before in zip(y[2:], x[2:], strict=True))
    if x[1] == w[0] and (y[1] != w[0] or is_larger):
        return call.weighted(prod(w[1:]), call.input_elements)
    return call.weighted(prod(w[1:]), call.output_elements) if y[1] == w[0] else None


def _conv2d(call: Call) -> int | None:
    """TensorFlow Lite: NHWC with weights [O, kh, kw, I/groups]; other layouts: :func:`_convolution`."""
    w = call.inputs[1]
    is_nhwc = len(w) > 2 and call.outputs[0][-1] == w[0]
    return call.weighted(prod(w[1:]), call.output_elements) if is_nhwc else _convolution(call)


def _depthwise(call: Call) -> int | None:
    """One filter per channel: [C, 1, kh, kw], or TensorFlow Lite's [1, kh, kw, C]."""
    w = call.inputs[1]
    window = prod(w[1:-1]) if w[0] == 1 and w[-1] == call.outputs[0][-1] else prod(w[1:])
    return call.weighted(window, call.output_elements) if len(w) > 2 else None


def _transposed_convolution(call: Call) -> int | None:
    """ONNX: [I, O/groups, k…]; each element of the input is multiplied with all weights of its channel."""
    w = call.inputs[1]
    return call.weighted(prod(w[1:]), call.input_elements) if len(w) > 2 and call.inputs[0][1] == w[0] else None


def _transposed_convolution_of_tflite(call: Call) -> int | None:
    """Inputs: the shape of the output, the weights [O, kh, kw, I], and x."""
    w, x = call.inputs[1], call.inputs[2]
    return 2 * prod(w[:-1]) * prod(x) if len(w) > 2 and x[-1] == w[-1] else None


def _convolution_backward(call: Call) -> int | None:
    """Inputs: gradient, x, weights. The gradients of x and weights cost a forward pass each, that of the bias a sum."""
    gradient, x, w = call.inputs[:3]
    forward = _convolution(Call((x, w), (gradient,)))
    bias = prod(gradient) if any(len(shape) == 1 for shape in call.outputs) else 0
    return None if forward is None else forward * sum(len(shape) == len(w) for shape in call.outputs) + bias


def _quantised_convolution(call: Call) -> int | None:
    """Inputs: x, its scale, its zero point, the weights, …. Each element of the output is scaled and rounded."""
    found = _convolution(Call((call.inputs[0], call.inputs[3]), call.outputs))
    return None if found is None else found + 2 * call.output_elements


def _attention(call: Call, first: int, keys: int, values: int, elementwise: int, axis: int = -2) -> int | None:
    """Inputs: q [B, H, S, D], k [B, G, L, D], v [B, G, L, E]; q is input ``first``, ``axis`` is the axis of S and L.

    Each of the B·H·S·L scores costs ``keys`` products along D, ``values`` along E, and ``elementwise`` operations.
    """
    q, k, v = call.inputs[first : first + 3]
    if not len(q) == len(k) == len(v) > -axis or q[-1] != k[-1]:
        return None
    return prod(q[:-1]) * k[axis] * (2 * (keys * q[-1] + values * v[-1]) + elementwise)


def _recurrent(gates: int, call: Call) -> int | None:
    """ONNX: X [T, B, I], W [directions, gates·H, I], R [directions, gates·H, H]; 4 more operations per gate value."""
    x, w, r = call.inputs[:3]
    if len(x) != 3 or len(w) != 3 or len(r) != 3 or w[1] != gates * r[2]:
        return None
    return x[0] * x[1] * (2 * (prod(w) + prod(r)) + 4 * w[0] * w[1])


def _rnn_layer(call: Call) -> int:
    """PyTorch's layer on the CPU: x [T, B, I], weights [gates·H, I], [gates·H, H]; 8 more operations per gate value."""
    rows, weights = prod(call.inputs[0][:-1]), prod(call.inputs[1]) + prod(call.inputs[2])
    return rows * (2 * weights + 8 * call.inputs[1][0])


FORMULAS: dict[str, Formula] = {
    "moves": lambda call: 0,
    # eachN: N for every element of the first output. readN: N for every element of the first input (reductions).
    **{f"each{n}": partial(lambda n, call: n * call.output_elements, n) for n in (1, 2, 3, 4, 5, 8, 9, 14)},
    **{f"read{n}": partial(lambda n, call: n * call.input_elements, n) for n in (1, 2, 3, 4, 6, 11, 14)},
    "fold": _fold,
    # Three inputs: a choice by a mask. PyTorch's ``select`` has fewer and is a view.
    "select": lambda call: call.output_elements if len(call.inputs) > 2 else 0,
    # In training, the second output is a mask.
    "dropout": lambda call: 2 * call.output_elements if len(call.outputs) > 1 else 0,
    "touched": lambda call: sum(map(prod, (*call.inputs, *call.outputs))),
    # Elements of the index or of the source, whichever has more (one may be broadcast). Input 0 is the target.
    "scattered": lambda call: max(map(prod, call.inputs[1:])),
    # 5·N·(⌊log₂ N⌋ + 1), as a complex transform of all N elements.
    "fft": lambda call: 5 * (count := max(call.input_elements, call.output_elements)) * count.bit_length(),
    # Dense factorizations and solvers: about 2·n³ for each matrix of the largest input.
    "linalg": lambda call: (
        2 * prod((shape := max(call.inputs, key=prod))[:-2]) * max(shape[-2:]) ** 2 * min(shape[-2:])
    ),
    "rnnlayer": _rnn_layer,
    "rnnlayerbackward": lambda call: 2 * _rnn_layer(call),
    # 2 for each element of the target: the last input, or the one before the weights.
    "loss": lambda call: 2 * prod(call.inputs[-2 if len(call.inputs) > 2 else -1]),
    "matmul": _matmul,
    "addmm": lambda call: _matmul(call, left=1, added=1),
    "addbmm": lambda call: 2 * prod(call.inputs[1]) * call.inputs[2][-1] + call.output_elements,
    "dense": _dense,
    "matrixvector": lambda call: 2 * call.input_elements,
    "addmv": lambda call: 2 * prod(call.inputs[1]) + call.output_elements,
    "gelumatmul": lambda call: _matmul(call, added=8),
    "convolution": _convolution,
    "conv2d": _conv2d,
    "depthwise": _depthwise,
    "convtranspose": _transposed_convolution,
    "transposeconv": _transposed_convolution_of_tflite,
    "convolutionbackward": _convolution_backward,
    "qlinearconv": _quantised_convolution,
    # Forward: q·kᵀ, its softmax, and the product with v. Backward (input 0 is the gradient): the scores again, then
    # the gradients of v, of the scores, of q and of k.
    "attention": lambda call: _attention(call, 0, 1, 1, 6),
    "attentionbackward": lambda call: _attention(call, 1, 3, 2, 8),
    "attentionheadslast": lambda call: _attention(call, 0, 1, 1, 6, axis=-3),
    "attentionheadslastbackward": lambda call: _attention(call, 1, 3, 2, 8, axis=-3),
    "lstm": partial(_recurrent, 4),
    "gru": partial(_recurrent, 3),
    "rnn": partial(_recurrent, 1),
}
