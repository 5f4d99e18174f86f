"""Lower bounds on the extent of an arena, with the storages that prove them (the witness).

* **live**: storages that are live at one step share no byte, so their bytes add up (max live bytes). O(n log n).
* **grid**: each live storage of alignment g or more, except the topmost one, takes a multiple of g bytes.
* **hand-off**: if j may reuse i in place, i is dead at the birth of j. At this step, i counts too if it conflicts with
  all live storages. It conflicts with j if the two must not alias or have different fixed offsets.
* **never alias**: a storage that conflicts with every counted storage counts too, live or not.
* **fixed**: the end of a storage with a fixed offset.

Each rule except **fixed** gives the weight of a clique in the conflict graph. No storage uses reserved bytes, so the
sizes of a witness plus the reserved bytes below their total are a bound too.
"""

from dataclasses import dataclass, replace

import numpy as np

from tmmu_core.planners.columns import NEVER, SAFE, Columns, align_up, columns
from tmmu_core.planners.problem import Mask, Problem, without_empty

MAX_STEPS = 64
"""Number of steps for which ``grid``, ``hand-off`` and ``never alias`` are computed: those with the most live bytes."""


@dataclass(frozen=True)
class Bound:
    """A lower bound: no packing has a smaller extent than ``bytes``."""

    bytes: int
    witness: tuple[int, ...]  # indices of the storages that prove the bound, ascending
    step: int  # step for which the bound was computed; −1 if it does not depend on a step
    rule: str  # ``live``, ``grid``, ``handoff``, ``never_alias`` or ``fixed``; ``empty`` without storages
    max_live: int  # max live bytes, at most ``bytes``; 0 with temporal exclusions


def lower_bound(problem: Problem) -> Bound:
    """Return the best lower bound of a problem; storages of zero bytes do not count.

    Raises ``InvalidIrShapes`` for conflicting storages that are fixed on common bytes, except with temporal exclusions.
    """
    rest, indices = without_empty(problem)
    if len(rest) and rest.reuse is not None and rest.reuse.exclusions:  # excluded pairs may share bytes while live
        largest = int(np.argmax(rest.size))
        bound = Bound(int(rest.size[largest]), (largest,), -1, "live", 0)
    else:
        bound = bound_of(columns(rest))
    extent, last = int(rest.size[list(bound.witness)].sum()), 0  # without padding, which may lie in a reserved range
    for begin, end in sorted(rest.reuse.reserved) if rest.reuse is not None else ():
        if extent > max(begin, last):
            extent, last = extent + max(0, end - max(begin, last)), max(end, last)
    return replace(bound, bytes=max(bound.bytes, extent), witness=tuple(indices[list(bound.witness)].tolist()))


def bound_of(cols: Columns) -> Bound:
    """Return the best lower bound of a prepared problem. Every storage takes at least one byte."""
    if not len(cols):
        return Bound(0, (), -1, "empty", 0)
    live = cols.live_bytes()
    tallest = int(np.argmax(cols.sizes))
    by_live_bytes = np.argsort(-live, kind="stable").tolist()
    peak = int(live[by_live_bytes[0]]) if len(live) else 0
    if peak >= cols.size[tallest]:
        witness = tuple(cols.alive_at(by_live_bytes[0]).tolist())
        best = Bound(peak, witness, int(cols.births[by_live_bytes[0]]), "live", peak)
    else:  # a storage without live steps needs its bytes too
        best = Bound(cols.size[tallest], (tallest,), -1, "live", peak)

    for i, at in enumerate(cols.fixed) if cols.problem.fixed is not None else ():
        if at >= 0 and at + cols.size[i] > best.bytes:
            parts = cols.part_lo[cols.part_of[i] : cols.part_of[i + 1]]
            best = Bound(at + cols.size[i], (i,), int(cols.births[parts[0]]) if len(parts) else -1, "fixed", peak)

    is_coarse = max(cols.align) > 1
    padded = -(-cols.sizes // cols.aligns) * cols.aligns
    padded_live = cols.live_bytes(padded).tolist() if is_coarse and not cols.extra_conflicts and cols.is_small else None
    for compressed_step in by_live_bytes[:MAX_STEPS] if is_coarse or cols.extra_conflicts else ():
        if padded_live is not None and padded_live[compressed_step] <= best.bytes:
            continue  # the grid bound is at most the sum of the padded sizes
        clique, rule = _clique_at(cols, compressed_step)
        total = on_grid([(cols.size[i], cols.align[i]) for i in clique])
        if total > best.bytes:
            best = Bound(total, tuple(sorted(clique)), int(cols.births[compressed_step]), rule, peak)
    return best


def possible_extent(cols: Columns, at: int) -> int:
    """Return the least possible extent ≥ ``at``. An extent is the aligned offset of some storage plus its size.

    Return ``at`` itself if all alignments are 1, there are no storages or a value could exceed int64.
    """
    if not len(cols) or not cols.is_small or at >= SAFE or max(cols.align) == 1:
        return at
    return int((-(-np.maximum(at - cols.sizes, 0) // cols.aligns) * cols.aligns + cols.sizes).min())


def on_grid(storages: list[tuple[int, int]]) -> int:
    """Return a lower bound of the extent of storages ``(size, alignment)`` that share no byte.

    For each alignment g, the storages of alignment g or more start at multiples of g. Each of them but the topmost
    takes ``align_up(size, g)``; the bound assumes that the one with the most padding is the topmost.
    """
    best = 0
    for grid in sorted({align for _, align in storages}):
        sizes = [size for size, align in storages if align >= grid]
        padded = [align_up(size, grid) for size in sizes]
        best = max(best, sum(padded) - max(p - s for p, s in zip(padded, sizes, strict=True)))
    return best


def _clique_at(cols: Columns, compressed_step: int) -> tuple[list[int], str]:
    """Return a clique of the storages that are live at a compressed step, and its rule (``Bound.rule``).

    Other storages that conflict with all members are added: at most one that a storage born at the step may reuse in
    place, then those that must not alias a member, the largest first.
    """
    problem, step = cols.problem, cols.births[compressed_step]
    clique, rule = cols.alive_at(compressed_step).tolist(), "grid"
    if problem.handoff_from is not None:
        sources = [int(problem.handoff_from[j]) for j in clique if problem.birth[j] == step]
        dead = (i for i in sources if i >= 0 and i not in clique)
        refused = next((i for i in dead if _conflicts(cols, i)[clique].all()), -1)
        if refused >= 0:
            clique, rule = [*clique, refused], "handoff"
    if problem.must_not_alias is not None:
        separated = {j for i in clique for j, kind in cols.extra_conflicts[i] if kind == NEVER} - set(clique)
        for j in sorted(separated, key=lambda j: (-cols.size[j], j)):
            if _conflicts(cols, j)[clique].all():
                clique, rule = [*clique, j], "never_alias"
    return clique, rule


def _conflicts(cols: Columns, i: int) -> Mask:
    """Return an array of shape (n,): whether each storage shares no byte with storage i in any packing."""
    found = np.zeros(len(cols), np.bool_)
    for other, kind in cols.extra_conflicts[i]:
        offsets_differ = min(cols.fixed[i], cols.fixed[other]) >= 0 and cols.fixed[i] != cols.fixed[other]
        found[other] = kind == NEVER or offsets_differ
    for a in range(cols.part_of[i], cols.part_of[i + 1]):
        overlaps = (cols.part_lo < cols.part_hi[a]) & (cols.part_lo[a] < cols.part_hi)
        found[cols.storage_of_part[overlaps]] = True
    return found
