"""Answers of the planners' loops to problems by seed: ``python -m tests.planners.alike COUNT FIRST`` prints them.

A line for each problem: every order and fit by both greedy loops, what is torn down and put up again in some turns,
and what ``exact`` finds after how many nodes. What runs them is said by the environment: the library, numba
(``TMMU_NATIVE=0``), or Python (``plainly`` as a third word, and neither). :func:`ways` asks all three, and tells the
first problem that is not answered alike.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np

if "plainly" in sys.argv:
    sys.modules["numba"] = None  # type: ignore[assignment]
sys.path.append(str(Path(__file__).parent))  # as a command it stands in no package

from brute_force import made
from packings import offsets, problem_with

from tmmu_core.errors import TmmuError
from tmmu_core.planners.columns import SAFE, columns
from tmmu_core.planners.exact import exact
from tmmu_core.planners.exact.model import build, chains
from tmmu_core.planners.exact.rebuild import rebuild_of
from tmmu_core.planners.exact.tables import shape_of
from tmmu_core.planners.greedy import ORDERS, greedy, place
from tmmu_core.planners.problem import Problem

ROOT = Path(__file__).resolve().parents[2]
WAYS = {"library": ({}, ()), "numba": ({"TMMU_NATIVE": "0"}, ()), "Python": ({"TMMU_NATIVE": "0"}, ("plainly",))}


def wild(seed: int) -> Problem:
    """One of :func:`made`, up to 14 storages; two of three times stretched as far as 64 bits go.

    Then sizes are up to 2^53, alignments up to 2^47, and what is fixed lies so high that little is left to 2^62.
    """
    p, rng = made(seed, 14), random.Random(~seed)
    if rng.randrange(3) == 0:
        return p
    n = len(p)
    shift = rng.randrange(48)
    size = [(int(size) << shift) + rng.randrange(2) * rng.randrange(1 << shift) for size in p.size]
    grid = [1 << rng.choice((0, 3, shift, rng.randrange(41))) for _ in range(n)]
    order = np.array(sorted(range(n), key=lambda i: (p.birth[i], -size[i], p.ids[i].encode())), np.int64)
    place_of = np.append(np.argsort(order), -1)
    stretched = problem_with(
        p,
        ids=tuple(p.ids[i] for i in order),
        birth=p.birth[order],
        death=p.death[order],
        size=np.array(size, np.uint64)[order],
        alignment=np.array(grid, np.uint64)[order],
        gaps=None if p.gaps is None else tuple(p.gaps[i] for i in order),
        handoff_from=None if p.handoff_from is None else place_of[p.handoff_from[order]],
        must_not_alias=None if p.must_not_alias is None else np.sort(place_of[p.must_not_alias], axis=1),
        fixed=None,
    )
    if rng.randrange(2):
        return stretched
    lies = offsets(greedy(stretched, {"order": "birth"}))
    used = sum(size) + (n + 1) * max(grid) + max(lies)
    lift = (SAFE - 1 - used) // max(grid) * max(grid) if used < SAFE and rng.randrange(2) else 0
    fixed = [at + lift if rng.randrange(3) == 0 else -1 for at in lies]
    return problem_with(stretched, fixed=np.array(fixed, np.int64))


def answers(seed: int) -> list[object]:
    """All of one problem."""
    p = wild(seed)
    try:
        cols = columns(p)
        found: list[object] = []
        for order in ORDERS.values():
            for fit in ("lowest", "tightest"):
                found.append(place(cols, order(cols), fit, compiled=True))
                if cols.small:
                    from tmmu_core.planners import kernels

                    given = [i for i in order(cols) if cols.fixed[i] >= 0]
                    free = [i for i in order(cols) if cols.fixed[i] < 0]
                    found.append(kernels.place(cols, [*given, *free], fit == "tightest"))
        searched = exact(p, {"budget": 600})
        if cols.small:
            model = build(cols, chains(cols, ()) or ())
            again = rebuild_of(model, shape_of(model), 1)
            found += [again.run(max(searched.lower_bound or 0, 1), 30), again.site.now.tolist()]
        return [*found, offsets(searched), searched.lower_bound, repr(sorted(searched.notes.items()))]
    except TmmuError as error:
        return [repr(error)]


def ways(count: int, first: int) -> tuple[str, int]:
    """The first problem of ``count`` that is not answered alike by all three, empty where all are; how many greedy
    runs and searches were compared."""
    lines: dict[str, list[str]] = {}
    for name, (more, words) in WAYS.items():
        asked = {**{key: value for key, value in os.environ.items() if key != "TMMU_NATIVE"}, **more}
        command = [sys.executable, "-m", "tests.planners.alike", str(count), str(first), *words]
        done = subprocess.run(command, cwd=ROOT, env=asked, stdout=subprocess.PIPE, text=True, check=True)
        lines[name] = done.stdout.splitlines()
    for k, said in enumerate(zip(*lines.values(), strict=True)):
        if len(set(said)) > 1:
            return f"seed {first + k}: {dict(zip(lines, said, strict=True))}", 0
    return "", sum(len(json.loads(line)) for line in lines["library"])


def main() -> None:
    """Print the answers."""
    for seed in range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[1])):
        print(json.dumps(answers(seed)))


if __name__ == "__main__":
    main()
