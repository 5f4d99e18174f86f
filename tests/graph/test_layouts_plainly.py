"""Where elements lie, beside lists of their places, one by one."""

from __future__ import annotations

from itertools import product
from math import prod
from random import Random

import pytest

from tmmu_core.graph.importers.layouts import Lies, as_view
from tmmu_core.graph.model import Tensor, View

SHAPES = [shape for rank in range(4) for shape in product((0, 1, 2, 3, 4), repeat=rank) if prod(shape) <= 12]
STEPS = (0, 1, 2, 3, 4, 6, 8, 12)


def places(lies: Lies) -> list[int]:
    """The place of each element, in the order of the axes, counted from the first."""
    ways = product(*(range(dim) for dim in lies.shape))
    return [sum(i * stride for i, stride in zip(at, lies.strides, strict=True)) for at in ways]


def drawn() -> list[Lies]:
    random = Random(5)
    return [Lies(shape, tuple(random.choices(STEPS, k=len(shape))), 0, 4) for shape in SHAPES for _ in range(4)]


def in_one_way(at: list[int], shape: tuple[int, ...]) -> bool:
    """Whether strides can be had by which ``shape`` is at these places."""
    steps = [at[prod(shape[k + 1 :])] if dim > 1 else 0 for k, dim in enumerate(shape)]
    return places(Lies(shape, tuple(steps), 0, 1)) == at


def test_what_is_covered_and_whether_it_is_in_order_is_that_of_the_list_of_places() -> None:
    for lies in drawn():
        at = places(lies)
        assert lies.own == 4 * len(at)
        assert lies.covered == 4 * (max(at, default=-1) + 1)
        assert lies.contiguous is (at == list(range(len(at))))


@pytest.mark.parametrize(
    ("shape", "strides", "repeated"),
    [
        *(((), (), False), ((2,), (0,), True), ((1,), (0,), False), ((0,), (0,), False), ((2,), (1,), False)),
        *(((3, 2), (2, 0), True), ((3, 1), (1, 0), False), ((2, 2), (1, 1), False), ((2, 2), (0, 0), True)),
    ],
)
def test_elements_are_repeated_along_an_axis_of_two_that_goes_no_step(
    shape: tuple[int, ...], strides: tuple[int, ...], repeated: bool
) -> None:
    assert Lies(shape, strides, 3, 4).repeats is repeated


def test_a_shape_is_a_view_where_strides_can_be_had_for_it() -> None:
    for lies in drawn():
        at = places(lies)
        for shape in SHAPES:
            if prod(shape) == len(at):
                assert lies.viewable_as(shape) is (not at or in_one_way(at, shape)), (lies, shape)


@pytest.mark.parametrize("shape", [(), (2,), (4,), (5,), (4, 6, 2), (2, 2, 3), (4, 12), (48,), (4, 6, 0)])
def test_a_shape_of_more_or_fewer_elements_is_no_view_of_what_has_gaps(shape: tuple[int, ...]) -> None:
    assert not Lies((4, 6), (12, 1), 0, 4).viewable_as(shape)


@pytest.mark.parametrize(
    ("shape", "strides", "said"),
    [
        *(((2, 3), (3, 1), ((2, 3), "float32", View("b", 20))), ((2, 3), (1, 2), ((2, 3), "float32", (1, 2)))),
        ((2, 3), (4, 1), ((2, 3), "float32", (4, 1))),  # a gap after the first row
        ((3, 2), (1, 1), ((16,), "uint8", View("b", 20))),  # windows: places 0, 1, 1, 2, 2, 3
        ((2, 2), (1, 2), ((2, 2), "float32", (1, 2))),
        ((2, 2), (0, 1), ((2, 2), "float32", View("b", 20, 8, (0, 1)))),  # two rows that are one
        ((2, 2), (0, 9), ((2, 2), "float32", View("b", 20, 16, (0, 9)))),  # no more than it says of itself
        ((0, 2), (2, 1), ((0, 2), "float32", View("b", 20))),
    ],
)
def test_a_view_says_where_it_begins_and_its_strides_only_where_they_are_not_in_order(
    shape: tuple[int, ...], strides: tuple[int, ...], said: tuple[tuple[int, ...], str, View | tuple[int, ...]]
) -> None:
    made = as_view(Tensor("t", shape, "float32", "buffer"), Lies(shape, strides, 5, 4), "b")
    view = said[2] if isinstance(said[2], View) else View("b", 20, None, said[2])
    assert made == Tensor("t", said[0], said[1], "buffer", view=view)
