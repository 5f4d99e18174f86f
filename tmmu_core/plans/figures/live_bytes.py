"""Live bytes and live counts over the steps, from columns of births, deaths and sizes; and their peaks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX, AllocationOverflow

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


def exact_sum(values: U64) -> int:
    """Σ of uint64 values as a Python integer: never wraps."""
    high = int((values >> np.uint64(32)).sum(dtype=np.uint64))
    low = int((values & np.uint64(0xFFFFFFFF)).sum(dtype=np.uint64))
    return (high << 32) + low


def live_bytes_of(birth: I64, death: I64, size: U64, steps: int) -> U64:
    """Shape (steps,): Σ ``size`` (bytes) over the ranges ``[birth, death)`` that hold each step.

    Raises ``AllocationOverflow`` past 2^64 − 1.
    """
    if exact_sum(size) > U64_MAX:
        return _live_bytes_exact(birth, death, size, steps)
    # Differences are taken modulo 2^64; the sums themselves fit, so the running sum is exact.
    change = np.zeros(steps + 1, np.uint64)
    np.add.at(change, birth, size)
    np.subtract.at(change, death, size)
    return np.cumsum(change[:steps], dtype=np.uint64)


def _live_bytes_exact(birth: I64, death: I64, size: U64, steps: int) -> U64:
    change = [0] * (steps + 1)
    for b, d, s in zip(birth.tolist(), death.tolist(), size.tolist(), strict=True):
        change[b] += s
        change[d] -= s
    live, curve = 0, np.zeros(steps, np.uint64)
    for t in range(steps):
        live += change[t]
        if live > U64_MAX:
            raise AllocationOverflow(
                f"{live} bytes are alive at step {t}, more than 64 bits can count.", t=t, offset=0, size=live
            )
        curve[t] = live
    return curve


def live_count_of(birth: I64, death: I64, steps: int) -> I64:
    """Shape (steps,): how many of the ranges ``[birth, death)`` hold each step."""
    change = np.bincount(birth, minlength=steps + 1) - np.bincount(death, minlength=steps + 1)
    return np.cumsum(change[:steps], dtype=np.int64)


def max_live_of(birth: I64, death: I64, steps: int) -> int:
    """The most ranges that hold one step; 0 when there are none."""
    return int(live_count_of(birth, death, steps).max(initial=0))


def peak_of(curve: U64 | I64) -> tuple[int, int]:
    """``(step, value)`` of the curve's first maximum; ``(0, 0)`` for an empty curve."""
    if not len(curve):
        return 0, 0
    step = int(np.argmax(curve))
    return step, int(curve[step])


def peak_and_count(birth: I64, death: I64, size: U64, steps: int) -> tuple[int, int]:
    """``(peak live bytes, max live)`` without a curve over all steps, which a plain instance may have 2^40 of."""
    _, birth, death, steps = _squeezed(birth, death, steps)
    return peak_of(live_bytes_of(birth, death, size, steps))[1], max_live_of(birth, death, steps)


def peak_together(birth: I64, death: I64, size: U64, steps: int) -> tuple[int, int]:
    """``(step, bytes)``: the first step at which the most bytes of the ranges ``[birth, death)`` are in use."""
    times, birth, death, steps = _squeezed(birth, death, steps)
    if exact_sum(size) > U64_MAX:  # arenas that fit 64 bits one by one need not do so together
        step, most = _peak_exact(birth, death, size)
    else:
        step, most = peak_of(live_bytes_of(birth, death, size, steps))
    return (0 if not most else step if times is None else int(times[step])), most


def _peak_exact(birth: I64, death: I64, size: U64) -> tuple[int, int]:
    change: dict[int, int] = {}
    for b, d, s in zip(birth.tolist(), death.tolist(), size.tolist(), strict=True):
        change[b] = change.get(b, 0) + s
        change[d] = change.get(d, 0) - s
    live, peak = 0, (0, 0)
    for step in sorted(change):
        live += change[step]
        peak = (step, live) if live > peak[1] else peak
    return peak


def _squeezed(birth: I64, death: I64, steps: int) -> tuple[I64 | None, I64, I64, int]:
    """Compress the steps to those with a birth or death, where there are far more steps than storages."""
    if steps <= 8 * len(birth) + 1024:
        return None, birth, death, steps
    times, event = np.unique(np.concatenate([birth, death]), return_inverse=True)
    return times, event[: len(birth)], event[len(birth) :], len(times)


def change_points(curve: U64 | I64, steps: I64 | None = None) -> tuple[I64, U64 | I64]:
    """``(steps, values)``: the step at which each value of a step curve begins, repeats left out. For drawing.

    ``steps`` are the beats of the curve where they are not all steps.
    """
    if not len(curve):
        return np.zeros(0, np.int64), curve
    begins = np.concatenate([[0], np.flatnonzero(curve[1:] != curve[:-1]) + 1]).astype(np.int64)
    return (begins if steps is None else steps[begins]), curve[begins]
