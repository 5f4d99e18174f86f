"""Placement orders of greedy, compared with a direct computation of their keys."""

from itertools import pairwise, product

import numpy as np

from tests.planners.packings import live_steps, problem, problem_with
from tests.support.small_problems import mixed, plain
from tmmu_core.planners.columns import Columns, columns
from tmmu_core.planners.greedy import ORDERS, breadths, sorted_storages
from tmmu_core.planners.problem import Problem, without_empty

SMALL = [*(mixed(seed) for seed in range(60)), *(plain(seed, n) for seed, n in product(range(4), (1, 2, 5, 24)))]
SMALL += [
    problem((0, 1, 16), (0, 1, 8), (1, 2, 4), (2, 3, 8), handoff_from=np.array([-1, -1, 1, 2], np.int64)),
    problem((0, 3, 8), (0, 3, 7), (0, 3, 4), fixed=np.array([8, 20, 0], np.int64)),
]
"""A chain of in-place reuses beside other storages; three fixed storages."""
SMALL.append(
    problem_with(
        problem((0, 39, 2), *((2 * k, 2 * k + 1, 4) for k in range(1, 20))),
        gaps=(tuple((2 * k + 1, 2 * k + 2) for k in range(19)), *[()] * 19),
    )
)
"""A storage of twenty live parts; all parts but the first overlap another storage in time."""
LARGE = [
    problem_with(p, size=p.size << np.uint64(56), fixed=None) for p in (*map(mixed, range(12)), *map(plain, range(3)))
] + [problem((0, 3, 2**63), (1, 3, 2**62), (2, 3, 2**61), (3, 4, 7))]


def held(cols: Columns) -> list[set[int]]:
    """Return, per storage, the columns of compressed time in which it is live."""
    ends = cols.part_of.tolist()
    return [
        {c for row in range(low, high) for c in range(cols.part_lo[row], cols.part_hi[row])}
        for low, high in pairwise(ends)
    ]


def keys(p: Problem, cols: Columns) -> dict[str, list[tuple[int, ...]]]:
    lives, steps = held(cols), [len(live_steps(p, i)) for i in range(len(p))]
    live = [sum(cols.size[i] for i, columns_of in enumerate(lives) if c in columns_of) for c in range(len(cols.births))]
    breadth = [max((live[c] for c in columns_of), default=0) for columns_of in lives]
    assert breadths(cols).tolist() == breadth
    return {
        "size": [(size, len(life)) for size, life in zip(cols.size, lives, strict=True)],
        "area": [(size * life,) for size, life in zip(cols.size, steps, strict=True)],
        "birth": [(-int(birth),) for birth in p.birth],
        "length": [(len(life), size) for size, life in zip(cols.size, lives, strict=True)],
        "size_length": [(size * len(life),) for size, life in zip(cols.size, lives, strict=True)],
        "breadth": [(most, size) for size, most in zip(cols.size, breadth, strict=True)],
    }


def test_order_sorts_by_its_key_then_normatively() -> None:
    assert not all(columns(p).is_small for p in LARGE)
    for each in (*SMALL, *LARGE):
        p = without_empty(each)[0]
        cols = columns(p)
        wanted = keys(p, cols)
        for name in ORDERS:
            by = wanted[name]
            assert sorted_storages(cols, name) == sorted(range(len(p)), key=lambda i: (*(-k for k in by[i]), i)), name
