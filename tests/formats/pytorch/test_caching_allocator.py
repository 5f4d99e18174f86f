"""The model of PyTorch's caching allocator, on sequences whose segments can be counted by hand."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tmmu_core.formats.pytorch.caching_allocator import AllocatorSettings, CachingAllocator, OutOfMemory, reserved_peak

MIB = 1 << 20
EXPANDABLE = AllocatorSettings(expandable_segments=True)


@pytest.mark.parametrize(
    ("size", "segment"), [(1, 2), (MIB, 2), (MIB + 1, 20), (10 * MIB - 512, 20), (10 * MIB, 10), (11 * MIB, 12)]
)
def test_segment_size_follows_allocation_size(size: int, segment: int) -> None:
    allocator = CachingAllocator()
    allocator.alloc(size)
    assert allocator.reserved == segment * MIB


def test_streams_and_pools_have_segments_of_their_own() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.alloc(1))
    allocator.free(allocator.alloc(1, stream=1))
    allocator.free(allocator.alloc(1, pool=1))
    assert allocator.reserved == 6 * MIB


def test_expandable_segment_grows_where_segments_would_not_fit() -> None:
    events: list[tuple[str, int, int]] = []
    allocator = CachingAllocator(EXPANDABLE, record=lambda *event: events.append(event))
    allocator.free(allocator.alloc(30 * MIB))
    allocator.alloc(70 * MIB)
    assert [(action, size // MIB) for action, _, size in events] == [("segment_map", 40), ("segment_map", 40)]
    plain = CachingAllocator()
    plain.free(plain.alloc(30 * MIB))
    plain.alloc(70 * MIB)
    assert (allocator.reserved, plain.reserved) == (80 * MIB, 100 * MIB)


def test_large_blocks_above_max_split_size_serve_no_smaller_allocation() -> None:
    peaks = []
    for settings in (AllocatorSettings(), AllocatorSettings(max_split_size=64 * MIB)):
        allocator = CachingAllocator(settings)
        allocator.free(allocator.alloc(200 * MIB))
        allocator.alloc(30 * MIB)
        peaks.append(allocator.reserved_peak // MIB)
    assert peaks == [200, 230]


def test_full_device_releases_its_cache_before_it_refuses() -> None:
    allocator = CachingAllocator(capacity=100 * MIB)
    allocator.free(allocator.alloc(60 * MIB))
    allocator.alloc(80 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.alloc(40 * MIB)
    assert (allocator.reserved, allocator.reserved_peak) == (80 * MIB, 80 * MIB)


@pytest.mark.parametrize("settings", [AllocatorSettings(), EXPANDABLE, AllocatorSettings(max_split_size=64 * MIB)])
def test_blocks_never_overlap_and_everything_can_be_released(settings: AllocatorSettings) -> None:
    chance, live = random.Random(3), []
    held = 0

    def record(action: str, addr: int, size: int) -> None:
        nonlocal held
        held += size if action in ("segment_alloc", "segment_map") else -size

    allocator = CachingAllocator(settings, record=record)
    for k in range(3000):
        if live and chance.random() < 0.5:
            allocator.free(live.pop(chance.randrange(len(live))))
        else:
            live.append(allocator.alloc(chance.choice([100, 700_000, 3 * MIB, 33 * MIB]), stream=chance.randrange(2)))
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
