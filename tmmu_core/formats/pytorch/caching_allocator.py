"""Model of PyTorch's CUDA caching allocator: the segments that it reserves for a sequence of allocations and frees.

::

    alloc(size) ─► round up to 512 B ─► best fit among the free blocks of (lane, small | large);
                                        if none fits: a new segment of 2 MiB, 20 MiB or a multiple of 2 MiB (cudaMalloc)
                                        if that exceeds the limit: release all free segments, and try again

A lane is a stream and a memory pool. Source: ``c10/cuda/CUDACachingAllocator.cpp`` (``malloc``, ``get_free_block``,
``should_split``, ``free_block``, ``release_blocks``) with the default settings.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import ArrayLike

BLOCK_UNIT = 512  # block sizes are multiples of it, in bytes
SMALL_SIZE = 1 << 20  # maximum bytes of a small allocation
OWN_SEGMENT_SIZE = 10 << 20  # minimum bytes for which a new segment has the size of the allocation, rounded up
SMALL_SEGMENT, LARGE_SEGMENT = 2 << 20, 20 << 20  # bytes of a new segment for a small, and for any other allocation
SEGMENT_UNIT = 2 << 20  # unit of the rounding for ``OWN_SEGMENT_SIZE``, in bytes
BASE_ADDRESS = 0x7F00_0000_0000


@dataclass(eq=False, slots=True)
class Block:
    """A part of a segment, allocated or free."""

    addr: int
    size: int
    pool: Pool  # the free blocks of its lane, for small or for large allocations
    before: Block | None = None
    after: Block | None = None
    is_free: bool = False

    def merge(self, following: Block) -> None:
        """Add the block after this one to this block."""
        self.size += following.size
        self.after = following.after
        if following.after is not None:
            following.after.before = self


Pool = list[tuple[int, int, Block]]  # free blocks: ``(size, address, block)``, sorted
Recorder = Callable[[str, int, int], None]  # called with an action (name in PyTorch), and a segment's address and bytes


class OutOfMemory(Exception):
    """The allocator needs more memory than its limit."""


class CachingAllocator:
    """The allocator of one device. ``limit`` is the maximum number of reserved bytes."""

    def __init__(self, record: Recorder = lambda action, addr, size: None, limit: int = sys.maxsize) -> None:
        self.record, self.limit = record, limit
        self.reserved = self.reserved_peak = self.allocated = 0
        self._pools: dict[Hashable, Pool] = {}
        self._next_address = BASE_ADDRESS

    def alloc(self, size: int, lane: Hashable = 0) -> Block:
        """Return a block of at least ``size`` bytes from a segment of ``lane``. Raises :class:`OutOfMemory`."""
        size = max(BLOCK_UNIT, -(-size // BLOCK_UNIT) * BLOCK_UNIT)
        is_small = size <= SMALL_SIZE
        pool = self._pools.setdefault((lane, is_small), [])
        best = bisect_left(pool, (size,))
        block = pool.pop(best)[2] if best < len(pool) else self._reserve_segment(pool, size)
        if block.size - size >= (BLOCK_UNIT if is_small else SMALL_SIZE + 1):
            rest = Block(block.addr + size, block.size - size, pool, block, block.after)
            if block.after is not None:
                block.after.before = rest
            block.size, block.after = size, rest
            _add_to_pool(rest)
        block.is_free = False
        self.allocated += block.size
        return block

    def free(self, block: Block) -> None:
        """Return a block to its pool, merged with its free neighbours."""
        self.allocated -= block.size
        before, after = block.before, block.after
        if after is not None and after.is_free:
            _remove_from_pool(after)
            block.merge(after)
        if before is not None and before.is_free:
            _remove_from_pool(before)
            before.merge(block)
            block = before
        _add_to_pool(block)

    def empty_cache(self) -> None:
        """Release every segment without an allocated block."""
        for pool in self._pools.values():
            for size, addr, block in list(pool):
                if block.before is None and block.after is None:
                    _remove_from_pool(block)
                    self.reserved -= size
                    self.record("segment_free", addr, size)

    def _reserve_segment(self, pool: Pool, size: int) -> Block:
        segment = SMALL_SEGMENT if size <= SMALL_SIZE else LARGE_SEGMENT
        if size >= OWN_SEGMENT_SIZE:
            segment = -(-size // SEGMENT_UNIT) * SEGMENT_UNIT
        if self.reserved + segment > self.limit:
            self.empty_cache()
        if self.reserved + segment > self.limit:
            raise OutOfMemory
        block = Block(self._next_address, segment, pool)
        self._next_address += segment + SEGMENT_UNIT  # the gap keeps the snapshot reader from joining segments
        self.reserved += segment
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        self.record("segment_alloc", block.addr, segment)
        return block


def _add_to_pool(block: Block) -> None:
    block.is_free = True
    insort(block.pool, (block.size, block.addr, block))


def _remove_from_pool(block: Block) -> None:
    del block.pool[bisect_left(block.pool, (block.size, block.addr))]


def reserved_peak(birth: ArrayLike, death: ArrayLike, size: ArrayLike, limit: int = sys.maxsize) -> int:
    """Return the peak of the reserved bytes for live ranges ``[birth, death)``. Raises :class:`OutOfMemory`."""
    births, deaths, sizes = (np.asarray(column, np.int64).tolist() for column in (birth, death, size))
    rows = range(len(sizes))
    allocator, blocks = CachingAllocator(limit=limit), dict[int, Block]()
    for _, is_alloc, row in sorted([*zip(births, repeat(True), rows), *zip(deaths, repeat(False), rows)]):
        if is_alloc:
            blocks[row] = allocator.alloc(sizes[row])
        else:
            allocator.free(blocks.pop(row))
    return allocator.reserved_peak
