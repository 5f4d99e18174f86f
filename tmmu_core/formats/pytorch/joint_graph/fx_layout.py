"""Layout of a fake tensor in its storage: strides, byte range, and whether it fills the storage."""

from __future__ import annotations

from typing import Any

from tmmu_core.formats.pytorch.strides import StridedLayout


def lies_of(value: Any) -> StridedLayout:
    """Shape, strides, offset and element bytes of ``value``."""
    return StridedLayout(
        tuple(int(dim) for dim in value.shape),
        tuple(int(stride) for stride in value.stride()),
        int(value.storage_offset()),
        int(value.element_size()),
    )


def is_dense(value: Any) -> bool:
    """Whether its elements fill its storage, each in its own place."""
    return int(value.untyped_storage().nbytes()) == value.numel() * value.element_size() and not lies_of(value).repeats


def layout(value: Any) -> tuple[Any, ...]:
    """(shape, strides, element bytes): tensors that agree in it lie element upon element."""
    return tuple(value.shape), tuple(value.stride()), value.element_size()
