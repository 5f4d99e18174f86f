"""``ffd``: first-fit decreasing over whole regions, the r10 memory planner.

Storages are taken largest first. Each joins the first region whose tenants it does not conflict with and whose offset
is aligned for it; otherwise it opens a region at the next aligned offset. The first tenant is the largest, so later
ones fit. Lifetimes are bit masks over compressed time. O(n · regions) mask operations.

Notes: number of regions, pairs that share a region, and bytes saved compared with a region per storage. The same with
r10's names is :mod:`~tmmu_core.seed.r10`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tmmu_core.planners.columns import HANDOFF, Columns, align_up, columns, extent_of, finished
from tmmu_core.planners.problem import Packing, Problem, Progress


def ffd(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Pack by first-fit decreasing. No options. Raises AllocationOverflow past 2^64 − 1."""
    cols = columns(problem)
    regions = _regions(cols)
    offset = [0] * len(cols)
    for region in regions:
        for i in region.tenants:
            offset[i] = region.offset
    shared = sum(len(region.tenants) * (len(region.tenants) - 1) // 2 for region in regions)
    saved = _isolated(cols) - extent_of(cols, offset)
    return Packing(
        finished(cols, offset), notes={"regions": len(regions), "sharing_pairs": shared, "saved_bytes": saved}
    )


def _isolated(cols: Columns) -> int:
    """Return the extent with a region for every storage, in the same order."""
    order = _decreasing(cols)
    end = max((cols.fixed[i] + cols.size[i] for i in order if cols.fixed[i] >= 0), default=0)
    for i in order:
        if cols.fixed[i] < 0:
            end = align_up(end, cols.align[i]) + cols.size[i]
    return end


@dataclass
class _Region:
    offset: int
    tenants: list[int]


def _decreasing(cols: Columns) -> list[int]:
    return sorted(range(len(cols)), key=lambda i: (-cols.size[i], i))


def _regions(cols: Columns) -> list[_Region]:
    lives = list(_masks(cols))
    order = _decreasing(cols)
    # No other storage joins a region of fixed offsets.
    closed, top = _fixed_regions(cols, [i for i in order if cols.fixed[i] >= 0])
    regions: list[_Region] = []
    busy: list[int] = []
    home: dict[int, int] = {}
    for i in order:
        if cols.fixed[i] >= 0:
            continue
        life, grid = lives[i], cols.align[i] - 1
        barred = {home[j] for j, kind in cols.odd[i] if j in home and kind != HANDOFF} if cols.odd is not None else ()
        for k, taken in enumerate(busy):
            if not taken & life and not regions[k].offset & grid and k not in barred:
                busy[k] |= life
                regions[k].tenants.append(i)
                home[i] = k
                break
        else:
            at = align_up(top, cols.align[i])
            top = at + cols.size[i]
            home[i] = len(regions)
            regions.append(_Region(at, [i]))
            busy.append(life)
    return [*closed, *regions]


def _fixed_regions(cols: Columns, given: list[int]) -> tuple[list[_Region], int]:
    """Return one closed region per fixed offset, and the first byte after all of them."""
    at: dict[int, _Region] = {}
    for i in given:
        at.setdefault(cols.fixed[i], _Region(cols.fixed[i], [])).tenants.append(i)
    return list(at.values()), max((cols.fixed[i] + cols.size[i] for i in given), default=0)


def _masks(cols: Columns) -> Iterator[int]:
    """Yield, per storage, the columns of compressed time at which it is live, as bits."""
    lows, highs, first = cols.part_lo.tolist(), cols.part_hi.tolist(), cols.part_of.tolist()
    for i in range(len(cols)):
        mask = 0
        for row in range(first[i], first[i + 1]):
            mask |= (1 << highs[row]) - (1 << lows[row])
        yield mask
