"""The result of :func:`tmmu.pack`, and its arguments as a packing problem (requested in google/minimalloc#14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tmmu_core.base.errors import UnreadableInput
from tmmu_core.library.arguments import Amount
from tmmu_core.library.plan_result import Plan
from tmmu_core.planners.problem import UNLIMITED, Problem, ReuseTerms


@dataclass(frozen=True, eq=False, repr=False)
class Packed:
    """The result of :func:`tmmu.pack`: offsets, usable as a numpy array and with ``len``, ``[]`` and ``for``."""

    offset: NDArray[np.uint64]
    """Shape (n,), bytes, in the order of the arguments."""
    plan: Plan
    """The packing as a plan; buffer k is the tensor ``k``."""

    @property
    def extent_bytes(self) -> int:
        """Size of the arena, in bytes."""
        return self.plan.arenas[0].extent_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """Lower bound of the extent of any packing, in bytes."""
        return self.plan.arenas[0].bound_bytes

    @property
    def reuse_cost(self) -> int:
        """Sum of the reuse penalties whose buffers share bytes; 0 without penalties."""
        return self.plan.arenas[0].reuse_cost or 0

    @property
    def reuse_cost_lower_bound(self) -> int:
        """Lower bound of the reuse cost of any packing within the capacity."""
        return self.plan.arenas[0].reuse_cost_lower_bound or 0

    @property
    def optimal(self) -> bool:
        """Whether the extent and the reuse cost are proven minimal."""
        return self.plan.arenas[0].status == "optimal"

    def __len__(self) -> int:
        return len(self.offset)

    def __getitem__(self, k: Any) -> Any:
        return self.offset[k]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.offset, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        proof = "optimal" if self.optimal else f"bound {self.lower_bound_bytes:,} B"
        return f"<Packed {len(self):,} buffers: extent {self.extent_bytes:,} B, {proof}>"

    def _repr_html_(self) -> str:
        return self.plan._repr_html_()


class PackOptions(TypedDict, total=False):
    """Options of :func:`pack`."""

    alignment: ArrayLike | None
    capacity: Amount | None
    planner: str | None
    minimise: bool | None
    separations: ArrayLike | None
    colocations: ArrayLike | None
    pinned: Mapping[int, int] | None
    reuse_penalties: ArrayLike | None


def with_constraints(problem: Problem, row_of_buffer: NDArray[np.int64], options: PackOptions) -> Problem:
    """Return ``problem`` with the constraints of ``options``; buffer k has the row ``row_of_buffer[k]``."""
    pairs = {"separations": 2, "colocations": 2, "reuse_penalties": 3}
    if all(options.get(name) is None for name in (*pairs, "pinned")):
        return problem
    fixed = np.full(len(problem), -1, np.int64)  # −1: not pinned
    hint = f"Write integers {{buffer: bytes}}: buffers from 0 to {len(problem) - 1:,}, bytes from 0 to 2^63 − 2."
    pinned = options.get("pinned")
    if not isinstance(pinned, Mapping | None):
        raise _fault(f"pinned has the type {type(pinned).__name__}, not a mapping.", hint)
    for buffer, offset in (pinned or {}).items():
        are_whole = isinstance(buffer, (int, np.integer)) and isinstance(offset, (int, np.integer))
        if not are_whole or not 0 <= buffer < len(problem) or not 0 <= offset <= 2**63 - 2:
            raise _fault(f"pinned has the invalid entry {buffer!r}: {offset!r}.", hint)
        fixed[row_of_buffer[buffer]] = offset
    values: dict[str, Any] = {**options}
    separated, colocated, penalties = (_pairs(name, values.get(name), pairs[name], row_of_buffer) for name in pairs)
    reuse = ReuseTerms(tuple(map(tuple, colocated.tolist())), (), tuple(map(tuple, penalties.tolist())))
    fixed_or_none = fixed if (fixed >= 0).any() else None
    return replace(problem, must_not_alias=separated if len(separated) else None, fixed=fixed_or_none, reuse=reuse)


def _pairs(name: str, value: ArrayLike | None, width: int, row_of_buffer: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return an argument as an array of shape (m, ``width``), with buffer numbers replaced by rows of the problem."""
    table = np.zeros((0, width), np.int64) if value is None else _integers(name, value)
    table = table.reshape(0, width) if table.shape == (0,) else table
    if table.ndim != 2 or table.shape[1] != width:
        columns = "first, second" + ", cost" * (width - 2)
        raise _fault(f"{name} has the shape {table.shape}.", f"Give one row ({columns}) per pair.")
    pairs, n = table[:, :2], len(row_of_buffer)
    for is_wrong, why in (
        (((pairs < 0) | (pairs >= n)).any(axis=1), "names a buffer that does not exist"),
        (pairs[:, 0] == pairs[:, 1], "pairs a buffer with itself"),
        ((table[:, 2:] < 0).any(axis=1), "has a negative cost"),
    ):
        if is_wrong.any():
            k = int(np.argmax(is_wrong))
            hint = f"Buffers have the numbers 0 to {n - 1:,}, costs are at least 0."
            raise _fault(f"row {k} of {name}, {table[k].tolist()}, {why}.", hint)
    return np.concatenate([row_of_buffer[pairs], table[:, 2:]], axis=1)


def problem_of(columns: dict[str, ArrayLike], capacity: int | None) -> tuple[Problem, NDArray[np.int64]]:
    """Return the problem of the arguments ``columns``, in normative order (contract §1), and the row of each buffer."""
    integers = {name: _integers(name, value) for name, value in columns.items()}
    n = integers["lower"].size
    if integers["alignment"].ndim == 0:
        integers["alignment"] = np.full(n, int(integers["alignment"]), np.int64)
    for name, column in integers.items():
        if column.shape != (n,):
            expected = "not (n,)" if name == "lower" else f"lower has ({n},)"
            raise _fault(f"{name} has the shape {column.shape}, {expected}.", "Give one value per buffer.")
    lower, upper, size, alignment = (integers[name] for name in ("lower", "upper", "size", "alignment"))
    for is_wrong, why in (
        (lower < 0, "begins before step 0"),
        (upper <= lower, "ends no later than it begins: ranges are half-open, [lower, upper)"),
        (size < 0, "has a negative size"),
        ((alignment < 1) | (alignment & (alignment - 1) != 0), "has an alignment that is not a power of two"),
    ):
        if is_wrong.any():
            hint = "Give lower < upper, size ≥ 0, alignment 1, 2, 4 …."
            raise _fault(f"buffer {int(np.argmax(is_wrong))} {why}.", hint)
    ids = np.arange(n).astype(str)  # numpy sorts these texts like their UTF-8 bytes, as the contract requires
    order = np.lexsort((ids, -size, lower))
    birth, death, sizes, alignments = lower[order], upper[order], size[order], alignment[order]
    columns_of_problem = (birth, death, sizes.astype(np.uint64), alignments.astype(np.uint64))
    limit = UNLIMITED if capacity is None else capacity
    return Problem("arena", tuple(ids[order].tolist()), *columns_of_problem, limit), np.argsort(order)


def _integers(name: str, value: ArrayLike) -> NDArray[np.int64]:
    try:
        array = np.asarray(value)
    except ValueError:
        raise _fault(f"the rows of {name} have different lengths.", "Give rows of one length.") from None
    if np.ma.is_masked(value):
        raise _fault(f"{name} has masked values.", "Give a value for every buffer.")
    if array.dtype.kind in "fO" and all(isinstance(x, int) for x in np.asarray(value, object).flat):
        array = np.asarray(value, object)  # integers beyond 64 bits
    elif array.size and array.dtype.kind not in "iu":
        raise _fault(f"{name} has the type {array.dtype}, not an integer type.", "Give integers: steps and bytes.")
    beyond = np.flatnonzero(abs(array) > np.iinfo(np.int64).max)
    if beyond.size:
        row, number = beyond[0] // int(np.prod(array.shape[1:])), int(array.flat[beyond[0]])
        raise _fault(f"row {row} of {name} contains {number:,}, beyond 2^63 − 1.", "Give smaller values.")
    return array.astype(np.int64)


def _fault(message: str, hint: str) -> UnreadableInput:
    return UnreadableInput(message, source="pack", hint=hint)
