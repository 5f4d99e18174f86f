"""Map arenas to real memory: page-aligned anonymous maps with a checked base pointer (TMMU v2 II.F).

Mapped pages take memory only when they are written, so an arena of a terabyte can be mapped.
"""

import mmap
import platform
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import AlignmentViolation, AllocationFailure
from tmmu_core.planners.columns import align_up

OPERATOR = "UML_OS.TMMU.ApplyPlan_v1"
U8 = NDArray[np.uint8]

PAGE = mmap.PAGESIZE
# Python has `mmap.MAP_NORESERVE` since 3.13. On Linux its value is the same for x86, ARM and RISC-V.
_LINUX_NORESERVE = 0x4000 if platform.machine() in ("x86_64", "aarch64", "arm64", "riscv64") else 0
_NORESERVE = getattr(mmap, "MAP_NORESERVE", _LINUX_NORESERVE if sys.platform == "linux" else 0)
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE


@dataclass(frozen=True, eq=False)
class ArenaHandle:
    """An arena in memory. It stays mapped while the handle, or an array that shares its ``memory``, exists."""

    memory: U8  # the arena's bytes: one-dimensional, contiguous, writable
    fresh: bool = False  # whether the memory was just mapped: all bytes are 0

    def __post_init__(self) -> None:
        memory = self.memory
        is_valid = (
            memory.dtype == np.uint8 and memory.ndim == 1 and memory.flags.c_contiguous and memory.flags.writeable
        )
        assert is_valid, "an arena is a one-dimensional, contiguous, writable array of uint8"

    @property
    def base_ptr(self) -> int:
        """The address of the first byte."""
        return int(self.memory.ctypes.data)


def map_arena(arena_id: str, size_bytes: int, alignment_bytes: int = 1, page_size: int = 0) -> ArenaHandle:
    """Map zeroed memory, rounded up to pages, at a multiple of the alignment. Raises ``AllocationFailure``."""
    committed = align_up(max(size_bytes, 1), max(page_size, PAGE))
    slack = alignment_bytes if alignment_bytes > PAGE else 0
    try:
        block = np.frombuffer(mmap.mmap(-1, committed + slack, flags=_FLAGS), np.uint8)
    except (OSError, OverflowError, ValueError, MemoryError) as error:
        why = "more than a process can address" if isinstance(error, OverflowError) else error
        message = f"{committed:,} B cannot be mapped for arena {arena_id!r} ({why}); nothing was committed."
        hint = "Plan a smaller batch or run on a machine with more memory."
        raise AllocationFailure(
            message, operator=OPERATOR, arena=arena_id, peak_required_bytes=committed, hint=hint
        ) from error
    start = -int(block.ctypes.data) % alignment_bytes
    return ArenaHandle(block[start : start + committed], fresh=True)


def check_base(arena_id: str, base_ptr: int, alignment_bytes: int) -> None:
    """Raise ``AlignmentViolation`` if the base pointer is not aligned."""
    if base_ptr % alignment_bytes:
        message = f"arena {arena_id!r} starts at address {base_ptr:#x}, which is not a multiple of {alignment_bytes} B."
        hint = "Give memory that starts on the arena's alignment, or let apply_plan map it."
        about: dict[str, Any] = {"base_ptr": hex(base_ptr), "alignment_bytes": alignment_bytes}
        raise AlignmentViolation(message, operator=OPERATOR, arena=arena_id, hint=hint, **about)
