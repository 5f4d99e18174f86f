"""Live bytes and live counts over the steps, from columns of births, deaths and sizes; and their peaks."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmmu_core.base.errors import U64_MAX, AllocationOverflow
from tmmu_core.plans.model import I64, U64


def exact_sum(values: U64) -> int:
    """Σ of uint64 values as a Python integer: never wraps."""
    high = int((values >> np.uint64(32)).sum(dtype=np.uint64))
    low = int((values & np.uint64(0xFFFFFFFF)).sum(dtype=np.uint64))
    return (high << 32) + low


def live_bytes_of(birth: I64, death: I64, size: U64, steps: int) -> U64:
    """Return an array of shape (steps,): Σ ``size`` (bytes) over the ranges ``[birth, death)`` that hold each step.

    Raises ``AllocationOverflow`` past 2^64 − 1.
    """
    curve = _curve(birth, death, size, steps)
    if curve.dtype == object and (over := np.flatnonzero(curve > U64_MAX)).size:
        t = int(over[0])
        raise AllocationOverflow(
            f"{curve[t]} bytes are alive at step {t}, more than 64 bits can count.", t=t, offset=0, size=curve[t]
        )
    return curve.astype(np.uint64, copy=False)


def _curve(birth: I64, death: I64, size: U64, steps: int) -> NDArray[Any]:
    """Return an array of shape (steps,): live bytes; Python integers where 64 bits do not hold the sum of all sizes."""
    # Differences are taken modulo 2^64; where the sums themselves fit, the running sum is exact.
    change = np.zeros(steps + 1, object if exact_sum(size) > U64_MAX else np.uint64)
    own = size.astype(change.dtype, copy=False)
    np.add.at(change, birth, own)
    np.subtract.at(change, death, own)
    return np.cumsum(change[:steps], dtype=change.dtype)


def peak_of(curve: NDArray[Any]) -> tuple[int, int]:
    """Return ``(step, value)`` of the curve's first maximum; ``(0, 0)`` for an empty curve."""
    if not len(curve):
        return 0, 0
    step = int(np.argmax(curve))
    return step, int(curve[step])


def peak_and_count(birth: I64, death: I64, size: U64, steps: int) -> tuple[int, int]:
    """``(peak live bytes, max live)`` without a curve over all steps, which a plain instance may have 2^40 of."""
    _, birth, death, steps = _squeezed(birth, death, steps)
    count = np.bincount(birth, minlength=steps + 1) - np.bincount(death, minlength=steps + 1)
    return peak_of(live_bytes_of(birth, death, size, steps))[1], int(np.cumsum(count[:steps]).max(initial=0))


def peak_together(birth: I64, death: I64, size: U64, steps: int) -> tuple[int, int]:
    """Return ``(step, bytes)``: the first step at which the most bytes of the ranges ``[birth, death)`` are in use."""
    times, birth, death, steps = _squeezed(birth, death, steps)
    step, most = peak_of(_curve(birth, death, size, steps))  # the sum of arenas may exceed 64 bits
    return (0 if not most else step if times is None else int(times[step])), most


def _squeezed(birth: I64, death: I64, steps: int) -> tuple[I64 | None, I64, I64, int]:
    """Compress the steps to those with a birth or death if there are many more steps than storages."""
    if steps <= 8 * len(birth) + 1024:
        return None, birth, death, steps
    times, event = np.unique(np.concatenate([birth, death]), return_inverse=True)
    return times, event[: len(birth)], event[len(birth) :], len(times)


def change_points(curve: U64 | I64, steps: I64 | None = None) -> tuple[I64, U64 | I64]:
    """Return ``(steps, values)`` of a step curve for drawing, without points that repeat the value before.

    ``steps``: the steps of the curve's points; without it, all steps.
    """
    if not len(curve):
        return np.zeros(0, np.int64), curve
    begins = np.concatenate([[0], np.flatnonzero(curve[1:] != curve[:-1]) + 1]).astype(np.int64)
    return (begins if steps is None else steps[begins]), curve[begins]
