"""Damaged files are refused with the code, place and reason of the golden table."""

import pytest

from tests.support.refusal_table import kept_refusals, readers, refusals_of


@pytest.mark.parametrize("reader", readers())
def test_damaged_file_is_refused_with_code_place_and_reason(reader: str) -> None:
    assert refusals_of(reader) == kept_refusals()[reader]
