"""The same bytes from every Python version (:mod:`tests.support.versions`)."""

from __future__ import annotations

import sys

import pytest

from tests.support.versions import Made, asked_of, differences
from tmmu_core.base.errors import UnreadableInput
from tmmu_core.plans.making.request_options import read_json_object


@pytest.mark.slow
def test_hash_seed_does_not_change_store_and_pictures() -> None:
    one, other = (asked_of(sys.executable, ("store", "pictures"), seed) for seed in (1, 2))
    assert len(one.digests) > 150
    assert differences(one, other) == []


def test_differing_output_is_named() -> None:
    one, other = Made("3.11.7", {"a": "1", "b": "2"}), Made("3.14.0", {"a": "1", "b": "3", "c": "4"})
    assert differences(one, other) == [
        "b: differs (3.11.7 and 3.14.0)",
        "c: is made by 3.14.0 alone (3.11.7 and 3.14.0)",
    ]


def test_json_error_has_its_place() -> None:
    """Python 3.13 finds other words for a comma too many."""
    with pytest.raises(UnreadableInput) as caught:
        read_json_object('{"a": 1,}', "shard spec")
    assert caught.value.place == "line 1, column 9, byte 8"
    assert "the shard spec is not JSON." in str(caught.value)
