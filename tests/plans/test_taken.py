"""In-place reuse that is granted and not taken: every figure counts the input while it is read (contract §11)."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from tests.support.build import chain, graph, node, tensor
from tests.support.same_plan import same_plan
from tests.support.simulator import differences, simulate
from tests.support.strategies import Case, plannable_cases
from tmmu_core.formats.planfile import plan_file
from tmmu_core.formats.planfile.plan_file import checkpoint, restore
from tmmu_core.formats.planfile.trace import read_trace, to_json_lines
from tmmu_core.graph.model import Graph
from tmmu_core.judge.verifier.verify import verify_plan
from tmmu_core.liveness.why_live import explain
from tmmu_core.plans.analysis.waste_ledger import ACCOUNTS, waste_ledger
from tmmu_core.plans.figures import metrics
from tmmu_core.plans.figures.live_bytes import alive_at, live_bytes, peak_and_count, storages_of
from tmmu_core.plans.making.engine import Solution, plan_graph
from tmmu_core.plans.model import Plan
from tmmu_core.runtime.apply import apply_plan

KIB = 1024


def elsewhere(floats: int) -> Graph:
    """Return ``a → n0``, ``b → n1 → c``; a and b are dead when c is written, and the larger one has slot 0."""
    tensors = [tensor("a", floats, "input"), tensor("b", KIB // 4, "input"), tensor("c", KIB // 4)]
    return graph(tensors, [node("n0", "a", ""), node("n1", "b", "c")], "a b", "c")


@pytest.fixture(scope="module")
def solution() -> Solution:
    """Return a plan in which c has slot 0, that of a, although it may reuse the slot of b."""
    return plan_graph(elsewhere(KIB // 4 + 1))


def test_ranges_and_slots_are_those_of_the_grant(solution: Solution) -> None:
    plan = solution.plan
    assert plan.handoffs == ((2, "b", "c"),)
    assert plan.taken == (False,)
    assert [(row.tensor_id, row.logical_slot, row.birth, row.death) for row in plan.rows()] == [
        ("a", 0, 0, 2),
        ("b", 1, 0, 2),
        ("c", 0, 2, 3),
    ]


def test_giver_counts_at_the_step_that_reads_it(solution: Solution) -> None:
    plan = solution.plan
    assert live_bytes(plan, "activations").tolist() == [2 * KIB + 4, 2 * KIB + 4, 2 * KIB]
    assert [plan.tensor_ids[row] for row in alive_at(plan, 2)] == ["b", "c"]
    ledger = waste_ledger(plan, "activations")
    assert ledger.at(2)["live"] == 2 * KIB
    assert all(sum(ledger.at(step).values()) == ledger.extent for step in range(plan.steps))


def test_taker_at_another_offset_is_zeroed(solution: Solution) -> None:
    applied = apply_plan(solution.plan)
    applied.array("a")[:] = 7
    applied.array("b")[:] = 9
    assert applied.enter(2) == KIB
    assert not applied.array("c").any()
    assert (applied.array("b") == 9).all()
    assert applied.is_bound("b", 2)


def test_bytes_beyond_the_giver_are_zeroed() -> None:
    plan = plan_graph(graph([tensor("x", 4, "input"), tensor("y", 8)], [node("n", "x", "y")], "x", "y")).plan
    applied = apply_plan(plan)
    applied.array("y")[:] = 7
    assert plan.taken == (True,)
    assert applied.enter(1) == 16
    assert applied.array("y").tolist() == [7] * 16 + [0] * 16


def test_explanation_does_not_claim_reuse(solution: Solution) -> None:
    assert explain(solution.liveness, "b").reason.endswith(
        "could be overwritten in place by c, but c has its own memory"
    )


def as_the_first_version(plan: Plan) -> bytes:
    """Return the plan file as the first version wrote it."""
    document = msgspec.json.decode(plan_file.to_json(plan))
    for handoff in document["handoffs"]:
        del handoff["taken"]
    del document["metrics"]["totals"]
    as_then = storages_of(replace(plan, taken=(True,) * len(plan.taken)))
    for number, (name, arena) in enumerate(sorted(document["arenas"].items())):
        here = as_then.arena == number
        columns = (as_then.birth[here], as_then.death[here], as_then.size[here])
        arena["peak_live_bytes"], arena["max_live"] = peak_and_count(*columns, plan.end)
        document["metrics"]["peak_tmmu_usage_per_arena"][name] = arena["peak_live_bytes"]
    peak = document["metrics"]["peak_live_bytes"] = sum(a["peak_live_bytes"] for a in document["arenas"].values())
    document["metrics"]["max_live"] = sum(a["max_live"] for a in document["arenas"].values())
    extent = document["metrics"]["extent_bytes"]
    document["metrics"]["internal_fragmentation_ratio"] = metrics.ratio(extent - peak, extent)
    return msgspec.json.encode(document)


def test_file_of_the_first_version_is_read_with_current_figures(solution: Solution) -> None:
    again = plan_file.from_document(as_the_first_version(solution.plan))
    assert same_plan(solution.plan, again) == ()
    assert again.taken == (False,)
    assert verify_plan(again, solution.graph).ok


def test_every_file_keeps_what_is_taken(solution: Solution) -> None:
    plan = solution.plan
    others = [
        plan_file.from_document(plan_file.to_cbor(plan)),
        read_trace(to_json_lines(plan)).plan,
        restore(checkpoint(plan, solution.liveness)),
    ]
    assert [other.taken for other in others] == [(False,)] * 3
    assert [same_plan(plan, other) for other in others] == [()] * 3


def test_verifier_compares_offsets_and_not_the_flag(solution: Solution) -> None:
    assert "handoff" in {f.rule for f in verify_plan(replace(solution.plan, taken=(True,))).errors}


@settings(deadline=None, max_examples=15)
@given(plannable_cases())
def test_simulator_agrees_and_ledgers_sum_to_the_extent(case: Case) -> None:
    plan = plan_graph(case.graph, **case.arguments()).plan
    assert list(differences(plan, simulate(case.graph, **case.arguments()))) == []
    for arena in plan.arenas:
        ledger = waste_ledger(plan, arena.name)
        total = sum(getattr(ledger, account) for account in ACCOUNTS)
        assert (total == np.uint64(arena.extent_bytes)).all()


def test_totals_are_those_of_one_step() -> None:
    """Activations and gradients have their peaks at different steps."""
    tensors = [tensor("x", 4, "input"), tensor("h", 64), tensor("y", 4), tensor("g", 64, "gradient"), tensor("z", 4)]
    kept = {"inplace": "none"}
    nodes = [node("n0", "x", "h", **kept), node("n1", "h", "y", **kept), node("n2", "y", "g", **kept)]
    plan = plan_graph(graph(tensors, [*nodes, node("n3", "g", "z", **kept)], "x", "z")).plan
    peaks = [arena.peak_live_bytes for arena in plan.arenas]
    totals = plan.metrics["totals"]
    assert (peaks, totals["peak_live_bytes"], totals["peak_step"]) == ([272, 256], 272, 1)
    assert totals["extent_bytes"] == sum(arena.extent_bytes for arena in plan.arenas)
    assert totals["lower_bound_bytes"] == sum(arena.lower_bound_bytes or 0 for arena in plan.arenas)
    assert plan.metrics["peak_live_bytes"] == totals["peak_live_bytes"]


def test_wrong_total_is_found() -> None:
    plan = plan_graph(chain(3)).plan
    for name, number in plan.metrics["totals"].items():
        wrong = {**plan.metrics, "totals": {**plan.metrics["totals"], name: number + 1}}
        assert {f.rule for f in verify_plan(replace(plan, metrics=wrong)).errors} == {"figures"}
