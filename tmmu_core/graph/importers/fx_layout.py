"""Where a fake tensor lies in its storage: laid out how, filling it or not, as which bytes of it."""

from __future__ import annotations

from typing import Any

from tmmu_core.graph.model import Role, Tensor, View


def is_dense(value: Any) -> bool:
    """Whether its elements fill its storage, each in its own place."""
    return int(value.untyped_storage().nbytes()) == value.numel() * value.element_size() and not repeats(value)


def layout(value: Any) -> tuple[Any, ...]:
    """(shape, strides, element bytes): tensors that agree in it lie element upon element."""
    return tuple(value.shape), tuple(value.stride()), value.element_size()


def repeats(value: Any) -> bool:
    """Whether several of its elements are the same bytes, as ``expand`` makes them."""
    return any(stride == 0 and dim > 1 for stride, dim in zip(value.stride(), value.shape, strict=True))


def as_view(
    tensor_id: str, value: Any, shape: tuple[int, ...], dtype: str, role: Role, base: str, own: int, whole: int
) -> Tensor:
    """``value`` as bytes of its storage. Windows that overlap without repeating are told as the bytes they cover."""
    strides = tuple(int(stride) for stride in value.stride())
    offset = int(value.storage_offset()) * value.element_size()
    span = sum((dim - 1) * stride for dim, stride in zip(shape, strides, strict=True)) + 1 if own else 0
    covered = span * value.element_size()
    if repeats(value):
        return Tensor(tensor_id, shape, dtype, role, view=View(base, offset, min(own, covered), strides))
    if own > covered or offset + own > whole:
        return Tensor(tensor_id, (covered,), "uint8", role, view=View(base, offset))
    return Tensor(
        tensor_id, shape, dtype, role, view=View(base, offset, None, None if value.is_contiguous() else strides)
    )
