"""``exact``: branch and bound that minimises, any time, with a proof where it gets that far.

The compiled search (:mod:`.kernel`, after MiniMalloc, ASPLOS '23) answers one question: does everything fit below a
capacity? Its luck hangs on the order in which equal offsets are tried, and is heavy-tailed: most orders never end,
some end after a few hundred nodes. So it is asked often and shortly: each *attempt* draws how much a unit's fullest
moment, life, height and length count (every other time near what last succeeded), and has a few thousand nodes,
more now and then (Luby's sequence), so that small problems are exhausted and proven. Attempts aim in turn at the lower
bound itself and at capacities closely and well below the best so far. Found: the extent falls. Exhausted: the bound
rises above that capacity. Where they meet the packing is optimal.

Budgeted by nodes, never by the clock; draws are raw Philox numbers: the same budget gives the same packing anywhere.
An attempt costs O(entries) per node in the worst case, around a microsecond on the six MiniMalloc instances.

Hand-offs: each may be taken (both storages are one unit) or not (the two conflict). All that can be are taken first;
up to :data:`ALL_CHOICES` of them every choice is searched; beyond, a relaxation in which those pairs are free to
overlap raises the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from tmmu_core.errors import ArenaTooSmall
from tmmu_core.planners.bounds import bound_of
from tmmu_core.planners.columns import Columns, columns, count_option, finished
from tmmu_core.planners.exact.model import Model, Weights, build, chains, handoffs, ranker, take_all
from tmmu_core.planners.portfolio import best_greedy
from tmmu_core.planners.problem import I64, Packing, Problem, Progress

if TYPE_CHECKING:
    from tmmu_core.planners.exact.run import Searcher

DEFAULT_BUDGET = 2_000_000
"""Nodes, for models of up to :data:`FULL_SPEED` entries; larger ones get proportionally fewer of them."""
FULL_SPEED = 10_000
ATTEMPT = 6_000
"""Nodes of the shortest attempt."""
LARGEST = 20_000_000
"""``Model.work`` beyond which no search is tried."""
OPENINGS: tuple[Weights, ...] = (
    (256, 17, 44, 30),
    (25, 26, 29, 3),
    (400, 115, 84, 13),
    (59, 27, 25, 7),
    (166, 80, 19, 45),
    (0, 128, 64, 32),
)
"""Weights tried first, at the bound itself: what did well on MiniMalloc's six instances. The rest is drawn."""
KEY = 4
"""Of the Philox stream that attempts are drawn from."""
STEPS = (3, 4, 5, 6, 7, 7, 7, 7)
"""Where to aim, in eighths of the way from the bound to the best: two back after success, one on after failure."""
ALL_CHOICES = 5
"""Hand-offs up to which every choice of them is searched."""


def exact(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """The least packing that the budget finds, the bound it proves, and whether the two meet.

    Options: ``budget`` (nodes). Raises ArenaTooSmall, with ``proven`` in its diagnostics, when nothing fits the
    problem's capacity whatever the budget; AllocationOverflow past 2^64 − 1.
    """
    budget = count_option(options, "budget", DEFAULT_BUDGET)
    cols = columns(problem)
    bound = bound_of(cols)
    _refuse_if_proven(problem, bound.bytes, bound.max_live)
    start = best_greedy(cols, bound)
    best = _Best(bound.bytes, start.extent, start.offset)
    notes: dict[str, Any] = {"start": f"{start.order}/{start.fit}", "nodes": 0, "attempts": 0}
    stopped = False
    if best.extent > best.bound and not cols.small:
        notes["why"] = "sizes beyond 2^62: greedy only"
    elif best.extent > best.bound and budget:
        variants, relaxed = _variants(cols)
        if variants[0].model.work > LARGEST:
            notes["why"] = "too many storages to search: greedy only"
        else:
            stopped = _search(cols, best, variants, relaxed, budget, progress, notes)
    _refuse_if_proven(problem, best.bound, bound.max_live)
    return Packing(
        finished(cols, best.offset),
        lower_bound=best.bound,
        optimal=best.extent == best.bound,
        stopped=stopped,
        notes=notes,
    )


@dataclass
class _Best:
    bound: int
    extent: int
    offset: list[int]


@dataclass
class _Variant:
    """One choice of hand-offs: what is proven of it, and what last succeeded in it."""

    model: Model
    bound: int
    lucky: Weights | None = None
    searcher: Searcher | None = None
    rank: Any = None
    attempts: int = 0
    boldness: int = 0
    """Index into :data:`STEPS`."""


def _variants(cols: Columns) -> tuple[list[_Variant], _Variant | None]:
    """Every choice of hand-offs to search, the fullest first; and the relaxation if those are not all."""
    possible = handoffs(cols)
    chosen = [take_all(cols)]
    if len(possible) <= ALL_CHOICES:
        for count in range(len(possible), -1, -1):
            chosen += [taken for taken in combinations(possible, count) if taken != chosen[0]]
    variants = []
    for taken in chosen:
        units = chains(cols, taken)
        if units is not None:
            variants.append(_Variant(build(cols, units), 0))
    if len(possible) <= ALL_CHOICES:
        return variants, None
    alone = tuple((i,) for i in range(len(cols)))
    return variants, _Variant(build(cols, alone, pairs=False), 0)


def _search(
    cols: Columns,
    best: _Best,
    variants: list[_Variant],
    relaxed: _Variant | None,
    budget: int,
    progress: Progress | None,
    notes: dict[str, Any],
) -> bool:
    """Attempt after attempt until the bound is met, the budget is spent, or ``progress`` says stop."""
    from tmmu_core.planners.exact.kernel import FOUND, INFEASIBLE
    from tmmu_core.planners.exact.run import Searcher

    grain = variants[0].model.grain
    everyone = [*variants, *([relaxed] if relaxed is not None else [])]
    for variant in everyone:
        variant.bound = align_up_any(best.bound, grain)
        variant.searcher = Searcher(variant.model)
        variant.rank = ranker(variant.model)
    overlap = best.extent  # the least extent known of the relaxation: above it, it proves nothing
    entries = max(len(variants[0].model.section), 1)
    allowed = budget if entries <= FULL_SPEED else max(budget * FULL_SPEED // entries, 1)
    draws = np.random.Philox(key=KEY)
    spent = attempt = turn = 0
    while spent < allowed:
        proven = min(variant.bound for variant in variants)
        best.bound = max(best.bound, min(best.extent, max(proven, relaxed.bound if relaxed is not None else 0)))
        if best.bound >= best.extent or best.bound > cols.problem.capacity:
            break
        if progress is not None and attempt and not progress("exact", spent, allowed):
            notes.update(nodes=spent, attempts=attempt, told_to_stop=True)
            return True
        open_ones = [v for v in variants if v.bound < best.extent]
        if relaxed is not None and relaxed.bound < min(overlap, best.extent):
            open_ones.append(relaxed)
        if not open_ones:
            break
        variant = open_ones[turn % len(open_ones)]
        turn += 1
        ceiling = min(overlap, best.extent) if variant is relaxed else best.extent
        target = _aim(variant, ceiling, grain, cols.problem.capacity)
        weights, noise = _draw(draws, variant)
        assert variant.searcher is not None
        size = min(_length(variant.attempts), allowed - spent)
        verdict, nodes, offset = variant.searcher.ask(target, variant.rank(weights, noise), size)
        if variant.attempts >= len(OPENINGS) and target > variant.bound:
            variant.boldness = max(variant.boldness - 2, 0) if verdict == FOUND else min(variant.boldness + 1, 7)
        variant.attempts += 1
        attempt += 1
        spent += max(nodes, 1)
        if verdict == INFEASIBLE:
            variant.bound = max(variant.bound, target + grain)
        elif verdict == FOUND and offset is not None:
            variant.lucky = weights
            extent = max(at + high for at, high in zip(offset, variant.searcher.tall, strict=True))
            if variant is relaxed:
                overlap = min(overlap, extent)
            elif extent < best.extent:
                best.extent = extent
                for unit, at in zip(variant.model.members, offset, strict=True):
                    for i in unit:
                        best.offset[i] = at
    proven = max(min(variant.bound for variant in variants), relaxed.bound if relaxed is not None else 0)
    best.bound = max(best.bound, min(best.extent, proven))
    if min(variant.bound for variant in variants) > cols.problem.capacity:
        best.bound = max(best.bound, cols.problem.capacity + 1)
    notes.update(nodes=spent, attempts=attempt)
    return best.bound < best.extent


def _aim(variant: _Variant, ceiling: int, grain: int, capacity: int) -> int:
    """The capacity to ask for next: the bound itself, or one part or another of the way from it to the best."""
    if variant.attempts < len(OPENINGS):
        return variant.bound
    if variant.bound <= capacity < ceiling and variant.attempts % 3 == 2:
        return capacity // grain * grain
    eighths = 0 if variant.attempts % 4 == 1 else STEPS[variant.boldness]
    target = (variant.bound + (ceiling - variant.bound) * eighths // 8) // grain * grain
    return max(variant.bound, min(target, ceiling - grain))


def _draw(draws: np.random.Philox, variant: _Variant) -> tuple[Weights, I64 | None]:
    """Weights for one attempt: an opening, drawn, or near what last succeeded; now and then with noise per unit."""
    if variant.attempts < len(OPENINGS):
        return OPENINGS[variant.attempts], None
    raw = [int(x) for x in draws.random_raw(4)]
    weights = (raw[0] % 512, raw[1] % 128, raw[2] % 128, raw[3] % 128)
    if variant.lucky is not None and variant.attempts // 6 % 2:
        one, two, three, four = (old * (32 + x % 65) >> 6 for old, x in zip(variant.lucky, raw, strict=True))
        weights = (one, two, three, four)
    if variant.attempts % 8 != 7:
        return weights, None
    noise = draws.random_raw(len(variant.model)) % np.uint64(1 << 16)
    return weights, noise.astype(np.int64) - (1 << 15)


def _length(attempt: int) -> int:
    """Nodes of one attempt: mostly the shortest, each sixteenth longer by Luby's sequence."""
    return ATTEMPT if attempt % 16 != 15 else 4 * ATTEMPT * luby(attempt // 16 + 1)


def luby(k: int) -> int:
    """The k-th term (from 1) of 1, 1, 2, 1, 1, 2, 4, … (Luby, Sinclair and Zuckerman 1993)."""
    while True:
        bits = k.bit_length()
        if k == (1 << bits) - 1:
            return 1 << (bits - 1)
        k -= (1 << (bits - 1)) - 1


def align_up_any(at: int, grain: int) -> int:
    """The next multiple of any number."""
    return -(-at // grain) * grain


def _refuse_if_proven(problem: Problem, bound: int, max_live: int) -> None:
    if bound <= problem.capacity:
        return
    raise ArenaTooSmall(
        f"nothing fits arena {problem.arena!r}: every packing takes at least {bound} bytes, "
        f"its capacity is {problem.capacity}. This is proven.",
        hint="Raise the capacity, shorten lives or make storages smaller.",
        arena=problem.arena,
        capacity=problem.capacity,
        required=bound,
        lower_bound=bound,
        peak_live_bytes=max_live,
        proven=True,
    )
