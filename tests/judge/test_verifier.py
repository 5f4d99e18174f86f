"""The rules of the verifier, each on a plan that is wrong in one way."""

import re
from dataclasses import replace
from time import process_time

import numpy as np
import pytest

from tests.judge.faults import changed, refigured, rehashed
from tests.support.build import chain, graph, node, residual, tensor, view
from tmmu_core.graph.model import ROLES, Dim, Graph, Node, Tensor, View
from tmmu_core.judge.verifier.check_bytes import check_sparse_addresses
from tmmu_core.judge.verifier.row_columns import PlanFacts
from tmmu_core.judge.verifier.verify import RULES, verify_plan
from tmmu_core.plans.making.engine import plan_graph
from tmmu_core.plans.model import Plan


def rules(plan: Plan, g: Graph | None = None, **how: object) -> set[str]:
    return {finding.rule for finding in verify_plan(plan, g, **how).errors}  # type: ignore[arg-type]


def test_valid_plan_verifies_with_and_without_its_graph() -> None:
    g = residual()
    plan = plan_graph(g).plan
    assert verify_plan(plan).ok
    assert str(verify_plan(plan, g)) == "verified"


def test_rules_that_need_the_graph_are_listed_as_unchecked() -> None:
    plan = plan_graph(residual()).plan
    alone, against, other = (verify_plan(plan, g) for g in (None, residual(), chain(2)))
    assert against.checked == tuple(rule for rule in RULES if rule not in ("numbering", "sparse_address"))
    assert dict(alone.not_checked)["dead_access"] == "no graph was given"
    assert dict(other.not_checked)["dead_access"] == "the plan is of another graph"
    assert dict(against.not_checked) == dict.fromkeys(("numbering", "sparse_address"), "the planner places slots")


def test_overlapping_tensors_are_both_named() -> None:
    plan = plan_graph(residual()).plan
    a, b = plan.row_of["a"], plan.row_of["b"]
    slot, offset = int(plan.logical_slot[a]), int(plan.offset[a])
    merged = rehashed(refigured(changed(changed(plan, "logical_slot", b, slot), "offset", b, offset)))
    (finding,) = [f for f in verify_plan(merged).errors if f.rule == "overlap"]
    assert {finding.tensor, finding.other} == {"a", "b"}
    assert finding.step == 2


def test_range_that_ends_before_its_last_read_is_a_dead_access() -> None:
    g = residual()
    plan = plan_graph(g).plan
    short = rehashed(refigured(changed(plan, "death", plan.row_of["x"], 4)))
    assert {"dead_access", "live_range"} <= rules(short, g)
    (finding,) = [f for f in verify_plan(short, g).errors if f.rule == "dead_access"]
    assert (finding.tensor, finding.step) == ("x", 4)


def two_residents() -> Graph:
    return graph([tensor("v", role="parameter"), tensor("w", role="parameter")], [])


def test_slots_of_an_unknown_planner_must_be_prefix_sums() -> None:
    for planner in ("slots", "unheard of"):
        plan = replace(plan_graph(two_residents()).plan, planner=planner)
        assert plan.offset.tolist() == [0, 128]
        assert rules(rehashed(refigured(changed(plan, "offset", 1, 256)))) == {"slot_offset"}


def test_storages_placed_by_bytes_are_numbered_by_offset() -> None:
    plan = replace(plan_graph(two_residents()).plan, planner="mine", places="bytes")
    swapped = replace(plan, logical_slot=np.array([1, 0], np.int64), storage=np.array([1, 0], np.int64))
    assert rules(rehashed(swapped)) == {"numbering"}
    assert rules(replace(plan_graph(chain(3)).plan, places="bytes")) >= {"numbering"}  # slots with several tenants


def test_bytes_need_no_prefix_sums() -> None:
    plan = replace(plan_graph(two_residents()).plan, planner="mine", places="bytes")
    assert rules(rehashed(refigured(changed(plan, "offset", 1, 256)))) == set()
    assert dict(verify_plan(plan).not_checked)["slot_offset"] == "the planner places bytes"


def two_step_bytes(offset_of_b: int, size_of_b: int) -> tuple[Graph, Plan]:
    """Return a plan of ``a → n → b`` in bytes: b may reuse a in place, and is at ``offset_of_b``."""
    tensors = [tensor("a", 64, "input"), tensor("b", size_of_b // 4), tensor("c", 64, "input")]
    g = graph(tensors, [node("n", "a", "b"), node("m", "b c", "")], "a c")
    plan = plan_graph(g, arenas={"activations": {"alignment_bytes": 1}}).plan
    place = {"a": 0, "b": offset_of_b, "c": 512}
    slot = {"a": 0, "b": 1, "c": 2} if offset_of_b < 512 else {"a": 0, "c": 1, "b": 2}
    return g, rehashed(
        refigured(
            replace(
                plan,
                planner="mine",
                places="bytes",
                offset=np.array([place[name] for name in plan.tensor_ids], np.uint64),
                logical_slot=np.array([slot[name] for name in plan.tensor_ids], np.int64),
                generation=np.zeros(3, np.int64),
            )
        )
    )


def test_partial_handoff_is_an_overlap() -> None:
    g, plan = two_step_bytes(64, 128)
    assert {"overlap", "handoff"} <= rules(plan, g)


def test_taker_may_exceed_the_giver_into_free_bytes_only() -> None:
    for size in (256, 512):
        g, plan = two_step_bytes(0, size)
        assert (plan.handoffs, plan.taken) == (((1, "a", "b"),), (True,))
        assert verify_plan(plan, g).ok
    g, plan = two_step_bytes(0, 516)  # its last four bytes are those of c
    assert "overlap" in rules(plan, g)


@pytest.mark.parametrize("offset", [0, 256])
def test_wrong_taken_flag_of_a_handoff_is_found(offset: int) -> None:
    g, plan = two_step_bytes(offset, 256)
    assert plan.taken == (offset == 0,)
    assert "handoff" in rules(replace(plan, taken=(offset != 0,)), g)


def test_handoff_that_its_node_forbids_is_found() -> None:
    plan = plan_graph(chain(2)).plan
    assert "illegal_handoff" in rules(plan, chain(2, "none"))


def test_view_at_a_wrong_offset_of_its_storage_is_found() -> None:
    g = graph([tensor("x", 8, "input"), view("v", "x", 4, 16), tensor("y")], [node("n", "v", "y")], "x", "y")
    plan = plan_graph(g).plan
    row = plan.row_of["v"]
    assert "address" in rules(rehashed(changed(plan, "offset", row, int(plan.offset[row]) - 4)), g)
    in_two_slots = verify_plan(changed(plan, "logical_slot", row, 7)).findings
    assert ("v", "x") in [(finding.tensor, finding.other) for finding in in_two_slots if finding.rule == "storage"]


def test_must_not_alias_storages_in_one_slot_are_found() -> None:
    apart = graph([tensor("x", role="input"), tensor("y", must_not_alias=("x",))], [node("n", "x", "y")], "x", "y")
    free = graph([tensor("x", role="input"), tensor("y")], [node("n", "x", "y")], "x", "y")
    found = [f for f in verify_plan(plan_graph(free).plan, apart).findings if f.rule == "must_not_alias"]
    assert [(f.tensor, f.other) for f in found] == [("x", "y")]


def test_slots_over_the_maximum_of_live_storages_are_found() -> None:
    nodes = [node("n0", "x", "a", inplace="none"), node("n1", "a", "b", inplace="none")]
    free = graph([tensor("x", role="input"), tensor("a"), tensor("b")], nodes, "x", "b")
    apart = graph([tensor("x", role="input"), tensor("a"), tensor("b", must_not_alias=("x",))], nodes, "x", "b")
    plan = plan_graph(apart).plan
    assert [finding.rule for finding in verify_plan(plan, apart).findings] == ["slots_over_optimal"]
    assert "slots_max_live" in rules(plan, free)


def test_plan_of_another_graph_is_found() -> None:
    assert "graph" in rules(plan_graph(chain(3)).plan, chain(4))
    assert "graph" in rules(plan_graph(chain(3)).plan, chain(3, floats=8))


def test_capacity_is_compared_with_the_configuration() -> None:
    arenas = {"activations": {"capacity_bytes": 4096}}
    plan = plan_graph(chain(3), arenas=arenas).plan
    assert verify_plan(plan, arenas=arenas).ok
    assert rules(plan, arenas={"activations": {"capacity_bytes": 8192}}) == {"hash", "configuration"}


def test_named_dimensions_are_read_from_the_plan() -> None:
    tensors = Tensor("x", ("B", 4), role="input"), Tensor("y", ("B", 4))
    g = Graph(tensors, (node("n", "x", "y"),), ("x",), ("y",), dims={"B": Dim(1, 8)})
    plan = plan_graph(g, dims={"B": 3}).plan
    assert verify_plan(plan, g).ok
    assert "tensors" in rules(plan, g, dims={"B": 4})


@pytest.mark.parametrize("column", ["offset", "birth", "storage"])
def test_columns_of_different_lengths_end_the_verification(column: str) -> None:
    plan = plan_graph(chain(2)).plan
    verdict = verify_plan(replace(plan, **{column: getattr(plan, column)[:-1]}))
    assert {finding.rule for finding in verdict.findings} == {"columns"}


@pytest.mark.parametrize(("nodes", "omitted"), [(200, "[0-9]+ more findings"), (50, "1 more finding")])
def test_findings_of_a_rule_are_limited_to_fifty(nodes: int, omitted: str) -> None:
    plan = plan_graph(chain(nodes, "none")).plan
    verdict = verify_plan(replace(plan, alignment=np.full(len(plan), 48, np.uint64)))
    findings = [finding for finding in verdict.findings if finding.rule == "alignment"]
    assert len(findings) == 51
    assert re.fullmatch(f"… and {omitted} of this rule.", findings[-1].message)


@pytest.mark.slow
def test_verification_of_nested_views_takes_linear_time() -> None:
    n = 30_000
    views = [Tensor(f"v{k}", (4,), "int8", view=View(f"v{k - 1}" if k else "x")) for k in reversed(range(n))]
    tensors = (Tensor("x", (4,), "int8", "input"), Tensor("y", (4,), "int8"), *views)
    graph = Graph(tensors=tensors, nodes=(Node("n", inputs=(f"v{n - 1}",), outputs=("y",)),), inputs=("x",))
    plan, began = plan_graph(graph).plan, process_time()
    assert verify_plan(plan, graph).ok
    assert process_time() - began < 30


@pytest.mark.slow
def test_hundred_thousand_rows_are_swept() -> None:
    n = 100_000
    rng = np.random.default_rng(1)
    birth = np.sort(rng.integers(0, n // 8, n))
    plan = plan_graph(chain(1)).plan
    lanes = rng.integers(0, 64, n)
    big = replace(
        plan,
        planner="mine",
        places="bytes",
        tensor_ids=tuple(f"t{i:06}" for i in range(n)),
        arena=np.zeros(n, np.int32),
        logical_slot=np.lexsort((birth, lanes)).argsort(),
        offset=(lanes * 128).astype(np.uint64),
        size=np.full(n, 128, np.uint64),
        alignment=np.full(n, 128, np.uint64),
        birth=birth,
        death=birth + 1,
        generation=np.zeros(n, np.int64),
        storage=np.lexsort((birth, lanes)).argsort(),
        roles=("activation",) * n,
        dtypes=("uint8",) * n,
        shapes=((128,),) * n,
        alias_group_ids=(None,) * n,
        base_tensor_uids=(None,) * n,
        handoffs=(),
        steps=n + 1,
        execution_order=(),
    )
    big = replace(big, arenas=(replace(big.arenas[0], alignment_bytes=128),))
    at = np.lexsort((birth, lanes))
    crowded = int(((birth[at][1:] == birth[at][:-1]) & (lanes[at][1:] == lanes[at][:-1])).sum())
    findings = [f for f in verify_plan(rehashed(refigured(big))).findings if f.rule == "overlap"]
    assert crowded > 0
    assert len(findings) == min(crowded, 51)


@pytest.mark.parametrize("grid", [0, -1, 3, 96])
def test_arena_alignment_must_be_a_power_of_two(grid: int) -> None:
    plan = plan_graph(chain(2)).plan
    assert "alignment" in rules(replace(plan, arenas=(replace(plan.arenas[0], alignment_bytes=grid),)))


@pytest.mark.parametrize(("x", "y"), [("z", "y"), ("x", "w"), ("x", "y")])
def test_second_handoff_of_a_place_is_found(x: str, y: str) -> None:
    tensors = [tensor("x", role="input"), tensor("z", role="input"), tensor("y"), tensor("w", role="input")]
    plan = plan_graph(graph(tensors, [node("n", "x z", "y")], "x z w", "y")).plan
    assert list(plan.handoffs) == [(1, "x", "y")]
    twice = replace(plan, handoffs=((1, "x", "y"), (1, x, y)), taken=(True, False))
    found = [(f.tensor, f.other) for f in verify_plan(twice).findings if "of an earlier reuse" in f.message]
    assert found == [(x, y)]


def test_every_row_is_compared_with_the_graph() -> None:
    plan = plan_graph(chain(2, "none")).plan
    other = replace(plan, tensor_ids=("nobody", *plan.tensor_ids[1:]), dtypes=(*plan.dtypes[:-1], "int8"))
    found = [f.tensor for f in verify_plan(rehashed(other), chain(2, "none")).findings if f.rule == "tensors"]
    assert found == ["t0", "nobody", "t2"]


@pytest.mark.parametrize("pair", [("t0", "nobody"), ("nobody", "t1"), ("nobody", "nothing")])
def test_handoff_of_a_tensor_without_a_row_is_found(pair: tuple[str, str]) -> None:
    plan = replace(plan_graph(chain(2)).plan, handoffs=((1, *pair),), taken=(True,))
    found = [(f.tensor, f.other, f.step) for f in verify_plan(plan).findings if f.rule == "handoff"]
    assert (*pair, 1) in found


@pytest.mark.parametrize("bits", [None, 0, 65, "48", 48.0])
def test_hashed_addresses_need_a_number_of_bits(bits: object) -> None:
    plan = plan_graph(chain(2)).plan
    found = list(check_sparse_addresses(PlanFacts(replace(plan, notes={"addressing": {"bits": bits}}))))
    assert [finding.rule for finding in found] == ["sparse_address"]


def test_giver_that_outlives_its_handoff_overlaps_its_taker() -> None:
    plan = plan_graph(chain(2)).plan
    assert verify_plan(plan).ok
    late = changed(plan, "death", plan.row_of["t0"], 3)
    assert "overlap" in rules(late)


@pytest.mark.parametrize(("number", "amiss"), [(-1, True), (0, False), (1, False), (2, True), (7, True)])
def test_row_in_an_unknown_arena_is_found(number: int, amiss: bool) -> None:
    g = graph([tensor("w", role="parameter"), tensor("y")], [node("n", "w", "y")], "", "y")
    plan = plan_graph(g).plan
    assert len(plan.arenas) == 2
    moved = changed(plan, "arena", plan.row_of["y"], number)
    assert any((f.rule, f.tensor) == ("columns", "y") for f in verify_plan(moved).findings) == amiss


def test_unlinked_tensors_in_one_storage_are_found() -> None:
    """The rows have one storage number and one slot, without a view, alias group or in-place write."""
    plan = plan_graph(chain(4, "none")).plan
    a, b = plan.row_of["t0"], plan.row_of["t4"]
    assert plan.logical_slot[a] == plan.logical_slot[b]
    together = [plan.storage[a if row == b else row] for row in range(len(plan))]
    generation = np.where(np.arange(len(plan)) == b, plan.generation[a], plan.generation)
    joined = replace(plan, storage=np.unique(together, return_inverse=True)[1], generation=generation)
    unlinked = {("t4", "t0"), ("t0", "t4")}
    assert any(f.rule == "storage" and (f.tensor, f.other) in unlinked for f in verify_plan(joined).findings)
    # A view whose base has no row may be linked to any other row.
    bases = tuple("gone" if row == b else None for row in range(len(plan)))
    looking = replace(joined, base_tensor_uids=bases)
    assert not any(f.rule == "storage" and (f.tensor, f.other) in unlinked for f in verify_plan(looking).findings)


@pytest.mark.parametrize("mode", ["inference", "forward", "backward"])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("handed_out", [False, True])
def test_graph_without_nodes_is_planned_and_verified(mode: str, role: str, handed_out: bool) -> None:
    for inputs in ((), ("x",)):
        ir = Graph((Tensor("x", (4,), role=role),), (), inputs=inputs, outputs=("x",) if handed_out and inputs else ())
        solution = plan_graph(ir, mode=mode)
        assert verify_plan(solution.plan, ir).findings == ()
        assert "graph" in rules(replace(solution.plan, has_inputs_step=not inputs), ir)
