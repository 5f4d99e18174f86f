"""The same bytes from every Python version and hash seed (:mod:`tests.support.versions`)."""

import sys

import pytest

from tests.support.versions import digests
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.plans.making.request_options import read_json_object


@pytest.mark.slow
def test_hash_seed_does_not_change_the_output() -> None:
    one, other = (digests(sys.executable, seed) for seed in (1, 2))
    assert len(one) > 150
    assert one == other


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_json_error_has_its_place(mark: str) -> None:
    """Python 3.13 has another message for a trailing comma."""
    with pytest.raises(UnreadableInput) as caught:
        read_json_object(mark + '{"a": 1,}', "shard spec")
    assert caught.value.place == "line 1, column 9, byte 8"
    assert str(caught.value).startswith("shard spec: this is not JSON: ")
    assert " (at line 1, column 9, byte 8).\n" in str(caught.value)
