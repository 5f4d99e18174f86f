"""Compute the bytes that a tensor covers in its storage, from shape, strides and offset."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tmmu_core.graph.model import Tensor, View


@dataclass(frozen=True)
class StridedLayout:
    """Place of a tensor in its storage; strides and offset are in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    itemsize: int  # bytes of one element

    @property
    def dense_bytes(self) -> int:
        """Bytes of all elements without gaps."""
        return math.prod(self.shape) * self.itemsize

    @property
    def covered_bytes(self) -> int:
        """Bytes from the first element to the end of the last one."""
        if not self.dense_bytes:
            return 0
        last_element = sum((dim - 1) * stride for dim, stride in zip(self.shape, self.strides, strict=True))
        return (last_element + 1) * self.itemsize

    @property
    def has_repeats(self) -> bool:
        """Whether an axis of more than one element has stride 0, as after ``expand``."""
        return any(stride == 0 and dim > 1 for stride, dim in zip(self.strides, self.shape, strict=True))

    @property
    def contiguous(self) -> bool:
        """Whether the elements are dense in row-major order; an empty tensor is contiguous."""
        expected = 1
        for dim, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if dim != 1 and stride != expected:
                return not self.dense_bytes
            expected *= dim
        return True

    def viewable_as(self, shape: tuple[int, ...]) -> bool:
        """Return whether a reshape to ``shape`` needs no copy."""
        if self.contiguous:
            return True
        try:  # one byte is enough for all shapes and strides: numpy reads no element to compute a view
            as_strided(np.empty(1, np.uint8), self.shape, self.strides).reshape(shape, copy=False)
        except ValueError:
            return False
        return True


def as_view(tensor: Tensor, layout: StridedLayout, base: str) -> Tensor:
    """Return ``tensor`` as a view of the tensor ``base`` with this layout.

    If the elements have more bytes than they cover, without a stride of 0 (sliding windows), the view is the covered
    bytes, as one-dimensional ``uint8``. An empty tensor, whose offset may be beyond its storage, is at offset 0.
    """
    size, covered = layout.dense_bytes, layout.covered_bytes
    offset = layout.offset * layout.itemsize if size else 0
    if layout.has_repeats:
        view = View(base, offset, min(size, covered), layout.strides)
        return Tensor(tensor.id, tensor.shape, tensor.dtype, tensor.role, view=view)
    if size > covered:
        return Tensor(tensor.id, (covered,), "uint8", tensor.role, view=View(base, offset))
    view = View(base, offset, None, None if layout.contiguous else layout.strides)
    return Tensor(tensor.id, tensor.shape, tensor.dtype, tensor.role, view=view)
