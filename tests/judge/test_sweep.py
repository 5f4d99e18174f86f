"""Overlap of boxes in time and bytes, against looking at every pair."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tmmu_core.judge.verifier import box_overlap
from tmmu_core.judge.verifier.box_overlap import Box, Intervals, overlapping


def test_boxes_that_touch_do_not_overlap() -> None:
    assert list(overlapping([(0, 2, 0, 8), (2, 4, 0, 8), (0, 4, 8, 16)])) == []


def test_two_boxes_that_share_a_byte_at_a_step_are_told() -> None:
    assert list(overlapping([(0, 3, 0, 8), (2, 4, 7, 9)])) == [(0, 1)]


def test_all_that_a_large_box_meets_are_told() -> None:
    assert list(overlapping([(0, 9, 0, 4), (0, 9, 4, 8), (3, 4, 2, 6)])) == [(0, 2), (1, 2)]


def test_what_holds_no_bytes_meets_nobody() -> None:
    assert list(overlapping([(0, 9, 0, 8), (0, 9, 4, 4)])) == []


def meet(a: Box, b: Box) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1]) and max(a[2], b[2]) < min(a[3], b[3])


boxes = st.lists(
    st.tuples(*[st.integers(0, 12)] * 4).map(lambda b: (b[0], b[0] + b[1], b[2], b[2] + b[3])),
    max_size=12,
)


@given(boxes)
def test_something_is_told_exactly_where_some_pair_overlaps(some: list[Box]) -> None:
    pairs = {(i, j) for i in range(len(some)) for j in range(i) if meet(some[i], some[j])}
    found = {(max(a, b), min(a, b)) for a, b in overlapping(some)}
    assert found <= pairs
    assert bool(found) == bool(pairs)


@given(st.lists(st.integers(0, 3000), unique=True, max_size=2600), st.integers(0, 3000))
def test_many_intervals_in_chunks_are_found_like_few(starts: list[int], asked: int) -> None:
    intervals = Intervals()
    for start in starts:
        intervals.add(start, start + 1, start)
    for start in starts[::2]:
        intervals.remove(start, start + 1, start)
    left = sorted(starts[1::2])
    assert intervals.meeting(asked, asked + 40) == [start for start in left if asked <= start < asked + 40]


@pytest.mark.parametrize("seed", range(30))
def test_intervals_in_chunks_of_two_are_those_of_a_plain_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_overlap, "CHUNK", 2)
    rng = random.Random(seed)
    intervals, plain = Intervals(), set[tuple[int, int, int]]()
    for number in range(120):
        start = rng.randrange(60)
        end = start + rng.randrange(1, 9)
        met = sorted((low, n) for low, high, n in plain if low < end and high > start)
        assert intervals.meeting(start, end) == [n for _, n in met]
        if not met:
            intervals.add(start, end, number)
            plain.add((start, end, number))
        if plain and rng.randrange(3 if number < 60 else 2) == 0:
            gone = rng.choice(sorted(plain))
            intervals.remove(*gone)
            plain.remove(gone)
