"""Planners give small problems the results of the golden table."""

import pytest

from tests.support.planner_table import QUESTIONS, as_stored, kept_rows

KEPT = kept_rows()


@pytest.mark.parametrize("row", QUESTIONS)
def test_planners_give_the_golden_result(row: str) -> None:
    assert as_stored(QUESTIONS[row]()) == KEPT[row]


def test_every_golden_row_is_recomputed() -> None:
    assert list(KEPT) == list(QUESTIONS)
