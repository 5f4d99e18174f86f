"""Small problems by seed with everything in them, packed by ``exact`` and by trying everything.

``python -m tests.planners.brute_force 20000`` compares so many, in one process, and tells the first that differs.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent))  # as a command it stands in no package

from packings import extent, faults, offsets, problem, problem_with, smallest_extent

from tmmu_core.planners.exact import exact
from tmmu_core.planners.greedy import greedy
from tmmu_core.planners.problem import Problem


def made(seed: int, most: int = 6) -> Problem:
    """Up to ``most`` storages: grids, and now and then gaps, hand-offs, pairs that must not alias, fixed offsets."""
    rng = random.Random(seed)
    steps, largest = rng.randrange(2, 9), rng.choice((3, 6, 20))
    rows = []
    for _ in range(rng.randrange(1, most + 1)):
        birth = rng.randrange(steps)
        rows.append((birth, rng.randrange(birth + 1, steps + 1), rng.randrange(largest)))
    p = problem(*rows, alignment=[rng.choice((1, 1, 2, 4)) for _ in rows])
    n = len(p)
    if rng.randrange(3) == 0:
        gaps = []
        for birth, death in zip(p.birth.tolist(), p.death.tolist(), strict=True):
            begin = rng.randrange(birth, death)
            gaps.append(((begin, rng.randrange(begin + 1, death + 1)),) if rng.randrange(2) else ())
        p = problem_with(p, gaps=tuple(gaps))
    if rng.randrange(3) == 0:
        handoff = np.full(n, -1, dtype=np.int64)
        for j in range(n):
            givers = [i for i in range(n) if p.death[i] == p.birth[j] and i not in handoff]
            if givers:
                handoff[j] = rng.choice(givers)
        p = problem_with(p, handoff_from=handoff)
    if n > 1 and rng.randrange(4) == 0:
        p = problem_with(p, must_not_alias=np.array([sorted(rng.sample(range(n), 2))], dtype=np.int64))
    if rng.randrange(4) == 0:
        lies = offsets(greedy(p, {"order": "birth"}))
        p = problem_with(p, fixed=np.array([at if rng.randrange(3) == 0 else -1 for at in lies], dtype=np.int64))
    return p


def differs(seed: int) -> str:
    """What is wrong with the answer to one problem; empty when nothing is."""
    p = made(seed)
    packing, least = exact(p, {"budget": 200_000}), smallest_extent(p)
    if wrong := faults(p, offsets(packing)):
        return f"seed {seed}: {wrong[0]}"
    if (extent(p, packing.offset), packing.lower_bound, packing.optimal) != (least, least, True):
        return f"seed {seed}: {extent(p, packing.offset)} bytes, bound {packing.lower_bound}, the least is {least}"
    return ""


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for seed in range(count):
        if found := differs(seed):
            sys.exit(found)
    print(f"{count} problems packed as by trying everything")
