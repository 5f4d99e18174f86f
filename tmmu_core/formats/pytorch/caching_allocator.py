"""Model of PyTorch's CUDA caching allocator: the segments that it reserves for a sequence of allocations and frees.

::

    alloc(size) ─► round to 512 B ─► best fit among the free blocks of (pool, stream, small | large)
                                     none fits: a new segment of 2 MiB, 20 MiB or a multiple of 2 MiB (cudaMalloc),
                                     or pages of 2 or 20 MiB at the end of one segment (expandable_segments)

Source: ``c10/cuda/CUDACachingAllocator.cpp`` (``malloc``, ``get_free_block``, ``should_split``, ``free_block``,
``try_allocate_expandable_block``, ``release_blocks``). Left out: events of other streams, garbage collection by age and
``roundup_power2_divisions``. An allocation costs a binary search among the free blocks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

GRAIN = 512
SMALL_SIZE = 1 << 20
"""Largest allocation in bytes that the pool of small blocks serves."""
SMALL_SEGMENT, LARGE_SEGMENT = 2 << 20, 20 << 20
"""Bytes of a segment for small blocks, and for blocks up to :data:`LARGE_SIZE`."""
LARGE_SIZE = 10 << 20
ROUND_LARGE = 2 << 20
"""Segments of larger blocks are multiples of this."""
BASE_ADDRESS, ADDRESS_SPACE = 0x7F00_0000_0000, 1 << 40
"""First address, and the range of addresses of an expandable segment."""
UNLIMITED = 1 << 62


class OutOfMemory(MemoryError):
    """The device has no room for a segment, not even after the release of all cached blocks."""


@dataclass(frozen=True)
class AllocatorSettings:
    """Settings of ``PYTORCH_CUDA_ALLOC_CONF`` that the model knows."""

    expandable_segments: bool = False
    max_split_size: int = UNLIMITED
    """Bytes: larger free blocks are never split, and serve only allocations of nearly their size."""


@dataclass(eq=False, slots=True)
class Block:
    """A part of a segment: allocated, free, or without memory (``is_mapped`` false, expandable segments only)."""

    addr: int
    size: int
    pool: _Pool
    is_free: bool = True
    is_mapped: bool = True
    before: Block | None = None
    after: Block | None = None


@dataclass(eq=False, slots=True)
class _Pool:
    is_small: bool
    free: list[tuple[int, int, Block]] = field(default_factory=list)
    """Free blocks with memory by size and address."""
    unmapped: list[tuple[int, int, Block]] = field(default_factory=list)
    """Address ranges without memory, by address: ``(address, 0, block)``."""

    @property
    def page(self) -> int:
        return SMALL_SEGMENT if self.is_small else LARGE_SEGMENT

    def insert(self, block: Block) -> None:
        if block.is_mapped:
            insort(self.free, (block.size, block.addr, block))
        else:
            insort(self.unmapped, (block.addr, 0, block))

    def remove(self, block: Block) -> None:
        if block.is_mapped:
            del self.free[bisect_left(self.free, (block.size, block.addr))]
        else:
            del self.unmapped[bisect_left(self.unmapped, (block.addr, 0))]


Recorder = Callable[[str, int, int], None]
"""``(action, address, bytes)`` of each segment that is reserved or released, with PyTorch's name of the action."""


class CachingAllocator:
    """The allocator of one device. ``reserved``, ``reserved_peak`` and ``allocated`` are bytes."""

    def __init__(
        self,
        settings: AllocatorSettings | None = None,
        capacity: int = UNLIMITED,
        record: Recorder = lambda action, addr, size: None,
    ) -> None:
        self.settings, self.capacity, self.record = settings or AllocatorSettings(), capacity, record
        self.reserved = self.reserved_peak = self.allocated = 0
        self._pools: dict[Hashable, _Pool] = {}
        self._next_address = BASE_ADDRESS

    def alloc(self, size: int, stream: Hashable = 0, pool: Hashable = 0) -> Block:
        """Return a block of at least ``size`` bytes. Raises :class:`OutOfMemory` beyond the capacity."""
        size = max(GRAIN, -(-size // GRAIN) * GRAIN)
        is_small = size <= SMALL_SIZE
        blocks = self._pools.setdefault((pool, stream, is_small), _Pool(is_small))
        found = self._best_fit(blocks, size) or self._new_block(blocks, size)
        if found is None:
            self.empty_cache()
            found = self._new_block(blocks, size)
        if found is None:
            raise OutOfMemory(f"{size:,} bytes are requested; {self.capacity - self.reserved:,} are free.")
        if self._splits(is_small, size, found.size - size):
            self._cut(found, size)
        found.is_free = False
        self.allocated += found.size
        return found

    def free(self, block: Block) -> None:
        """Return a block to its pool; it is merged with free neighbours."""
        self.allocated -= block.size
        block.is_free = True
        block.pool.insert(self._merged(block))

    def empty_cache(self) -> None:
        """Release every segment without an allocated block, and every free page of expandable segments."""
        for pool in self._pools.values():
            for _, _, block in list(pool.free):
                if self.settings.expandable_segments:
                    self._unmap(block)
                elif block.before is None and block.after is None:
                    pool.remove(block)
                    self._reserve("segment_free", block.addr, -block.size)

    def adopt(
        self,
        regions: Sequence[tuple[int, int]],
        held: Sequence[tuple[int, int]],
        stream: Hashable = 0,
        pool: Hashable = 0,
        *,
        is_small: bool,
    ) -> dict[int, Block]:
        """Add segments ``(first address, end)`` of a pool, in order, and the allocations ``(address, bytes)`` in them.

        Return the allocated blocks by address. Bytes between allocations become free blocks, if a block is ever split
        so; else they belong to the allocation before them.
        """
        own = self._pools.setdefault((pool, stream, is_small), _Pool(is_small))
        found: dict[int, Block] = {}
        last: Block | None = None
        for start, end in regions:
            self._next_address = max(self._next_address, end + ADDRESS_SPACE)
            self._reserve("segment_alloc", start, end - start)
            if not self.settings.expandable_segments:
                last = None
            elif last is not None:
                last = self._append(last, Block(last.addr + last.size, start - last.addr - last.size, own, True, False))
            inside = held[bisect_left(held, (start, 0)) : bisect_left(held, (end, 0))]
            last = self._append(last, Block(start, (inside[0][0] if inside else end) - start, own))
            for (addr, size), (after, _) in pairwise([*inside, (end, 0)]):
                size = min(max(GRAIN, -(-size // GRAIN) * GRAIN), after - addr)
                rest = after - addr - size
                used = size if self._splits(is_small, size, rest) else size + rest
                found[addr] = Block(addr, used, own, False)
                last = self._append(last, found[addr])
                self.allocated += used
                last = self._append(last, Block(addr + used, size + rest - used, own))
        if last is not None and self.settings.expandable_segments:
            self._append(last, Block(last.addr + last.size, ADDRESS_SPACE, own, True, False))
        return found

    # --- blocks ---------------------------------------------------------------------------------------------------

    def _best_fit(self, pool: _Pool, size: int) -> Block | None:
        at = bisect_left(pool.free, (size,))
        if at == len(pool.free):
            return None
        found = pool.free[at][2]
        if self.settings.expandable_segments:
            # The last block of a segment can grow; best fit takes the size to which it can grow.
            while at + 1 < len(pool.free) and _growable(pool.free[at + 1][2]) < _growable(found):
                at += 1
                found = pool.free[at][2]
        most = self.settings.max_split_size
        if found.size >= most if size < most else found.size >= size + LARGE_SEGMENT:
            return None
        del pool.free[at]
        return found

    def _splits(self, is_small: bool, size: int, rest: int) -> bool:
        if is_small or self.settings.expandable_segments:
            return rest >= GRAIN
        return size < self.settings.max_split_size and rest > SMALL_SIZE

    def _cut(self, block: Block, size: int) -> None:
        rest = Block(block.addr + size, block.size - size, block.pool, True, block.is_mapped, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.size, block.after = size, rest
        block.pool.insert(rest)

    def _append(self, last: Block | None, block: Block) -> Block | None:
        """Add a block behind the last one; return the last one now. A block of no bytes is left out."""
        if not block.size:
            return last
        block.before = last
        if last is not None:
            last.after = block
        if block.is_free:
            block.pool.insert(block)
        return block

    def _merged(self, block: Block) -> Block:
        """Return the block that covers ``block``, which is in no list, and its free neighbours of the same kind."""
        first, last = block.before, block.after
        if last is not None and last.is_free and last.is_mapped == block.is_mapped:
            last.pool.remove(last)
            _join(block, last)
        if first is not None and first.is_free and first.is_mapped == block.is_mapped:
            first.pool.remove(first)
            _join(first, block)
            return first
        return block

    # --- segments -------------------------------------------------------------------------------------------------

    def _reserve(self, action: str, addr: int, size: int) -> None:
        self.reserved += size
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        self.record(action, addr, abs(size))

    def _new_block(self, pool: _Pool, size: int) -> Block | None:
        if self.settings.expandable_segments:
            return self._grown(pool, size)
        segment = pool.page if pool.is_small or size < LARGE_SIZE else -(-size // ROUND_LARGE) * ROUND_LARGE
        if self.reserved + segment > self.capacity:
            return None
        block = Block(self._addresses(segment), segment, pool)
        self._reserve("segment_alloc", block.addr, segment)
        return block

    def _addresses(self, size: int) -> int:
        addr = self._next_address
        self._next_address += size + ROUND_LARGE  # segments never touch
        return addr

    def _grown(self, pool: _Pool, size: int) -> Block | None:
        """Return a free block of an expandable segment, extended with pages to ``size``; ``None`` at the capacity."""
        for _, _, tail in pool.unmapped:
            head = tail.before if tail.before is not None and tail.before.is_free else tail
            if _room(head) >= size:
                break
        else:
            head = Block(self._addresses(ADDRESS_SPACE), ADDRESS_SPACE, pool, is_mapped=False)
            pool.insert(head)
        while not head.is_mapped or head.size < size:
            bare = head if not head.is_mapped else head.after
            assert bare is not None
            missing = size - (head.size if head.is_mapped else 0)
            pages = min(bare.size, -(-missing // pool.page) * pool.page)
            if self.reserved + pages > self.capacity:
                return None
            pool.remove(bare)
            if pages < bare.size:
                self._cut(bare, pages)
            bare.is_mapped = True
            self._reserve("segment_map", bare.addr, pages)
            head = self._merged(bare)
            pool.insert(head)
        pool.remove(head)
        return head

    def _unmap(self, block: Block) -> None:
        pool, page = block.pool, block.pool.page
        start = block
        while start.before is not None:
            start = start.before
        first = block.addr + (start.addr - block.addr) % page
        last = block.addr + block.size - (block.addr + block.size - start.addr) % page
        if last <= first:
            return
        if first > block.addr:
            pool.remove(block)
            self._cut(block, first - block.addr)
            pool.insert(block)
            assert block.after is not None
            block = block.after
        pool.remove(block)
        if last < block.addr + block.size:
            self._cut(block, last - block.addr)
        block.is_mapped = False
        self._reserve("segment_unmap", first, first - last)
        pool.insert(self._merged(block))


def _growable(block: Block) -> int:
    after = block.after
    return block.size + (after.size if after is not None and not after.is_mapped else 0)


def _room(block: Block | None) -> int:
    total = 0
    while block is not None and block.is_free:
        total += block.size
        block = block.after
    return total


def _join(first: Block, second: Block) -> None:
    first.size += second.size
    first.after = second.after
    if second.after is not None:
        second.after.before = first


def reserved_peak(birth: ArrayLike, death: ArrayLike, size: ArrayLike) -> int:
    """Return the peak of the reserved bytes for buffers with lifetimes ``[birth, death)``, shape (n,) each.

    At one step, frees come before allocations, and allocations in the order of the rows.
    """
    births, deaths, sizes = (np.asarray(column, np.int64) for column in (birth, death, size))
    rows = np.arange(len(births))
    order = np.lexsort((np.concatenate((rows, rows)), np.repeat((1, 0), len(rows)), np.concatenate((births, deaths))))
    allocator, blocks = CachingAllocator(), dict[int, Block]()
    for event in order.tolist():
        row = event % len(rows)
        if event < len(rows):
            blocks[row] = allocator.alloc(int(sizes[row]))
        else:
            allocator.free(blocks.pop(row))
    return allocator.reserved_peak
