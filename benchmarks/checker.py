"""Check offsets against a structured packing problem: ``python -m benchmarks.checker PROBLEM.json OFFSETS.csv``.

OFFSETS has the columns ``buffer,offset``: the id and the first byte of each buffer. The command prints the reuse cost,
or the violated constraints. It compares every pair of buffers and imports only the standard library.
"""

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any


def share(a: Mapping[str, Any], b: Mapping[str, Any], offset: Mapping[int, int]) -> bool:
    """Return whether two buffers of one pool have a byte in common."""
    first, second = offset[a["id"]], offset[b["id"]]
    end = min(first + a["size"], second + b["size"])
    return a["allowed_pools"] == b["allowed_pools"] and max(first, second) < end


def live_together(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return whether two buffers are live at one step."""
    pairs = product(a["live_intervals"], b["live_intervals"])
    return any(x["lower"] < y["upper"] and y["lower"] < x["upper"] for x, y in pairs)


def violations(problem: Mapping[str, Any], offset: Mapping[int, int]) -> Iterator[str]:
    """Yield a text for every violated constraint."""
    pools = {pool["id"]: pool for pool in problem["pools"]}
    limits, buffers = problem["constraints"], {buffer["id"]: buffer for buffer in problem["buffers"]}
    kinds = limits["separations"], limits["temporal_exclusions"]
    separated, excluded = ({frozenset((pair["first"], pair["second"])) for pair in kind} for kind in kinds)
    if missing := buffers.keys() - offset.keys():
        yield f"buffers {sorted(missing)} have no offset"
        return
    for number, buffer in buffers.items():
        at, end, pool = offset[number], offset[number] + buffer["size"], pools[buffer["allowed_pools"][0]]
        if at < 0 or at % buffer["alignment"]:
            yield f"buffer {number} is at {at}, misaligned"
        if buffer["size"] and pool["capacity"] is not None and end > pool["capacity"]:
            yield f"buffer {number} ends at {end}, past the capacity of {pool['name']}"
        if any(max(at, r["begin"]) < min(end, r["end"]) for r in pool["reserved_ranges"]):
            yield f"buffer {number} uses reserved bytes"
    for a, b in combinations(buffers.values(), 2):
        pair = frozenset((a["id"], b["id"]))
        apart = pair in separated or (live_together(a, b) and pair not in excluded)
        if apart and share(a, b, offset):
            yield f"buffers {a['id']} and {b['id']} share bytes"
    for pair in limits["colocations"]:
        if offset[pair["first"]] != offset[pair["second"]]:
            yield f"buffers {pair['first']} and {pair['second']} are not at one offset"
    for pin in limits["pinned_allocations"]:
        pinned = buffers[pin["buffer"]]
        others = [b for b in buffers.values() if b["id"] != pin["buffer"] and share(pinned, b, offset)]
        if offset[pin["buffer"]] != pin["offset"] or (pin["exclusive_for_all_time"] and others):
            yield f"buffer {pin['buffer']} is not as pinned"


def cost(problem: Mapping[str, Any], offset: Mapping[int, int]) -> int:
    """Return the sum of the penalties whose buffers share bytes."""
    buffers = {buffer["id"]: buffer for buffer in problem["buffers"]}
    penalties = problem.get("cost_model", {}).get("reuse_penalties", [])
    return sum(p["cost"] for p in penalties if share(buffers[p["first"]], buffers[p["second"]], offset))


def main() -> int:
    """Print the cost of an offsets file, or its violations."""
    given, placed = (Path(name).read_text(encoding="utf-8") for name in sys.argv[1:])
    problem = json.loads(given)["problem"]
    offset = {int(row["buffer"]): int(row["offset"]) for row in csv.DictReader(placed.splitlines())}
    found = list(violations(problem, offset))
    print("\n".join(found) if found else f"valid, reuse cost {cost(problem, offset)}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
