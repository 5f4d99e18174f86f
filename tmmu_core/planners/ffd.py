"""``ffd``: first-fit decreasing over whole regions, the memory planner of seed document 002 (r10).

Storages are placed largest first, each in the first region that has an aligned offset and no conflicting storage. If
there is none, a region is opened at the next aligned offset. The first storage of a region is the largest, so later
ones fit. Lifetimes are bit masks over compressed time. O(n · regions) mask operations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tmmu_core.planners.columns import HANDOFF, align_up, columns, extent_of, offset_column
from tmmu_core.planners.problem import Packing, Problem, Progress


@dataclass
class _Region:
    offset: int
    storages: set[int]
    life: int = 0  # bit mask of the compressed steps at which a storage of the region is live


def ffd(problem: Problem, options: Mapping[str, Any], progress: Progress | None = None) -> Packing:
    """Pack by first-fit decreasing. No options. Raises AllocationOverflow past 2^64 − 1."""
    cols = columns(problem)
    order = sorted(range(len(cols)), key=lambda i: (-cols.size[i], i))
    fixed = [i for i in order if cols.fixed[i] >= 0]
    fixed_regions: dict[int, _Region] = {}  # by offset; only storages with this fixed offset are in the region
    for i in fixed:
        fixed_regions.setdefault(cols.fixed[i], _Region(cols.fixed[i], set())).storages.add(i)
    end = unshared_end = max((cols.fixed[i] + cols.size[i] for i in fixed), default=0)
    lows, highs = cols.part_lo.tolist(), cols.part_hi.tolist()
    regions: list[_Region] = []
    for i in order:
        if cols.fixed[i] >= 0:
            continue
        unshared_end = align_up(unshared_end, cols.align[i]) + cols.size[i]
        rows = range(cols.part_of[i], cols.part_of[i + 1])
        life = sum((1 << highs[row]) - (1 << lows[row]) for row in rows)
        excluded = {j for j, kind in cols.extra_conflicts[i] if kind != HANDOFF}
        for region in regions:
            is_free = not region.life & life and region.storages.isdisjoint(excluded)
            if is_free and region.offset % cols.align[i] == 0:
                break
        else:
            region = _Region(align_up(end, cols.align[i]), set())
            end = region.offset + cols.size[i]
            regions.append(region)
        region.life |= life
        region.storages.add(i)
    regions += fixed_regions.values()
    offset = [0] * len(cols)
    for region in regions:
        for i in region.storages:
            offset[i] = region.offset
    shared = sum(len(region.storages) * (len(region.storages) - 1) // 2 for region in regions)
    notes = {"regions": len(regions), "sharing_pairs": shared, "saved_bytes": unshared_end - extent_of(cols, offset)}
    return Packing(offset_column(cols, offset), notes=notes)
