"""Lower bounds on the extent of an arena, each provable, with the storages that prove it (witness).

* **live**: storages alive at one moment are pairwise disjoint, so their bytes add up (max live bytes).
* **grid**: if all these storages start at multiples of g, each except the topmost takes a multiple of g bytes.
* **hand-off**: a storage whose in-place reuse is impossible (fixed elsewhere, or must not alias) counts at the step
  at which the reusing storage is born.
* **never alias**: a storage that must not alias any of the counted storages counts too, live or not.
* **fixed**: the end of a storage with a fixed offset.

All bounds are weighted cliques of the conflict graph. The first and its witness take O(n log n).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tmmu_core.planners.columns import NEVER, SAFE, Columns, align_up, columns
from tmmu_core.planners.problem import Problem, without_empty

MAX_MOMENTS = 64
"""Moments, highest live bytes first, at which the expensive bounds are computed."""
MAX_CACHED_CONFLICTS = 1 << 26
"""Largest number of cached pairs, one byte each."""


@dataclass(frozen=True)
class Bound:
    """No packing has a smaller extent than ``bytes``, because of ``witness`` (indices, ascending)."""

    bytes: int
    witness: tuple[int, ...]
    step: int
    """A step at which the witness is live; −1 if the bound does not depend on time."""
    rule: str
    """``live``, ``grid``, ``handoff``, ``never_alias`` or ``fixed``; ``empty`` without storages."""
    max_live: int
    """Max live bytes; never more than ``bytes``."""


def lower_bound(problem: Problem) -> Bound:
    """Return the best lower bound of a problem. Raises ``InvalidIrShapes`` for fixed offsets that overlap.

    Storages of zero bytes do not count.
    """
    rest, kept = without_empty(problem)
    found = bound_of(columns(rest))
    return found if rest is problem else replace(found, witness=tuple(kept[list(found.witness)].tolist()))


def bound_of(cols: Columns) -> Bound:
    """Return the best lower bound of prepared columns."""
    if not len(cols):
        return Bound(0, (), -1, "empty", 0)
    live = cols.live_bytes()
    tallest = int(np.argmax(cols.sizes))
    fullest = np.argsort(-live, kind="stable").tolist()
    peak = int(live[fullest[0]]) if len(live) else 0
    if peak >= cols.size[tallest]:
        best = Bound(peak, _alive(cols, fullest[0]), int(cols.births[fullest[0]]), "live", peak)
    else:  # a storage that is never live still needs its bytes
        best = Bound(cols.size[tallest], (tallest,), -1, "live", peak)

    for i, at in enumerate(cols.fixed) if cols.problem.fixed is not None else ():
        if at >= 0 and at + cols.size[i] > best.bytes:
            parts = cols.part_lo[cols.part_of[i] : cols.part_of[i + 1]]  # empty if its lifetime is one gap
            best = Bound(at + cols.size[i], (i,), int(cols.births[parts[0]]) if len(parts) else -1, "fixed", peak)

    is_coarse = min(cols.align) > 1
    padded = -(-cols.sizes // cols.aligns) * cols.aligns
    most = cols.live_bytes(padded).tolist() if is_coarse and not cols.extra_conflicts and cols.is_small else None
    for column in fullest[:MAX_MOMENTS] if is_coarse or cols.extra_conflicts else ():
        if most is not None and most[column] <= best.bytes:
            continue  # the grid bound is at most the sum of the padded sizes
        alive = _alive(cols, column)
        step = int(cols.births[column])
        refused = _refused_handoffs(cols, alive, step)
        counted = tuple(sorted((*alive, *refused)))
        apart = _never_alias(cols, counted)
        rule = "never_alias" if apart else "handoff" if refused else "grid"
        members = tuple(sorted((*counted, *apart)))
        total = on_grid([(cols.size[i], cols.align[i]) for i in members])
        if total > best.bytes:
            best = Bound(total, members, step, rule, peak)
    return best


def reachable(cols: Columns, at: int) -> int:
    """Return the least possible extent ≥ ``at``: an extent is a multiple of a storage's alignment plus its size."""
    if not len(cols) or not cols.is_small or at >= SAFE or max(cols.align) == 1:
        return at
    under = np.maximum(at - cols.sizes, 0)
    return int((-(-under // cols.aligns) * cols.aligns + cols.sizes).min())


def on_grid(storages: list[tuple[int, int]]) -> int:
    """Return the least extent of pairwise disjoint ``(size, alignment)`` storages.

    With g the smallest alignment, every start is a multiple of g, so each storage but the topmost takes
    ``align_up(size, g)``; the storage that saves most is the topmost. Subsets of larger alignment are tried too.
    """
    best = 0
    for grid in sorted({align for _, align in storages}):
        sizes = [size for size, align in storages if align >= grid]
        padded = [align_up(size, grid) for size in sizes]
        best = max(best, sum(padded) - max(p - s for p, s in zip(padded, sizes, strict=True)))
    return best


def _alive(cols: Columns, column: int) -> tuple[int, ...]:
    return tuple(int(i) for i in cols.alive_at(column))


def _refused_handoffs(cols: Columns, alive: tuple[int, ...], step: int) -> list[int]:
    """Return the storage that ends at ``step`` and conflicts with its in-place successor and everything live."""
    if cols.problem.handoff_from is None:
        return []
    for j in alive:
        i = int(cols.problem.handoff_from[j])
        starts_here = i >= 0 and int(cols.problem.birth[j]) == step and i not in alive
        if starts_here and _conflicts(cols, i)[list(alive)].all():
            return [i]
    return []


def _never_alias(cols: Columns, counted: tuple[int, ...]) -> list[int]:
    """Return further storages, largest first, that conflict with all of ``counted`` and with each other."""
    if cols.problem.must_not_alias is None:
        return []
    clique = list(counted)
    left = np.zeros(len(cols), np.bool_)
    left[[j for i in counted for j, kind in cols.extra_conflicts[i] if kind == NEVER]] = True
    left[clique] = False
    for j in np.flatnonzero(left).tolist():
        left[j] = _conflicts(cols, j)[clique].all()
    further = []
    for j in sorted(np.flatnonzero(left).tolist(), key=lambda j: (-cols.size[j], j)):
        if left[j]:
            further.append(j)
            left = left & _conflicts(cols, j)
    return sorted(further)


def _conflicts(cols: Columns, i: int) -> NDArray[np.bool_]:
    """Return an array of shape (n,): whether each storage shares no byte with storage i in any packing; cached."""
    kept: dict[int, NDArray[np.bool_]] = cols.memo.setdefault("conflicts", {})
    if i in kept:
        return kept[i]
    found = np.zeros(len(cols), np.bool_)
    for other, kind in cols.extra_conflicts[i]:
        fixed_apart = min(cols.fixed[i], cols.fixed[other]) >= 0 and cols.fixed[i] != cols.fixed[other]
        found[other] = kind == NEVER or fixed_apart
    for a in range(cols.part_of[i], cols.part_of[i + 1]):
        meets = (cols.part_lo < cols.part_hi[a]) & (cols.part_lo[a] < cols.part_hi)
        found[cols.storage_of_part[meets]] = True
    if len(kept) * len(cols) < MAX_CACHED_CONFLICTS:
        kept[i] = found
    return found
