"""What the judge works out over columns, beside the plainest that says the same; and borders by eye."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.build import chain, graph, node, tensor, view
from tests.judge.faults import changed
from tests.judge.test_verifier import two_step_bytes
from tests.verdicts import broken
from tmmu_core.errors import U64_MAX, AlignmentViolation, AllocationOverflow, ContractError, InvalidIrShapes
from tmmu_core.graph.model import Arena, Graph
from tmmu_core.judge.against_graph import check_addresses, check_apart, check_ranges
from tmmu_core.judge.canonical import hash_of, token_from_seed
from tmmu_core.judge.facts import PlanFacts
from tmmu_core.judge.figures import check_arenas
from tmmu_core.judge.finding import MOST_PER_RULE, Finding, Verdict, shortened
from tmmu_core.judge.finished import _error, finished, refuse_invalid
from tmmu_core.judge.lives import lives_of
from tmmu_core.judge.lives.ranges import births, saved_tensors
from tmmu_core.judge.lives.storages import Storage
from tmmu_core.judge.places import _proven_by_slots
from tmmu_core.judge.rows import check_rows
from tmmu_core.judge.runs import Run, run_of
from tmmu_core.judge.simulator import Asked, Place, Slot, figures_of, simulate
from tmmu_core.judge.slotting import ends_end_to_end
from tmmu_core.judge.verifier import check_columns, check_configuration, check_handoffs, check_hashes, verify_plan
from tmmu_core.judge.whole import check_power_of_two, element_bytes
from tmmu_core.plan.making.engine import plan_graph
from tmmu_core.plan.model import Plan

JUDGED = range(0, 42, 3)


def sound(which: int) -> Iterator[Plan]:
    """Plans with one thing wrong whose columns can be looked up."""
    for _, plan in broken(which):
        if next(check_columns(plan), None) is None:
            yield plan


class Plainly:
    """Storages and slots of a plan in lists, row by row."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.end = plan, max(plan.steps, 1)
        rows: dict[int, list[int]] = {}
        for row, storage in enumerate(plan.storage.tolist()):
            rows.setdefault(storage, []).append(row)
        of = [rows[s] for s in sorted(rows)]
        birth, death = plan.birth.tolist(), plan.death.tolist()
        low, size = plan.offset.tolist(), plan.size.tolist()
        self.birth = [min(birth[r] for r in each) for each in of]
        self.death = [max(death[r] for r in each) for each in of]
        self.start = [min(low[r] for r in each) for each in of]
        self.stop = [max(low[r] + size[r] for r in each) for each in of]
        self.alignment = [max(1, *(int(plan.alignment[r]) for r in each)) for each in of]
        is_view = [base is not None for base in plan.base_tensor_uids]
        self.first = [min(each, key=lambda r: (birth[r], is_view[r], r)) for each in of]
        self.arena = [int(plan.arena[r]) for r in self.first]
        self.slot = [int(plan.logical_slot[r]) for r in self.first]
        self.granted: dict[int, tuple[int, int]] = {}
        for step, x, y in plan.handoffs:
            if x in plan.row_of and y in plan.row_of:
                a, b = (int(plan.storage[plan.row_of[name]]) for name in (x, y))
                self.granted |= {a: (step, b)} if a != b else {}
        self.read_until, self.held_until = list(self.death), list(self.death)
        for a, (step, b) in self.granted.items():
            self.read_until[a] = max(self.death[a], min(step + 1, self.end))
            over = (self.arena[a], self.start[a]) == (self.arena[b], self.start[b])
            self.held_until[a] = max(self.death[a], min(step, self.end)) if over else self.read_until[a]
        self.tenants: dict[tuple[int, int], list[int]] = {}
        for s in sorted(range(len(of)), key=lambda s: (self.birth[s], self.start[s])):
            self.tenants.setdefault((self.arena[s], self.slot[s]), []).append(s)
        self.slots = sorted(self.tenants)

    def backing(self, slot: tuple[int, int]) -> int:
        """Bytes of the largest tenant; one at the least where slots are placed."""
        return max(*(self.stop[s] - self.start[s] for s in self.tenants[slot]), int(self.plan.places != "bytes"), 0)

    def begins(self, slot: tuple[int, int]) -> int:
        """Where its lowest tenant begins."""
        return min(self.start[s] for s in self.tenants[slot])

    def meets(self) -> set[tuple[int, int]]:
        """Slots that begin before the one below them ends."""
        one = self.plan.places == "sparse"
        order = sorted(self.slots, key=lambda slot: (0 if one else slot[0], self.begins(slot), slot[1], slot[0]))
        return {
            above
            for below, above in pairwise(order)
            if (one or below[0] == above[0]) and self.begins(above) < self.begins(below) + self.backing(below)
        }

    def proven(self) -> bool:
        """Whether slots alone show that nobody shares a byte: every two in one slot follow each other, at its start."""
        for slot, tenants in self.tenants.items():
            if any(self.start[s] != self.begins(slot) for s in tenants):
                return False
            for a, b in pairwise(tenants):
                given = self.granted.get(a) == (self.birth[b], b) and self.death[a] <= self.birth[b]
                if self.read_until[a] > self.birth[b] and not given:
                    return False
        return not self.meets()


@pytest.mark.parametrize("which", JUDGED)
def test_what_is_gathered_of_a_plan_is_what_its_rows_say(which: int) -> None:
    for plan in sound(which):
        facts, plainly = PlanFacts(plan), Plainly(plan)
        for column in ("birth", "death", "start", "stop", "alignment", "arena", "slot", "read_until", "held_until"):
            assert getattr(facts, column).tolist() == getattr(plainly, column), column
        assert facts.first_row.tolist() == plainly.first
        assert (facts.storages, facts.end, facts.granted) == (len(plainly.first), plainly.end, plainly.granted)
        slots = facts.slots
        keys = list(zip(slots.arena.tolist(), slots.number.tolist(), strict=True))
        assert keys == plainly.slots
        assert slots.start.tolist() == [plainly.begins(slot) for slot in keys]
        assert slots.backing.tolist() == [plainly.backing(slot) for slot in keys]
        assert slots.tenants.tolist() == [len(plainly.tenants[slot]) for slot in keys]
        assert [keys[k] for k in facts.slot_of.tolist()] == list(zip(plainly.arena, plainly.slot, strict=True))
        assert {keys[k] for k in np.flatnonzero(facts.slots_meet)} == plainly.meets()
        assert _proven_by_slots(facts) == plainly.proven()
        for arena in range(len(plan.arenas)):
            here = [s for s, other in enumerate(plainly.arena) if other == arena]
            for until in (plainly.death, plainly.held_until):
                together = [sum(plainly.birth[s] <= step < until[s] for s in here) for step in range(plainly.end)]
                assert facts.most_together(arena, np.array(until, np.int64)) == max(together)
            live = [
                sum(plainly.stop[s] - plainly.start[s] for s in here if plainly.birth[s] <= t < plainly.held_until[s])
                for t in range(plainly.end)
            ]
            assert facts.peak_together(np.array(here, np.int64)) == (live.index(max(live)), max(live))


def test_some_plans_are_proven_by_their_slots_and_some_are_not() -> None:
    assert {Plainly(plan).proven() for which in (0, 6) for plan in sound(which)} == {False, True}


# -- by eye: who lives when --------------------------------------------------------------------------------------------


def run(g: Graph, mode: Any = "inference", preset: Any = "inference") -> Run:
    return run_of(g, mode, preset, None, None)


@pytest.mark.parametrize(("marked", "saved"), [("v", {"v", "x"}), ("w", {"w", "x"}), ("x", {"x"}), ("", set())])
def test_who_saves_a_view_saves_what_it_looks_into(marked: str, saved: set[str]) -> None:
    tensors = [tensor("x"), view("v", "x", 2), view("w", "v", 1), tensor("y")]
    tensors = [msgspec.structs.replace(t, saved_for_backward=t.id == marked) for t in tensors]
    g = graph(tensors, [node("f", "", "x"), node("g", "x", "y")], "", "y")
    assert saved_tensors(run(g, "forward", "train_full")) == saved
    assert saved_tensors(run(g)) == frozenset()


def test_a_view_of_what_it_reads_takes_nothing_over() -> None:
    """``v`` is of x's storage already: nobody hands anything on, and nobody is refused."""
    g = graph(
        [tensor("x"), view("v", "x"), tensor("y")], [node("f", "", "x"), node("g", "x", "v"), node("h", "v", "y")]
    )
    lives = lives_of(run(g))
    assert lives.judge.candidates(1, g.nodes[1]) == []
    assert lives.handoffs == ((2, "v", "y"),) or lives.refusals[0][:3] == (2, "v", "y")
    assert all(step != 1 for step, *_ in (*lives.handoffs, *lives.refusals))


@pytest.mark.parametrize(("of_x", "of_y"), [((), ("x",)), (("y",), ()), (("y",), ("x",))])
def test_what_must_lie_apart_is_not_written_over_whoever_of_the_two_says_so(
    of_x: tuple[str, ...], of_y: tuple[str, ...]
) -> None:
    tensors = [tensor("x", must_not_alias=of_x), tensor("y", must_not_alias=of_y)]
    g = graph(tensors, [node("f", "", "x"), node("g", "x", "y", in_place_write=((0, 0),))], "", "y")
    with pytest.raises(InvalidIrShapes) as refused:
        lives_of(run(g))
    assert refused.value.record()["diagnostics"]["condition"] == "must_not_alias"


def test_views_of_what_is_written_in_place_lie_with_it() -> None:
    """``v`` looks 8 bytes into y, y is written over the view ``w``, which begins 16 bytes into x."""
    tensors = [tensor("x", 16), view("w", "x", 4, 16), tensor("y", 4), view("v", "y", 1, 8), tensor("z")]
    nodes = [
        *(node("f", "", "x"), node("g", "x", "w"), node("h", "w", "y", in_place_write=((0, 0),))),
        *(node("i", "y", "v"), node("j", "v", "z")),
    ]
    lives = lives_of(run(graph(tensors, nodes, "", "z")))
    assert {name: lives.offset[name] for name in "xwyv"} == {"x": 0, "w": 16, "y": 16, "v": 24}
    assert {lives.storage_of[name] for name in "xwyv"} == {"x"}


def test_a_view_that_nobody_writes_is_there_where_what_it_looks_at_is() -> None:
    """``p`` looks at ``q``, which a node of the backward pass writes: in inference neither is there."""
    tensors = [
        *(tensor("x"), view("a", "x"), view("b", "a"), tensor("y"), view("q", "x"), view("p", "q"), view("o", "p")),
        tensor("g", role="gradient"),
    ]
    nodes = [node("f", "", "x"), node("h", "b", "y"), node("k", "x", "q g", phase="backward")]
    g = graph(tensors, nodes, "", "y")
    assert births(run(g)) == {"x": 0, "a": 0, "b": 0, "y": 1}
    assert births(run(g, "backward", "train_full")) == {
        **dict.fromkeys("xab", 0),
        "y": 1,
        **dict.fromkeys("qg", 2),
        **dict.fromkeys("po", 0),
    }


@pytest.mark.parametrize(
    ("alignment", "fine"), [(0, False), (-2, False), (1, True), (3, False), (6, False), (4096, True)]
)
def test_an_alignment_is_a_power_of_two(alignment: int, fine: bool) -> None:
    if fine:
        return check_power_of_two(alignment, "x")
    with pytest.raises(AlignmentViolation):
        check_power_of_two(alignment, "x")
    return None


def test_an_alignment_has_64_bits() -> None:
    check_power_of_two(1 << 63, "x")
    with pytest.raises(AlignmentViolation):
        check_power_of_two(1 << 64, "x")


@pytest.mark.parametrize(
    ("dtype", "width"), [("int4", 1), ("int8", 1), ("float16", 2), ("float32", 4), ("complex128", 16)]
)
def test_an_element_has_a_byte_at_the_least(dtype: str, width: int) -> None:
    assert element_bytes(tensor("x", 7, dtype=dtype)) == width


# -- by eye: the simulator ---------------------------------------------------------------------------------------------


def test_what_is_not_asked_for_is_as_the_contract_has_it() -> None:
    g = chain(2)
    assert simulate(g, Asked(mode="inference", preset="inference")).replay_token == token_from_seed(0)
    spec = {"axis": 1}
    asked = Asked(mode="inference", preset="inference", shard_spec=spec, token=b"t" * 32)
    assert (simulate(g, asked).shard_spec_hash, simulate(g, asked).replay_token) == (hash_of(spec), b"t" * 32)
    assert simulate(g, Asked(mode="inference", preset="inference")).shard_spec_hash == hash_of({})


@pytest.mark.parametrize(("extent", "page", "fine"), [(8, U64_MAX, True), (8, 2**63, True), (2**63 + 1, 2**63, False)])
def test_committed_bytes_have_64_bits(extent: int, page: int, fine: bool) -> None:
    storage = Storage("x", ("x",), "a", 0, 1, 8, 1, (0, -8, b"x"))
    place = Place("a", Arena(page_size=page), [Slot("a", 0, (storage,), extent, 1, 0)], [storage])
    if fine:
        assert figures_of(place, {"x": 1}, 1).committed_bytes == page
    else:
        with pytest.raises(AllocationOverflow):
            figures_of(place, {"x": 1}, 1)


# -- by eye: rules of a plan alone -------------------------------------------------------------------------------------


def messages(found: Any, rule: str) -> list[str]:
    return [finding.message for finding in found if finding.rule == rule]


def test_a_view_is_of_another_row_of_its_own_storage() -> None:
    g = graph([tensor("x", role="input"), view("v", "x"), tensor("y")], [node("n", "v", "y", inplace="none")], "x", "y")
    plan = plan_graph(g).plan
    row = plan.row_of["v"]
    other = changed(plan, "storage", row, int(plan.storage[plan.row_of["y"]]))
    assert messages(check_rows(PlanFacts(other)), "row") == ['"v" is a view of "x", which is another storage.']
    itself = replace(plan, base_tensor_uids=tuple("v" if k == row else None for k in range(len(plan))))
    assert messages(check_rows(PlanFacts(itself)), "row") == ['"v" is a view of "v", which it is itself.']
    nobody = replace(plan, base_tensor_uids=tuple("u" if k == row else None for k in range(len(plan))))
    assert messages(check_rows(PlanFacts(nobody)), "row") == ['"v" is a view of "u", which has no row.']
    assert messages(check_rows(PlanFacts(plan)), "row") == []


def test_in_a_timeline_of_no_steps_what_is_there_lives_for_one() -> None:
    plan = plan_graph(Graph(tensors=(tensor("w", role="parameter"),))).plan
    assert plan.steps == 0
    assert list(check_columns(plan)) == []
    assert len(messages(check_columns(changed(plan, "death", 0, 2)), "range")) == 1


@pytest.mark.parametrize(
    ("column", "name", "by"),
    [("", "", 0), ("death", "a", -1), ("death", "v", 1), ("birth", "b", 1), ("birth", "w", -1)],
)
def test_both_rows_and_both_storages_end_and_begin_at_a_hand_off(column: str, name: str, by: int) -> None:
    """Where a row of the storage ends later, or the taker's is there before, one of the four is amiss."""
    g = graph(
        [tensor("x", role="input"), tensor("a"), view("v", "a"), tensor("b"), view("w", "b"), tensor("y")],
        [
            node("n0", "x", "a"),
            node("n1", "a", "v"),
            node("n2", "v", "b", inplace="none"),
            node("n3", "b", "w"),
            node("n4", "w", "y", inplace="none"),
        ],
        "x",
        "y",
    )
    plan = plan_graph(g).plan
    step = int(plan.birth[plan.row_of["b"]])
    for each in ("a", "v"):
        plan = changed(plan, "death", plan.row_of[each], step)
    for each in ("b", "w"):
        plan = changed(plan, "birth", plan.row_of[each], step)
    plan = replace(plan, handoffs=((step, "a", "b"),), taken=(True,))
    if name:
        row = plan.row_of[name]
        plan = changed(plan, column, row, int(getattr(plan, column)[row]) + by)
    found = [m for m in messages(check_handoffs(PlanFacts(plan)), "handoff") if "but dies at" in m]
    assert bool(found) == bool(name)


@pytest.mark.parametrize(
    ("length", "places", "fine"),
    [
        (64, "sparse", True),
        (63, "sparse", False),
        (64, "bytes", False),
        (32, "bytes", True),
        (32, "sparse", True),
        (65, "sparse", True),
    ],
)
def test_a_token_has_32_bytes_or_is_a_drafts_of_64(length: int, places: Any, fine: bool) -> None:
    plan = replace(plan_graph(chain(2)).plan, places=places, replay_token=b"t" * length)
    found = messages(check_hashes(PlanFacts(plan), None), "hash")
    assert (f"replay_token has {length} bytes, not 32." not in found) == fine


@pytest.mark.parametrize(("extent", "amiss"), [(-5, True), (0, True), (15, True), (16, False)])
def test_an_arena_of_no_bytes_has_none(extent: int, amiss: bool) -> None:
    plan = plan_graph(graph([tensor("x", role="input")], [], "x")).plan
    plan = replace(plan, arenas=(replace(plan.arenas[0], extent_bytes=extent),))
    assert bool(messages(check_arenas(PlanFacts(plan)), "bounds")) == amiss
    one_byte = changed(plan, "size", 0, 1)
    assert bool(messages(check_arenas(PlanFacts(one_byte)), "bounds")) == (extent <= 0)


@pytest.mark.parametrize(("declared", "offset", "amiss"), [(256, 128, True), (256, 256, False), (None, 128, False)])
def test_a_tensor_lies_at_a_multiple_of_what_it_asks_for(declared: int | None, offset: int, amiss: bool) -> None:
    g = graph(
        [tensor("x", role="input", alignment=declared), tensor("y")], [node("n", "x", "y", inplace="none")], "x", "y"
    )
    plan = plan_graph(g).plan
    moved = changed(plan, "offset", plan.row_of["x"], offset)
    found = messages(check_addresses(moved, lives_of(run(g))), "address")
    assert bool(found) == amiss


@pytest.mark.parametrize(
    ("offset", "places", "amiss"), [(0, "bytes", False), (256, "bytes", False), (64, "bytes", True)]
)
def test_a_taker_lies_where_its_giver_lay_or_apart_from_it(offset: int, places: Any, amiss: bool) -> None:
    _, plan = two_step_bytes(offset, 128 if offset == 64 else 256)
    assert plan.handoffs == ((1, "a", "b"),)
    found = messages(check_handoffs(PlanFacts(replace(plan, places=places))), "handoff")
    assert ('"b" does not lie exactly where "a" lay.' in found) == amiss


def test_what_is_there_from_the_start_takes_over_nobodys_place() -> None:
    """``w`` is a parameter that a node writes: it has its bytes before ``x`` is read for the last time."""
    g = graph(
        [tensor("x", role="input"), tensor("w", role="parameter", arena="activations")], [node("n", "x", "w")], "x"
    )
    lives = lives_of(run(g))
    assert (lives.handoffs, lives.refusals) == ((), ((1, "x", "w", "alias_live"),))
    assert [(r.step, r.source, r.target, r.condition) for r in plan_graph(g).liveness.refusals] == [
        (1, "x", "w", "alias_live")
    ]


@pytest.mark.parametrize(("by", "step"), [(-1, 0), (1, 1)])
def test_a_false_life_is_told_from_the_earlier_of_the_two_births(by: int, step: int) -> None:
    g = chain(3)
    plan = plan_graph(g).plan
    born = changed(plan, "birth", plan.row_of["t1"], 1 + by)
    (found,) = check_ranges(born, lives_of(run(g)))
    assert (found.step, found.tensor) == (step, "t1")
    assert list(check_ranges(plan, lives_of(run(g)))) == []


@pytest.mark.parametrize(
    ("offset", "slot", "arena", "amiss"),
    [(16, 1, 0, False), (15, 1, 0, True), (0, 1, 0, True), (16, 0, 0, True), (0, 0, 1, False)],
)
def test_what_must_lie_apart_has_neither_a_byte_nor_a_slot_in_common(
    offset: int, slot: int, arena: int, amiss: bool
) -> None:
    tensors = [tensor("x", must_not_alias=("y",)), tensor("y"), tensor("w", role="parameter")]
    g = graph(tensors, [node("f", "w", "x", inplace="none"), node("g", "x", "y", inplace="none")], "", "y")
    plan = plan_graph(g).plan
    rows = plan.row_of
    for column, values in (("offset", (0, offset)), ("logical_slot", (0, slot)), ("arena", (0, arena))):
        for name, value in zip("xy", values, strict=True):
            plan = changed(plan, column, rows[name], value)
    found = list(check_apart(plan, lives_of(run(g))))
    assert [(f.tensor, f.other) for f in found] == ([("x", "y")] if amiss else [])


def test_what_must_lie_apart_ends_where_its_largest_part_does() -> None:
    tensors = [tensor("x", 8, must_not_alias=("y",)), view("v", "x"), tensor("y"), tensor("w", role="parameter")]
    nodes = [node("f", "w", "x", inplace="none"), node("g", "v", "y", inplace="none")]
    g = graph(tensors, nodes, "", "y")
    plan = plan_graph(g).plan
    for name, slot in (("x", 0), ("v", 0), ("y", 1)):
        plan = changed(plan, "logical_slot", plan.row_of[name], slot)
    for at, amiss in ((31, True), (32, False)):  # x has 32 bytes, its view the first 16
        placed = plan
        for name, offset in (("x", 0), ("v", 0), ("y", at)):
            placed = changed(placed, "offset", plan.row_of[name], offset)
        assert bool(list(check_apart(placed, lives_of(run(g))))) is amiss


def test_a_view_of_the_first_row_is_said_to_lie_in_another_storage() -> None:
    g = graph([tensor("a", role="input"), view("v", "a"), tensor("y")], [node("n", "v", "y", inplace="none")], "a", "y")
    plan = plan_graph(g).plan
    other = changed(plan, "storage", plan.row_of["v"], int(plan.storage[plan.row_of["y"]]))
    assert plan.row_of["a"] == 0
    assert messages(check_rows(PlanFacts(other)), "row") == ['"v" is a view of "a", which is another storage.']


# -- by eye: what is raised for a plan that does not verify ------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "code", "about"),
    [
        ("overlap", "ADDRESS_COLLISION", {"logical_slot": 0, "other": "t2"}),
        ("alignment", "ALIGNMENT_VIOLATION", {"logical_slot": 0}),
        ("bounds", "ARENA_TOO_SMALL", {"capacity": 16, "required": 16}),
        ("capacity", "ARENA_TOO_SMALL", {"capacity": U64_MAX, "required": 16}),
        ("slot", "INVALID_IR_SHAPES", {"reason": "invalid_plan"}),
    ],
)
@pytest.mark.parametrize("tensor_id", ["t1", ""])
def test_a_finding_is_raised_as_what_it_is(rule: str, code: str, about: dict[str, Any], tensor_id: str) -> None:
    plan = plan_graph(chain(2)).plan
    found = Finding(rule, "error", "it is so.", tensor=tensor_id, other="t2", arena="activations", step=1)
    error = _error(plan, found, "OPERATOR")
    record = error.record()
    said = {**about, "logical_slot": "unknown"} if "logical_slot" in about and not tensor_id else about
    assert record["code_id"] == code
    assert {key: record["diagnostics"].get(key, record.get(key)) for key in said} == said
    assert (record["t"], record["diagnostics"]["rule"]) == (1, rule)
    elsewhere = replace(found, arena="nowhere")
    expected = "INVALID_IR_SHAPES" if rule in ("bounds", "capacity") else code
    assert _error(plan, elsewhere, "OPERATOR").record()["code_id"] == expected


def test_the_worst_of_several_is_raised() -> None:
    plan = plan_graph(chain(2)).plan
    rules = ["slot", "alignment", "capacity", "bounds", "overlap"]
    for k in range(1, len(rules) + 1):
        findings = tuple(Finding(rule, "error", rule, arena="activations") for rule in rules[:k])
        with pytest.raises(ContractError) as caught:
            refuse_invalid(plan, "OPERATOR", Verdict(findings, (), ()))
        assert caught.value.record()["diagnostics"]["rule"] == rules[k - 1]
        assert caught.value.record()["diagnostics"]["findings"] == k
    refuse_invalid(plan, "OPERATOR", Verdict((), (), ()))
    refuse_invalid(plan, "OPERATOR")


def test_an_invalid_plan_proves_nothing_of_any_arena() -> None:
    g = graph(
        [tensor("x", role="input"), tensor("w", role="parameter"), tensor("y")], [node("n", "x w", "y")], "x", "y"
    )
    plan = plan_graph(g).plan
    assert finished(plan, g).plan is plan
    wrong = replace(plan, layout_hash=bytes(32))
    found = finished(wrong, g)
    assert (found.ok, {arena.status for arena in found.plan.arenas}) == (False, {"invalid"})
    digest = finished(wrong, g, complete=False)
    assert digest.ok
    assert digest.verdict.checked == ("extent", "capacity", "figures", "hash", "held")


@pytest.mark.parametrize(
    ("sizes", "grid", "ends"), [((), 4, {0}), ((5,), 4, {5}), ((5, 4), 4, {12}), ((5, 0, 3), 4, {13}), ((4, 4), 1, {8})]
)
def test_where_slots_end_to_end_would_end(sizes: tuple[int, ...], grid: int, ends: set[int]) -> None:
    tensors = [tensor(f"t{k}", size, role="input", dtype="uint8") for k, size in enumerate(sizes)]
    g = graph(tensors, [], " ".join(t.id for t in tensors))
    plan = plan_graph(g, arenas={"activations": {"alignment_bytes": grid}}).plan
    assert verify_plan(plan, g).ok
    assert ends_end_to_end(PlanFacts(plan), 0) == ends


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({}, []),
        ({"activations": Arena()}, []),
        ({"activations": {}}, []),
        ({"activations": {"capacity_bytes": 9}}, ["capacity_bytes"]),
        ({"activations": Arena(page_size=1, alignment_bytes=1)}, ["alignment_bytes", "page_size"]),
        ({"elsewhere": {"capacity_bytes": 9}}, []),
    ],
)
def test_arenas_are_as_configured_or_else_as_by_default(said: dict[str, Any], wrong: list[str]) -> None:
    found = check_configuration(plan_graph(chain(2)).plan, said)
    assert [
        name for f in found for name in ("capacity_bytes", "alignment_bytes", "page_size") if name in f.message
    ] == wrong


@pytest.mark.parametrize("more", [-1, 0, 1, 1234])
def test_of_one_rule_so_many_findings_are_kept_and_the_others_counted(more: int) -> None:
    many = [Finding("a", "warning", str(k)) for k in range(MOST_PER_RULE + more)]
    found = shortened([*many, Finding("b", "error", "one")])
    rest = [Finding("a", "warning", f"… and {more:,} more findings of this rule.")] if more > 0 else []
    assert found == (*many[:MOST_PER_RULE], Finding("b", "error", "one"), *rest)
