"""Model of PyTorch's CUDA caching allocator: the segments that it reserves for a sequence of allocations and frees.

::

    alloc(size) ─► round up to 512 B ─► best fit among the free blocks of (lane, small | large);
                                        if none fits: a new segment of 2 MiB, 20 MiB or a multiple of 2 MiB (cudaMalloc)
                                        if that exceeds the limit: release all free segments, and try again

A lane is a stream and a memory pool. Source: ``c10/cuda/CUDACachingAllocator.cpp`` (``malloc``, ``get_free_block``,
``should_split``, ``free_block``, ``release_blocks``) with the default settings.
"""

import sys
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

BLOCK_UNIT = 512  # block sizes are multiples of it, in bytes
SMALL_SIZE = 1 << 20  # maximum bytes of a small allocation
OWN_SEGMENT_SIZE = 10 << 20  # a new segment for at least this many bytes has the size of the allocation, rounded up
SMALL_SEGMENT, LARGE_SEGMENT = 2 << 20, 20 << 20  # bytes of a new segment for a small, and for any other allocation
SEGMENT_UNIT = 2 << 20  # unit of the rounding for ``OWN_SEGMENT_SIZE``, in bytes
Pool = list[tuple[int, int]]  # ``(size, address)`` of the free blocks of a lane for small or large allocations, sorted
Recorder = Callable[[str, int, int], None]  # called with an action (name in PyTorch), and a segment's address and bytes


class Block(NamedTuple):
    """An allocated part of a segment."""

    addr: int
    size: int
    pool: Pool  # the pool to which it returns


class OutOfMemory(Exception):
    """The allocator needs more memory than its limit."""


class CachingAllocator:
    """The allocator of one device. ``limit`` is the maximum number of reserved bytes."""

    def __init__(self, record: Recorder = lambda action, addr, size: None, limit: int = sys.maxsize) -> None:
        self.record, self.limit = record, limit
        self.reserved = self.reserved_peak = self.allocated = 0
        self._pools: dict[Hashable, Pool] = {}
        self._segments: dict[int, int] = {}  # address → bytes
        self._end_of: dict[int, int] = {}  # address of a free block → its end
        self._start_of: dict[int, int] = {}  # end of a free block → its address
        self._next_address = 0x7F00_0000_0000

    def alloc(self, size: int, lane: Hashable = 0) -> Block:
        """Return a block of at least ``size`` bytes from a segment of ``lane``. Raises :class:`OutOfMemory`."""
        size = max(BLOCK_UNIT, -(-size // BLOCK_UNIT) * BLOCK_UNIT)
        is_small = size <= SMALL_SIZE
        pool = self._pools.setdefault((lane, is_small), [])
        if not pool or pool[-1][0] < size:
            self._reserve_segment(pool, size)
        found, addr = pool[bisect_left(pool, (size,))]
        self._remove_free(pool, addr, found)
        if found - size >= (BLOCK_UNIT if is_small else SMALL_SIZE + 1):
            self._add_free(pool, addr + size, found - size)
            found = size
        self.allocated += found
        return Block(addr, found, pool)

    def free(self, block: Block) -> None:
        """Return a block to its pool, merged with its free neighbours."""
        addr, size, pool = block
        self.allocated -= size
        end = self._end_of.get(addr + size, addr + size)
        start = self._start_of.get(addr, addr)
        if end > addr + size:
            self._remove_free(pool, addr + size, end - addr - size)
        if start < addr:
            self._remove_free(pool, start, addr - start)
        self._add_free(pool, start, end - start)

    def empty_cache(self) -> None:
        """Release every segment without an allocated block."""
        for pool in self._pools.values():
            for size, addr in list(pool):
                if self._segments.get(addr) == size:
                    del self._segments[addr]
                    self._remove_free(pool, addr, size)
                    self.reserved -= size
                    self.record("segment_free", addr, size)

    def _reserve_segment(self, pool: Pool, size: int) -> None:
        segment = SMALL_SEGMENT if size <= SMALL_SIZE else LARGE_SEGMENT
        if size >= OWN_SEGMENT_SIZE:
            segment = -(-size // SEGMENT_UNIT) * SEGMENT_UNIT
        if self.reserved + segment > self.limit:
            self.empty_cache()
        if self.reserved + segment > self.limit:
            raise OutOfMemory
        addr = self._next_address
        self._next_address += segment + SEGMENT_UNIT  # a gap, so that ``free`` merges no blocks of two segments
        self._segments[addr] = segment
        self._add_free(pool, addr, segment)
        self.reserved += segment
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        self.record("segment_alloc", addr, segment)

    def _add_free(self, pool: Pool, addr: int, size: int) -> None:
        insort(pool, (size, addr))
        self._end_of[addr], self._start_of[addr + size] = addr + size, addr

    def _remove_free(self, pool: Pool, addr: int, size: int) -> None:
        del pool[bisect_left(pool, (size, addr))], self._end_of[addr], self._start_of[addr + size]


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
