"""Placements with constraints and reuse penalties, against brute force and under injected faults."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any

import numpy as np
import pytest

import tmmu
from benchmarks import checker
from tests.judge import all_pairs
from tests.judge.relation_pairs import relation_faults
from tests.planners.alike import costly, costly_problem
from tests.planners.packings import problem
from tmmu_core.base.errors import AllocationOverflow, ArenaTooSmall, ContractError, UnreadableInput
from tmmu_core.formats import structured_problem
from tmmu_core.formats.open_file import read_any
from tmmu_core.formats.planfile import trace
from tmmu_core.formats.planfile.plan_file import to_instance, to_json
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.planners import ARENA_PLANNERS
from tmmu_core.planners.problem import PlainInstance, Problem, ReuseTerms
from tmmu_core.planners.reuse import cost_bound, local_search
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.making.make import make_plan
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.model import Constraints, Plan

KINDS = ("separations", "colocations", "temporal_exclusions", "pinned_allocations", "reserved", "intervals", "empty")
CAPACITY = 7


def document(rng: Random, kinds: tuple[str, ...], buffers: int = 4) -> dict[str, Any]:
    """Return a small random structured problem with some kinds of constraints, and penalties."""
    rows = []
    for k in range(buffers):
        lower = rng.randrange(6)
        lives = [{"lower": lower, "upper": lower + rng.randint(1, 3)}]
        if "intervals" in kinds and rng.random() < 0.5:
            lives.append({"lower": lives[0]["upper"] + 1, "upper": lives[0]["upper"] + 2})
        size, alignment = rng.randint("empty" not in kinds, 3), rng.choice((1, 1, 2))
        row = {"id": k, "name": f"b{k}", "size": size, "alignment": alignment, "live_intervals": lives}
        rows.append(row | {"allowed_pools": [0]})
    pairs = [{"first": a, "second": b} for a, b in combinations(range(buffers), 2)]
    some = {kind: rng.sample(pairs, 1 + ("empty" in kinds)) if kind in kinds else [] for kind in KINDS[:3]}
    pin = {"buffer": rng.randrange(buffers), "pool": 0, "offset": 2 * rng.randrange(2)}
    pins = [{**pin, "exclusive_for_all_time": rng.random() < 0.3}] if "pinned_allocations" in kinds else []
    reserved = [{"begin": 3, "end": 4}] if "reserved" in kinds else []
    penalties = [{**pair, "cost": rng.randint(1, 4), "reason": "generic"} for pair in pairs if rng.random() < 0.7]
    return {
        "schema_version": 1,
        "profile": "pypto_research_v1",
        "instance": "random",
        "problem": {
            "pools": [{"id": 0, "name": "UB", "capacity": CAPACITY, "reserved_ranges": reserved}],
            "buffers": rows,
            "constraints": {**some, "pinned_allocations": pins},
            "cost_model": {"reuse_penalties": penalties},
        },
    }


def instance_of(found: dict[str, Any]) -> PlainInstance:
    return structured_problem.read(json.dumps(found).encode(), "random.json")


def least_cost(found: dict[str, Any]) -> tuple[int, int] | None:
    """Return the least cost over all offsets and its least extent; ``None`` if no placement is valid."""
    problem = found["problem"]
    rows, limits = problem["buffers"], problem["constraints"]
    apart = {(c["first"], c["second"]) for c in limits["separations"]}
    for pin in limits["pinned_allocations"]:
        if pin["exclusive_for_all_time"]:
            apart |= {tuple(sorted((pin["buffer"], k))) for k in range(len(rows)) if k != pin["buffer"]}
    free = {(c["first"], c["second"]) for c in limits["temporal_exclusions"]}

    def together(a: int, b: int) -> bool:
        lives = product(rows[a]["live_intervals"], rows[b]["live_intervals"])
        return any(x["lower"] < y["upper"] and y["lower"] < x["upper"] for x, y in lives)

    hard = {(a, b) for a, b in combinations(range(len(rows)), 2) if together(a, b)} - free | apart
    fixed = {pin["buffer"]: pin["offset"] for pin in limits["pinned_allocations"]}
    busy = {byte for r in problem["pools"][0]["reserved_ranges"] for byte in range(r["begin"], r["end"])}
    places = [
        [
            at
            for at in ([fixed[k]] if k in fixed else range(0, CAPACITY - row["size"] + 1, row["alignment"]))
            if at % row["alignment"] == 0
            and at + row["size"] <= CAPACITY
            and busy.isdisjoint(range(at, at + row["size"]))
        ]
        for k, row in enumerate(rows)
    ]
    best: tuple[int, int] | None = None
    for offsets in product(*places):
        share = {
            (a, b)
            for a, b in combinations(range(len(rows)), 2)
            if max(offsets[a], offsets[b]) < min(offsets[a] + rows[a]["size"], offsets[b] + rows[b]["size"])
        }
        if share & hard or any(offsets[c["first"]] != offsets[c["second"]] for c in limits["colocations"]):
            continue
        cost = sum(c["cost"] for c in problem["cost_model"]["reuse_penalties"] if (c["first"], c["second"]) in share)
        extent = max((at + row["size"] for at, row in zip(offsets, rows, strict=True) if row["size"]), default=0)
        best = min(best or (cost, extent), (cost, extent))
    return best


COMBINATIONS = [kinds for n in range(len(KINDS) + 1) for kinds in combinations(KINDS, n)]


@pytest.mark.parametrize("kinds", COMBINATIONS, ids=lambda kinds: "+".join(kinds) or "penalties")
def test_least_cost_is_that_of_brute_force(kinds: tuple[str, ...]) -> None:
    rng = Random(repr(kinds))
    for _ in range(4):
        found = document(rng, kinds)
        least_found = least_cost(found)
        try:
            plan = plan_problem(instance_of(found), planner="reuse")
        except ContractError as error:
            assert least_found is None
            given = error.diagnostics
            assert given.get("proven") or given.get("reason") == "constraints"
            continue
        assert least_found == (plan.arenas[0].reuse_cost, plan.arenas[0].extent_bytes)
        least = least_found[0]
        assert plan.arenas[0].reuse_cost_lower_bound == least
        verdict = verify_plan(plan)
        assert verdict.ok, verdict.findings
        assert verdict.arenas[0].reuse_cost_lower_bound == least
        assert not [*all_pairs.faults(plan), *relation_faults(plan)]
        offset = {k: int(plan.offset[plan.row_of[f"b{k}"]]) for k in range(4)}
        assert not list(checker.violations(found["problem"], offset))
        assert checker.cost(found["problem"], offset) == least


def plans(kinds: tuple[str, ...] = ()) -> Iterator[Plan]:
    rng = Random(7)
    while True:
        try:
            yield plan_problem(instance_of(document(rng, kinds)), planner="reuse")
        except ContractError:
            continue


def bytes_of(plan: Plan, name: str) -> range:
    row = plan.row(plan.row_of[name])
    return range(row.offset_bytes, row.offset_bytes + row.size_bytes)


def pairs_of(plan: Plan, sharing: bool) -> list[tuple[str, str]]:
    pairs = combinations(plan.tensor_ids, 2)
    return [(a, b) for a, b in pairs if bool(set(bytes_of(plan, a)) & set(bytes_of(plan, b))) == sharing]


def changed(plan: Plan, **terms: Any) -> Plan:
    fields = {name: getattr(plan.constraints, name) for name in Constraints.__struct_fields__}
    return replace(plan, constraints=Constraints(**(fields | terms)))


def separation_faults(plan: Plan) -> Iterator[Plan]:
    for pair in pairs_of(plan, sharing=True):
        yield changed(plan, separations=(pair,))


def colocation_faults(plan: Plan) -> Iterator[Plan]:
    for a, b in combinations(plan.tensor_ids, 2):
        if bytes_of(plan, a).start != bytes_of(plan, b).start:
            yield changed(plan, colocations=((a, b),))


def pin_faults(plan: Plan) -> Iterator[Plan]:
    for name in plan.tensor_ids:
        yield changed(plan, pinned={name: bytes_of(plan, name).start + 1})


def reserved_faults(plan: Plan) -> Iterator[Plan]:
    for name in plan.tensor_ids:
        for byte in bytes_of(plan, name):
            yield changed(plan, reserved={"UB": ((byte, byte + 1),)})


def cost_faults(plan: Plan) -> Iterator[Plan]:
    for pair in pairs_of(plan, sharing=True):
        assert plan.constraints is not None
        yield changed(plan, reuse_penalties=(*plan.constraints.reuse_penalties, (*pair, 5)))
    for wrong in (-1, 1):
        arenas = tuple([replace(arena, reuse_cost=(arena.reuse_cost or 0) + wrong) for arena in plan.arenas])
        yield replace(plan, arenas=arenas)


def bound_faults(plan: Plan) -> Iterator[Plan]:
    arenas = tuple([replace(arena, reuse_cost_lower_bound=(arena.reuse_cost or 0) + 1) for arena in plan.arenas])
    yield replace(plan, arenas=arenas)


def exclusion_faults(plan: Plan) -> Iterator[Plan]:
    assert plan.constraints is not None
    for a, b in plan.constraints.exclusions:
        one, two = plan.row(plan.row_of[a]), plan.row(plan.row_of[b])
        if (a, b) in pairs_of(plan, sharing=True) and one.birth < two.death and two.birth < one.death:
            yield changed(plan, exclusions=())


def unknown_name_faults(plan: Plan) -> Iterator[Plan]:
    for field in ("separations", "colocations", "exclusions"):
        yield changed(plan, **{field: ((plan.tensor_ids[0], "nobody"),)})
    yield changed(plan, reuse_penalties=((plan.tensor_ids[0], "nobody", 1),))


def self_pair_faults(plan: Plan) -> Iterator[Plan]:
    for name in plan.tensor_ids:
        for field in ("separations", "colocations", "exclusions"):
            yield changed(plan, **{field: ((name, name),)})
        yield changed(plan, reuse_penalties=((name, name, 1),))


FAULTS: dict[str, tuple[Callable[[Plan], Iterator[Plan]], str, tuple[str, ...]]] = {
    "separation": (separation_faults, "constraint", ()),
    "colocation": (colocation_faults, "constraint", ()),
    "pin": (pin_faults, "constraint", ()),
    "reserved range": (reserved_faults, "constraint", ()),
    "exclusion": (exclusion_faults, "overlap", ("temporal_exclusions",)),
    "cost": (cost_faults, "reuse_cost", ()),
    "bound": (bound_faults, "reuse_cost", ()),
    "unknown name": (unknown_name_faults, "constraint", ()),
    "pair of one": (self_pair_faults, "constraint", ()),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_verifier_finds_every_injected_fault(kind: str) -> None:
    inject, rule, kinds = FAULTS[kind]
    injected = 0
    for plan in plans(kinds):
        for wrong in inject(plan):
            injected += 1
            assert rule in {finding.rule for finding in verify_plan(wrong).errors}
        if injected >= 200:
            break


def test_forged_cost_bound_is_claimed() -> None:
    packed = tmmu.pack([0, 5], [5, 9], [4, 4], reuse_penalties=[[0, 1, 3]], capacity=8).plan
    assert packed.arenas[0].reuse_cost == 0
    wasteful = replace(packed, offset=packed.offset * 0)
    for witness in (None, (("0", "1"),), (("0", "nobody"),)):
        arena = replace(packed.arenas[0], reuse_cost=3, reuse_cost_lower_bound=3, reuse_cost_witness=witness)
        certificate = verify_plan(replace(wasteful, arenas=(arena,))).arenas[0]
        assert (certificate.status, certificate.reuse_cost_lower_bound) == ("claimed", 0)


def searched(found: Problem) -> list[object]:
    try:
        return costly(found)
    except ContractError as error:
        return [str(error), 0, 0, 0]


def test_native_and_plain_search_return_the_same_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds 5062 and 5144: only a packing that reuses bytes in place fits the capacity."""
    problems = [costly_problem(seed) for seed in (5062, 5144, *range(20))]
    problems += [instance_of(document(Random(k), COMBINATIONS[3 * k], 3 + k % 7)).problem for k in range(40)]
    native = [searched(each) for each in problems]
    assert all(bound <= cost for _, bound, _, cost in native)
    for module in (local_search, cost_bound):
        monkeypatch.setattr(module, "library", lambda: None)
    assert native == [searched(each) for each in problems]


def test_penalties_past_the_range_of_the_search_are_rejected() -> None:
    with pytest.raises(ContractError, match=r"2\^61"):
        tmmu.pack([0, 4], [4, 8], [4, 4], capacity=7, reuse_penalties=[[0, 1, 2**62], [1, 0, 2**62]])
    assert tmmu.pack([0, 4], [4, 8], [2**61, 2**61], separations=[[0, 1]]).extent_bytes == 2**62


@pytest.mark.parametrize("offset", [2**61, 2**62])
def test_offset_past_the_range_of_the_search_is_no_proof(offset: int) -> None:
    with pytest.raises(AllocationOverflow, match="'arena'"):
        tmmu.pack([0, 0], [4, 4], [4, 4], pinned={0: offset}, colocations=[[0, 1]], separations=[[0, 1]])


def test_reserved_range_past_the_capacity_proves_no_extent() -> None:
    found = document(Random(0), (), 2)
    found["problem"]["pools"][0]["reserved_ranges"] = [{"begin": 100, "end": 200}]
    for row in found["problem"]["buffers"]:
        row |= {"size": 4, "alignment": 1, "live_intervals": [{"lower": 0, "upper": 4}]}
    with pytest.raises(ContractError, match=r" 7 B.* 8 B"):
        plan_problem(instance_of(found), planner="reuse")


def test_infeasible_in_place_reuse_beside_a_colocation_is_rejected() -> None:
    terms = ReuseTerms(colocations=((1, 2),))
    chain = problem((0, 4, 4), (0, 4, 4), (4, 8, 4), capacity=7, handoff_from=np.array([-1, -1, 0]), reuse=terms)
    with pytest.raises(ArenaTooSmall, match="8 B"):
        ARENA_PLANNERS["reuse"].pack(chain, {})


def test_search_proves_a_cost_above_the_bound_of_cliques() -> None:
    """Five equal buffers in a cycle, neighbours with penalty 1: in two slots one pair of neighbours shares bytes."""
    penalties = [[k, (k + 1) % 5, 1] for k in range(5)]
    packed = tmmu.pack(range(0, 50, 10), range(5, 55, 10), [4] * 5, capacity=8, reuse_penalties=penalties)
    assert packed.reuse_cost == packed.reuse_cost_lower_bound == 1


def test_placement_of_the_exhaustive_search_is_used() -> None:
    """The local search ends at cost 5, and the exhaustive search proves that the least cost is 4."""
    rows = [0, 5, 2, 4, 0], [3, 7, 3, 5, 1], [2, 2, 2, 3, 3]
    packed = tmmu.pack(
        *rows,
        alignment=[1, 2, 1, 1, 2],
        capacity=7,
        separations=[[1, 3]],
        colocations=[[2, 4]],
        pinned={2: 0},
        reuse_penalties=[[0, 4, 2], [1, 2, 1], [1, 3, 2], [1, 4, 2], [2, 3, 2], [2, 4, 2], [3, 4, 4]],
    )
    assert packed.reuse_cost == packed.reuse_cost_lower_bound == 4


def test_stopped_search_is_repeated_by_its_node_limit() -> None:
    found, options = instance_of(document(Random(22), (), 9)), {"rounds": 2, "work": 0}
    stopped = plan_problem(found, planner="reuse", options=options, progress=lambda *_: False)
    again = plan_problem(found, planner="reuse", options=stopped.planner_options)
    assert (stopped.arenas[0].reuse_cost, stopped.arenas[0].status) == (21, "unproven")
    assert (again.arenas, again.layout_hash) == (stopped.arenas, stopped.layout_hash)
    assert plan_problem(found, planner="reuse", options=options).arenas[0].reuse_cost == 13


def test_gate_limits_the_sum_of_the_penalties_of_a_pair() -> None:
    packed = tmmu.pack([0, 5], [5, 9], [4, 4], capacity=7, reuse_penalties=[[0, 1, 3], [1, 0, 2]])
    assert packed.reuse_cost == packed.reuse_cost_lower_bound == 5
    assert packed.plan.gate(max_reuse_cost=5)
    assert not packed.plan.gate(max_reuse_cost=4)


def test_pack_keeps_separations_colocations_and_pins() -> None:
    packed = tmmu.pack(
        [0, 4, 8, 12],
        [4, 8, 12, 16],
        [4, 4, 4, 2],
        capacity=16,
        separations=[[0, 1]],
        colocations=[[1, 2]],
        pinned={3: 14},
        reuse_penalties=[[0, 2, 9], [1, 2, 1]],
    )
    offset = [int(at) for at in packed]
    assert offset[1] == offset[2]
    assert offset[3] == 14
    assert abs(offset[0] - offset[1]) >= 4
    assert packed.reuse_cost == packed.reuse_cost_lower_bound == 1


def test_empty_buffer_binds_its_partners_to_one_offset() -> None:
    packed = tmmu.pack([0, 0, 4, 0], [4, 4, 8, 8], [4, 0, 2, 4], colocations=[[0, 1], [1, 2]], pinned={3: 0})
    assert [int(at) for at in packed] == [4, 4, 4, 0]
    assert verify_plan(packed.plan).ok
    for name, at in (("1", 0), ("2", 6)):
        offset = packed.plan.offset.copy()
        offset[packed.plan.row_of[name]] = at
        rules = {finding.rule for finding in verify_plan(replace(packed.plan, offset=offset)).errors}
        assert "constraint" in rules


@pytest.mark.parametrize("relations", [{}, {"colocations": [[1, 2]]}])
def test_pinned_empty_buffer_takes_no_byte_of_the_arena(relations: dict[str, Any]) -> None:
    packed = tmmu.pack([0, 0, 0], [4, 4, 4], [4, 0, 0], capacity=4, pinned={1: 1000}, **relations)
    assert (packed.extent_bytes, packed.optimal, int(packed[1])) == (4, True, 1000)
    assert verify_plan(packed.plan).ok
    with pytest.raises(ContractError, match="1001"):
        tmmu.pack([0, 0], [4, 4], [4, 0], alignment=4, pinned={1: 1001})


def test_empty_buffer_inside_another_is_no_overlap() -> None:
    found = document(Random(0), (), 4)
    for row, size in zip(found["problem"]["buffers"], (4, 0, 2, 2), strict=True):
        row |= {"size": size, "alignment": 1, "live_intervals": [{"lower": 0, "upper": 4}]}
    limits = found["problem"]["constraints"]
    limits["pinned_allocations"] = [{"buffer": k, "pool": 0, "offset": at} for k, at in ((0, 0), (1, 2))]
    limits["temporal_exclusions"] = [{"first": 2, "second": 3}]
    assert verify_plan(plan_problem(instance_of(found), planner="reuse")).ok


def test_end_of_a_pinned_buffer_is_a_recomputed_bound() -> None:
    packed = tmmu.pack([0, 4], [4, 8], [4, 4], pinned={0: 6})
    certificate = verify_plan(packed.plan).arenas[0]
    assert (certificate.status, certificate.lower_bound_bytes, certificate.witness) == ("optimal", 10, ("0",))


def test_exclusion_in_one_pool_leaves_the_bounds_of_the_others() -> None:
    found = document(Random(0), (), 3)
    found["problem"]["pools"].append({"id": 1, "name": "L1", "capacity": None, "reserved_ranges": []})
    for row, size, pool in zip(found["problem"]["buffers"], (2, 3, 4), (1, 1, 1), strict=True):
        row |= {"size": size, "live_intervals": [{"lower": 0, "upper": 4}], "allowed_pools": [pool]}
    for k in (3, 4):
        found["problem"]["buffers"].append(
            {**found["problem"]["buffers"][0], "id": k, "name": f"b{k}", "allowed_pools": [0]}
        )
    found["problem"]["constraints"]["temporal_exclusions"] = [{"first": 3, "second": 4}]
    certificate = verify_plan(plan_problem(instance_of(found), planner="reuse")).arenas[0]
    assert (certificate.name, certificate.status, certificate.proven_bytes) == ("L1", "optimal", None)


def test_two_parts_of_a_buffer_count_once_in_a_witness() -> None:
    found = document(Random(0), (), 1)
    lives = [{"lower": 0, "upper": 2}, {"lower": 4, "upper": 6}]
    found["problem"]["buffers"][0] |= {"size": 4, "alignment": 1, "live_intervals": lives}
    plan = plan_problem(instance_of(found), planner="reuse")
    forged = {"extent_bytes": 8, "lower_bound_bytes": 8, "witness": ("b0", "b0@part1"), "witness_step": 4}
    arena = replace(plan.arenas[0], **forged)
    moved = replace(plan, arenas=(arena,), offset=plan.offset + 4)
    certificate = verify_plan(moved).arenas[0]
    assert (certificate.status, certificate.lower_bound_bytes) == ("claimed", 4)


@pytest.mark.parametrize("kinds", [("intervals",), ("separations",)])
def test_id_of_a_live_part_is_rejected(kinds: tuple[str, ...]) -> None:
    found = document(Random(0), kinds, 2)
    found["problem"]["buffers"][1]["name"] = "b0@part1"
    with pytest.raises(ContractError, match=r"'b0@part1'.*'b0'"):
        plan_problem(instance_of(found), planner="reuse")
    found["problem"]["buffers"][0]["name"] = "other"
    assert verify_plan(plan_problem(instance_of(found), planner="reuse")).ok


def test_penalty_between_parts_of_two_colocations_is_avoided() -> None:
    """The conflict of other members of the two units does not separate the pair with the penalty."""
    packed = tmmu.pack(
        [0, 4, 0, 8],
        [4, 8, 4, 12],
        [5, 3, 1, 9],
        colocations=[[0, 1], [2, 3]],
        pinned={0: 4},
        reuse_penalties=[[1, 3, 5]],
        capacity=20,
    )
    assert packed.reuse_cost == packed.reuse_cost_lower_bound == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"separations": [[0, 1]], "colocations": [[0, 1]]}, "'1'"),
        ({"separations": [[0, 1]], "pinned": {0: 2, 1: 4}}, "'0' at 2.*'1' at 4"),
        ({"colocations": [[0, 1]], "pinned": {0: 2, 1: 4}}, "'1' at 4.*at 2"),
        ({"colocations": [[0, 1]], "pinned": {0: 3}}, "'1' is at 3.*alignment 2"),
    ],
)
def test_contradicting_constraints_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        tmmu.pack([0, 4], [4, 8], [4, 4], alignment=[1, 2], reuse_penalties=[[0, 1, 1]], **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"separations": [[0, 1], [0, 2]]}, r"row 1 of separations, \[0, 2\], names a buffer that does not exist"),
        ({"colocations": [[1, 1]]}, "pairs a buffer with itself"),
        ({"reuse_penalties": [[0, 1, -1]]}, "has a negative cost"),
        ({"separations": 5}, r"shape \(\)"),
        ({"separations": [[0, 1], [0, 2**63]]}, "row 1 of separations contains 9,223,372,036,854,775,808, beyond"),
        ({"pinned": {0: 1.5}}, "pinned.* 0: 1.5"),
        ({"pinned": {0: -2}}, "buffers from 0 to 1, bytes from 0 to"),
        ({"pinned": {"a": 0}}, "pinned.* 'a': 0"),
        ({"pinned": np.zeros(2, np.int64)}, "not a mapping"),
        ({"separations": [[0, 1], [1]]}, "rows of separations have different lengths"),
        ({"alignment": np.ma.array([1, 2], mask=[0, 1])}, "alignment has masked values"),
        ({"capacity": float("inf")}, "capacity: inf is not a number of bytes"),
    ],
)
def test_pack_names_the_wrong_relation(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UnreadableInput) as caught:
        tmmu.pack([0, 4], [4, 8], [4, 4], **given)
    assert re.search(message, f"{caught.value.message}\n{caught.value.hint}")


def test_contradicting_or_unknown_parts_of_a_document_are_rejected() -> None:
    pins = [{"buffer": 0, "pool": 0, "offset": at} for at in (0, 2)]
    for place, value, message in (
        ("pinned_allocations", pins, "buffer 0 is pinned at 0 and at 2"),
        ("separation", [], "'separation'"),
    ):
        found = document(Random(1), ())
        found["problem"]["constraints"][place] = value
        with pytest.raises(UnreadableInput, match=message):
            instance_of(found)
    found["problem"] |= {"constraints": {}, "pools": [{**found["problem"]["pools"][0]}]}
    found["problem"]["pools"][0]["reserved_ranges"] = [{"begin": 4, "end": 3}]
    with pytest.raises(UnreadableInput) as caught:
        instance_of(found)
    assert "reserved_ranges[0]" in caught.value.place


def test_plan_file_keeps_constraints_and_cost(tmp_path: Any) -> None:
    plan = next(plans(("separations", "pinned_allocations")))
    path = tmp_path / "plan.json"
    path.write_bytes(to_json(plan))
    again = tmmu.read(path)
    assert isinstance(again, Plan)
    assert again.constraints == plan.constraints
    assert again.arenas == plan.arenas


@pytest.mark.parametrize("digest", [False, True])
def test_plan_with_reuse_cost_is_identical_to_its_trace(digest: bool) -> None:
    plan = next(plan for plan in plans(("separations", "pinned_allocations")) if plan.arenas[0].reuse_cost)
    found = read_any(trace.to_json_lines(plan, digest=digest))
    assert isinstance(found, trace.Trace)
    assert found.plan.constraints == plan.constraints
    assert digest or verify_plan(found.plan).ok
    assert tmmu.compare(plan, found).identical


def test_instance_with_temporal_exclusions_is_not_written() -> None:
    plan = next(plans(("temporal_exclusions",)))
    with pytest.raises(UnreadableInput, match="the arena 'UB' has temporal exclusions"):
        to_instance(plan)


@pytest.mark.parametrize("planner", sorted(ARENA_PLANNERS))
def test_no_planner_ignores_a_constraint(planner: str) -> None:
    """A planner observes the constraints of an instance, or refuses it."""
    for seed in range(30):
        rng = Random(seed)
        found = instance_of(document(rng, tuple(kind for kind in KINDS if rng.random() < 0.5)))
        try:
            plan = make_plan(found, PlanRequest(planner=planner)).plan
        except ContractError:
            continue
        assert verify_plan(plan).ok
