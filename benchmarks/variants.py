"""Measure ``exact`` on instances that were not used for tuning: changed real instances, and perfect packings.

``python -m benchmarks.variants`` prints the rows; with ``further``, the rows of further families. Each instance
depends only on its seed. Each packing is verified.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.dsa import DATA, INSTANCES, measure
from tmmu_core.formats.csv.instance_csv import read_csv
from tmmu_core.planners.bounds import lower_bound
from tmmu_core.planners.problem import Problem

HARD = INSTANCES[:6]
SEEDS = (101, 102)
PLANNERS = ("portfolio", "search", "exact")
MAX_NODES = 8_000_000
"""Nodes and iterations of each planner. ``exact`` needs about 20 CPU seconds for D. It does not reach the bound of D
with trimmed sizes, which takes an hour for one of the two instances."""

Row = tuple[int, int, int]
"""``(birth, death, bytes)``."""


def problem_of(rows: list[Row]) -> Problem:
    """Return the rows in the order of the contract."""
    order = sorted(range(len(rows)), key=lambda i: (rows[i][0], -rows[i][2], f"b{i}".encode()))
    birth, death, size = (np.array([rows[i][k] for i in order]) for k in range(3))
    ids = tuple(f"b{i}" for i in order)
    ones = np.ones(len(rows), dtype=np.uint64)
    return Problem("arena", ids, birth.astype(np.int64), death.astype(np.int64), size.astype(np.uint64), ones)


def read(name: str) -> list[Row]:
    """Return one of the real instances."""
    problem = read_csv((DATA / f"{name}.csv").read_bytes()).problem
    return list(zip(problem.birth.tolist(), problem.death.tolist(), problem.size.tolist(), strict=True))


def mirrored(rows: list[Row]) -> list[Row]:
    """Return the instance with reversed time."""
    end = max(death for _, death, _ in rows)
    return [(end - death, end - birth, size) for birth, death, size in rows]


def thinned(rows: list[Row], seed: int) -> list[Row]:
    """Return the instance without one in twenty buffers."""
    rng = random.Random(seed)
    return [row for row in rows if rng.randrange(20)]


def trimmed(rows: list[Row], seed: int) -> list[Row]:
    """Return the instance with buffers smaller by 0, 512 or 1,024 bytes; ``found/`` has the best packings of D."""
    rng = random.Random(seed)
    return [(birth, death, max(512, size - 512 * rng.randrange(3))) for birth, death, size in rows]


def joined(one: list[Row], two: list[Row]) -> list[Row]:
    """Return the second instance after the first; the last five buffers of the first are live into the second."""
    end = max(death for _, death, _ in one)
    last = sorted(range(len(one)), key=lambda i: (-one[i][1], i))[:5]
    longer = [(b, d + (end // 50 if i in last else 0), s) for i, (b, d, s) in enumerate(one)]
    return [*longer, *((b + end, d + end, s) for b, d, s in two)]


def perfect(count: int, seed: int, high: int = 1 << 20, steps: int = 10_000) -> list[Row]:
    """Return a full rectangle cut into ``count`` buffers: a packing without waste reaches the lower bound."""
    rng = random.Random(seed)
    boxes = [(0, steps, 0, high)]
    while len(boxes) < count:
        weights = [(b[1] - b[0]) * (b[3] - b[2]) * rng.randrange(1, 1000) for b in boxes]
        birth, death, low, top = boxes.pop(max(range(len(boxes)), key=weights.__getitem__))
        if rng.randrange(2) and death - birth > 20:
            at = birth + (death - birth) * rng.randrange(20, 81) // 100
            boxes += [(birth, at, low, top), (at, death, low, top)]
        elif low < (at := low + (top - low) * rng.randrange(20, 81) // 100 // 512 * 512) < top:
            boxes += [(birth, death, low, at), (birth, death, at, top)]
        else:
            boxes.append((birth, death, low, top))
    return [(birth, death, top - low) for birth, death, low, top in boxes]


FAMILIES: dict[str, Callable[[], list[list[Row]]]] = {
    "A–F mirrored in time": lambda: [mirrored(read(name)) for name in HARD],
    "A–F without one buffer in twenty": lambda: [thinned(read(name), seed) for name in HARD for seed in SEEDS],
    "A–F, sizes trimmed": lambda: [trimmed(read(name), seed) for name in HARD for seed in SEEDS],
    "two of A–F, the second after the first": lambda: [
        joined(read(one), read(two)) for one, two in zip(HARD, (*HARD[1:], HARD[0]), strict=True)
    ],
    "perfect packings of 100 and 150": lambda: [perfect(n, seed) for n in (100, 150) for seed in SEEDS],
    "perfect packings of 200 and 300": lambda: [perfect(n, seed) for n in (200, 300) for seed in SEEDS],
}


def stretched(rows: list[Row], seed: int) -> list[Row]:
    """Return the instance with live ranges longer by up to 1.5 % of all steps."""
    rng = random.Random(seed)
    end = max(death for _, death, _ in rows)
    return [(birth, min(end, death + rng.randrange(4) * end // 200), size) for birth, death, size in rows]


def four_in_five(rows: list[Row], seed: int) -> list[Row]:
    """Return the instance without one in five buffers."""
    rng = random.Random(seed)
    return [row for row in rows if rng.randrange(5)]


def _of(letters: str) -> list[list[Row]]:
    return [read(f"{letter}.1048576") for letter in letters]


def in_a_row(letters: str) -> list[Row]:
    """Return several of the instances A to F after each other."""
    first, *rest = _of(letters)
    for other in rest:
        first = joined(first, other)
    return first


FURTHER: dict[str, Callable[[], list[list[Row]]]] = {
    "three of A–F in a row": lambda: [in_a_row(letters) for letters in ("ABC", "FAE", "CEF")],
    "other pairs of A–F": lambda: [in_a_row(letters) for letters in ("AC", "BE", "CF", "EA")],
    "all but D mirrored in time and trimmed": lambda: [trimmed(mirrored(one), 201) for one in _of("ABCEF")],
    "A–F without one buffer in five": lambda: [four_in_five(one, 202) for one in _of("ABCDEF")],
    "all but D with longer lives": lambda: [stretched(one, 203) for one in _of("ABCEF")],
}
"""Families that were made after the tuning, to check it."""


def rows(
    families: Mapping[str, Callable[[], list[list[Row]]]] = FAMILIES, planners: tuple[str, ...] = PLANNERS
) -> Iterator[dict[str, Any]]:
    """Yield a row per family: instances, number packed at the bound by ``exact``, mean gaps, seconds."""
    for family, make in families.items():
        made: dict[str, list[dict[str, Any]]] = {planner: [] for planner in planners}
        for k, instance in enumerate(make()):
            problem = problem_of(instance)
            for planner in planners:
                made[planner].append(measure(f"{family} {k}", problem, planner, {"max_nodes": MAX_NODES}))
        ends = made["exact"]
        yield {
            "family": family,
            "instances": len(ends),
            "optimal": sum(row["optimal"] for row in ends),
            "gaps": {planner: sum(row["over_bound_percent"] for row in of) / len(of) for planner, of in made.items()},
            "seconds": sum(row["seconds"] for row in ends),
        }


if __name__ == "__main__":
    assert lower_bound(problem_of(perfect(100, 1))).bytes == 1 << 20
    for row in rows(FURTHER, ("exact",)) if sys.argv[1:] == ["further"] else rows():
        print(row, flush=True)
