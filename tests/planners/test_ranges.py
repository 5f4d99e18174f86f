"""What the greedy loops are made of, beside the plainest that can be said of it: sets of columns and of bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tmmu_core.planners import greedy, kernels
from tmmu_core.planners.greedy import _is_free, _lowest, _merge, _tightest, _Tree

END = 24
"""Bytes that are looked at."""


def covered(node: int, leaves: int) -> set[int]:
    """The columns below a node of the tree whose root is 1, and whose leaves are ``leaves`` and on."""
    below = [node]
    while below[0] < leaves:
        below = [child for each in below for child in (2 * each, 2 * each + 1)]
    return {each - leaves for each in below}


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_a_range_is_the_largest_nodes_within_it_and_above_are_all_over_one_of_them(k: int) -> None:
    tree = _Tree(k)
    leaves = tree.leaves
    assert k <= leaves < max(2 * k, 2)
    nodes = {node: covered(node, leaves) for node in range(1, 2 * leaves)}
    for lo in range(k):
        for hi in range(lo + 1, k + 1):
            columns = set(range(lo, hi))
            inside = {v for v in nodes if nodes[v] <= columns and (v == 1 or not nodes[v // 2] <= columns)}
            above = {v for v in nodes if any(nodes[v] > nodes[w] for w in inside)}
            found = tree._nodes(lo, hi)
            assert ([sorted(each) for each in found]) == [sorted(inside), sorted(above)], (lo, hi)
            one, two = np.zeros((2, 140), np.int64)
            n, m = kernels._nodes(lo, hi, leaves, one, two)
            assert (one[:n].tolist(), two[:m].tolist()) == found, (lo, hi)


Ranges = tuple[list[int], list[int]]


def merged(taken: set[int]) -> Ranges:
    """Sets of bytes as ranges that do not touch."""
    starts = [at for at in sorted(taken) if at - 1 not in taken]
    return starts, [at + 1 for at in sorted(taken) if at + 1 not in taken]


bytes_taken = st.sets(st.integers(0, END - 1), max_size=END)


@given(bytes_taken, st.integers(0, END - 1), st.integers(1, 9))
def test_a_range_more_is_joined_with_what_it_meets_or_touches(taken: set[int], start: int, size: int) -> None:
    expected = merged(taken | set(range(start, start + size)))
    ranges = merged(taken)
    n = len(ranges[0])
    starts, ends = np.full((2, n + 3), 99, np.int64)
    starts[1 : n + 1], ends[1 : n + 1] = ranges
    begin, count = np.array([0, 1], np.int64), np.array([0, n], np.int32)
    _merge(ranges, start, start + size)
    assert ranges == expected
    kernels._merge(1, start, start + size, begin, count, starts, ends)
    m = int(count[1])
    assert (starts[1 : m + 1].tolist(), ends[1 : m + 1].tolist()) == expected
    assert (starts[0], count[0]) == (99, 0), "the list before it is another's"


@given(st.lists(st.integers(0, 9), max_size=9).map(sorted), st.integers(-1, 10))
def test_how_many_of_a_sorted_list_are_below_or_not_above(values: list[int], x: int) -> None:
    table = np.array([5, *values, 5], np.int64)
    assert kernels._after(table, 1, len(values), x) == sum(value <= x for value in values)
    assert kernels._before(table, 1, len(values), x) == sum(value < x for value in values)


def free_at(blocked: Sequence[set[int]], at: int, size: int) -> bool:
    return not any(at <= byte < at + size for taken in blocked for byte in taken)


@given(st.lists(bytes_taken, max_size=4), st.integers(1, 7), st.sampled_from((1, 2, 8)))
def test_the_lowest_is_the_first_multiple_at_which_all_is_free(blocked: list[set[int]], size: int, grid: int) -> None:
    expected = next(at for at in range(0, 99, grid) if free_at(blocked, at, size))
    assert _lowest([merged(taken) for taken in blocked], size, grid) == expected


@given(st.lists(bytes_taken, max_size=4), st.integers(1, 7), st.sampled_from((1, 2, 8)))
def test_the_tightest_is_in_the_smallest_gap_that_takes_it_or_on_top(
    blocked: list[set[int]], size: int, grid: int
) -> None:
    """A gap is what no list takes, from edge to wall; of gaps of one size the lowest."""
    taken = set[int]().union(*blocked)
    gaps = [
        (lo, hi) for lo, hi in zip(*merged(set(range(END + 1)) - taken), strict=True) if hi <= max(taken, default=0)
    ]
    fits = [(hi - lo, -(-lo // grid) * grid) for lo, hi in gaps if -(-lo // grid) * grid + size <= hi]
    top = max(taken, default=-1) + 1
    expected = min(fits)[1] if fits else -(-top // grid) * grid
    assert _tightest([merged(each) for each in blocked], size, grid) == expected


@given(st.lists(bytes_taken, max_size=3), st.integers(0, END), st.integers(1, 7))
def test_what_is_free_in_every_list_is_free(blocked: list[set[int]], at: int, size: int) -> None:
    assert _is_free([merged(taken) for taken in blocked], at, size) == free_at(blocked, at, size)


def test_borders_are_written_as_they_are_measured() -> None:
    """From where the compiled loop pays for itself, and where it is the quicker one."""
    assert (greedy.COMPILED_FROM, greedy.LOADED_FROM) == (10_000, 64)
