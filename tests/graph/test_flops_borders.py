"""Formulas of operators at their borders: shapes that just fit, just do not, or are of no size."""

from __future__ import annotations

import pytest

from tmmu_core.graph.flops import Call, Flops, GraphFlops, operations

Shape = tuple[int, ...]

KNOWN: list[tuple[str, list[Shape], list[Shape], tuple[int, int]]] = [
    # Of several inputs one less than there are; of one along axes, each element that is read.
    ("max", [(4, 5), (4, 5), (5,)], [(4, 5)], (0, 40)),
    ("max", [(4, 5)], [(4, 5)], (0, 20)),
    ("max", [(4, 5)], [(4,)], (0, 20)),
    ("sum", [(4, 5), (1,)], [(4, 1)], (0, 20)),
    # A view of one index, or one of two.
    ("select", [(4, 5), ()], [(5,)], (0, 0)),
    ("select", [(4, 5), (4, 5), (4, 5)], [(4, 5)], (0, 20)),
    ("dropout", [(4, 5)], [(4, 5)], (0, 0)),
    ("dropout", [(4, 5)], [(4, 5), (4, 5)], (0, 40)),
    # Vectors, batches, and operands of two axes that are stored the other way.
    ("mm", [(3,), (3,)], [()], (6, 0)),
    ("mm", [(3,), (3, 5)], [(5,)], (30, 0)),
    ("mm", [(2, 3), (3,)], [(2,)], (12, 0)),
    ("mm", [(7, 2, 3), (7, 3, 5)], [(7, 2, 5)], (420, 0)),
    ("mm", [(3, 2), (3, 5)], [(2, 5)], (60, 0)),
    ("mm", [(4, 3), (5, 4)], [(3, 5)], (120, 0)),
    ("mm", [(2, 3), (3, 5)], [(2, 4)], (48, 0)),  # the operands' own depth, whatever the result is said to be
    ("mm", [(0, 3), (4, 5)], [(0, 5)], (0, 0)),
    ("addmm", [(5,), (2, 3), (3, 5)], [(2, 5)], (60, 10)),
    ("baddbmm", [(4, 2, 5), (4, 2, 3), (4, 3, 5)], [(4, 2, 5)], (240, 40)),
    ("addbmm", [(2, 5), (4, 2, 3), (4, 3, 5)], [(2, 5)], (240, 10)),
    ("gelumatmul", [(2, 3), (3, 5)], [(2, 5)], (60, 80)),
    ("addmv", [(2,), (2, 3), (3,)], [(2,)], (12, 2)),
    ("mv", [(2, 3), (3,)], [(2,)], (12, 0)),
    # A row of K for each element of the result.
    ("linear", [(7, 2, 3), (5, 3)], [(7, 2, 5)], (420, 0)),
    ("linear", [(2, 3), (5, 3), (5,)], [(2, 5)], (60, 10)),
    ("linear", [(3,), (5, 3)], [(5,)], (30, 0)),
    ("linear", [(2, 3), (0, 3)], [(2, 0)], (0, 0)),
    ("linear", [(0, 3), ()], [(0, 5)], (0, 0)),
    # Convolutions of one axis and of two; the bias; strides; transposed, by what the shapes tell.
    ("conv", [(2, 3, 9), (4, 3, 5)], [(2, 4, 7)], (2 * 15 * 56, 0)),
    ("conv", [(2, 3, 9), (4, 3, 5), (4,)], [(2, 4, 7)], (2 * 15 * 56, 56)),
    ("conv", [(2, 3, 9), (4, 3, 5)], [(2, 4, 9)], (2 * 15 * 72, 0)),
    ("conv", [(2, 4, 9), (4, 4, 5)], [(2, 4, 11)], (2 * 20 * 72, 0)),  # wider: transposed
    ("conv", [(2, 4, 9, 9), (4, 4, 5, 5)], [(2, 4, 11, 9)], (2 * 100 * 8 * 99, 0)),  # wider along one axis alone: not
    ("conv", [(2, 4, 9), (4, 7, 5)], [(2, 7, 9)], (2 * 35 * 72, 0)),  # other channels: transposed
    ("conv", [(2, 4, 9), (4, 7, 5), (7,)], [(2, 7, 9)], (2 * 35 * 72, 126)),
    ("conv", [(2, 3, 9), (4, 3, 5)], [(2, 4, 11)], (2 * 15 * 88, 0)),  # wider by its padding: no other way fits
    ("conv", [(2, 3, 9), (4, 3, 5), (4,)], [(2, 4, 11)], (2 * 15 * 88, 88)),
    ("conv2d", [(1, 9, 3), (4, 5, 3)], [(1, 7, 4)], (2 * 15 * 28, 0)),
    ("conv2d", [(1, 9, 3), (4, 5, 3), (4,)], [(1, 7, 4)], (2 * 15 * 28, 28)),
    ("depthwiseconv", [(1, 4, 9), (4, 1, 5)], [(1, 4, 7)], (2 * 5 * 28, 0)),
    ("depthwiseconv", [(1, 4, 9), (4, 1, 5), (4,)], [(1, 4, 7)], (2 * 5 * 28, 28)),
    ("depthwiseconv", [(1, 9, 4), (1, 5, 4)], [(1, 7, 4)], (2 * 5 * 28, 0)),
    ("depthwiseconv", [(1, 1, 9), (1, 1, 5)], [(1, 1, 7)], (2 * 5 * 7, 0)),  # one channel, channels first
    ("depthwiseconv", [(1, 8, 9), (4, 2, 5)], [(1, 4, 5)], (2 * 10 * 20, 0)),  # two channels a filter
    ("convtranspose", [(2, 4, 9), (4, 7, 5)], [(2, 7, 13)], (2 * 35 * 72, 0)),
    ("convtranspose", [(2, 4, 9), (4, 7, 5), (7,)], [(2, 7, 13)], (2 * 35 * 72, 182)),
    ("transposeconv", [(4,), (7, 5, 4), (2, 9, 4)], [(2, 13, 7)], (2 * 35 * 72, 0)),
    # Backward: of the input, of the weights, of the bias.
    ("convolutionbackward", [(2, 4, 7), (2, 3, 9), (4, 3, 5)], [(2, 3, 9), (4, 3, 5), (4,)], (4 * 15 * 56, 56)),
    ("convolutionbackward", [(2, 4, 7), (2, 3, 9), (4, 3, 5)], [(4, 3, 5), (4,)], (2 * 15 * 56, 56)),
    ("convolutionbackward", [(2, 4, 7), (2, 3, 9), (4, 3, 5), (4,)], [(2, 3, 9)], (2 * 15 * 56, 0)),
    ("qlinearconv", [(2, 3, 9), (), (), (4, 3, 5), (), ()], [(2, 4, 7)], (2 * 15 * 56, 112)),
    # Scores q·kᵀ, six operations for each, and the product with v.
    ("scaleddotproductattention", [(2, 8, 3), (2, 5, 3), (2, 5, 4)], [(2, 8, 4)], (2 * 80 * 7, 480)),
    ("scaleddotproductattention", [(2, 8, 3), (2, 5, 3), (2, 5, 4), (8, 5)], [(2, 8, 4)], (2 * 80 * 7, 480)),
    (
        "scaleddotproductflashattentionbackward",
        [(2, 8, 4), (2, 8, 3), (2, 5, 3), (2, 5, 4), (2, 8, 4)],
        [(2, 8, 3), (2, 5, 3), (2, 5, 4)],
        (2 * 80 * (9 + 8), 640),
    ),
    ("rnn", [(3, 2, 5), (2, 4, 5), (2, 4, 4)], [(3, 2, 2, 4)], (2 * 6 * (40 + 32), 4 * 6 * 8)),
    ("gru", [(3, 2, 5), (1, 12, 5), (1, 12, 4), (1, 24)], [(3, 1, 2, 4)], (2 * 6 * (60 + 48), 4 * 6 * 12)),
    # A loss reads what is scored: the operand before the last where there are three, as its backward has it.
    ("nllloss", [(4, 5), (4,)], [()], (0, 8)),
    ("nllloss", [(4,)], [()], (0, 8)),
    ("nlllossbackward", [(), (4, 5), (4,)], [(4, 5)], (0, 40)),
    ("nlllossforward", [(4, 5), (4,), (5,), ()], [(), ()], (0, 10)),
]

UNKNOWN: list[tuple[str, list[Shape], list[Shape]]] = [
    ("mm", [(), (3,)], [(3,)]),
    ("mm", [(3,), ()], [(3,)]),
    ("mm", [(2, 6), (3, 4)], [(2, 2)]),  # K = 6 is no axis of the second
    ("mm", [(4, 3), (6, 2)], [(2, 2)]),  # nor of the first
    ("mm", [(4, 3), (5, 4)], [(2, 7)]),  # 240 = K² · 14 has no K
    ("mm", [(1, 4, 3), (1, 5, 4)], [(1, 3, 5)]),  # only two axes are stored the other way
    ("mm", [(4, 3), (1, 5, 4)], [(1, 3, 5)]),
    ("mm", [(1, 4, 3), (5, 4)], [(1, 3, 5)]),
    ("mm", [(4,), (5,)], [(5,)]),
    ("linear", [(2, 1), ()], [(2, 1)]),
    ("linear", [(2, 3), (5, 3)], [(2, 4)]),  # 15 weights in rows of 4
    ("linear", [(2, 4), (5, 3)], [(2, 5)]),
    ("linear", [(3,), (3,)], [()]),
    ("conv", [(2, 3), (4, 3)], [(2, 4)]),
    ("conv", [(2, 3), (4, 3, 5)], [(2, 4, 7)]),
    ("conv", [(2, 3, 9), (4, 3, 5)], [(2, 4)]),
    ("conv", [(2, 3, 9, 1), (4, 3, 5)], [(2, 4, 7)]),
    ("conv", [(2, 3, 9), (4, 3, 5)], [(2, 4, 7, 1)]),
    ("conv", [(2, 3, 9), (4, 3, 5)], [(2, 6, 7)]),
    ("conv2d", [(9, 3), (4, 3)], [(9, 4)]),
    ("conv2d", [(1, 9, 3), (4, 5, 3)], [(1, 7, 5)]),
    ("depthwiseconv", [(4, 9), (4, 5)], [(4, 7)]),
    ("convtranspose", [(2, 4), (4, 7)], [(2, 7)]),
    ("convtranspose", [(2, 5, 9), (4, 7, 5)], [(2, 7, 13)]),
    ("transposeconv", [(4,), (7, 4), (2, 4)], [(2, 7)]),
    ("transposeconv", [(4,), (7, 5, 4), (2, 9, 3)], [(2, 13, 7)]),
    ("convolutionbackward", [(2, 6, 7), (2, 3, 9), (4, 3, 5)], [(2, 3, 9)]),
    ("qlinearconv", [(2, 3, 9), (), (), (4, 3, 5)], [(2, 6, 7)]),
    ("scaleddotproductattention", [(8, 3), (5, 3), (5, 4)], [(8, 4)]),
    ("scaleddotproductattention", [(2, 8, 3), (2, 5, 4), (2, 5, 4)], [(2, 8, 4)]),
    ("scaleddotproductattention", [(1, 2, 8, 3), (2, 5, 3), (2, 5, 4)], [(2, 8, 4)]),
    ("scaleddotproductattention", [(2, 8, 3), (2, 5, 3), (1, 2, 5, 4)], [(2, 8, 4)]),
    ("scaleddotproductflashattentionbackward", [(8, 4), (8, 3), (5, 3), (5, 4)], [(8, 3)]),
    ("scaleddotproductflashattentionbackward", [(2, 8, 4), (2, 8, 3), (2, 5, 4), (2, 5, 4)], [(2, 8, 3)]),
    ("scaleddotproductflashattentionbackward", [(2, 8, 4), (1, 2, 8, 3), (2, 5, 3), (2, 5, 4)], [(2, 8, 3)]),
    ("scaleddotproductflashattentionbackward", [(2, 8, 4), (2, 8, 3), (2, 5, 3), (1, 2, 5, 4)], [(2, 8, 3)]),
    ("rnn", [(3, 2), (2, 4, 5), (2, 4, 4)], [(3, 2, 2, 4)]),
    ("rnn", [(3, 2, 5), (2, 4), (2, 4, 4)], [(3, 2, 2, 4)]),
    ("rnn", [(3, 2, 5), (2, 4, 5, 1), (2, 4, 4)], [(3, 2, 2, 4)]),
    ("rnn", [(3, 2, 5, 1), (2, 4, 5), (2, 4, 4)], [(3, 2, 2, 4)]),
    ("rnn", [(3, 2, 5), (2, 4, 5), (2, 4, 4, 1)], [(3, 2, 2, 4)]),
    ("rnn", [(3, 2, 5), (2, 4, 5), (2, 4, 3)], [(3, 2, 2, 4)]),
]


@pytest.mark.parametrize(("instr", "inputs", "outputs", "expected"), KNOWN)
def test_a_formula_counts_what_fits_it(
    instr: str, inputs: list[Shape], outputs: list[Shape], expected: tuple[int, int]
) -> None:
    assert operations(instr, tuple(inputs), tuple(outputs)) == Flops(*expected)


@pytest.mark.parametrize(("instr", "inputs", "outputs"), UNKNOWN)
def test_what_just_does_not_fit_is_unknown(instr: str, inputs: list[Shape], outputs: list[Shape]) -> None:
    assert operations(instr, tuple(inputs), tuple(outputs)) is None


@pytest.mark.parametrize(
    ("instr", "of_result", "of_operand"),
    [("add", 1, 0), ("lerp", 2, 0), ("gelu", 8, 0), ("mean", 0, 1), ("sgd", 0, 2), ("adamw", 0, 14)],
)
def test_one_count_for_each_element_that_is_written_or_read(instr: str, of_result: int, of_operand: int) -> None:
    found = operations(instr, ((2, 3), (9,)), ((5,), (7,)))
    assert found == Flops(elementwise=5 * of_result + 6 * of_operand)


def test_totals_leave_out_what_is_unknown() -> None:
    found = GraphFlops((Flops(3, 4), None, Flops(10, 20)), {"x": 1})
    assert (found.total, found.contraction, found.of_node[0] and found.of_node[0].total) == (37, 13, 7)


def test_a_call_knows_its_first_operand_and_its_first_result() -> None:
    call = Call(((2, 3), (7,)), ((5,), (11,)))
    assert (call.operand, call.result) == (6, 5)
