"""Overlap of boxes in time and bytes, compared with testing every pair."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tmmu_core.judge.verifier.check_bytes import Box, overlapping


def test_touching_boxes_do_not_overlap() -> None:
    assert list(overlapping([(0, 2, 0, 8), (2, 4, 0, 8), (0, 4, 8, 16)])) == []


def test_boxes_that_share_a_byte_at_a_step_overlap() -> None:
    assert list(overlapping([(0, 3, 0, 8), (2, 4, 7, 9)])) == [(0, 1)]


def test_every_box_that_a_large_one_overlaps_is_found() -> None:
    assert list(overlapping([(0, 9, 0, 4), (0, 9, 4, 8), (3, 4, 2, 6)])) == [(0, 2), (1, 2)]


def test_box_without_bytes_overlaps_nothing() -> None:
    assert list(overlapping([(0, 9, 0, 8), (0, 9, 4, 4)])) == []


def meet(a: Box, b: Box) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1]) and max(a[2], b[2]) < min(a[3], b[3])


boxes = st.lists(
    st.tuples(*[st.integers(0, 12)] * 4).map(lambda b: (b[0], b[0] + b[1], b[2], b[2] + b[3])),
    max_size=12,
)


@given(boxes)
def test_overlap_is_found_exactly_if_a_pair_overlaps(some: list[Box]) -> None:
    pairs = {(i, j) for i in range(len(some)) for j in range(i) if meet(some[i], some[j])}
    found = {(max(a, b), min(a, b)) for a, b in overlapping(some)}
    assert found <= pairs
    assert bool(found) == bool(pairs)
