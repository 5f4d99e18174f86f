"""The keys that greedy places by, each beside the plainest way to count it."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from packings import live_steps, problem, problem_with

from tests.small_problems import mixed, plain
from tmmu_core.planners import PLANNERS, ArenaPlannerEntry
from tmmu_core.planners.columns import HANDOFF, Columns, columns
from tmmu_core.planners.greedy import ORDERS, _place, _sorted_by, _times, greedy, place, widest
from tmmu_core.planners.problem import Problem, without_empty

SMALL = [*(mixed(seed) for seed in range(60)), *(plain(seed, n) for seed, n in product(range(4), (1, 2, 5, 24)))]
SMALL += [
    problem((0, 1, 16), (0, 1, 8), (1, 2, 4), (2, 3, 8), handoff_from=np.array([-1, -1, 1, 2], np.int64)),
    problem((0, 3, 8), (0, 3, 7), (0, 3, 4), fixed=np.array([8, 20, 0], np.int64)),
]
"""A place given on and taken over that lies elsewhere on either side; one that is given the lower of two gaps."""
SMALL.append(
    problem_with(
        problem((0, 39, 2), *((2 * k, 2 * k + 1, 4) for k in range(1, 20))),
        gaps=(tuple((2 * k + 1, 2 * k + 2) for k in range(19)), *[()] * 19),
    )
)
"""One of twenty parts, all but the first of which meet another storage."""
LARGE = [
    problem_with(p, size=p.size << np.uint64(56), fixed=None) for p in (*map(mixed, range(12)), *map(plain, range(3)))
] + [problem((0, 3, 2**63), (1, 3, 2**62), (2, 3, 2**61), (3, 4, 7))]


def held(cols: Columns) -> list[set[int]]:
    """Per storage, the columns of squeezed time that it holds bytes in."""
    ends = cols.part_of.tolist()
    return [
        {c for row in range(low, high) for c in range(cols.part_lo[row], cols.part_hi[row])}
        for low, high in pairwise(ends)
    ]


def keys(p: Problem, cols: Columns) -> dict[str, list[tuple[int, ...]]]:
    lives, steps = held(cols), [len(live_steps(p, i)) for i in range(len(p))]
    live = [sum(cols.size[i] for i, columns_of in enumerate(lives) if c in columns_of) for c in range(len(cols.births))]
    breadth = [max((live[c] for c in columns_of), default=0) for columns_of in lives]
    assert widest(cols) == breadth
    return {
        "size": [(size, len(life)) for size, life in zip(cols.size, lives, strict=True)],
        "area": [(size * life,) for size, life in zip(cols.size, steps, strict=True)],
        "birth": [(-int(birth),) for birth in p.birth],
        "length": [(len(life), size) for size, life in zip(cols.size, lives, strict=True)],
        "size_length": [(size * len(life),) for size, life in zip(cols.size, lives, strict=True)],
        "breadth": [(most, size) for size, most in zip(cols.size, breadth, strict=True)],
    }


def test_every_order_is_by_its_key_and_then_the_normative_one() -> None:
    assert not all(columns(p).small for p in LARGE)
    for each in (*SMALL, *LARGE):
        p = without_empty(each)[0]
        cols = columns(p)
        wanted = keys(p, cols)
        for name, order in ORDERS.items():
            by = wanted[name]
            assert order(cols) == sorted(range(len(p)), key=lambda i: (*(-k for k in by[i]), i)), name


@pytest.mark.parametrize("size", [2**49, 2**50 - 1, 2**50, 2**50 + 1])
def test_bytes_times_steps_are_counted_past_64_bits(size: int) -> None:
    """2^50 bytes for 2^13 steps are the first past 64 bits with a sign; a byte beside them changes nothing."""
    p = problem((0, 2**13, size), (3, 4, 1))
    cols = columns(p)
    assert cols.small
    steps = (p.death - p.birth).astype(np.int64)
    assert [int(x) for x in _times(cols, steps)] == [size * 2**13, 1]


def test_a_life_all_of_gaps_is_alive_at_no_moment() -> None:
    p = problem_with(problem((0, 4, 8), (1, 3, 4)), gaps=(((0, 4),), ()))
    assert widest(columns(p)) == [0, 4]


@pytest.mark.parametrize("most", [2**63 - 1, 2**63, 2**64 - 1, 2**64])
def test_keys_past_64_bits_are_put_in_order_all_the_same(most: int) -> None:
    many, few = [1, most, most - 1, most, 0], [0, 0, 5, 3, 0]
    assert _sorted_by([many]) == [1, 3, 2, 0, 4]
    assert _sorted_by([many, few]) == [3, 1, 2, 0, 4]
    assert _sorted_by([few, many]) == [2, 3, 1, 0, 4]
    assert _sorted_by([np.array(few), many]) == [2, 3, 1, 0, 4]
    assert _sorted_by([[]]) == []


# ------------------------------------------------------------------------------------------------------- placement


def placed_plainly(cols: Columns, sequence: list[int], tightest: bool) -> list[int]:
    """One storage after the other, by looking at all that have their place: no tree, no merged ranges."""
    lives = held(cols)
    offset: dict[int, int] = {}

    def free(at: int, size: int, others: list[int]) -> bool:
        return all(at + size <= offset[j] or offset[j] + cols.size[j] <= at for j in others)

    for i in sequence:
        if cols.fixed[i] >= 0:
            offset[i] = cols.fixed[i]
            continue
        kinds = dict(cols.odd[i]) if cols.odd is not None else {}
        others = [j for j in offset if lives[i] & lives[j] or j in kinds]
        size, grid = cols.size[i], cols.align[i]
        ends = sorted({0, *(offset[j] + cols.size[j] for j in others)})
        gaps = []
        for edge in ends:
            wall = min((offset[j] for j in others if offset[j] >= edge), default=None)
            begin = -(-edge // grid) * grid
            if free(edge, 1, others) and (wall is None or begin + size <= wall):
                gaps.append((0 if not tightest else 2**70 if wall is None else wall - edge, begin))
        at = min(gaps)[1]
        for j, kind in cols.odd[i] if cols.odd is not None else ():
            if kind != HANDOFF or j not in offset or offset[j] % grid or not (tightest or offset[j] < at):
                continue
            if free(offset[j], size, [o for o in others if o != j]):
                at = offset[j]
                if tightest:
                    break
        offset[i] = at
    return [offset[i] for i in range(len(cols))]


@pytest.mark.parametrize("fit", ["lowest", "tightest"])
def test_greedy_lays_each_where_the_plainest_look_lays_it(fit: str) -> None:
    for number, each in enumerate((*SMALL, *LARGE)):
        cols = columns(without_empty(each)[0])
        for name in ("size", "birth") if number % 2 else ("breadth", "length"):
            order = ORDERS[name](cols)
            first = [i for i in order if cols.fixed[i] >= 0] + [i for i in order if cols.fixed[i] < 0]
            wanted = placed_plainly(cols, first, fit == "tightest")
            assert _place(cols, first, fit == "tightest") == wanted
            assert place(cols, order, fit, compiled=False) == wanted
            assert place(cols, order, fit, compiled=True) == wanted
        if cols.plain:
            assert place(cols, [], "free_list") == placed_plainly(cols, ORDERS["birth"](cols), False)


@pytest.mark.parametrize("planner", ["greedy", "portfolio", "ffd"])
def test_who_has_no_bytes_lies_at_the_start_or_where_it_is_given(planner: str) -> None:
    p = problem((0, 2, 8), (0, 2, 0), (0, 2, 0), (0, 2, 0), (1, 3, 1))
    entry = PLANNERS[planner]
    assert isinstance(entry, ArenaPlannerEntry)
    lies = dict(zip(p.ids, entry.pack(p, {}).offset.tolist(), strict=True))
    assert [lies[name] for name in ("t1", "t2", "t3")] == [0, 0, 0]
    if planner == "greedy":
        at = {"t1": 0, "t2": 64, "t4": 32}
        given = problem_with(p, fixed=np.array([at.get(name, -1) for name in p.ids]))
        lies = dict(zip(p.ids, entry.pack(given, {}).offset.tolist(), strict=True))
        assert lies == {"t0": 0, "t1": 0, "t2": 64, "t3": 0, "t4": 32}


@pytest.mark.parametrize(
    ("options", "order", "fit"),
    [
        *(({}, "size", "lowest"), ({"order": "area"}, "area", "lowest"), ({"fit": "tightest"}, "size", "tightest")),
        *(({"fit": "free_list"}, "birth", "free_list"), ({"fit": "free_list", "order": "area"}, "birth", "free_list")),
    ],
)
def test_greedy_says_in_which_order_it_went(options: dict[str, str], order: str, fit: str) -> None:
    packing = greedy(plain(0, 5), options)
    assert (packing.notes, packing.stopped) == ({"order": order, "fit": fit}, False)
