"""How a verdict is said in a line."""

from __future__ import annotations

from tmmu_core.judge.finding import summary


def test_one_is_no_number_of_many() -> None:
    assert summary(1, "two lie on one byte") == "1 finding: two lie on one byte"
    assert summary(1200, "two lie on one byte") == "1,200 findings, the first: two lie on one byte"
