"""The model of PyTorch's caching allocator, on sequences whose segments can be counted by hand."""

import random
from itertools import pairwise

import pytest

from tmmu_core.formats.pytorch.caching_allocator import CachingAllocator, OutOfMemory, reserved_peak

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "segment"), [(1, 2), (MIB, 2), (MIB + 1, 20), (10 * MIB - 512, 20), (10 * MIB, 10), (11 * MIB, 12)]
)
def test_segment_size_follows_allocation_size(size: int, segment: int) -> None:
    allocator = CachingAllocator()
    allocator.alloc(size)
    assert allocator.reserved == segment * MIB


def test_lanes_have_segments_of_their_own() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.alloc(1))
    allocator.free(allocator.alloc(1, 1))
    allocator.free(allocator.alloc(1, 2))
    assert allocator.reserved == 6 * MIB


def test_blocks_never_overlap_and_everything_can_be_released() -> None:
    chance, live = random.Random(3), []
    held = 0

    def record(action: str, addr: int, size: int) -> None:
        nonlocal held
        held += size if action == "segment_alloc" else -size

    allocator = CachingAllocator(record)
    for k in range(3000):
        if live and chance.random() < 0.5:
            allocator.free(live.pop(chance.randrange(len(live))))
        else:
            live.append(allocator.alloc(chance.choice([100, 700_000, 3 * MIB, 33 * MIB]), chance.randrange(2)))
        if k % 500 == 499:
            allocator.empty_cache()
        assert held == allocator.reserved
    ends = sorted((block.addr, block.addr + block.size) for block in live)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    for block in live:
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.allocated) == (0, 0)


def test_reserved_peak_of_lifetimes() -> None:
    assert reserved_peak([0, 1], [1, 2], [30 * MIB, 30 * MIB]) == 30 * MIB
    assert reserved_peak([0, 0], [2, 2], [30 * MIB, 30 * MIB]) == 60 * MIB


def test_allocator_with_a_limit_releases_free_segments_before_it_fails() -> None:
    assert reserved_peak([0, 1], [1, 2], [30 * MIB, 40 * MIB], 69 * MIB) == 40 * MIB
    with pytest.raises(OutOfMemory):
        reserved_peak([0, 0], [2, 2], [30 * MIB, 40 * MIB], 69 * MIB)
