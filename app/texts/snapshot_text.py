"""Sentences about the snapshot of an allocator: pools, failed allocations, advice. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from app.texts import numbers
from tmmu_core.formats.pytorch.snapshot.advice import model_error, modules_to_checkpoint, settings_to_try
from tmmu_core.formats.pytorch.snapshot.history import History, OutOfMemory

MOST_REPLAYED = 2_000_000
"""Events up to which the allocator is replayed."""
MOST_FAILURES = 3


def sentences(history: History) -> Iterator[str]:
    """Yield everything that the tables of a plan do not show."""
    yield ""
    if len(history.lanes) > 1:
        yield from (f"{pool.name}: {use(pool.reserved, pool.used, pool.needed)}" for pool in history.pools)
    yield from (failure(history, one) for one in history.failures[:MOST_FAILURES])
    yield from advice(history)


def use(reserved: int, used: int, needed: int) -> str:
    """Return a pool's reserved bytes, the part in use, and the bytes that a perfect packing needs."""
    return (
        f"reserved {numbers.full_bytes(reserved)}, in use then {numbers.percent(used, reserved)}; "
        f"a perfect packing needs {numbers.full_bytes(needed)}"
    )


def failure(history: History, one: OutOfMemory) -> str:
    """Return what a failed allocation requested, what was free, and what would make room."""
    room = "; ".join(f"{total.name} {numbers.short_bytes(total.size)}" for total in history.would_free(one)[:3])
    return (
        f"out of memory at #{one.step:,}: {numbers.full_bytes(one.requested)} requested by {one.line}, "
        f"{numbers.short_bytes(one.free)} free on the device, {numbers.short_bytes(one.unused)} reserved but unused"
        + (f"; it would fit without: {room}" if room else "")
    )


def advice(history: History) -> Iterator[str]:
    """Yield what to checkpoint and which settings of the allocator to try."""
    for module in modules_to_checkpoint(history):
        buffers = numbers.count(module.count, "activation")
        yield f"checkpoint {module.name}: {buffers}, {numbers.full_bytes(module.size)} at the peak"
    if history.reserved_peak_bytes is None or len(history.events.action) > MOST_REPLAYED:
        return
    model, recorded = model_error(history)
    yield f"model of the allocator: {numbers.full_bytes(model)}, {numbers.percent(model - recorded, recorded)} off"
    for setting in settings_to_try(history):
        change = numbers.delta_bytes(setting.change)
        yield f"PYTORCH_CUDA_ALLOC_CONF={setting.name}: reserved peak {numbers.full_bytes(setting.reserved)} ({change})"
