"""Families of small problems by seed, for the golden lines of :mod:`tests.planners_asked`."""

import random
from collections.abc import Callable
from functools import cache, partial

import numpy as np

from tests.planners.brute_force import made
from tests.planners.packings import offsets, problem, problem_with
from tests.support.searches import crowd
from tmmu_core.planners import PLANNERS
from tmmu_core.planners.problem import Problem


@cache
def mixed(seed: int) -> Problem:
    """Return about a dozen storages with gaps, in-place reuses, must-not-alias pairs, fixed offsets and size 0."""
    rng = random.Random(f"mixed/{seed}")
    n, steps = rng.randrange(7, 15), rng.randrange(6, 14)
    rows = []
    for _ in range(n):
        birth = rng.randrange(steps - 1)
        rows.append((birth, min(steps, birth + rng.randrange(1, 7)), rng.choice((0, 1, 2, 3, 5, 8, 12, 24))))
    p = problem(*rows, alignment=[rng.choice((1, 2, 4, 8)) for _ in rows])
    if seed % 2:
        gaps = []
        for birth, death in zip(p.birth.tolist(), p.death.tolist(), strict=True):
            at = sorted(rng.sample(range(birth, death + 1), 2 * min(rng.randrange(3), (death - birth + 1) // 2)))
            gaps.append(tuple((at[k], at[k + 1]) for k in range(0, len(at), 2)))
        p = problem_with(p, gaps=tuple(gaps))
    if seed % 3:
        taken = np.full(n, -1, dtype=np.int64)
        for j in range(n):
            givers = [i for i in range(n) if p.death[i] == p.birth[j] and i not in taken]
            if givers and rng.randrange(4):
                taken[j] = rng.choice(givers)
        p = problem_with(p, handoff_from=taken)
    if seed % 4 > 1:
        pairs = [sorted(rng.sample(range(n), 2)) for _ in range(rng.randrange(1, 4))]
        p = problem_with(p, must_not_alias=np.array(pairs, dtype=np.int64))
    if seed % 5 > 2:
        lies = offsets(PLANNERS["greedy"].call(p, {"order": "birth"}))
        p = problem_with(p, fixed=np.array([at if rng.randrange(4) == 0 else -1 for at in lies], dtype=np.int64))
    return p


@cache
def plain(seed: int, n: int = 24) -> Problem:
    """Return storages with one live range each and no constraint."""
    rng = random.Random(f"plain/{seed}")
    rows = [(at := rng.randrange(n), at + rng.randrange(1, 7), rng.choice((1, 3, 4, 7, 12, 20))) for _ in range(n)]
    return problem(*rows, alignment=[rng.choice((1, 1, 4, 16)) for _ in rows])


@cache
def giant(seed: int) -> Problem:
    """Return sizes whose sums exceed 2^62, so that only Python integers hold them."""
    rng = random.Random(f"giant/{seed}")
    rows = [(at := rng.randrange(6), at + rng.randrange(1, 5), rng.randrange(1, 9) << 59) for _ in range(6)]
    return problem(*rows, alignment=[rng.choice((1, 8, 1 << 20)) for _ in rows])


@cache
def twins(seed: int) -> Problem:
    """Return several storages of each of a few kinds: equal live ranges with equal or different sizes."""
    rng = random.Random(f"twins/{seed}")
    kinds = [(at := rng.randrange(5), at + rng.randrange(1, 5)) for _ in range(4)]
    rows = [(*rng.choice(kinds), rng.choice((4, 4, 8, 12, 20))) for _ in range(11)]
    return problem(*rows, alignment=rng.choice((1, 4)))


@cache
def joined(seed: int) -> Problem:
    """Return two or three groups of storages, one after the other; a few storages are live in two groups."""
    rng = random.Random(f"joined/{seed}")
    rows: list[tuple[int, int, int]] = []
    begin = 0
    for _ in range(2 + seed % 2):
        size = rng.choice((7, 9, 12))
        lives = [(at := rng.randrange(size), at + rng.randrange(1, 5), rng.choice((3, 5, 8, 12))) for _ in range(size)]
        rows += [(begin + lo, begin + hi, size) for lo, hi, size in lives]
        begin = max(hi for _, hi, _ in rows)
    if seed % 3 == 0:
        rows.append((begin // 3, 2 * begin // 3, 4))
    return problem(*rows, alignment=[rng.choice((1, 1, 4)) for _ in rows])


@cache
def handed(seed: int) -> Problem:
    """Return many in-place reuses at two alignments: too many to try every choice."""
    rng = random.Random(f"handed/{seed}")
    rows = [(at := rng.randrange(8), at + rng.randrange(1, 4), rng.choice((2, 3, 4, 5, 7))) for _ in range(16)]
    p = problem(*rows, alignment=[rng.choice((1, 1, 2)) for _ in rows])
    taken = np.full(len(p), -1, dtype=np.int64)
    for j in range(len(p)):
        givers = [i for i in range(len(p)) if p.death[i] == p.birth[j] and i not in taken]
        if givers and rng.randrange(5):
            taken[j] = rng.choice(givers)
    return problem_with(p, handoff_from=taken)


@cache
def networks(seed: int) -> Problem:
    """Return two groups; the second begins while two storages of the first are live."""
    one, two = crowd(seed, 20), crowd(seed + 50, 20)
    later = int(one.death.max())
    rows = [*zip(one.birth.tolist(), one.death.tolist(), one.size.tolist(), strict=True)]
    rows += [(lo + later, hi + later, size) for lo, hi, size in zip(two.birth, two.death, two.size, strict=True)]
    rows += [(later - 2, later + 2, 5), (later - 1, later + 3, 12)]
    grids = [*one.alignment.tolist(), *two.alignment.tolist(), 1, 4]
    return problem(*((int(lo), int(hi), int(size)) for lo, hi, size in rows), alignment=grids)


@cache
def after(one: int, two: int) -> Problem:
    """Return two groups, one after the other; the search needs several attempts for each."""
    p, q = crowd(one, 11), crowd(two, 11)
    later = int(p.death.max())
    rows = [*zip(p.birth.tolist(), p.death.tolist(), p.size.tolist(), strict=True)]
    rows += [(lo + later, hi + later, size) for lo, hi, size in zip(q.birth, q.death, q.size, strict=True)]
    grids = [*p.alignment.tolist(), *q.alignment.tolist()]
    return problem(*((int(lo), int(hi), int(size)) for lo, hi, size in rows), alignment=grids)


@cache
def coarse(seed: int) -> Problem:
    """Return a group with sizes and alignments four times as large: every extent is a multiple of four."""
    p = crowd(seed, 11)
    return problem_with(p, size=4 * p.size, alignment=4 * p.alignment)


def ghosts() -> Problem:
    """Return problems with three storages of size 0: one between two in-place reuses, two that must not alias."""
    p = problem((0, 2, 4), (2, 3, 4), (3, 5, 4), (0, 5, 8), (1, 4, 4), (1, 4, 2))
    gaps = tuple(((lo, hi),) if f"t{k}" in ("t1", "t4", "t5") else () for k, lo, hi in _rows(p))
    place = {name: i for i, name in enumerate(p.ids)}
    taken = np.full(6, -1, dtype=np.int64)
    taken[place["t1"]], taken[place["t2"]] = place["t0"], place["t1"]
    apart = np.array([sorted((place["t4"], place["t5"]))], dtype=np.int64)
    return problem_with(p, gaps=gaps, handoff_from=taken, must_not_alias=apart)


def _rows(p: Problem) -> list[tuple[str, int, int]]:
    return [(name[1:], lo, hi) for name, lo, hi in zip(p.ids, p.birth.tolist(), p.death.tolist(), strict=True)]


PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{f"mixed {seed}": partial(mixed, seed) for seed in range(22)},
    **{f"made {seed}": partial(made, seed, 9) for seed in range(100, 112)},
    **{f"plain {seed}": partial(plain, seed) for seed in range(6)},
    **{f"twins {seed}": partial(twins, seed) for seed in range(6)},
    **{f"giant {seed}": partial(giant, seed) for seed in range(3)},
    "nothing": problem,
    "ghosts": ghosts,
    **{f"joined {seed}": partial(joined, seed) for seed in range(9)},
    **{f"crowd {seed}": partial(crowd, seed, 12) for seed in range(10, 16)},
}

HUNTED: dict[str, Callable[[], Problem]] = {
    **{f"made {seed}": partial(made, seed, 12) for seed in (15, 19, 38, 61, 92)},
    **{
        f"mixed {seed}": partial(mixed, seed)
        for seed in (1030, 1036, 1038, 1044, 1046, 1057, 1066, 1084, 1092, 1104, 1105, 1110, 1111, 1117)
    },
    **{f"crowd {seed} of 11": partial(crowd, seed, 11) for seed in (0, 6, 13, 15, 18, 28, 43, 62, 63, 78, 93, 96)},
    **{f"handed {seed}": partial(handed, seed) for seed in (2, 37, 48, 58, 60, 100)},
    **{f"joined {seed}": partial(joined, seed) for seed in (34, 80)},
    **{f"crowd {one} and {two}": partial(after, one, two) for one, two in ((13, 28), (28, 13), (63, 18), (0, 62))},
    **{f"coarse {seed}": partial(coarse, seed) for seed in (0, 13, 15, 18, 28, 63)},
    **{f"networks {seed}": partial(networks, seed) for seed in (0, 1, 3, 6, 9, 16, 30, 35)},
}
"""What takes several attempts."""
EVERY = PROBLEMS | HUNTED
