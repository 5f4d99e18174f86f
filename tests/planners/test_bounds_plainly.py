"""Each bound and its witness beside the plainest way to find them: pair by pair, from the squeezed columns alone."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from packings import problem, problem_with

from tests.small_problems import mixed
from tmmu_core.planners import bounds
from tmmu_core.planners.bounds import Bound, _conflicts, _meeting_all, _nearby, _padded, bound_of, on_grid
from tmmu_core.planners.columns import HANDOFF, NEVER, Columns, columns
from tmmu_core.planners.problem import without_empty

CASES = [
    problem_with(p, alignment=p.alignment * np.uint64(grid), size=p.size << np.uint64(bits), fixed=None)
    for p in map(mixed, range(90))
    for grid, bits in ((1, 0), (4, 0), (2, 57))
] + [p for p in map(mixed, range(90)) if p.fixed is not None]


def lives_of(cols: Columns) -> list[set[int]]:
    """Per storage, the columns of squeezed time that it holds bytes in."""
    return [
        {c for row in range(low, high) for c in range(cols.part_lo[row], cols.part_hi[row])}
        for low, high in pairwise(cols.part_of.tolist())
    ]


def apart(cols: Columns, lives: list[set[int]]) -> list[list[bool]]:
    """Whether each two can share no byte in any packing."""
    count = len(cols)
    found = [[bool(lives[i] & lives[j]) for j in range(count)] for i in range(count)]
    for i in range(count) if cols.odd is not None else ():
        for j, kind in cols.odd[i]:
            elsewhere = kind == HANDOFF and min(cols.fixed[i], cols.fixed[j]) >= 0 and cols.fixed[i] != cols.fixed[j]
            found[i][j] |= kind == NEVER or elsewhere
    return found


def grown(cols: Columns, held: list[int], conflict: list[list[bool]]) -> list[int]:
    """Who must not alias one of ``held``, and conflicts with all of them, and with those before it, largest first."""
    never = {(i, j) for i in range(len(cols)) for j, kind in (cols.odd[i] if cols.odd else ()) if kind == NEVER}
    members = list(held)
    for j in sorted(range(len(cols)), key=lambda j: (-cols.size[j], j)):
        if j not in held and any((i, j) in never for i in held) and all(conflict[j][i] for i in members):
            members.append(j)
    return sorted(set(members) - set(held))


def plainly(cols: Columns) -> Bound:
    p, lives = cols.problem, lives_of(cols)
    count = len(cols)
    conflict = apart(cols, lives)
    alive = [tuple(i for i in range(count) if c in lives[i]) for c in range(len(cols.births))]
    live = [sum(cols.size[i] for i in members) for members in alive]
    order = sorted(range(len(live)), key=lambda c: (-live[c], c))
    peak = live[order[0]] if order else 0
    tallest = max(range(count), key=lambda i: (cols.size[i], -i))
    best = Bound(cols.size[tallest], (tallest,), -1, "live", peak)
    if peak >= best.bytes:
        best = Bound(peak, alive[order[0]], int(cols.births[order[0]]), "live", peak)
    for i, at in enumerate(cols.fixed):
        if at >= 0 and at + cols.size[i] > best.bytes:
            first = int(cols.births[min(lives[i])]) if lives[i] else -1
            best = Bound(at + cols.size[i], (i,), first, "fixed", peak)
    if min(cols.align) == 1 and cols.odd is None:
        return best
    for c in order[: bounds.WHERE_TRIED]:
        step, ended = int(cols.births[c]), []
        for j in alive[c] if p.handoff_from is not None and cols.odd is not None else ():
            giver = int(p.handoff_from[j])
            refused = giver >= 0 and int(p.birth[j]) == step and giver not in alive[c] and not ended
            if refused and all(conflict[giver][other] for other in alive[c]):
                ended = [giver]
        held = sorted((*alive[c], *ended))
        also = grown(cols, held, conflict)
        rule = "never_alias" if also else "handoff" if ended else "grid"
        members = tuple(sorted((*held, *also)))
        total = on_grid([(cols.size[i], cols.align[i]) for i in members])
        if total > best.bytes:
            best = Bound(total, members, step, rule, peak)
    return best


@pytest.mark.parametrize("tried", [2, 64])
def test_bounds_and_witnesses_are_those_of_the_plainest_look(tried: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "WHERE_TRIED", tried)
    rules = set()
    for case in CASES:
        cols = columns(without_empty(case)[0])
        found = bound_of(cols)
        assert found == plainly(cols)
        rules.add(found.rule)
    assert rules >= {"live", "grid", "never_alias", "fixed"}


@pytest.mark.parametrize("kept", [0, 1, 40, 1 << 26])
def test_who_conflicts_with_whom_is_seen_pair_by_pair_however_much_is_kept(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CONFLICTS_KEPT", kept)
    for case in CASES[::7]:
        cols = columns(without_empty(case)[0])
        conflict = apart(cols, lives_of(cols))
        for i in range(len(cols)):
            others = [j for j in range(len(cols)) if j != i]
            assert [bool(_conflicts(cols, i)[j]) for j in others] == [conflict[i][j] for j in others]
        assert len(cols.memo["conflicts"]) == min(len(cols), -(-kept // len(cols)))


def test_nobody_who_must_not_alias_and_conflicts_with_all_is_left_out() -> None:
    for case in CASES[::3]:
        cols = columns(without_empty(case)[0])
        conflict = apart(cols, lives_of(cols))
        for held in combinations(range(len(cols)), 2):
            near = set(np.flatnonzero(_nearby(cols, held)).tolist())
            never = {j for i in held for j, kind in (cols.odd[i] if cols.odd else ()) if kind == NEVER} - set(held)
            assert {j for j in never if all(conflict[j][i] for i in held)} <= near <= never


def test_whoever_is_said_to_meet_all_of_them_does_and_of_one_life_each_nobody_else_does() -> None:
    for case in CASES[::15]:
        cols = columns(without_empty(case)[0])
        lives = lives_of(cols)
        for some in combinations(range(len(cols)), 3):
            among = np.isin(np.arange(len(cols)), some)
            meets = [i in some and all(lives[i] & lives[j] for j in some) for i in range(len(cols))]
            one_life = all(np.diff(cols.part_of)[list(some)] == 1)
            assert _meeting_all(cols, among).tolist() == [one_life and meet for meet in meets]
        assert not _meeting_all(cols, np.zeros(len(cols), np.bool_)).any()


def test_bytes_padded_to_their_grids_are_counted_column_by_column() -> None:
    for case in CASES[::3]:
        cols = columns(without_empty(case)[0])
        if cols.small:
            lives = lives_of(cols)
            padded = [-(-size // grid) * grid for size, grid in zip(cols.size, cols.align, strict=True)]
            wanted = [sum(padded[i] for i in range(len(cols)) if c in lives[i]) for c in range(len(cols.births))]
            assert _padded(cols)[: len(wanted)] == wanted


def test_without_those_that_have_no_bytes_everybody_names_the_same_others() -> None:
    """Five storages, the second and the fourth empty: hand-offs and pairs with them are nobody's."""
    rows = [(0, 2, 9), (0, 2, 0), (0, 2, 8), (2, 4, 0), (2, 4, 7)]
    p = problem(*rows, handoff_from=np.array([-1, -1, -1, 1, 0]), must_not_alias=np.array([[0, 1], [1, 2], [0, 4]]))
    names = [p.ids.index(f"t{k}") for k in range(5)]
    p = problem_with(
        p,
        handoff_from=np.array([{"t3": names[1], "t4": names[0]}.get(name, -1) for name in p.ids]),
        must_not_alias=np.array([[names[0], names[1]], [names[1], names[2]], [names[0], names[4]]]),
        fixed=np.array([{"t2": 32}.get(name, -1) for name in p.ids]),
        gaps=tuple(((1, 2),) if name == "t2" else () for name in p.ids),
        roles=p.ids,
    )
    rest, kept = without_empty(p)
    assert sorted(rest.ids) == ["t0", "t2", "t4"]
    assert rest.ids == rest.roles == tuple(p.ids[i] for i in kept.tolist())
    at = {name: i for i, name in enumerate(rest.ids)}
    assert rest.handoff_from is not None
    assert {name: int(rest.handoff_from[i]) for name, i in at.items()} == {"t0": -1, "t2": -1, "t4": at["t0"]}
    assert rest.must_not_alias is not None
    assert rest.must_not_alias.tolist() == [[at["t0"], at["t4"]]]
    assert rest.fixed is not None
    assert {name: int(rest.fixed[i]) for name, i in at.items()} == {"t0": -1, "t2": 32, "t4": -1}
    assert rest.gaps == tuple(((1, 2),) if name == "t2" else () for name in rest.ids)
    for column in ("birth", "death", "size", "alignment"):
        assert getattr(rest, column).tolist() == getattr(p, column)[kept].tolist()
    same, everybody = without_empty(rest)
    assert same is rest
    assert everybody.tolist() == [0, 1, 2]
