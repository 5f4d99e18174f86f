"""Two plans beside each other, and the plainest that says what became of each tensor."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import zip_longest
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.build import chain, graph
from tests.plan.examples import chain_plan, views_graph
from tests.plan.test_compare import edited
from tmmu_core.plan.formats.compare import KINDS, Comparison, Difference, compare, same_plan
from tmmu_core.plan.formats.held import FIGURES, SAYS, Held, changed_claim, changed_since, differing, held_by, sealed
from tmmu_core.plan.formats.trace import Trace, read_trace, to_json_lines
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.model import INVALID, Handoffs, Plan, TensorRow

CELLS: dict[str, tuple[Any, ...]] = {
    "logical_slot": (0, 1, 5),
    "generation": (0, 1, 5),
    "offset": (0, 64, 2**63),
    "size": (0, 1, 16, 2**64 - 1),
    "birth": (0, 1),
    "death": (2, 3),
    "alignment": (1, 64),
    "roles": ("workspace", "output"),
    "dtypes": ("int8", "float32"),
    "shapes": ((), (2, 2)),
    "alias_group_ids": (None, "g"),
    "base_tensor_uids": (None, "t0"),
}
PLANS = [*(plan_graph(chain(length)).plan for length in (0, 1, 2, 3)), plan_graph(views_graph()).plan]
PLANS += [plan_graph(views_graph(), planner="naive").plan, plan_graph(graph([], [], "", "")).plan]


def drawn(random: Random, plan: Plan) -> Plan:
    for _ in range(random.choice((0, 1, 1, 2, 4)) if len(plan) else 0):
        name = random.choice(list(CELLS))
        plan = edited(plan, random.choice(plan.tensor_ids), **{name: random.choice(CELLS[name])})
    if len(plan.arenas) > 1 and random.random() < 0.8:
        plan = edited(plan, random.choice(plan.tensor_ids), arena=random.choice((0, 1)))
    return plan


def kinds_of(left: TensorRow | None, right: TensorRow | None) -> tuple[str, ...]:
    if left is None or right is None:
        return ("added",) if left is None else ("removed",)

    def part(*names: str) -> bool:
        return any(getattr(left, name) != getattr(right, name) for name in names)

    so_changed = {
        "moved": left.arena == right.arena and part("offset_bytes"),
        "resized": part("size_bytes"),
        "retimed": part("birth", "death"),
        "other_arena": left.arena != right.arena,
        "redescribed": part("role", "dtype", "shape", "alignment", "alias_group_id", "base_tensor_uid"),
        "renumbered": not part("arena", "offset_bytes") and part("logical_slot", "generation"),
    }
    return tuple(kind for kind, so in so_changed.items() if so)


Pairs = dict[str, tuple[TensorRow | None, TensorRow | None]]


def pairs_of(left: Plan, right: Plan) -> Pairs:
    sides = [{plan.tensor_ids[k]: plan.row(k) for k in range(len(plan))} for plan in (left, right)]
    return {name: (sides[0].get(name), sides[1].get(name)) for name in sorted({**sides[0], **sides[1]})}


def held(found: Comparison, kind: str | None, pairs: Pairs, count: Counter[str]) -> None:
    """What changed in one kind, or at all, its sum and the largest of it."""
    changed = {name: (a, b) for name, (a, b) in pairs.items() if (kind in kinds_of(a, b) if kind else kinds_of(a, b))}
    listed = [(one.tensor_id, one.kinds, one.left, one.right) for one in found.changes(kind)]
    assert listed == [(name, kinds_of(a, b), a, b) for name, (a, b) in changed.items()]
    larger = {name: max(row.size_bytes for row in rows if row) for name, rows in changed.items()}
    order = sorted(changed, key=lambda name: (-larger[name], name))
    for most in (0, 1, 2, 99):
        assert [one.tensor_id for one in found.largest(kind, most)] == order[:most]
    if kind:
        before = sum(a.size_bytes for a, _ in changed.values() if a)
        after = sum(b.size_bytes for _, b in changed.values() if b)
        size = {"removed": before, "resized": after - before}.get(kind, after)
        assert found.totals[kind] == (len(changed), size)
        count[kind] += len(changed)


def test_what_became_of_each_tensor_beside_the_plainest_that_says_it() -> None:
    random = Random(1)
    count: Counter[str] = Counter()
    for _ in range(160):
        left = drawn(random, random.choice(PLANS))
        right = drawn(random, random.choice((*PLANS, *[left] * len(PLANS))))
        found, pairs = compare(left, right), pairs_of(left, right)
        assert found.ids == tuple(pairs)
        assert found.left_row.tolist() == [left.row_of.get(name, -1) for name in pairs]
        assert found.right_row.tolist() == [right.row_of.get(name, -1) for name in pairs]
        for kind in (None, *KINDS):
            held(found, kind, pairs, count)
        assert [arena.name for arena in found.arenas] == sorted({**left.arena_of, **right.arena_of})
        assert all(
            (arena.left, arena.right) == (left.arena_of.get(arena.name), right.arena_of.get(arena.name))
            for arena in found.arenas
        )
        listed = [difference for difference in same_plan(left, right) if difference.path.startswith("$.tensors[")]
        changed = [name for name, (a, b) in pairs.items() if kinds_of(a, b)]
        assert [difference.path.split("'")[1] for difference in listed] == changed
        early = [d for d in found.divergences if d.path.startswith(("$.mode", "$.execution_order", "$.steps"))]
        assert found.first == (early + listed + [*found.divergences, None])[0]
    assert set(count) == set(KINDS)
    assert min(count.values()) >= 3


@pytest.mark.parametrize(("a", "b"), [(PLANS[1], PLANS[3]), (PLANS[3], PLANS[1]), (PLANS[2], PLANS[4])])
def test_a_row_of_one_side_is_told_by_where_it_lies(a: Plan, b: Plan) -> None:
    for difference in same_plan(a, b):
        if difference.path.startswith("$.tensors[") and None in (difference.left, difference.right):
            name = difference.path.split("'")[1]
            plan = a if difference.right is None else b
            row = plan.row(plan.row_of[name])
            text = f"{row.arena} slot {row.logical_slot} [{row.birth}, {row.death})"
            assert {difference.left, difference.right} == {None, text}


def test_the_first_that_differs_of_an_order_and_of_hand_offs_is_told_at_its_number() -> None:
    plan = chain_plan(4)
    other = {"execution_order_hash": bytes(32)}
    nodes = plan.execution_order
    for left in (nodes, nodes[:2], (), ("n", *nodes[1:])):
        for right in (nodes, nodes[:2], nodes[:1], (), (*nodes[:3], "n"), (*nodes, "n")):
            found = compare(replace(plan, execution_order=left), replace(plan, execution_order=right, **other)).first
            first = next(((k, a, b) for k, (a, b) in enumerate(zip_longest(left, right)) if a != b), None)
            same = "the same nodes under another hash"
            expected = (f"[{first[0]}]", *first[1:]) if first else ("", same, same)
            assert found == Difference(f"$.execution_order{expected[0]}", *expected[1:])
    ids = plan.tensor_ids
    rows = np.array([[0, 0, 1], [1, 1, 2], [2, 2, 3]], np.int64)
    choices = [rows, rows[:1], rows[:0], np.array([[0, 0, 1], [1, 1, 3], [2, 2, 3]]), np.array([[0, 0, 2]])]
    for left_rows in choices:
        for right_rows in choices:
            a, b = Handoffs(ids, left_rows), Handoffs(ids, right_rows)
            sides = [replace(plan, handoffs=h, taken=(True,) * len(h)) for h in (a, b)]
            listed = [d for d in compare(*sides).divergences if d.path.startswith("$.handoffs")]
            first_pair = next(((k, x, y) for k, (x, y) in enumerate(zip_longest(a, b)) if x != y), None)
            if first_pair is None:
                assert listed == []
            else:
                k, *pair = first_pair
                assert listed == [Difference(f"$.handoffs[{k}]", *(list(x) if x else None for x in pair))]
    full = Handoffs(ids, rows)
    sides = [replace(plan, handoffs=full, taken=taken) for taken in ((True, False, True), (True, True, False))]
    listed = [d for d in compare(*sides).divergences if d.path.startswith("$.handoffs")]
    assert listed == [Difference("$.handoffs[1].taken", False, True), Difference("$.handoffs[2].taken", True, False)]


def test_what_parts_two_plans_is_told_in_one_order() -> None:
    """Everything beside the rows, one thing after the other; figures of arenas by name, metrics by key."""
    left = chain_plan(2)
    arena = left.arenas[0]
    changes: dict[str, Any] = {
        "mode": "forward",
        "steps": 9,
        "rank": 1,
        "world_size": 2,
        "shard_spec_hash": b"\1",
        "arenas": (replace(arena, extent_bytes=7, slots=5, status=INVALID, witness=("x",), proven_bytes=1),),
        "metrics": {**left.metrics, "added": 3, "allocation_time_ns": 4},
        "layout_hash": b"\2",
        "tmmu_plan_hash": b"\3",
    }
    found = compare(left, replace(left, **changes))
    name = arena.name
    assert found.divergences == (
        Difference("$.mode", left.mode, "forward"),
        Difference("$.steps", left.steps, 9),
        Difference("$.rank", left.rank, 1),
        Difference("$.world_size", left.world_size, 2),
        Difference("$.shard_spec_hash", left.shard_spec_hash.hex(), "01"),
        Difference(f"$.arenas.{name}.extent_bytes", arena.extent_bytes, 7),
        Difference(f"$.arenas.{name}.slots", arena.slots, 5),
        Difference("$.metrics.added", None, 3),
        Difference("$.layout_hash", left.layout_hash.hex(), "02"),
        Difference("$.tmmu_plan_hash", left.tmmu_plan_hash.hex(), "03"),
    )
    assert (found.comparable, found.identical, found.complete, found.invalid) == (True, False, True, ("right",))
    assert compare(replace(left, **changes), left).invalid == ("left",)
    assert compare(left, left).invalid == ()
    one_of_two = (PLANS[4].arenas[0], replace(PLANS[4].arenas[1], status=INVALID))
    assert compare(PLANS[4], replace(PLANS[4], arenas=one_of_two)).invalid == ("right",)
    steps = compare(left, edited(replace(left, steps=9), "t1", offset=4096))
    rows = compare(left, edited(replace(left, rank=9), "t1", offset=4096))
    assert [found.first and found.first.path for found in (steps, rows)] == ["$.steps", "$.tensors['t1'].offset_bytes"]
    assert compare(left, replace(left, rank=9)).first == Difference("$.rank", left.rank, 9)


def test_an_arena_of_one_side_is_told_with_its_extent() -> None:
    plan = PLANS[4]
    for k, (arena, other) in enumerate((plan.arenas, plan.arenas[::-1])):
        fewer = replace(plan, arenas=(other,), arena=np.zeros_like(plan.arena))
        path = f"$.arenas.{arena.name}"
        there, back = compare(plan, fewer), compare(fewer, plan)
        assert Difference(path, arena.extent_bytes, None) in there.divergences, k
        assert Difference(path, None, arena.extent_bytes) in back.divergences
    empty = replace(plan.arenas[0], extent_bytes=0)
    found = compare(replace(plan, arenas=(empty, plan.arenas[1])), replace(plan, arenas=(plan.arenas[1],) * 2))
    assert Difference(f"$.arenas.{empty.name}", 0, None) in found.divergences


def digest(plan: Plan) -> Trace:
    return read_trace(to_json_lines(plan, digest=True))


def test_a_side_without_its_hashes_is_not_compared_whichever_it_is() -> None:
    plan = chain_plan(3)
    short = digest(plan)
    bare = replace(short, digests=None)
    for a, b, hashes in (
        (plan, short, None),
        (short, short, None),
        (bare, plan, ("not told", "told")),
        (plan, bare, ("told", "not told")),
        (bare, short, ("not told", "told")),
        (short, bare, ("told", "not told")),
        (bare, bare, ("not told", "not told")),
    ):
        found = compare(a, b)
        expected = () if hashes is None else (Difference("$.digests", *hashes),)
        assert (found.incomparable, found.divergences, found.complete) == (expected, (), False)
        assert (found.ids, found.left_row.tolist(), found.right_row.tolist()) == ((), [], [])
        assert (found.kinds.tolist(), found.identical) == ([], hashes is None)
        assert [*found.changes()] == found.largest(None, 9) == []


def test_two_digests_are_told_apart_by_counts_and_hashes() -> None:
    left, right = digest(chain_plan(2)), digest(chain_plan(3))
    found = {d.path: (d.left, d.right) for d in compare(left, right).divergences}
    assert found["$.tensor_count"] == (3, 4)
    assert found["$.execution_order"] == ("another order", "another order")
    assert {path for path in found if path.startswith("$.digests")} == {
        *(f"$.digests.arenas.activations.{part}" for part in SAYS),
        "$.digests.handoffs",
    }
    whole = {d.path for d in compare(chain_plan(2), chain_plan(3)).divergences}
    assert not {path for path in whole if "digests" in path or "tensor_count" in path}


def test_storages_are_compared_where_no_row_differs() -> None:
    plan = chain_plan()
    other = replace(plan, storage=np.zeros_like(plan.storage))
    assert same_plan(plan, other) == (Difference("$.storage", plan.storage.tolist(), other.storage.tolist()),)
    moved = edited(other, "t1", offset=4096)
    assert [difference.path for difference in same_plan(plan, moved)] == ["$.tensors['t1'].offset_bytes"]


def test_arenas_of_one_side_have_no_hashes_to_be_compared() -> None:
    views, plan = held_by(PLANS[4]), held_by(PLANS[1])
    assert {path for path, _, _ in differing(views, plan)} == {
        *(f"$.digests.arenas.activations.{part}" for part in SAYS),
        *(["$.digests.handoffs"] if views.handoffs != plan.handoffs else []),
    }


def test_what_changed_since_is_said_of_an_arena_whatever_it_is_called() -> None:
    plan = PLANS[4]
    renamed = replace(plan, arenas=(replace(plan.arenas[0], name="a.b"), plan.arenas[1]))
    before = held_by(renamed)
    assert changed_since(renamed, before) == ""
    assert changed_since(plan, before) == "the arenas are not those that were written"
    cells: tuple[dict[str, Any], ...] = ({"death": 99}, {"logical_slot": 9}, {"offset": 9}, {"dtypes": "int8"})
    for columns, part in zip(cells, SAYS, strict=True):
        said = changed_since(edited(renamed, "h", **columns), before)
        assert said == f"the {SAYS[part]} of a.b are not those that were written"


def test_one_arena_whose_figures_are_held_is_enough_to_ask_after_all() -> None:
    """Of two arenas one has no hash of its figures, and nothing else is held."""
    plan = PLANS[4]
    arenas: dict[str, dict[str, Any]] = {arena.name: {"extent": 7} for arena in plan.arenas}
    whole = sealed(held_by(plan), arenas, {})
    last = max(arenas)
    parts = {
        name: {k: v for k, v in each.items() if (name, k) != (last, FIGURES)} for name, each in whole.arenas.items()
    }
    said = changed_claim(Held(parts, whole.handoffs), arenas, {})
    assert said == f"the figures of {last} are not those that were written"
