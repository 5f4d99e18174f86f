"""First fit and best fit for structured problems, the heuristics with which every planner is compared."""

from collections.abc import Mapping
from typing import Any

from benchmarks.checker import live_together


def placed(problem: Mapping[str, Any], tightest: bool) -> dict[int, int]:
    """Return buffer id → offset, in order of birth: the lowest free bytes or, if ``tightest``, the smallest free gap.

    Live intervals, separations, exclusions, pins, colocations and reserved ranges are respected. Capacities and costs
    are ignored.
    """
    limits, pools = problem["constraints"], {pool["id"]: pool for pool in problem["pools"]}
    pair = {
        name: {frozenset((p["first"], p["second"])) for p in limits[name]}
        for name in ("separations", "temporal_exclusions", "colocations")
    }
    pins = {pin["buffer"]: pin for pin in limits["pinned_allocations"]}
    offset: dict[int, int] = {}
    by_birth = sorted(
        problem["buffers"], key=lambda b: (b["id"] not in pins, b["live_intervals"][0]["lower"], -b["size"], b["id"])
    )
    done: list[Mapping[str, Any]] = []
    for buffer in by_birth:
        number, size, grid, pool = buffer["id"], buffer["size"], buffer["alignment"], buffer["allowed_pools"]
        busy = [(r["begin"], r["end"]) for r in pools[pool[0]]["reserved_ranges"]]
        for other in done:
            both = frozenset((number, other["id"]))
            apart = both in pair["separations"] or pins.get(other["id"], {}).get("exclusive_for_all_time")
            live = other["allowed_pools"] == pool and both not in pair["temporal_exclusions"]
            if apart or (live and live_together(buffer, other)):
                busy.append((offset[other["id"]], offset[other["id"]] + other["size"]))
        joined = [other["id"] for other in done if frozenset((number, other["id"])) in pair["colocations"]]
        at, low, best = 0, 0, None
        for begin, end in sorted(busy):
            if begin - at >= size and (best is None or (tightest and begin - low < best[0])):
                best = (begin - low, at)
            low = max(low, end)
            at = -(-low // grid) * grid
        offset[number] = best[1] if best else at
        offset[number] = pins[number]["offset"] if number in pins else offset[joined[0]] if joined else offset[number]
        done.append(buffer)
    return offset
