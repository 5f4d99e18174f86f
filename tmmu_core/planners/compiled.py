"""``njit`` where numba is installed; where it is not, the same loops run as plain Python, slower, to the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from numba import njit as _njit

    INSTALLED = True
except ImportError:  # the loops are plain functions of arrays: they run as they stand
    INSTALLED = False


def njit(loop: Callable[..., Any]) -> Any:
    """Compile a loop when it is first called, kept on disk; it lets other threads run meanwhile."""
    return _njit(cache=True, nogil=True)(loop) if INSTALLED else loop
