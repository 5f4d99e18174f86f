"""The table of planners: its entries match the planners."""

from typing import Any

import numpy as np
import pytest

from tests.planners.packings import offsets, problem, problem_with
from tests.support.build import graph, node, residual, tensor
from tmmu_core.base.errors import ArenaTooSmall, InvalidIrShapes
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.exact import DEFAULT_BUDGET
from tmmu_core.planners.portfolio import DEFAULT_ITERATIONS
from tmmu_core.planners.problem import choice_option, count_option, flag_option
from tmmu_core.plans.making.engine import plan_graph


def test_defaults_are_those_of_the_planners() -> None:
    assert PLANNERS["exact"].options["budget"] == DEFAULT_BUDGET
    assert PLANNERS["search"].options["iterations"] == DEFAULT_ITERATIONS


def test_unknown_option_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(InvalidIrShapes, match="'speed'") as caught:
        plan_graph(residual(), planner="greedy", options={"speed": 9})
    assert "fit, order" in caught.value.hint


@pytest.mark.parametrize("name", ["best", ["auto"]])
def test_unknown_planner_is_rejected_with_the_known_ones(name: Any) -> None:
    with pytest.raises(InvalidIrShapes) as caught:
        plan_graph(residual(), planner=name)
    assert "portfolio" in caught.value.hint


@pytest.mark.parametrize(
    ("capacity", "answer"),
    [
        # The two large ones fall into different slots: 128 B, though never more than 80 B are alive.
        (79, "no"),
        (100, "portfolio"),
    ],
)
def test_arena_too_small_reports_whether_another_planner_fits(capacity: int, answer: str) -> None:
    tensors = [tensor("x", 4, role="input"), *(tensor(name, 16 if name in "ad" else 4) for name in "abcdy")]
    nodes = [node(f"n{i}", s, t, inplace="none") for i, (s, t) in enumerate(("xa", "ab", "bc", "cd", "dy"))]
    arenas = {"activations": {"capacity_bytes": capacity, "alignment_bytes": 1}}
    with pytest.raises(ArenaTooSmall) as caught:
        plan_graph(graph(tensors, nodes, "x", "y"), arenas=arenas)
    assert caught.value.diagnostics["another_planner_would_fit"] == answer


def test_planner_option_is_parsed_or_rejected() -> None:
    assert [count_option({"n": given}, "n", 7) for given in (0, 3, "0", "12", np.int64(5))] == [0, 3, 0, 12, 5]
    assert count_option({}, "n", 7) == 7
    for wrong in (-1, "-1", "x", "", "²", 1.0, True, None):
        with pytest.raises(InvalidIrShapes, match="n=") as caught:
            count_option({"n": wrong}, "n", 7)
        assert caught.value.diagnostics["reason"] == "planner_option"
    shown_text = [flag_option({"f": given}, "f", False) for given in (True, False, "true", "False", None)]
    assert shown_text == [True, False, True, False, False]
    assert flag_option({}, "f", True)
    for wrong in ("yes", 1, ""):
        with pytest.raises(InvalidIrShapes, match="f="):
            flag_option({"f": wrong}, "f", True)
    assert (choice_option({}, "o", "a", ("a", "b")), choice_option({"o": "b"}, "o", "a", ("a", "b"))) == ("a", "b")
    with pytest.raises(InvalidIrShapes, match="o='c'"):
        choice_option({"o": "c"}, "o", "a", ("a", "b"))


def test_empty_storage_is_at_0_or_its_fixed_offset() -> None:
    p = problem_with(problem((0, 2, 8), (0, 2, 0), (0, 2, 0)), fixed=np.array([-1, 24, -1]))
    for name in ("greedy", "exact", "ffd"):
        packing = PLANNERS[name].pack(p, {}, None)  # type: ignore[union-attr]
        assert offsets(packing) == [0, 24, 0], name
