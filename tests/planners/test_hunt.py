"""How a part is hunted down: what is proven of choices of hand-offs, how a budget is shared, where to aim next."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from packings import UNLIMITED, extent, faults, offsets, problem, problem_with

from tests.searches import crowd
from tests.small_problems import after, handed
from tmmu_core.planners import exact as module
from tmmu_core.planners.bounds import bound_of
from tmmu_core.planners.columns import Columns, columns
from tmmu_core.planners.exact import exact, hunt
from tmmu_core.planners.exact.kernel import FOUND, INFEASIBLE, SPENT
from tmmu_core.planners.exact.model import handoffs
from tmmu_core.planners.portfolio import Best
from tmmu_core.planners.problem import Problem

# --- what is proven ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "least"), [(23, 27), (24, 23), (37, 28), (38, 27), (40, 23), (42, 22)])
def test_what_one_choice_of_many_hand_offs_cannot_is_no_proof(
    seed: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six or seven hand-offs: all of them taken a byte more is needed than with one left out."""
    p = handed(seed)
    assert len(handoffs(columns(p))) > hunt.ALL_CHOICES
    one = exact(p, {"budget": 20_000})
    assert (extent(p, one.offset), one.optimal) == (least + 1, False)
    assert one.lower_bound is not None
    assert one.lower_bound <= least
    assert not one.stopped, "there was nothing left to ask"
    exact(problem_with(p, capacity=least), {"budget": 20_000})  # refused where it were proven that nothing fits
    monkeypatch.setattr(hunt, "ALL_CHOICES", 7)
    every = exact(p, {"budget": 20_000})
    assert (extent(p, every.offset), every.optimal) == (least, True)
    assert faults(p, offsets(one)) == faults(p, offsets(every)) == []


@pytest.mark.parametrize("p", [crowd(0, 11), after(63, 18)])
def test_a_budget_that_is_too_small_for_shares_of_two_parts_is_spent_and_told(p: Problem) -> None:
    packing = exact(p, {"budget": 1})
    assert (packing.notes["nodes"], packing.stopped, packing.optimal) == (1, True, False)


def test_the_course_has_a_row_wherever_extent_or_bound_move() -> None:
    course = hunt.Course(30, 10)
    for nodes, extent_, bound in ((0, 30, 10), (5, 30, 10), (7, 28, 10), (7, 27, 11), (9, 27, 11), (12, 27, 12)):
        course.tell(nodes, extent_, bound)
    assert course.moments == [[0, 30, 10], [7, 27, 11], [12, 27, 12]]
    course.elsewhere, course.proven, course.floor = 25, 13, 14  # another part takes 25 and needs 14
    course.tell(20, 26, 14)
    course.tell(21, 24, 15)
    course.tell(22, 25, 15)
    assert course.moments[3:] == [[20, 26, 13], [21, 25, 15]]


FOUR = problem((0, 1, 4), (0, 1, 4), (0, 1, 4), (0, 1, 4))
"""Sixteen bytes, on a grain of four; begun here far above them."""


def variant_at(bound: int, boldness: int, across: object, spent: dict[str, int]) -> Any:
    """One choice of hand-offs of which only so much matters."""
    return hunt._Variant(None, bound, None, {}, spent, boldness, across)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("extent_", "goal", "capacity", "bounds", "relaxed", "left"),
    [
        (20, 0, 99, (10, 19), None, [10, 19]),
        (20, 0, 99, (10, 20), None, [10]),
        (20, 0, 99, (20, 20), None, []),
        (20, 15, 15, (10, 15, 16), None, [10, 15]),
        (15, 15, 15, (10,), None, []),
        (20, 0, 10, (10,), None, [10]),
        (20, 0, 9, (10,), None, []),
        (20, 0, 99, (12,), 11, [12, 11]),
        (20, 0, 99, (20,), 11, [11]),
        (20, 0, 99, (12,), 18, [12]),
        (20, 0, 99, (12,), 17, [12, 17]),
        (17, 0, 99, (12,), 17, []),
    ],
)
def test_what_may_still_say_something_is_asked_and_nothing_where_the_answer_is_known(
    extent_: int, goal: int, capacity: int, bounds: tuple[int, ...], relaxed: int | None, left: list[int]
) -> None:
    variants = [variant_at(bound, 0, None, {}) for bound in bounds]
    over = None if relaxed is None else variant_at(relaxed, 0, None, {})
    h = hunt.Hunt(columns(problem_with(FOUR, capacity=capacity)), 0, 5, extent_, [], variants, over)
    assert h.overlap == extent_
    h.overlap = 18
    h.raise_bound()
    assert h.bound == (min(bounds) if relaxed is None else relaxed)
    assert [each.bound for each in h.left_to_ask(goal)] == left
    h.bound = 5
    assert h.proven() == 0
    h.bound = 6
    assert h.proven() == 6


@pytest.mark.parametrize(("verdict", "stop", "learnt"), [(FOUND, 0, [True]), (SPENT, 0, [False]), (SPENT, 1, [])])
def test_an_attempt_teaches_its_kind_unless_it_was_stopped(verdict: int, stop: int, learnt: list[bool]) -> None:
    heard: list[bool] = []
    taught = SimpleNamespace(
        attempt=lambda target: SimpleNamespace(rank=[target], nodes=50),
        learn=lambda tried, fails, found: heard.append(found),
    )
    nodes = iter((7, 0))

    def searched(target: int, rank: list[int], budget: int, watch: object) -> tuple[int, int, list[int]]:
        assert (target, rank, watch) == (9, [9], None)
        return verdict, next(nodes), [budget]

    spent = dict.fromkeys(hunt.KINDS, 0)
    each = variant_at(8, 0, SimpleNamespace(ask=lambda *_: (SPENT, 4, None), stopped=True), spent)
    each.searcher = SimpleNamespace(ask=searched, fails=None, stop=[stop])
    each.steering = {"bound": taught}
    assert each.ask("bound", 9, 60, None) == (verdict, 7, [50], bool(stop))
    assert each.ask("bound", 9, 40, None) == (verdict, 1, [40], bool(stop)), "no attempt costs nothing"
    assert each.ask("across", 9, 40, None) == (SPENT, 4, None, True)
    assert heard == 2 * learnt
    assert spent == {"bound": 8, "across": 4, "between": 0, "capacity": 0}
    assert each.kinds("capacity") == ("across", "capacity")
    assert variant_at(8, 0, None, {}).kinds("capacity") == ("capacity",)


# --- where to aim ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grain", [1, 4])
@pytest.mark.parametrize("boldness", range(8))
def test_each_target_is_a_multiple_of_the_grain_from_the_bound_on_and_below_the_best(grain: int, boldness: int) -> None:
    for bound in (0, grain, 5 * grain):
        for ceiling in range(bound + grain, bound + 12 * grain, grain):
            way = Fraction(hunt.STEPS[boldness] * (ceiling - bound), 8)
            between = max(at for at in range(bound, ceiling, grain) if at - bound <= way)
            for capacity in range(bound - 2, ceiling + 2):
                wanted = {"bound": bound}
                if bound <= capacity < ceiling:
                    wanted["capacity"] = max(at for at in range(bound, ceiling, grain) if at <= capacity)
                wanted["across"] = bound
                if between > bound:
                    wanted["between"] = between
                for across in (None, object()):
                    there = {name: at for name, at in wanted.items() if across is not None or name != "across"}
                    for name in hunt.KINDS:
                        spent = {each: 3 + (each != name) for each in hunt.KINDS}
                        found = hunt._aim(variant_at(bound, boldness, across, spent), ceiling, grain, capacity)
                        first = next(iter(there)) if name not in there else name
                        assert found == (first, there[first])


def test_a_number_is_raised_to_the_next_multiple_of_any_other() -> None:
    assert [hunt.align_up_any(at, 6) for at in (0, 1, 5, 6, 7, 12, 13)] == [0, 6, 6, 6, 12, 12, 18]


def test_what_is_told_on_the_way_is_within_the_budget() -> None:
    heard: list[tuple[str, int, int]] = []
    said = iter((True, False, True, False))

    def progress(what: str, done: int, of: int) -> bool:
        heard.append((what, done, of))
        return next(said)

    watch = hunt._watch(progress, 30, 100)
    turns = hunt._watch_turns(progress, (100, 50, 8))
    assert [watch(5), watch(9), turns(3), turns(9)] == [True, False, True, False]
    assert heard == [("exact", 35, 100), ("exact", 39, 100), ("exact", 118, 150), ("exact", 150, 150)]


def hunted(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, int, list[int] | None]], **given: Any
) -> tuple[hunt.Hunt, list[tuple[str, int, int]], dict[str, Any], hunt.Course]:
    """What is asked, by kind, capacity and nodes, where the answers come as scripted; what came of it."""
    asked: list[tuple[str, int, int]] = []
    script = iter(answers)

    def ask(self: Any, kind: str, target: int, budget: int, watch: Any) -> hunt.Answer:
        asked.append((kind + "*" * (self is h.relaxed), target, budget))
        assert watch is None or watch(1)
        verdict, nodes, lies = next(script)
        self.spent[kind] += nodes
        return SPENT if verdict == HALTED else verdict, nodes, lies, verdict == HALTED

    monkeypatch.setattr(hunt._Variant, "ask", ask)
    guides: list[int] = []
    rebuilt: list[tuple[int, int]] = []
    monkeypatch.setattr(hunt, "_rebuilt", lambda h, a, before, allowed: rebuilt.append((before, allowed)))
    p = problem_with(FOUR, capacity=given.pop("capacity", UNLIMITED))
    begun = given.pop("begun", 48)
    h = hunt.hunt_for(columns(p), 16, given.pop("floor", 16), (begun, [0, 4, 8, begun - 4]))
    h.variants[0].across = given.pop("across", None)
    h.variants[0].steering = {"bound": SimpleNamespace(guide=lambda lies: guides.append(lies[-1]))}  # type: ignore[dict-item]
    if given.pop("relaxed", False):
        h.relaxed = replace(h.variants[0], spent=dict.fromkeys(hunt.KINDS, 0))
    notes = {"nodes": given.pop("before", 0), "attempts": 2}
    course = hunt.Course(begun, 16)
    options = {"goal": 0, "budget": 100, "progress": None} | given
    hunt.search(h, hunt.Asked(**options, notes=notes, course=course))
    return h, asked, notes | {"rebuilt": rebuilt, "guides": guides}, course


HALTED = -7


def no(nodes: int = 10) -> tuple[int, int, None]:
    return SPENT, nodes, None


def never(nodes: int = 10) -> tuple[int, int, None]:
    return INFEASIBLE, nodes, None


def lying(top: int, nodes: int = 10) -> tuple[int, int, list[int]]:
    return FOUND, nodes, [0, 4, 8, top - 4]


def test_bound_and_the_way_between_take_turns_and_failure_makes_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between 16 and 48 there are 32 bytes: three eighths of them are 12, four are 16, five 20, six 24, seven 28."""
    h, asked, notes, course = hunted(monkeypatch, [no()] * 20, budget=200)
    assert asked[:3] == [("bound", 16, 200), ("between", 28, 190), ("bound", 16, 180)]
    assert [at for kind, at, _ in asked if kind == "between"] == [28, 32, 36, 40, 44, 44, 44, 44, 44, 44]
    assert {kind for kind, _, _ in asked[::2]} == {"bound"}
    assert (h.bound, h.extent, h.is_open, h.turn) == (16, 48, True, 20)
    assert notes == {"nodes": 200, "attempts": 22, "rebuilt": [(200, 200)], "guides": []}
    assert course.moments == [[0, 48, 16]]


def test_what_is_found_lowers_the_best_and_makes_shy_and_what_is_not_there_raises_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [no(), no(), no(), no(), no(), lying(32), no(), lying(24), never(), never()]
    h, asked, notes, course = hunted(monkeypatch, answers, before=7)
    kinds = [(kind, at) for kind, at, _ in asked]
    # Two failures, then 36 is asked for and 32 found: two steps back, three eighths of 16 bytes. 24 is found: of 8, 3.
    assert kinds[:6] == [("bound", 16), ("between", 28), ("bound", 16), ("between", 32), ("bound", 16), ("between", 36)]
    assert kinds[6:] == [("bound", 16), ("between", 20), ("bound", 16), ("bound", 20)]
    assert (h.bound, h.extent, h.offset, h.is_open) == (24, 24, [0, 4, 8, 20], False)
    assert course.moments == [[0, 48, 16], [67, 32, 16], [87, 24, 16], [97, 24, 20], [107, 24, 24]]
    assert notes == {"nodes": 107, "attempts": 12, "rebuilt": [], "guides": [28, 20]}
    assert h.proven() == 24


def test_two_steps_back_are_two_and_none_before_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [no()] * 7 + [lying(80), no(), lying(48), no(), lying(32), no(), no()]
    _, asked, _, _ = hunted(monkeypatch, answers, begun=96, budget=140)
    # 96 − 16 by three, four, five and six eighths; then found, from index 3 to 1; then to 0, and stays there.
    assert [at for kind, at, _ in asked if kind == "between"] == [44, 56, 64, 76, 48, 28, 20]


def test_the_relaxation_takes_turns_below_what_it_has_been_packed_in_and_alone_raises_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [never(), no(), no(), lying(24), never(), never(), no(), never(), no(), no()]
    h, asked, notes, course = hunted(monkeypatch, answers, relaxed=True)
    assert [(kind, at) for kind, at, _ in asked] == [
        ("bound", 16),  # of one choice alone
        ("bound*", 16),
        ("between", 28),
        ("between*", 28),  # found, of 24 bytes: no packing, for storages may lie over each other in it
        ("bound", 20),
        ("bound*", 16),
        ("between", 36),
        ("bound*", 20),
        ("bound", 24),
        ("between", 36),
    ]
    assert (h.bound, notes["guides"], course.moments) == (24, [20], [[0, 48, 16], [60, 48, 20], [80, 48, 24]])
    assert (h.extent, h.overlap) == (48, 24)


def test_with_a_goal_that_alone_is_asked_for_and_meeting_it_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    h, asked, notes, _ = hunted(monkeypatch, [no(), lying(28)], goal=30, capacity=30)
    assert asked == [("capacity", 28, 100), ("capacity", 28, 90)]
    assert (h.extent, h.is_open, notes["rebuilt"]) == (28, False, [])
    h, asked, notes, _ = hunted(monkeypatch, [never()], goal=30, capacity=30)
    assert (h.bound, h.is_open, len(asked), notes["rebuilt"]) == (32, False, 1, [])
    h, asked, notes, _ = hunted(monkeypatch, [no(30), no(20), no(20), no(30)], goal=30, capacity=30, across=object())
    assert [kind for kind, _, _ in asked] == ["across", "capacity", "capacity", "across"]
    # The best is over the capacity, and less than that is asked for: a kind more.
    h, asked, notes, _ = hunted(monkeypatch, [no()] * 4, capacity=31, budget=40)
    assert [(kind, at) for kind, at, _ in asked] == [("bound", 16), ("capacity", 28), ("between", 28), ("bound", 16)]


@pytest.mark.parametrize(
    ("full", "budget", "allowed"), [(4, 100, 100), (2, 100, 25), (1, 100, 6), (1, 10, 1), (9, 100, 100), (9, 0, 0)]
)
def test_what_has_many_entries_gets_fewer_nodes(
    monkeypatch: pytest.MonkeyPatch, full: int, budget: int, allowed: int
) -> None:
    """Four entries; of twice what is searched at full speed a quarter of the nodes, and one at least."""
    monkeypatch.setattr(hunt, "FULL_SPEED", full)
    h, asked, notes, _ = hunted(monkeypatch, [no(1000)], budget=budget)
    assert [nodes for _, _, nodes in asked] == [allowed] * bool(allowed)
    assert notes["rebuilt"] == [(1000 * bool(allowed), allowed)]
    assert h.is_open


def test_nobody_is_told_before_the_first_attempt_and_no_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[int, int]] = []

    def progress(what: str, done: int, of: int) -> bool:
        heard.append((done, of))
        return len(heard) < 4

    h, asked, notes, _ = hunted(monkeypatch, [no()] * 9, before=5, progress=progress)
    assert heard == [(6, 105), (15, 105), (16, 105), (25, 105)]
    assert (len(asked), notes["told_to_stop"], notes["nodes"], notes["attempts"]) == (2, True, 25, 4)
    assert (h.is_open, notes["rebuilt"]) == (True, [])
    heard.clear()
    h, asked, notes, _ = hunted(monkeypatch, [(HALTED, 3, None)], before=5, progress=progress)
    assert (len(asked), notes["told_to_stop"], notes["nodes"], notes["attempts"]) == (1, True, 8, 2)


def test_nothing_is_put_up_again_where_it_is_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hunted(monkeypatch, [no(100)])[2]["rebuilt"] == [(100, 100)]
    assert hunted(monkeypatch, [no(100)], rebuilds=False)[2]["rebuilt"] == []


def test_what_is_below_the_floor_is_no_bound_and_from_the_last_multiple_below_it_on_is_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another part needs 23 bytes anyway: 20 is the last multiple of the grain below."""
    h, asked, _, course = hunted(monkeypatch, [no(), no()], floor=23, budget=20)
    assert asked[0] == ("bound", 20, 20)
    assert (h.bound, h.proven(), course.floor, course.moments) == (20, 0, 23, [[0, 48, 16]])
    h, _, _, course = hunted(monkeypatch, [never()], floor=23, budget=10)
    assert (h.bound, h.proven(), course.moments) == (24, 24, [[0, 48, 16], [10, 48, 24]])


# --- part by part ------------------------------------------------------------------------------------------------

Outcome = tuple[int, int, int, bool]
"""Of a search that is only played: nodes, the extent and the bound after it, whether something is left to ask."""


class Parts:
    """Storages that never meet, begun at given extents, and what is asked of each where the outcomes are scripted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], alone: tuple[int, ...] = ()) -> None:
        self.cols = columns(problem(*((k, k + 1, size) for k, size in enumerate(sizes))))
        self.asked: list[tuple[Any, ...]] = []
        self.notes: dict[str, Any] = {"nodes": 0}
        greedy = dict(zip(sizes, alone, strict=False))
        monkeypatch.setattr(module, "hunt_for", self._hunt_for)
        monkeypatch.setattr(module, "search", self._search)
        monkeypatch.setattr(
            module,
            "best_greedy",
            lambda own, bound: SimpleNamespace(
                extent=greedy[own.size[0]], offset=[0], asked=self.asked.append("alone")
            ),
        )

    def _hunt_for(self, own: Columns, bound: int, floor: int, best: tuple[int, list[int]]) -> hunt.Hunt:
        self.asked.append(("hunt", own.size[0], bound, floor, best[0], best[1][0]))
        return hunt.Hunt(own, bound, floor, *best, [], None)

    def _search(self, asked_of: hunt.Hunt, asked: hunt.Asked) -> None:
        nodes, top, bound, is_open = next(self.script)
        self.asked.append(("search", asked_of.cols.size[0], asked.budget, asked.course.elsewhere, asked.course.proven))
        self.notes["nodes"] += abs(nodes)
        if nodes < 0:
            self.notes["told_to_stop"] = True
        asked_of.extent, asked_of.bound, asked_of.is_open = top, bound, is_open
        asked_of.offset = [top - asked_of.cols.size[0]]

    def lowered(self, extents: tuple[int, ...], outcomes: list[Outcome], **given: Any) -> tuple[int, bool, list[int]]:
        """The bound, whether it was cut short, and the extents of all parts."""
        self.script = iter(outcomes)
        offset = [extent_ - size for extent_, size in zip(extents, self.cols.size, strict=True)]
        whole = bound_of(self.cols)
        options = {"goal": 0, "budget": 90, "progress": None} | given
        course = hunt.Course(max(extents), whole.bytes)
        asked = hunt.Asked(**options, notes=self.notes, course=course)
        lower, stopped = module._in_parts(self.cols, whole, offset, asked)
        assert next(self.script, None) is None
        return lower, stopped, [at + size for at, size in zip(offset, self.cols.size, strict=True)]


def test_the_part_that_needs_most_comes_first_and_what_is_left_over_is_for_the_highest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts(monkeypatch, (20, 30, 10), (33, 50, 31))
    outcomes = [(30, 38, 32, True), (20, 34, 33, True), (40, 33, 25, True)]
    assert parts.lowered((35, 40, 30), outcomes) == (33, True, [33, 34, 30])
    assert parts.asked == [
        "alone",
        ("hunt", 30, 30, 30, 40, 10),
        ("search", 30, 30, 35, 30),
        # The others are no higher than 38, which is what this one takes.
        ("search", 30, 60, 35, 32),
        ("hunt", 20, 20, 34, 35, 15),
        ("search", 20, 40, 34, 33),
    ]
    assert parts.notes["parts"] == 3


def test_a_part_begins_where_greedy_lays_it_alone_if_that_is_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, (30, 20), (40, 37))
    assert parts.lowered((40, 38), [(10, 36, 36, False), (5, 37, 37, False)]) == (37, False, [36, 37])
    assert parts.asked == [
        "alone",
        ("hunt", 30, 30, 30, 40, 10),
        ("search", 30, 45, 38, 30),
        "alone",
        ("hunt", 20, 20, 36, 37, 0),
        ("search", 20, 80, 36, 36),
    ]
    parts = Parts(monkeypatch, (30, 20), (50, 38))
    assert parts.lowered((40, 38), [(10, 36, 36, False), (80, 38, 30, True)]) == (36, True, [36, 38])
    assert parts.asked[-2] == ("hunt", 20, 20, 36, 38, 18)
    assert parts.notes["parts"] == 2


def test_what_nothing_is_left_to_ask_of_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, (30, 20), (50, 50))
    assert parts.lowered((40, 45), [(10, 36, 36, False), (10, 38, 37, False)]) == (37, False, [36, 38])


def test_a_part_that_was_low_enough_is_taken_up_again_when_the_others_have_come_lower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts(monkeypatch, (30, 20), (50, 50))
    outcomes = [(10, 40, 30, True), (10, 40, 21, False), (10, 36, 30, True), (10, 35, 22, False), (10, 36, 36, False)]
    assert parts.lowered((44, 45), outcomes) == (36, False, [36, 35])
    assert parts.asked == [
        "alone",
        ("hunt", 30, 30, 30, 44, 14),
        ("search", 30, 45, 45, 30),
        "alone",
        ("hunt", 20, 20, 40, 45, 25),
        ("search", 20, 80, 40, 30),
        # Both take 40: the first of them that something is left to ask of.
        ("search", 30, 70, 40, 30),
        ("hunt", 20, 20, 36, 40, 20),
        ("search", 20, 60, 36, 30),
        ("search", 30, 50, 35, 30),
    ]


def test_where_it_is_told_to_stop_no_other_part_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    for many, extents in (((30, 20), (40, 45)), ((30, 20), (40, 35))):
        parts = Parts(monkeypatch, many, (50, 50))
        assert parts.lowered(extents, [(-10, 39, 30, True)]) == (30, True, [39, extents[1]])
        assert len([each for each in parts.asked if each != "alone"]) == 2


def test_of_one_part_nothing_is_said_and_what_is_left_over_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, (30,))
    assert parts.lowered((40,), [(10, 36, 31, True)]) == (31, True, [36])
    assert parts.asked == [("hunt", 30, 30, 30, 40, 10), ("search", 30, 90, 0, 30)]
    assert parts.notes == {"nodes": 10}


def test_parts_that_meet_the_goal_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, (30, 20), (50, 50))
    assert parts.lowered((40, 36), [(10, 36, 31, True)], goal=36) == (31, False, [36, 36])
    assert len(parts.asked) == 3
    parts = Parts(monkeypatch, (30, 20), (50, 50))
    assert parts.lowered((36, 37), [(10, 36, 21, True)], goal=36) == (30, False, [36, 36])


def test_what_is_spent_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch, (30, 20), (50, 50))
    assert parts.lowered((40, 35), [(89, 39, 30, True), (1, 38, 30, True)]) == (30, True, [38, 35])
    assert [each[2] for each in parts.asked if each[0] == "search"] == [45, 1]


def test_the_best_of_all_greedy_runs_is_begun_with_where_it_is_known() -> None:
    p = crowd(0, 12)
    cols = columns(p)
    at, total = [], 0
    for size in cols.size:
        at.append(-(-total // 8) * 8)
        total = at[-1] + size
    start = Best(at, total, "one", "upon another", 1, False, [])
    found = module.searched(cols, bound_of(cols), start, {"budget": 0}, None)
    assert (offsets(found), found.notes["start"], found.stopped) == (at, "one/upon another", False)


def test_what_is_left_open_is_gone_on_with_unless_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    cols = columns(FOUR)
    start = Best([0, 4, 8, 20], 24, "", "", 1, False, [])
    rebuilds: list[bool] = []
    monkeypatch.setattr(
        module, "_in_parts", lambda cols, bound, offset, asked: rebuilds.append(asked.rebuilds) or (16, False)
    )
    for options in ({}, {"rebuilds": False}, {"rebuilds": True}):
        module.searched(cols, bound_of(cols), start, options, None)
    assert rebuilds == [True, False, True]
