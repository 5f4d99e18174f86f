"""Packing on arrays: no graph, no names, one offset per buffer (google/minimalloc#14 asks for this)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tmmu_core.errors import UnreadableInput
from tmmu_core.library.planned import Plan
from tmmu_core.planners.problem import UNLIMITED, PlainInstance, Problem

ARENA = "arena"


@dataclass(frozen=True, eq=False, repr=False)
class Packed:
    """Where buffers lie. It is an array of offsets to numpy, and to ``len``, ``[]`` and ``for``."""

    offset: NDArray[np.uint64]
    """Shape (n,), bytes, in the order in which the buffers were given."""
    plan: Plan
    """The same as a plan; buffer k is the tensor called ``k``."""

    @property
    def extent_bytes(self) -> int:
        """The end of the last byte in use."""
        return self.plan.arenas[0].extent_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """No packing of these buffers is smaller."""
        return self.plan.arenas[0].bound_bytes

    @property
    def optimal(self) -> bool:
        """Whether the extent is proven the least."""
        return self.plan.arenas[0].status == "optimal"

    def __len__(self) -> int:
        return len(self.offset)

    def __getitem__(self, k: Any) -> Any:
        return self.offset[k]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.offset, dtype=dtype) if copy or dtype is not None else self.offset

    def __repr__(self) -> str:
        proof = "optimal" if self.optimal else f"bound {self.lower_bound_bytes:,} B"
        return f"<Packed {len(self):,} buffers: extent {self.extent_bytes:,} B, {proof}>"


def instance_of(columns: dict[str, ArrayLike | None], capacity: int | None) -> tuple[PlainInstance, NDArray[np.int64]]:
    """The columns as an instance in the normative order, and the place in it of each buffer as given.

    Raises ``UnreadableInput`` for columns that do not belong together, and for values that mean nothing.
    """
    whole = {name: _whole(name, value) for name, value in columns.items() if value is not None}
    n = len(whole["lower"])
    alignment = whole["alignment"]
    if alignment.ndim == 0:
        whole["alignment"] = np.full(n, int(alignment), np.int64)
    wrong = next((name for name, column in whole.items() if column.shape != (n,)), None)
    if wrong is not None:
        raise _fault(f"{wrong} has the shape {whole[wrong].shape}, lower has ({n},).", "Give a value per buffer.")
    lower, upper, size, alignment = (whole[name] for name in ("lower", "upper", "size", "alignment"))
    for bad, why in (
        (lower < 0, "begins before step 0"),
        (upper <= lower, "ends no later than it begins: ranges are half-open, [lower, upper)"),
        (size < 0, "has a negative size"),
        ((alignment < 1) | (alignment & (alignment - 1) != 0), "has an alignment that is no power of two"),
    ):
        if bad.any():
            raise _fault(f"buffer {int(np.argmax(bad))} {why}.", "Give lower < upper, size ≥ 0, alignment 1, 2, 4 ….")
    ids = [str(k) for k in range(n)]
    by_id = np.empty(n, np.int64)
    by_id[sorted(range(n), key=ids.__getitem__)] = np.arange(n)  # digits: texts order as their bytes do
    order = np.lexsort((by_id, -size, lower))
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    problem = Problem(
        arena=ARENA,
        ids=tuple([ids[k] for k in order.tolist()]),
        birth=lower[order],
        death=upper[order],
        size=size[order].astype(np.uint64),
        alignment=alignment[order].astype(np.uint64),
        capacity=UNLIMITED if capacity is None else capacity,
    )
    return PlainInstance("arrays", problem), place


def _whole(name: str, value: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(value)
    if array.size and array.dtype.kind not in "iu":
        raise _fault(f"{name} holds {array.dtype} and no whole numbers.", "Give integers: steps and bytes.")
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise _fault(f"{name} holds a number over 2^63 − 1.", "Give smaller ones.")
    return array.astype(np.int64)


def _fault(message: str, hint: str) -> UnreadableInput:
    return UnreadableInput(message, source="pack", hint=hint)
