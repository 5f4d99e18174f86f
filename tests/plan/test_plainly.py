"""What is made and asked of plans, beside the plainest that says the same; and borders by eye."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.plan.examples import ledger_plan, problem_of
from tests.plan.test_replan import batched
from tmmu_core.errors import U64_MAX, AllocationOverflow, InvalidIrShapes, UnreadableInput
from tmmu_core.graph.model import Dim
from tmmu_core.liveness.phases import Stretch, _stretches, phases_told
from tmmu_core.plan.analysis.course import Moment, course
from tmmu_core.plan.analysis.placing import ghost, on_grid, parting, why_here
from tmmu_core.plan.analysis.tenants import slot_reports
from tmmu_core.plan.figures.live import (
    _live_bytes_exact,
    _peak_exact,
    change_points,
    exact_sum,
    live_bytes_of,
    live_count_of,
    max_live_of,
    peak_and_count,
    peak_of,
    peak_together,
)
from tmmu_core.plan.figures.storages import Beats, align_up, alive_at, slot_numbers, storages_of
from tmmu_core.plan.making import certificate, rows
from tmmu_core.plan.making.instance import plan_problem
from tmmu_core.plan.making.over import over_limits, packing_may_do
from tmmu_core.plan.making.pairs import pair_texts, read_pairs
from tmmu_core.plan.making.replan import Rule, replan_session
from tmmu_core.plan.making.request import PlanRequest
from tmmu_core.plan.making.wording import SAID, contradiction
from tmmu_core.plan.model import ArenaSummary, Plan
from tmmu_core.planners.problem import Packing

# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("seed", "0", 0),
        ("seed", " 7 ", 7),
        ("seed", str(U64_MAX), U64_MAX),
        ("seed", "00000000000000000007", 7),
        ("seed", "000000000000000000007", ValueError),
        ("seed", str(U64_MAX + 1), ValueError),
        ("seed", "-0", 0),
        ("seed", "-1", ValueError),
        ("seed", "--1", ValueError),
        ("seed", "", ValueError),
        ("seed", "1.0", ValueError),
        ("seed", "²", ValueError),
        ("seed", "٣", ValueError),
        ("alignment", "64", 64),
        ("alignment", "1KiB", 1024),
        ("alignment", "", ValueError),
        ("alignment", str(U64_MAX), U64_MAX),
        ("alignment", str(U64_MAX + 1), ValueError),
        ("token", "ab" * 32, b"\xab" * 32),
        ("token", "ab" * 64, b"\xab" * 64),
        ("token", "ab" * 33, ValueError),
        ("token", "zz" * 32, ValueError),
        ("addressing", "offsets", "offsets"),
        ("addressing", "blake3_sparse", "blake3_sparse"),
        ("addressing", "sparse", ValueError),
        ("dims", "B=8,A=2", {"A": 2, "B": 8}),
        ("dims", '"a,b"=1', {"a,b": 1}),
        ("dims", "8", ValueError),
        ("dims", "B=x", ValueError),
        ("dims", "B=1,B=2", ValueError),
        ("dims", "", ValueError),
        ("capacities", "1KiB", {"": 1024}),
        ("capacities", "b=2,a=1", {"a": 1, "b": 2}),
        ("capacities", "1,2", ValueError),
        ("order", '["b", "a"]', ("b", "a")),
        ("order", ' ["b"]', ("b",)),
        ("order", "b\n\n a \n", ("b", "a")),
        ("order", "", ()),
        ("order", '["b", 1]', UnreadableInput),
        ("order", '["b"', UnreadableInput),
        ("options", '{"a": 1}', {"a": 1}),
        ("options", '{"a": 1, "a": 1}', UnreadableInput),
        ("options", "[]", UnreadableInput),
        ("options", "{", UnreadableInput),
        ("arenas", '{"a": {}}', {"a": {}}),
        ("arenas", '{"a": 1}', UnreadableInput),
    ],
)
def test_what_is_written_of_a_field_is_read(field: str, text: str, value: Any) -> None:
    if isinstance(value, type):
        with pytest.raises(value):
            SAID[field].read(text)
    else:
        assert SAID[field].read(text) == value


def test_where_an_order_is_no_list_of_ids_is_told() -> None:
    with pytest.raises(UnreadableInput) as caught:
        SAID["order"].read('["a", 1, 2]')
    assert caught.value.place == "$[1]"


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        (" , ", []),
        ("8", [(None, "8")]),
        ("a=1", [("a", "1")]),
        (" a = 1 , b = 2", [("a", "1"), ("b", "2")]),
        ("a=b=1", [("a=b", "1")]),
        ("=1", [(None, "1")]),
        ("a=", [("a", "")]),
        ('"a"', [(None, '"a"')]),
        ('"a" =1', [("a", "1")]),
        ('"a=1', [('"a', "1")]),
        ('""=1', [("", "1")]),
        ("a=1,", [("a", "1")]),
        ("a=1,a=2", "'a' stands twice."),
        ("1,2", "'1,2' gives more than one value."),
    ],
)
def test_names_and_values_are_read(text: str, pairs: Any) -> None:
    if isinstance(pairs, str):
        with pytest.raises(ValueError, match=pairs):
            read_pairs(text)
    else:
        assert read_pairs(text) == pairs


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (None, "1"),
        ("a", "a=1"),
        ("a b", "a b=1"),
        ("", '""=1'),
        (" a", '" a"=1'),
        ("a ", '"a "=1'),
        ("a,b", '"a,b"=1'),
        ('"a', '"\\"a"=1'),
        ('a"', 'a"=1'),
        ("ä", "ä=1"),
        ("ä,", '"ä,"=1'),
    ],
)
def test_a_name_that_would_be_read_otherwise_stands_quoted(name: str | None, text: str) -> None:
    assert pair_texts([(name, 1)]) == [text]
    assert read_pairs(text) == [(name, "1")]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({}, None),
        ({"token": b"t" * 32}, None),
        ({"seed": 0}, None),
        ({"token": b"t" * 32, "seed": 0}, "seed"),
        ({"world_size": 0}, "world_size"),
        ({"world_size": 1}, None),
        ({"rank": 1}, "rank"),
        ({"rank": 1, "world_size": 1}, "rank"),
        ({"rank": 1, "world_size": 2}, None),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"rank": 5, "shard_spec": {}}, None),
    ],
)
def test_what_a_request_cannot_be(asked: dict[str, Any], field: str | None) -> None:
    found = contradiction(PlanRequest(**asked))
    assert (found and found.field) == field
    if found and field == "rank":
        assert found.what == f"there is no rank {asked['rank']} in a world of {asked.get('world_size', 1)}."


# -- figures and limits ------------------------------------------------------------------------------------------------


def arena(extent: int = 10, bound: int | None = 10, **rest: Any) -> ArenaSummary:
    return ArenaSummary("a", **{"capacity_bytes": U64_MAX, **rest}, alignment_bytes=1, page_size=0, extent_bytes=extent,
                        committed_bytes=extent, peak_live_bytes=7, slots=1, max_live=1, storages=1,
                        lower_bound_bytes=bound)  # fmt: skip


@pytest.mark.parametrize(
    ("extent", "bound", "rest", "bound_bytes", "open_bytes", "headroom"),
    [
        (10, 10, {}, 10, 0, None),
        (10, 8, {}, 8, 2, None),
        (10, None, {}, 7, 3, None),
        (10, 8, {"proven_bytes": 9}, 8, 1, None),
        (10, 8, {"proven_bytes": 7}, 8, 2, None),
        (10, 8, {"status": "optimal"}, 8, 0, None),
        (10, 12, {"status": "invalid"}, 12, 0, None),
        (10, 8, {"capacity_bytes": 10}, 8, 2, 0),
        (10, 8, {"capacity_bytes": 9}, 8, 2, -1),
        (10, 8, {"capacity_bytes": U64_MAX - 1}, 8, 2, U64_MAX - 11),
        (0, 0, {}, 0, 0, None),
    ],
)
def test_the_figures_of_an_arena(
    extent: int, bound: int | None, rest: dict[str, Any], bound_bytes: int, open_bytes: int, headroom: int | None
) -> None:
    found = arena(extent, bound, **rest)
    assert (found.bound_bytes, found.open_bytes, found.headroom_bytes) == (bound_bytes, open_bytes, headroom)
    assert found.gap == (extent - bound_bytes, bound_bytes)


@pytest.mark.parametrize(
    ("capacities", "budget", "may", "over"),
    [
        ((8, 8), None, True, {"a": 2, "b": 2}),
        ((7, 8), None, False, {"a": 3, "b": 2}),
        ((8, 7), None, False, {"a": 2, "b": 3}),
        ((10, 10), None, True, {}),
        ((10, 9), 16, True, {"b": 1, "": 4}),
        ((10, 9), 15, False, {"b": 1, "": 5}),
        ((10, 10), 20, True, {}),
        ((10, 10), 19, True, {"": 1}),
        ((10, 10), 0, False, {"": 20}),
    ],
)
def test_limits_are_held_to_bounds_and_to_extents(
    capacities: tuple[int, int], budget: int | None, may: bool, over: dict[str, int]
) -> None:
    one, two = (arena(10, 8, capacity_bytes=capacity) for capacity in capacities)
    plan: Any = SimpleNamespace(arenas=(one, replace(two, name="b")))
    assert (packing_may_do(plan, budget), over_limits(plan, budget)) == (may, over)


@pytest.mark.parametrize(
    ("extent", "packing", "proven", "status"),
    [
        (9, {}, 8, "feasible"),
        (8, {}, 8, "optimal"),
        (7, {}, 8, "invalid"),
        (9, {"stopped": True}, 8, "unproven"),
        (8, {"stopped": True}, 8, "optimal"),
        (9, {"optimal": True}, 8, "optimal"),
        (7, {"optimal": True}, 8, "invalid"),
        (9, {"lower_bound": 9}, 9, "optimal"),
        (9, {"lower_bound": 7}, 8, "feasible"),
        (9, {"lower_bound": 10}, 10, "invalid"),
    ],
)
def test_what_is_claimed_of_an_extent(extent: int, packing: dict[str, Any], proven: int, status: str) -> None:
    problem = problem_of(("a", 0, 1, 8), alignment=1)
    found = certificate.certify(problem, Packing(np.zeros(1, np.uint64), **packing), extent, 1)
    assert (found.lower_bound, found.proven, found.status, found.witness) == (8, proven, status, ("a",))


@pytest.mark.parametrize("up_to", [3, 2])
def test_beyond_so_many_storages_the_bound_is_what_is_alive_together(
    monkeypatch: pytest.MonkeyPatch, up_to: int
) -> None:
    """``a`` and ``b`` are alive at step 1, and lie on a grid of 8: 13 bytes where that is looked at."""
    monkeypatch.setattr(certificate, "DEAR_BOUNDS_UP_TO", up_to)
    problem = problem_of(("a", 0, 2, 5), ("b", 1, 3, 5), ("c", 2, 4, 1), alignment=8)
    found = certificate.certify(problem, Packing(np.array([0, 8, 0], np.uint64)), 13, 4)
    assert (found.lower_bound, found.witness, found.step) == (13 if up_to == 3 else 10, ("a", "b"), 1)


# -- curves ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [9, U64_MAX // 4, U64_MAX])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_alive_is_counted_step_by_step(seed: int, largest: int) -> None:
    random = Random(f"alive/{seed}/{largest}")
    steps = 1 + random.randrange(9)
    lives = []
    for _ in range(random.randrange(7)):
        birth = random.randrange(steps)
        lives.append((birth, birth + 1 + random.randrange(steps - birth), random.randrange(largest + 1)))
    birth, death = (np.array([life[k] for life in lives], np.int64) for k in (0, 1))
    size = np.array([life[2] for life in lives], np.uint64)
    curve = [sum(s for b, d, s in lives if b <= step < d) for step in range(steps)]
    count = [sum(b <= step < d for b, d, _ in lives) for step in range(steps)]
    most = max(curve)
    assert exact_sum(size) == sum(s for *_, s in lives)
    assert live_count_of(birth, death, steps).tolist() == count
    assert max_live_of(birth, death, steps) == max(count)
    first = curve.index(most) if most else 0
    assert peak_together(birth, death, size, steps) == (first, most)
    assert peak_together(birth, death, size, 2**40) == (first, most)
    if any(s for *_, s in lives):
        assert _peak_exact(birth, death, size) == (first, most)
    if most > U64_MAX:
        with pytest.raises(AllocationOverflow) as caught:
            live_bytes_of(birth, death, size, steps)
        step = next(step for step, live in enumerate(curve) if live > U64_MAX)
        assert (caught.value.record()["t"], caught.value.diagnostics["size"]) == (step, curve[step])
        return
    assert live_bytes_of(birth, death, size, steps).tolist() == curve
    assert _live_bytes_exact(birth, death, size, steps).tolist() == curve
    assert peak_and_count(birth, death, size, steps) == (most, max(count))
    assert peak_and_count(birth, death, size, 2**40) == (most, max(count))


def test_64_bits_are_counted_to_the_last_byte() -> None:
    one, end = np.zeros(2, np.int64), np.ones(2, np.int64)
    assert _live_bytes_exact(one, end, np.array([U64_MAX, 0], np.uint64), 1).tolist() == [U64_MAX]
    assert live_bytes_of(one, end, np.array([U64_MAX - 1, 1], np.uint64), 1).tolist() == [U64_MAX]
    with pytest.raises(AllocationOverflow):
        live_bytes_of(one, end, np.array([U64_MAX, 1], np.uint64), 1)
    assert peak_of(np.zeros(0, np.int64)) == (0, 0)
    assert peak_of(np.array([1, 3, 3, 2])) == (1, 3)


@pytest.mark.parametrize(
    ("curve", "begins"), [([], []), ([5], [0]), ([5, 5], [0]), ([0, 5, 5, 0], [0, 1, 3]), ([1, 2, 3], [0, 1, 2])]
)
def test_a_curve_is_drawn_where_its_value_changes(curve: list[int], begins: list[int]) -> None:
    values = np.array(curve, np.int64)
    at, drawn = change_points(values)
    assert (at.tolist(), drawn.tolist()) == (begins, [curve[k] for k in begins])
    at, drawn = change_points(values, np.arange(len(curve), dtype=np.int64) * 10)
    assert (at.tolist(), drawn.tolist()) == ([10 * k for k in begins], [curve[k] for k in begins])


def test_a_step_is_of_the_beat_before_it() -> None:
    beats = Beats(np.array([0, 4, 7]), np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert [beats.at(step) for step in (-1, 0, 3, 4, 6, 7, 100)] == [0, 0, 0, 1, 1, 2, 2]
    assert [align_up(value, 4) for value in (0, 1, 3, 4, 5)] == [0, 4, 4, 4, 8]


def test_slots_are_numbered_by_arena_and_number() -> None:
    arena, slot = np.array([1, 0, 1, 0, 1], np.int32), np.array([0, 2, 3, 2, 0], np.int64)
    number, count = slot_numbers(arena, slot)
    assert (number.tolist(), count) == ([1, 0, 2, 0, 1], 3)
    assert slot_numbers(arena[:0], slot[:0])[1] == 0


# -- phases and courses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phases", "stretches"),
    [
        ("", []),
        ("-", [("forward", 0, 1)]),
        ("--", [("forward", 0, 2)]),
        ("f", [("forward", 0, 1)]),
        ("-f", [("forward", 0, 2)]),
        ("-b", [("backward", 0, 2)]),
        ("ffbb", [("forward", 0, 2), ("backward", 2, 4)]),
        ("f-b", [("forward", 0, 1), ("backward", 1, 3)]),
        ("fbf", [("forward", 0, 1), ("backward", 1, 2), ("forward", 2, 3)]),
    ],
)
def test_steps_of_one_phase_are_one_stretch(phases: str, stretches: list[tuple[Any, int, int]]) -> None:
    words: dict[str, Any] = {"-": None, "f": "forward", "b": "backward"}
    assert _stretches([words[letter] for letter in phases]) == tuple(Stretch(*each) for each in stretches)


@pytest.mark.parametrize(
    ("steps", "known", "stretches"),
    [
        (3, [], []),
        (3, [(1, None)], []),
        (3, [(2, "backward")], [("backward", 0, 3)]),
        (4, [(2, "backward"), (0, "forward"), (3, None)], [("forward", 0, 2), ("backward", 2, 4)]),
        (2, [(1, "backward"), (5, "forward")], [("backward", 0, 2)]),
        (0, [(0, "forward")], []),
    ],
)
def test_a_step_of_which_nothing_is_told_goes_with_the_one_before(
    steps: int, known: list[tuple[int, Any]], stretches: list[tuple[Any, int, int]]
) -> None:
    assert phases_told(steps, known) == tuple(Stretch(*each) for each in stretches)


@pytest.mark.parametrize(
    ("rows", "fine"),
    [
        ([[0, 9, 3], [2, 8, 3], [3, 8, 8]], True),
        ([[0, 9, 9]], True),
        ([], True),
        ([[0, 9, 10]], False),
        ([[0, 9, 3], [0, 8, 3]], False),
        ([[0, 9, 3], [1, 10, 3]], False),
        ([[0, 9, 3], [1, 9, 2]], False),
        ([[0, 9, 3], [1, 9, 3]], True),
        ([[0, 9]], False),
        ([[0, 9, 3, 1]], False),
        ([[0, 9, -1]], False),
        ([[0, 9, True]], False),
        ([(0, 9, 3)], False),
        ((0, 9, 3), False),
    ],
)
def test_a_course_that_could_not_have_been_is_none(rows: Any, fine: bool) -> None:
    plan: Any = SimpleNamespace(notes={"a": {"course": rows}, "b": "course"})
    assert course(plan, "a") == (tuple(Moment(*row) for row in rows) if fine else ())
    assert course(plan, "b") == course(plan, "c") == ()


# -- one place and another ---------------------------------------------------------------------------------------------


def drawn(seed: int, planner: str) -> Plan:
    random = Random(f"placed/{seed}")
    blocks = []
    for k in range(2 + random.randrange(7)):
        birth = random.randrange(6)
        blocks.append((f"t{k}", birth, birth + 1 + random.randrange(4), random.choice((0, 1, 4, 7, 8, 16))))
    blocks.sort(key=lambda block: (block[1], -block[3], block[0]))
    return plan_problem(problem_of(*blocks, alignment=random.choice((1, 4))), planner=planner)


@pytest.mark.parametrize("planner", ["slots", "greedy", "naive"])
@pytest.mark.parametrize("seed", range(5))
def test_another_place_has_those_in_its_way_that_lie_there_meanwhile(seed: int, planner: str) -> None:
    plan = drawn(seed, planner)
    s, grid = storages_of(plan), plan.arenas[0].alignment_bytes
    name = [plan.tensor_ids[head] for head in s.head]
    life = list(zip(s.birth.tolist(), s.death.tolist(), strict=True))
    bytes_ = [(int(o), int(o) + int(z)) for o, z in zip(s.offset, s.size, strict=True)]
    for me, tensor in enumerate(name):
        (birth, death), (start, stop) = life[me], bytes_[me]
        together = [
            other
            for other, (b, d) in enumerate(life)
            if other != me and b < death and birth < d and stop > start and bytes_[other][1] > bytes_[other][0]
        ]
        together.sort(key=lambda other: (bytes_[other][0], int(s.head[other])))
        free = [
            at
            for at in range(0, 200, grid)
            if all(at >= bytes_[o][1] or at + stop - start <= bytes_[o][0] for o in together)
        ]
        why = why_here(plan, tensor)
        assert (why.row, why.offset, why.size, why.turn, why.of) == (s.head[me], start, stop - start, None, len(name))
        assert why.lowest == (free[0] if stop > start else 0)
        walls = [(int(s.head[o]), *bytes_[o], max(birth, life[o][0])) for o in together if bytes_[o][0] < start]
        assert [(w.row, w.start, w.end, w.step) for w in why.walls] == walls
        covered = [any(low <= at < high for _, low, high, _ in walls) for at in range(start)]
        edges = [at for at in range(start + 1) if ([True, *covered, True][at] != [True, *covered, True][at + 1])]
        assert [edge for room in why.rooms for edge in room] == edges
        if plan.has_slots:
            assert why.slot is not None
            tenants = [o for o in range(len(name)) if s.slot[o] == s.slot[me]]
            largest = max(bytes_[o][1] - bytes_[o][0] for o in tenants)
            first = min((o for o in tenants if bytes_[o][1] - bytes_[o][0] == largest), key=lambda o: life[o][0])
            backing = max(largest, 1)
            assert (why.slot.slot, why.slot.backing, why.slot.largest) == (s.slot[me], backing, s.head[first])
            assert why.slot.unused == backing - (stop - start)
            lower = [o for o in range(len(name)) if s.slot[o] < s.slot[me] and life[o][0] <= birth < life[o][1]]
            assert why.slot.held == tuple(sorted((int(s.slot[o]), int(s.head[o])) for o in lower))
        else:
            assert why.slot is None
        for at, born in ((0, None), (start + 1, None), (start, birth + 1), (4, -3), (-4, 100)):
            begins = birth if born is None else max(0, min(born, plan.steps - (death - birth)))
            low = max(0, at)
            high = low + stop - start
            hit = [
                o
                for o, (b, d) in enumerate(life)
                if o != me and b < begins + death - birth and begins < d and high > low
                and bytes_[o][1] > bytes_[o][0] and bytes_[o][0] < high and low < bytes_[o][1]
            ]  # fmt: skip
            hit.sort(key=lambda o: (bytes_[o][0], int(s.head[o])))
            found = ghost(plan, tensor, at, born)
            assert (found.row, found.offset, found.birth) == (s.head[me], low, begins)
            assert found.death == begins + death - birth
            assert found.conflicts == tuple(int(s.head[o]) for o in hit)
            assert (found.aligned, found.legal) == (low % grid == 0, low % grid == 0 and not hit)
            assert found.extent == max([high, *(e for o, (_, e) in enumerate(bytes_) if o != me)])
            assert found.before == plan.arenas[0].extent_bytes
        for at in range(-2, 14):
            nearest = min(range(0, 20, grid), key=lambda g: (abs(g - at), g))
            assert on_grid(plan, tensor, at) == nearest


@pytest.mark.parametrize("seed", range(6))
def test_a_slot_reports_its_tenants_in_turn(seed: int) -> None:
    plan = drawn(seed, "slots")
    reports = slot_reports(plan, "arena")
    s = storages_of(plan)
    assert [report.slot for report in reports] == sorted(set(s.slot.tolist()))
    for report in reports:
        mine = sorted((k for k in range(len(s)) if s.slot[k] == report.slot), key=lambda k: int(s.birth[k]))
        sizes, lives = [int(s.size[k]) for k in mine], [int(s.death[k] - s.birth[k]) for k in mine]
        backing = max(*sizes, 1)
        assert [t.tensor_id for t in report.tenants] == [plan.tensor_ids[s.head[k]] for k in mine]
        assert [t.generation for t in report.tenants] == list(range(len(mine)))
        assert [(t.size_bytes, t.unused_bytes) for t in report.tenants] == [(z, backing - z) for z in sizes]
        assert [(t.birth, t.death) for t in report.tenants] == [(s.birth[k], s.death[k]) for k in mine]
        assert (report.backing_bytes, report.offset_bytes) == (backing, int(s.offset[mine[0]]))
        assert (report.arena, report.alignment) == ("arena", plan.arenas[0].alignment_bytes)
        assert report.busy_steps == sum(lives)
        unused = sum((backing - size) * steps for size, steps in zip(sizes, lives, strict=True))
        assert report.unused_byte_steps == unused


def test_who_is_alive_comes_by_size_and_then_by_row() -> None:
    plan = ledger_plan()
    assert [[plan.tensor_ids[row] for row in alive_at(plan, step)] for step in range(-1, 5)] == [
        *([], ["a"], ["a", "b"], ["d", "b", "c"], ["b", "c"], [])
    ]


def test_two_plans_part_at_the_first_difference_or_not_at_all() -> None:
    plan = ledger_plan()
    assert parting(plan, plan, "arena") is None
    assert parting(plan, plan, "nowhere") is None
    for row, alike in (("a", 0), ("b", 1), ("c", 3)):
        offset = plan.offset.copy()
        offset[plan.row_of[row]] += np.uint64(64)
        found = parting(plan, replace(plan, offset=offset), "arena")
        assert found is not None
        assert (found.left, found.right, found.by) == (row, row, "birth")
        assert found.alike <= alike
        assert found.right_offset == (found.left_offset or 0) + 64


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan_at", ["upper", "point"])
@pytest.mark.parametrize("policy", ["ABORT", "REPLAN_AT_SAFEPOINT"])
def test_a_session_goes_as_its_policy_says(policy: str, plan_at: Any) -> None:
    random = Random(f"session/{policy}/{plan_at}")
    for _ in range(8):
        shapes = [random.randrange(1, 7) for _ in range(4)]
        g = batched(policy, B=Dim(2, 4))
        low, high = 2, 4
        expected: list[tuple[int, int, bool, str]] = []
        ended = ""
        at: int | None = None
        for value in shapes:
            outside = not low <= value <= high
            if outside and policy == "ABORT":
                ended = "dim_out_of_envelope"
                break
            before = 4 if at is None and outside else at
            low, high = min(low, value), max(high, value)
            wanted = value if plan_at == "point" else high
            if policy == "ABORT" and before is not None:
                if wanted > before:
                    ended = "dim_out_of_plan"
                    break
                wanted = before
            again = before is not None and (outside or wanted != before)
            expected.append((value, wanted, again, ("left_envelope" if outside else "new_point") if again else ""))
            at = wanted
        if ended and not expected:
            with pytest.raises(InvalidIrShapes):
                replan_session(g, [{"B": b} for b in shapes], Rule(plan_at))
            continue
        log = replan_session(g, [{"B": b} for b in shapes], Rule(plan_at))
        reasons = {record["iteration"]: record["reason"] for record in log.replans}
        found = [
            (dict(i.point)["B"], dict(i.planned_at)["B"], i.replanned, reasons.get(i.number, ""))
            for i in log.iterations
        ]
        assert found == expected
        assert (log.aborted and log.aborted.diagnostics["reason"]) == (ended or None)
        old = {record["iteration"]: record["old_tmmu_plan_hash"] for record in log.replans}
        for one, two in pairwise(log.iterations):
            assert old.get(two.number, "") == (one.solution.plan.tmmu_plan_hash.hex() if two.replanned else "")
            if not two.replanned:
                assert two.solution.plan.tmmu_plan_hash == one.solution.plan.tmmu_plan_hash


@pytest.mark.parametrize("some", [1, 2, 3, 100])
def test_rows_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch, some: int) -> None:
    monkeypatch.setattr(rows, "CHUNK_ROWS", some)
    numbers = [4, 0, 0, 3, 1]
    assert rows._at("abcde", np.array(numbers)) == tuple("abcde"[k] for k in numbers)
    assert rows._at("abcde", np.array(numbers[:0], np.int64)) == ()
